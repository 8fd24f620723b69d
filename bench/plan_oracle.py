#!/usr/bin/env python3
"""Detects unwanted changes of plans. Records the canonical plan text and the digest of a short run
for every row of the equality matrix, and for some rows with each optional pass disabled. Later
compares another build with the record.

    bench/plan_oracle.py record build/bin/sluice FILE [--sample] [--plans-only] [--jobs 2]
    bench/plan_oracle.py compare build/bin/sluice FILE [--sample] [--plans-only] [--jobs 2]

`--random PROGRAM` adds the plans of random graphs: PROGRAM FIRST LAST prints one text for each seed
(build the target random_plans). The canonical text has no `where`, origin, memo, or names of
functions and values. Functions, values, channels and tokens are numbered by first use. `compare`
prints a line and the first difference for each row that changed, and exits with 1 if there is one.
A row that only one side has is counted but is not a difference.
"""

import argparse
import concurrent.futures
import difflib
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from equality_matrix import COMMON, FIRST, MODELS, Matrix, WAYS, name, pairwise, write_digits

OPTIONAL_PASSES = [
    "inline", "dead-code", "share-work", "split", "fuse", "layouts", "entries", "transfers",
    "aliasing"
]
# (model, replicas, way, tier, threads, threshold) that run with each optional pass disabled.
DISABLED_ROWS = [
    ("gelu", 1, "resident", "host", 2, "inf"),
    ("relu with dropout", 2, "resident, optimizer offloaded", "host", 1, 512),
    ("gelu", 2, "phased, optimizer offloaded", "file", 2, 512),
    ("relu with dropout", 1, "phased, recompute", "host", 1, "inf"),
]
# More command lines, with options that the matrix does not use.
OTHERS = {
    "three io queues": [
        "mlp", "--layers", "5", "--strategy", "phased",
        "--offload", "optimizer,weights,activations", "--io-mode", "io_overlapped",
        "--io-queues", "3", "--optimizer", "lamb", "--accumulate", "4"
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
    "document 003": ["mnist-rts", "--offload", "optimizer", "--micro-batch", "4"],
    "document 000": ["mnist-phased"],
}
SEEDS = 300
CHUNK = 50

VALUE = re.compile(r"%(\d+)")
STRING = r'"(?:[^"\\]|\\.)*"'


class Numbers:
    """Replaces values by small numbers in the order of first use."""

    def __init__(self):
        self.known = {}

    def __call__(self, old):
        return self.known.setdefault(old, len(self.known))


def canonical(text):
    """Returns the text of an executable without names and places in the sources."""
    functions, other, programs = {}, [], []
    current = other
    for line in text.splitlines():
        line = re.sub(rf" where {STRING}", "", line.split("  # ")[0])
        line = re.sub(r"^(  \d+ .*?) origin -?\d+", r"\1", line)
        line = re.sub(rf"^(  buffer ){STRING}", r"\1_", line)
        line = re.sub(rf"^(  param \d+ ){STRING}", r"\1_", line)
        begin = re.match(rf"function (\d+) {STRING} memo {STRING}(.*)", line)
        if begin:
            current = functions[int(begin[1])] = [begin[2]]
            continue
        if line.startswith("program "):
            current = programs
        if not line.startswith(("value ", "computes ")):
            current.append(line)
    order, seen = [], set()

    def visit(lines):
        for line in lines:
            for callee in re.findall(r" (?:call|loop|then|else|function) (\d+)", " " + line):
                if int(callee) not in seen:
                    seen.add(int(callee))
                    order.append(int(callee))
                    visit(functions[int(callee)])

    visit(programs)
    order += [f for f in functions if f not in seen]
    renumbered, values, channels = {f: i for i, f in enumerate(order)}, Numbers(), Numbers()

    def rewrite(line, tokens):
        line = VALUE.sub(lambda m: f"%{values(m[1])}", line)
        line = re.sub(r"\b(call|loop|then|else|function) (\d+)",
                      lambda m: f"{m[1]} {renumbered[int(m[2])]}", line)
        line = re.sub(r"\b(send|receive) (\d+)", lambda m: f"{m[1]} {channels(m[2])}", line)
        return re.sub(r"\btoken (\d+)", lambda m: f"token {tokens(m[1])}", line)

    result = [rewrite(line, Numbers()) for line in other if not line.startswith("channel ")]
    for f in order:
        tokens = Numbers()
        result += [f"function {renumbered[f]}"] + [rewrite(line, tokens) for line in functions[f]]
    result += [rewrite(line, Numbers()) for line in programs]
    for line in other:
        if line.startswith("channel "):
            number, rest = re.match(rf"channel (\d+) {STRING} (.*)", line).groups()
            result.append(f"channel {channels(number)} {rest}")
    return "\n".join(result)


class Oracle:
    def __init__(self, options, data, disk):
        self.options, self.disk = options, disk
        self.matrix = Matrix(str(Path(options.program).resolve()), data, disk)
        self.commands = {}

    def arguments(self, row):
        model, replicas, way, tier, threads, threshold = row
        return [
            *MODELS[model], *COMMON, "--data", self.matrix.data, "--replicas", str(replicas),
            "--threads", str(threads), "--remote", f"file:{self.disk}" if tier == "file" else tier,
            "--shard-threshold", str(threshold), *WAYS[way]
        ]

    def collect(self):
        """Fills self.commands: name -> arguments of every row."""
        dimensions = [list(MODELS), [1, 2, 4], list(WAYS), ["host", "file"], [1, 2, 3],
                      [0, 512, "inf"], [""]]
        if self.options.sample:
            rows = pairwise(dimensions)
        else:
            rows = [(m, r, w, t, n, s, "") for m in dimensions[0] for r in dimensions[1]
                    for w in dimensions[2] for t in dimensions[3] for n in dimensions[4]
                    for s in dimensions[5]]
        for row in rows:
            self.commands[name(row)] = self.arguments(row[:6])
        for row in DISABLED_ROWS:
            for off in OPTIONAL_PASSES:
                self.commands[f"{name((*row, ''))}, without {off}"] = [
                    *self.arguments(row), "--disable", off
                ]
        for title, arguments in OTHERS.items():
            self.commands[title] = [a.format(disk=self.disk) for a in arguments] + [
                "--data", self.matrix.data, "--steps", "2", "--threads", "2", "--digest",
                "--log-level", "error"
            ]

    def call(self, verb, arguments):
        done = subprocess.run([self.matrix.program, verb, *arguments], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            sys.exit(f"{verb} {' '.join(arguments)}: exit code {done.returncode}: "
                     f"{done.stderr.strip()[-300:]}")
        return done.stdout

    def row(self, title):
        arguments = self.commands[title]
        planned = [a for a in arguments if a != "--digest"]
        for flag in ("--steps", "--log-level", "--data"):  # `plan` refuses these.
            at = planned.index(flag)
            del planned[at:at + 2]
        entry = {"text": canonical(self.call("plan", [*planned, "--full"]))}
        if not self.options.plans_only:
            lines = [
                line for line in self.call("train", arguments).splitlines()
                if line.startswith("digest ")
            ]
            entry["digest"] = lines[0] if len(lines) == 1 else "no digest"
        return entry

    def random(self, first):
        done = subprocess.run(
            [self.options.random, str(first), str(first + CHUNK)], capture_output=True, text=True,
            timeout=600, check=True)
        texts = done.stdout.split("=== ")[1:]
        return {f"random {part.split(chr(10), 1)[0]}": {"text": canonical(part.split("\n", 1)[1])}
                for part in texts}

    def run(self):
        """Returns a dictionary from name to {text, digest}."""
        self.collect()
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            rows = dict(zip(self.commands, pool.map(self.row, self.commands)))
            if self.options.random:
                for part in pool.map(self.random, range(0, SEEDS, CHUNK)):
                    rows |= part
        return rows


def store(path, rows):
    """Writes the record. Each different text is stored once."""
    texts = {hashlib.sha256(r["text"].encode()).hexdigest(): r["text"] for r in rows.values()}
    short = {n: r | {"text": hashlib.sha256(r["text"].encode()).hexdigest()}
             for n, r in rows.items()}
    with gzip.open(path, "wt", compresslevel=3) as f:
        json.dump({"rows": short, "texts": texts}, f)
    print(f"{len(rows)} rows, {len(texts)} different plans")


def compare(path, rows):
    with gzip.open(path, "rt") as f:
        record = json.load(f)
    changed = 0
    for title, row in rows.items():
        was = record["rows"].get(title)
        if was is None:
            continue
        plan_differs = record["texts"][was["text"]] != row["text"]
        digest_differs = "digest" in row and "digest" in was and row["digest"] != was["digest"]
        if not plan_differs and not digest_differs:
            continue
        changed += 1
        print(f"{title}: {'plan' if plan_differs else ''} {'digest' if digest_differs else ''}")
        if plan_differs and changed <= 5:
            before, after = record["texts"][was["text"]].splitlines(), row["text"].splitlines()
            lines = difflib.unified_diff(before, after, "before", "after", n=1, lineterm="")
            for line in list(lines)[:24]:
                print("    " + line[:240])
    common = sum(title in record["rows"] for title in rows)
    print(f"{common} rows compared, {changed} changed; {len(rows) - common} only here, "
          f"{len(record['rows']) - common} only in the record")
    return 1 if changed or common == 0 else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("program", help="the sluice command")
    parser.add_argument("file", help="the record")
    parser.add_argument("--sample", action="store_true",
                        help="a covering sample of pairs of the matrix")
    parser.add_argument("--plans-only", action="store_true", help="skip the runs")
    parser.add_argument("--random", metavar="PROGRAM",
                        help="also plans of random graphs, by this program")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at once")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data, disk = Path(folder, "data"), Path(folder, "disk")
        data.mkdir()
        disk.mkdir()
        write_digits(data)
        rows = Oracle(options, str(data), str(disk)).run()
    if options.action == "record":
        store(options.file, rows)
        return 0
    return compare(options.file, rows)


if __name__ == "__main__":
    sys.exit(main())
