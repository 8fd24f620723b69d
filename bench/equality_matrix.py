#!/usr/bin/env python3
"""Checks that every way to train a model computes the same bits. Trains it in all combinations of
strategy, offload, tier, replicas, threads, thresholds, launchers, instruction sets and compiler
passes, each in its own process.
Compares the digests of losses, weights and optimizer state: for each model and number of replicas,
all runs must have one digest.

    bench/equality_matrix.py build/bin/sluice [--sample] [--jobs 2]
                             [--launcher 'mpirun -n {processes}'] [--opaque]

Prints a line for each run that differs or fails, then the counts. Exits with 1 if there is one.
`--sample` runs only enough combinations to have every pair of values of two dimensions. `--opaque`
adds runs on the opaque test device, for a program with this option.
"""

import argparse
import concurrent.futures
import itertools
import os
import random
import shlex
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODELS = {
    "gelu": ["mnist", "--layers", "4", "--width", "32"],
    "relu with dropout": ["mlp", "--layers", "5", "--width", "24", "--dropout", "0.2"],
    "skips, two losses and a tied weight": [
        "mlp-skip", "--layers", "8", "--width", "24", "--dropout", "0.2"
    ],
    "convolutions": ["mnist-cnn"],
    "convolutions with dropout": ["mnist-cnn", "--dropout", "0.2"],
    "batch norm": ["resnet8"],
}
MODELS.update({f"{name}, clipped": [*flags, "--clip-norm", "0.05"]
               for name, flags in list(MODELS.items())})
COMMON = [
    "--optimizer", "adam", "--lr", "0.001", "--micro-batch", "4", "--accumulate", "3", "--steps",
    "3", "--digest", "--log-level", "error"
]


KINDS = ["optimizer", "weights", "activations", "accumulators"]
MODES = ["compute", "io", "io_overlapped"]


def ways(strategy):
    """Returns the ways to run a strategy: each kind of tensor offloaded alone, phases as usual, and
    everything, in every io mode, recomputed and not."""
    flags = ["--strategy", strategy]
    result = {strategy: [*flags, "--offload", "none"]}
    result[f"{strategy}, recompute"] = [*result[strategy], "--recompute"]
    for mode, kind in zip(["io_overlapped", "io", "compute", "io"], KINDS):
        result[f"{strategy}, {kind} offloaded"] = [*flags, "--offload", kind, "--io-mode", mode]
    for mode in MODES:
        for name, kinds in (("usual", KINDS[:3]), ("all", KINDS)):
            row = [*flags, "--offload", ",".join(kinds), "--io-mode", mode]
            result[f"{strategy}, {name} offloaded, {mode}"] = row
    result[f"{strategy}, all offloaded, recompute"] = [*row, "--recompute"]
    return result


def staged_ways():
    """Returns the ways to run a model in stages."""
    result = {}
    for name, flags, kinds, mode in (
            ("pipelined", ["pipelined"], ["none"], "io"),
            ("pipelined, all offloaded", ["pipelined"], KINDS, "io_overlapped"),
            ("interleaved, usual offloaded",
             ["pipelined", "--schedule", "interleaved"], KINDS[:3], "io"),
            ("auto, two stages, activations offloaded",
             ["pipelined", "--schedule", "auto", "--stages", "2"], ["activations"], "io"),
            ("two stages, all offloaded", ["pipelined", "--stages", "2"], KINDS, "io"),
            ("sequential, recompute",
             ["pipelined", "--schedule", "sequential", "--recompute"], ["none"], "io"),
            ("sharded", ["sharded"], ["none"], "io"),
            ("sharded, all offloaded, recompute", ["sharded", "--recompute"], KINDS, "compute")):
        result[name] = ["--strategy", *flags, "--offload", ",".join(kinds)]
        if kinds != ["none"]:
            result[name] += ["--io-mode", mode]
    return result


def stages_of(way):
    return 2 if "--stages" in WAYS[way] else 1


WAYS = {**ways("resident"), **ways("phased"), **staged_ways()}
# How the program is compiled: flags and the instruction set.
COMPILED = {
    "": ([], None),
    "AVX2": ([], "avx2"),
    "without layouts": (["--disable", "layouts"], None),
    "without fusion": (["--disable", "fuse"], None),
}
OPAQUE = {"on the opaque device": (["--opaque"], None)}
# Way, tier, threads, threshold and compilation of the run that all other runs are compared with.
FIRST = ("resident", "host", 1, "inf", "")


def write_digits(folder):
    """Writes noise in the format of MNIST: enough for the steps of four replicas, fast to load."""
    noise = random.Random(1)
    for part, count in (("train", 192), ("t10k", 320)):
        images = struct.pack(">4I", 0x803, count, 28, 28) + noise.randbytes(count * 784)
        labels = struct.pack(">2I", 0x801, count) + bytes(noise.randrange(10) for _ in range(count))
        Path(folder, f"{part}-images-idx3-ubyte").write_bytes(images)
        Path(folder, f"{part}-labels-idx1-ubyte").write_bytes(labels)


def write_objects(folder):
    """Writes noise in the format of CIFAR-10."""
    noise = random.Random(2)
    for part in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        records = [bytes([noise.randrange(10)]) + noise.randbytes(3072) for _ in range(64)]
        Path(folder, f"{part}.bin").write_bytes(b"".join(records))


def pairwise(dimensions):
    """Returns combinations in which every pair of values of two dimensions appears.

    The choice is greedy and deterministic.
    """
    axes = range(len(dimensions))
    missing = {(a, x, b, y)
               for a, b in itertools.combinations(axes, 2)
               for x in dimensions[a]
               for y in dimensions[b]}
    everything = list(itertools.product(*dimensions))

    def covers(row):
        return {(a, row[a], b, row[b]) for a, b in itertools.combinations(axes, 2)} & missing

    rows = []
    while missing:
        best = max(everything, key=lambda row: len(covers(row)))
        missing -= covers(best)
        rows.append(best)
    return rows


class Matrix:
    def __init__(self, program, data, disk):
        self.program, self.data, self.disk = program, data, disk

    def run(self, row):
        """Returns the digest, or the reason why the run has no digest."""
        model, replicas, way, tier, threads, threshold, compiled, launcher = row
        flags, isa = COMPILED[compiled]
        processes = replicas * stages_of(way)
        command = [
            *shlex.split(launcher.format(processes=processes)), self.program, "train",
            *MODELS[model], *COMMON, "--data", self.data, "--replicas", str(replicas),
            "--threads", str(threads), "--remote", f"file:{self.disk}" if tier == "file" else tier,
            "--shard-threshold", str(threshold), *WAYS[way], *flags
        ]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=120,
                                  env=dict(os.environ, SLUICE_ISA=isa) if isa else None)
        except subprocess.TimeoutExpired:
            return "it did not end in 120 s"
        lines = [line for line in done.stdout.splitlines() if line.startswith("digest ")]
        if done.returncode != 0 or len(lines) != 1:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            return f"exit code {done.returncode}: {said}"
        return lines[0].removeprefix("digest ")


def name(row):
    model, replicas, way, tier, threads, threshold, compiled, launcher = row
    where = "".join(f", {word}" for word in (compiled, launcher) if word)
    return (f"{model}, {replicas} replicas, {way}, {tier}, {threads} threads, "
            f"threshold {threshold}{where}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the sluice command")
    parser.add_argument("--sample", action="store_true", help="a covering sample of pairs")
    parser.add_argument("--launcher", action="append", default=[], metavar="COMMAND",
                        help="also run under it; {processes} is the number of replicas, or twice "
                        "that number for two stages")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at once")
    parser.add_argument("--opaque", action="store_true", help="also run on the opaque device")
    options = parser.parse_args()
    if options.opaque:
        COMPILED.update(OPAQUE)
    dimensions = [list(MODELS), [1, 2, 4], list(WAYS), ["host", "file"], [1, 2, 3], [0, 512, "inf"],
                  list(COMPILED), ["", *options.launcher]]
    first = [(model, replicas, *FIRST, "") for model in MODELS for replicas in dimensions[1]]
    rows = pairwise(dimensions)
    if not options.sample:
        rows += itertools.product(*dimensions[:6], [""], dimensions[7])
    rows = list(dict.fromkeys(first + rows))
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        data, disk = Path(folder, "data"), Path(folder, "disk")
        data.mkdir()
        disk.mkdir()
        write_digits(data)
        write_objects(data)
        matrix = Matrix(str(Path(options.program).resolve()), str(data), str(disk))
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            digests = dict(zip(rows, pool.map(matrix.run, rows)))
        left = sorted(os.listdir(disk))
    wrong = 0
    for row, digest in digests.items():
        expected = digests[(row[0], row[1], *FIRST, "")]
        if digest != expected or not digest.startswith(("fma-", "base-")):
            wrong += 1
            print(f"{name(row)}: {digest}, not {expected}", flush=True)
    kinds = len({digests[row] for row in first})
    print(f"{len(rows)} runs, {wrong} differ; {kinds} digests of {len(first)} models and numbers "
          f"of replicas; {time.monotonic() - begin:.0f} s")
    if left:
        print(f"left behind: {left}")
    # Equal digests would mean that a result does not depend on the model or on the replicas.
    sys.exit(0 if wrong == 0 and kinds == len(first) and not left else 1)


if __name__ == "__main__":
    main()
