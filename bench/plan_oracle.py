#!/usr/bin/env python3
"""Detects changes of compiled programs. Records them for one build and compares another build with
the record: canonical plans, peaks, numbers of steps, traffic, compile seconds and digests of short
runs. The rows are those of the equality matrix, some rows without each optional pass, and command
lines with options that the matrix does not use.

    bench/plan_oracle.py record build/bin/sluice FILE --sample [--random N [--seed S]] [--opaque]
                         [--rows N]
    bench/plan_oracle.py compare build/bin/sluice FILE [--may-change phased,...]
                         [--max-compile-ratio R]
                         both: [--only TEXT] [--plans-only] [--graphs RANDOM_PLANS] [--jobs 1]

`record` chooses rows as equality_matrix.py does. `compare` runs the command lines that the record
holds, so a new row or option of the matrix needs no new record. The canonical text of a plan has no
provenance (plan_text.py).

A row fails if its plan or its digest changed, if the program refuses it, or if a figure grew. The
figures are the bytes of each memory, the steps of the plan, and the steps, transfers, messages,
collectives, operand bytes and flops of a run. Plans of the strategies of `--may-change` may change,
but their figures may not grow. Compile seconds are printed as ratios, and fail only above
`--max-compile-ratio`. `compare` prints each row that changed, the differences of the first plans
that fail, and the counts. It exits with 1 if a row fails.

Plans depend on the instruction set: record and compare on one machine.
"""

import argparse
import collections
import concurrent.futures
import difflib
import gzip
import hashlib
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from equality_matrix import MatrixRow, add_row_options, chosen_rows, name, prepare
from plan_text import canonical

VERSION = 1  # Format of the record.
# Rows that run with each optional pass disabled.
DISABLED_ROWS = [
    MatrixRow("gelu", 1, threads=2),
    MatrixRow("relu with dropout", 2, offload="optimizer", io_mode="io_overlapped", threshold=512),
    MatrixRow("gelu", 2, strategy="phased", offload="optimizer", tier="file", threads=2,
              threshold=512),
    MatrixRow("relu with dropout", 1, strategy="phased", recompute=True),
    MatrixRow("batch norm", 2, "running mean in f16", strategy="phased", offload="all",
              io_mode="io_overlapped"),
    MatrixRow("skips, two losses and a tied weight", 2, strategy="interleaved", stages=2,
              offload="usual", threshold=0),
    MatrixRow("gelu", 1, "sum in bf16", strategy="sharded", stages=2, offload="accumulators"),
]
# Command lines with options that the matrix does not use.
OTHERS = {
    "three io queues": [
        "mlp", "--layers", "5", "--strategy", "phased", "--offload",
        "optimizer,weights,activations", "--io-mode", "io_overlapped", "--io-queues", "3",
        "--optimizer", "lamb", "--accumulate", "4"
    ],
    "one file past the page cache, checked": [
        "mnist", "--offload", "optimizer", "--optimizer", "adam-f16", "--remote", "file:{disk}",
        "--remote-direct", "--verify-remote"
    ],
    "clipped momentum": [
        "mnist", "--optimizer", "momentum", "--clip-norm", "1", "--accumulate", "2", "--offload",
        "none"
    ],
    "large": [
        "mlp", "--layers", "6", "--width", "512", "--micro-batch", "64", "--optimizer", "adamw",
        "--offload", "none"
    ],
    "a learning rate for each step, some blocks recomputed": [
        "mlp", "--layers", "5", "--lr-schedule", "cosine", "--recompute-blocks", "fc.1,fc.2",
        "--offload", "activations", "--offload-threshold", "512"
    ],
    "two updates a call, the sum of their results": [
        "mlp", "--layers", "4", "--strategy", "pipelined", "--stages", "2", "--accumulate", "4",
        "--device-iterations", "2", "--output-mode", "sum"
    ],
    "document 003": ["mnist-rts", "--offload", "optimizer", "--micro-batch", "4"],
    "document 002": [
        "mnist-cnn", "--strategy", "pipelined", "--micro-batch", "4", "--device-iterations", "2"
    ],
    "document 000": ["mnist-phased", "--strategy", "phased"],
}
SEEDS = 300
CHUNK = 50
SHOWN = 5  # Changed plans whose differences are printed.


def spread(rows, count):
    """Returns `count` rows, each with the maximum number of values that no earlier row has."""
    chosen, seen = [], set()
    for _ in range(min(count, len(rows))):
        chosen.append(max((row for row in rows if row not in chosen),
                          key=lambda row: len(set(enumerate(row)) - seen)))
        seen |= set(enumerate(chosen[-1]))
    return chosen


def command(row, *flags):
    """Returns the arguments of `sluice train` for a row, and its environment.

    Folders are {data} and {disk}.
    """
    return [*row.command("{data}", "{disk}"), *flags], row.environment()


def optional_passes(program):
    """Returns the names of the compiler's optional passes, which a wrong name is refused with."""
    done = subprocess.run([program, "plan", "mnist", "--disable", "?"], capture_output=True,
                          text=True)
    return re.search(r"must be optional passes of (.*), got", done.stderr)[1].split(", ")


def without_passes(passes):
    return {f"{name(row)}, without {off}": command(row, "--disable", off)
            for row in DISABLED_ROWS for off in passes}


def others():
    more = ["--data", "{data}", "--steps", "2", "--threads", "2", "--digest", "--log-level",
            "error"]
    return {title: ([*arguments, *more], {}) for title, arguments in OTHERS.items()}


def commands(options):
    """Returns the command lines of a new record: title -> (arguments, environment)."""
    rows = chosen_rows(options)
    if options.rows:
        return {name(row): command(row) for row in spread(rows, options.rows)}
    passes = optional_passes(options.program)
    return {name(row): command(row) for row in rows} | without_passes(passes) | others()


def strategy_of(arguments):
    if "--strategy" not in arguments:
        return "resident"
    return arguments[arguments.index("--strategy") + 1]


def of_plan(arguments):
    """Returns the arguments of `sluice plan` for those of `sluice train`."""
    result = [a for a in arguments if a != "--digest"]
    for flag in ("--steps", "--log-level", "--data"):
        at = result.index(flag)
        del result[at:at + 2]
    return result


def steps_run(report, start):
    """Returns the number of steps that a function runs. Both arms of a branch count."""
    known = {}

    def count(function):
        if function not in known:
            table = report["functions"][function]["steps"]
            calls, trips = (table["columns"].index(key) for key in ("calls", "trips"))
            known[function] = sum(1 + max(step[trips], 1) * sum(map(count, step[calls]))
                                  for step in table["rows"])
        return known[function]

    return count(start)


def figures_of(report):
    """Returns the figures of a report (docs/report_schema.md) that should not grow."""
    figures = {f"bytes of {m['name']}": m["planned_bytes"] for m in report["memories"]}
    figures["steps"] = sum(len(f["steps"]["rows"]) for f in report["functions"])
    for program in report["programs"]:
        run = {
            "steps": sum(steps_run(report, start["function"]) for start in program["starts"]),
            "operand bytes": program["operand_bytes"],
            "flops": program["flops"]
        }
        for kind in ("transfers", "messages", "collectives"):
            run[kind] = sum(row[kind] for row in program[kind])
            run[f"bytes of {kind}"] = sum(row["bytes"] for row in program[kind])
        figures |= {f"{program['name']}: {key}": value for key, value in run.items()}
    return figures


class Oracle:
    """Runs command lines with a program, in a folder that has the samples of all models."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.program = str(Path(options.program).resolve())
        self.data, self.disk = prepare(folder)

    def call(self, verb, arguments, environment):
        """Returns what the program prints, or raises ValueError with the reason why it fails."""
        line = [a.replace("{data}", self.data).replace("{disk}", self.disk) for a in arguments]
        try:
            done = subprocess.run([self.program, verb, *line], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=300,
                                  env={**os.environ, **environment})
        except subprocess.TimeoutExpired:
            raise ValueError(f"{verb}: it did not end in 300 s")
        if done.returncode != 0:
            raise ValueError(f"{verb}: exit code {done.returncode}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def row(self, arguments, environment):
        """Returns the entry of a command line: see `record`, with its text or its error."""
        entry = {"arguments": arguments, "environment": environment}
        try:
            with tempfile.TemporaryDirectory(dir=self.folder) as profile:
                text = self.call("plan", [*of_plan(arguments), "--full", f"--profile={profile}"],
                                 environment)
                report = json.loads(Path(profile, "training", "report.json").read_text())
            entry |= {"text": canonical(text), "figures": figures_of(report),
                      "functions": {f["name"]: len(f["steps"]["rows"])
                                    for f in report["functions"]}}
            if not self.options.plans_only:
                result = json.loads(self.call("train", [*arguments, "--json"], environment))
                entry |= {key: result[key] for key in ("digest", "compile_seconds")}
        except ValueError as e:
            entry["error"] = str(e)
        return entry

    def random(self, first):
        """Returns the plans of some random graphs by title."""
        done = subprocess.run([self.options.graphs, str(first), str(first + CHUNK)],
                              capture_output=True, text=True, timeout=600, check=True)
        parts = [part.split("\n", 1) for part in done.stdout.split("=== ")[1:]]
        return {f"random {title}": {"text": canonical(text)} for title, text in parts}

    def run(self, rows):
        """Returns title -> entry of command lines (title -> (arguments, environment))."""
        rows = {t: row for t, row in rows.items() if self.options.only in t}
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            result = dict(zip(rows, pool.map(lambda row: self.row(*row), rows.values())))
            if self.options.graphs:
                for part in pool.map(self.random, range(0, SEEDS, CHUNK)):
                    result |= {t: e for t, e in part.items() if self.options.only in t}
        return result


def source_of(program):
    """Returns the commit of the folder of a program and what the program prints about itself."""
    commit = subprocess.run(["git", "-C", str(Path(program).resolve().parent), "describe",
                             "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True)
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return f"commit {commit.stdout.strip() or 'unknown'}, {said.stdout.strip()}"


def store(path, source, rows):
    """Writes a record. Each different text is stored once."""
    texts, entries = {}, {}
    for title, entry in rows.items():
        key = hashlib.sha256(entry["text"].encode()).hexdigest()
        texts[key] = entry["text"]
        entries[title] = entry | {"text": key}
    with gzip.open(path, "wt", compresslevel=3) as f:
        json.dump({"version": VERSION, "source": source, "rows": entries, "texts": texts}, f)


def load(path):
    """Returns the source of a record, and its rows with their texts."""
    with gzip.open(path, "rt") as f:
        record = json.load(f)
    if record.get("version") != VERSION:
        sys.exit(f"{path}: must have version {VERSION}, got {record.get('version')}; record again")
    texts = record["texts"]
    return record["source"], {title: entry | {"text": texts[entry["text"]]}
                              for title, entry in record["rows"].items()}


class Change:
    """The differences between the entry of a row in a record and its entry now."""

    def __init__(self, was, now, may_change=()):
        self.failures, self.others = [], []
        self.plan = self.digest = self.larger = False
        if "error" in now:
            self.failures.append(now["error"])
            return
        self.plan = was["text"] != now["text"]
        if self.plan:
            allowed = strategy_of(was.get("arguments", ())) in may_change
            (self.others if allowed else self.failures).append("plan changed")
        self.digest = "digest" in was and "digest" in now and was["digest"] != now["digest"]
        if self.digest:
            self.failures.append(f"digest {was['digest']} -> {now['digest']}")
        self.compare_figures(was.get("figures", {}), now.get("figures", {}))
        if self.larger:
            self.compare_functions(was["functions"], now["functions"])

    def compare_figures(self, was, now):
        for key in {**was, **now}:
            before, after = was.get(key, 0), now.get(key, 0)
            if before == after:
                continue
            self.larger |= after > before
            (self.failures if after > before else self.others).append(
                f"{key} {before} -> {after} ({'worse' if after > before else 'better'})")

    def compare_functions(self, was, now):
        steps = [f"{f} {was.get(f, 0)} -> {now.get(f, 0)}" for f in {**was, **now}
                 if was.get(f, 0) != now.get(f, 0)]
        if steps:
            self.others.append(f"steps of functions: {', '.join(steps[:SHOWN])}"
                               f"{', …' if len(steps) > SHOWN else ''}")


def print_difference(was, now):
    lines = difflib.unified_diff(was.splitlines(), now.splitlines(), "before", "after", n=1,
                                 lineterm="")
    for line in itertools.islice(lines, 24):
        print("    " + line[:240])


def print_compile_seconds(pairs):
    """Prints the ratios of compile seconds for each strategy. Returns the largest ratio of sums.

    `pairs` has entries of the record with those of now.
    """
    seconds = collections.defaultdict(list)
    for was, now in pairs:
        if "compile_seconds" in was and "compile_seconds" in now:
            seconds[strategy_of(was["arguments"])].append(
                (was["compile_seconds"], now["compile_seconds"]))
    largest = 0
    for strategy, rows in sorted(seconds.items()):
        before, after = map(sum, zip(*rows))
        median = statistics.median(new / old for old, new in rows)
        print(f"compile seconds of {strategy} rows: {before:.2f} -> {after:.2f}, ratio "
              f"{after / before:.2f}; median ratio of {len(rows)} rows {median:.2f}")
        largest = max(largest, after / before)
    return largest


def compare(record, rows, may_change=(), max_compile_ratio=None):
    """Prints the differences between rows of a record and the same rows now (title -> entry).

    Returns the number of failures.
    """
    changes = {}
    for title, now in rows.items():
        change = changes[title] = Change(record[title], now, may_change)
        if not change.failures and not change.others:
            continue
        print(f"{'FAIL' if change.failures else 'ok'}: {title}")
        for text in change.failures + change.others:
            print(f"  {text}")
        if change.plan and change.failures and sum(c.plan for c in changes.values()) <= SHOWN:
            print_difference(record[title]["text"], now["text"])
    ratio = print_compile_seconds([(record[title], now) for title, now in rows.items()])
    failures = sum(bool(c.failures) for c in changes.values())
    print(f"{len(rows)} of {len(record)} rows of the record compared: {failures} failures; "
          f"{sum(c.plan for c in changes.values())} plans and "
          f"{sum(c.digest for c in changes.values())} digests changed, "
          f"{sum(c.larger for c in changes.values())} rows with a larger figure")
    if max_compile_ratio is not None and ratio > max_compile_ratio:
        print(f"compile seconds: ratio must be at most {max_compile_ratio}, got {ratio:.2f}")
        failures += 1
    return failures


def record(options, oracle):
    """Writes the record. Returns the number of command lines that the program refuses."""
    begin = time.monotonic()
    rows = oracle.run(commands(options))
    errors = {title: entry["error"] for title, entry in rows.items() if "error" in entry}
    for title, error in errors.items():
        print(f"{title}: {error}")
    if not errors:
        store(options.file, source_of(options.program), rows)
        texts = {entry["text"] for entry in rows.values()}
        print(f"{len(rows)} rows, {len(texts)} different plans; {time.monotonic() - begin:.0f} s")
    return len(errors)


def compare_program(options, oracle):
    """Compares a program with a record. Returns the number of failures."""
    source, was = load(options.file)
    now = source_of(options.program)
    print(f"record: {source}\nnow: {now}")
    rows = oracle.run({title: (entry["arguments"], entry["environment"])
                       for title, entry in was.items() if "arguments" in entry})
    rows = {title: entry for title, entry in rows.items() if title in was}
    if not rows:
        print("no row of the record compared")
        return 1
    return compare(was, rows, options.may_change, options.max_compile_ratio)


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    making = actions.add_parser("record", help="write a record")
    comparing = actions.add_parser("compare", help="compare a program with a record")
    for action in (making, comparing):
        action.add_argument("program", help="the sluice command")
        action.add_argument("file", help="the record")
        action.add_argument("--only", default="", metavar="TEXT", help="only rows with this text")
        action.add_argument("--plans-only", action="store_true", help="skip the runs")
        action.add_argument("--graphs", metavar="PROGRAM",
                            help="also plans of random graphs, by the target random_plans")
        action.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at once")
    add_row_options(making)
    making.add_argument("--rows", type=int, metavar="N",
                        help="N rows of the matrix that differ much, and no other command lines")
    comparing.add_argument("--may-change", type=lambda text: text.split(","), default=[],
                           metavar="STRATEGIES",
                           help="strategies whose plans may change if no figure grows")
    comparing.add_argument("--max-compile-ratio", type=float, metavar="R",
                           help="fail if a strategy's compile seconds have a larger ratio")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse_arguments(arguments)
    with tempfile.TemporaryDirectory() as folder:
        oracle = Oracle(options, folder)
        run = record if options.action == "record" else compare_program
        return 1 if run(options, oracle) else 0


if __name__ == "__main__":
    sys.exit(main())
