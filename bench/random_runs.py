#!/usr/bin/env python3
"""Runs random programs on opaque devices whose queues have threads with random delays, and on
opaque devices next to a CPU. Each result must have the interpreter's bits.

    bench/random_runs.py build/tests/opaque/random_graphs_opaque_test [--programs 10000] [--jobs 2]
                         [--part 250] [--patience 900]

Runs the programs in parts, each in a process with a seed of its own for the delays. A part that
takes longer than the patience, in seconds, counts as hanging. Prints the end of the output of each
part that fails, then the counts. Exits with 1 if one failed.
"""

import argparse
import concurrent.futures
import os
import subprocess
import sys
import time

KINDS = {
    "one device": ("RandomGraphs.RunAsTheInterpreterDoes", {}),
    "several devices": ("RandomGraphs.OnSeveralDevicesRunAsTheInterpreterDoes", {}),
    "beside a CPU": ("RandomGraphs.OnSeveralDevicesRunAsTheInterpreterDoes",
                     {"SLUICE_OPAQUE_MIXED": "1"}),
}


def run(options, kind, first, count):
    """Returns an empty text if the part passes, else what was wrong."""
    case, more = KINDS[kind]
    environment = {**os.environ, **more, "SLUICE_OPAQUE": "threads",
                   "SLUICE_OPAQUE_SEED": str(first + 1), "SLUICE_SEED": str(first),
                   "SLUICE_GRAPHS": str(count)}
    try:
        done = subprocess.run([options.program, f"--gtest_filter={case}"], env=environment,
                              timeout=options.patience, capture_output=True, text=True,
                              check=False)
    except subprocess.TimeoutExpired:
        return f"hangs: not finished after {options.patience} s"
    if done.returncode == 0 and "[  PASSED  ] 1 test." in done.stdout:
        return ""
    return f"exit {done.returncode}\n" + "\n".join((done.stdout + done.stderr).splitlines()[-30:])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--programs", type=int, default=10000, help="of each kind")
    parser.add_argument("--part", type=int, default=250)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--patience", type=int, default=900)
    options = parser.parse_args()
    begin = time.monotonic()
    failed = {kind: 0 for kind in KINDS}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        parts = {}
        for kind in KINDS:
            for first in range(0, options.programs, options.part):
                count = min(options.part, options.programs - first)
                parts[pool.submit(run, options, kind, first, count)] = (kind, first)
        for part in concurrent.futures.as_completed(parts):
            kind, first = parts[part]
            if part.result():
                failed[kind] += 1
                print(f"{kind}, programs from seed {first}: {part.result()}", flush=True)
    for kind, count in failed.items():
        print(f"{kind}: {options.programs} programs, {count} parts failed")
    print(f"{time.monotonic() - begin:.0f} s")
    return 1 if any(failed.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
