#!/usr/bin/env python3
"""Checks that every way to train a model computes the same bits. Trains it in combinations of
strategy, cut, recomputation, offload, io mode, I/O queues, tier, updates of a call, replicas,
threads, thresholds, compiler passes, instruction sets, kinds of devices and launchers, each in its
own process. Compares the digests of losses, weights and optimizer state: for each model, number of
replicas, reduction of gradients, clipping and output, all runs must have one digest.

    bench/equality_matrix.py build/bin/sluice --sample [--random N [--seed S]] [--jobs 2]
                             [--launcher 'mpirun -n {processes}'] [--opaque] [--model TEXT]
                             [--reduction TEXT]

Prints a line for each run that differs or fails, then the counts. Exits with 1 if there is one.
`--sample` runs enough combinations to have every possible pair of values of two dimensions.
`--random` adds combinations that are drawn. `--opaque` adds runs on opaque test devices, alone and
next to CPUs, for a program with this option. Without `--sample` and `--random`, every combination
runs, which takes weeks. `--model` keeps the models whose name has this text, and `--reduction` does
so for reductions.
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
from typing import NamedTuple

MODELS = {
    "gelu": ["mnist", "--layers", "4", "--width", "32"],
    "relu with dropout": ["mlp", "--layers", "5", "--width", "24", "--dropout", "0.2"],
    "skips, two losses and a tied weight": [
        "mlp-skip", "--layers", "8", "--width", "24", "--dropout", "0.2"
    ],
    "convolutions": ["mnist-cnn"],
    "convolutions with dropout": ["mnist-cnn", "--dropout", "0.2"],
    "batch norm": ["resnet8"],
    "gpt2 with dropout": [
        "gpt", "--blocks", "3", "--width", "16", "--context", "12", "--dropout", "0.2"
    ],
    "llama with grouped heads": [
        "gpt", "--arch", "llama", "--kv-heads", "2", "--blocks", "3", "--width", "16", "--context",
        "12"
    ],
    "two losses of bert": [
        "bert", "--blocks", "3", "--width", "16", "--context", "12", "--dropout", "0.2"
    ],
    "vit with dropout": ["vit", "--blocks", "3", "--width", "12", "--dropout", "0.2"],
}
# Losses with a total weight, whose gradients are not added.
WEIGHTED = ["two losses of bert"]
COMMON = [
    "--optimizer", "adam", "--lr", "0.001", "--micro-batch", "4", "--accumulate", "6", "--steps",
    "3", "--digest", "--log-level", "error"
]


KINDS = ["optimizer", "weights", "activations", "accumulators"]
STAGED = {
    "sharded": ["sharded"],
    "grouped": ["pipelined"],
    "interleaved": ["pipelined", "--schedule", "interleaved"],
    "sequential": ["pipelined", "--schedule", "sequential"],
    "auto": ["pipelined", "--schedule", "auto"],
    "phased in stages": ["phased"],
    "groups in stages": ["phased", "--group", "2"],
}
STRATEGIES = {
    "resident": ["resident"], "phased": ["phased"], "groups": ["phased", "--group", "2"], **STAGED
}
# Values between their loops wait in remote memory.
WITH_REMOTE_ACTIVATIONS = ["groups", "groups in stages", "phased in stages"]
OFFLOADED = {
    "none": ["none"],
    **{kind: [kind] for kind in KINDS},
    "usual": KINDS[:3],
    "all": KINDS,
}
# How the program is compiled: flags and the instruction set.
COMPILED = {
    "": ([], None),
    "AVX2": ([], "avx2"),
    "without layouts": (["--disable", "layouts"], None),
    "without fusion": (["--disable", "fuse"], None),
}
# The reduction of gradients over micro-batches and replicas, and the accumulators. The last flags
# require several replicas.
REDUCTIONS = {
    "running mean": ([], []),
    "mean": (["--accumulation-reduction", "mean"], ["--replica-reduction", "sum"]),
    "sum": (["--accumulation-reduction", "sum"], []),
    "running mean in f16": (["--accumulator-dtype", "f16"], ["--replica-reduction", "sum"]),
    "sum in bf16": (["--accumulation-reduction", "sum", "--accumulator-dtype", "bf16"], []),
}
# The results that a call returns; all but the first for three updates.
OUTPUTS = ["all", "final", "sum", "every:3"]
DEVICES = {"CPU": [], "opaque": ["--opaque"], "mixed": []}


class MatrixRow(NamedTuple):
    """A run. The values up to `output` decide its digest. The first value of each other dimension
    is that of the run that others are compared with."""
    model: str
    replicas: int
    reduction: str = "running mean"
    clip: bool = False
    output: str = "all"
    strategy: str = "resident"
    stages: object = 1  # Their number, or "blocks": a stage for each block.
    recompute: bool = False
    offload: str = "none"
    io_mode: str = "io"
    io_queues: int = 1
    tier: str = "host"
    device_iterations: int = 1
    threads: int = 1
    threshold: object = "inf"
    offload_threshold: int = 2
    compiled: str = ""
    devices: str = "CPU"
    launcher: str = ""

    def first(self):
        return MatrixRow(*self[:MatrixRow._fields.index("strategy")])

    def flags(self):
        flags = [
            *MODELS[self.model], *COMMON, "--replicas", self.replicas, "--threads", self.threads,
            "--shard-threshold", self.threshold, "--device-iterations",
            self.device_iterations if self.output == "all" else 3,
            "--strategy", *STRATEGIES[self.strategy], "--offload", ",".join(self.offloaded()),
            "--output-mode", self.output, *COMPILED[self.compiled][0], *DEVICES[self.devices]
        ]
        always, several = REDUCTIONS[self.reduction]
        flags += always + (several if self.replicas > 1 else [])
        if self.clip:
            flags += ["--clip-norm", "0.05"]
        if self.strategy in STAGED and self.stages != "blocks":
            flags += ["--stages", self.stages]
        if self.recompute:
            flags += ["--recompute"]
        if self.offloaded() != ["none"]:
            flags += ["--io-mode", self.io_mode, "--io-queues", self.io_queues]
        if self.offload_threshold != 2:
            flags += ["--offload-threshold", self.offload_threshold]
        if self.devices == "mixed":  # Every other device of a replica.
            flags += ["--opaque=" + ",".join(
                str(r * self.stages + d) for r in range(self.replicas)
                for d in range(0, self.stages, 2))]
        return [str(flag) for flag in flags]

    def offloaded(self):
        kinds = OFFLOADED[self.offload]
        if self.strategy not in WITH_REMOTE_ACTIVATIONS or "activations" in kinds:
            return kinds
        return [kind for kind in kinds if kind != "none"] + ["activations"]

    def command(self, data, disk):
        """Returns the arguments of `sluice train`: samples are in `data`, tiers in `disk`."""
        place = f"file:{disk}" if self.tier == "file" else self.tier
        return [*self.flags(), "--data", data, "--remote", place]

    def environment(self):
        isa = COMPILED[self.compiled][1]
        return {"SLUICE_ISA": isa} if isa else {}

    def processes(self):
        return self.replicas * (2 if self.stages == 2 else 1)


def valid(row):
    """Returns the row with equal values where a dimension has no effect or is not supported."""
    if row.model in WEIGHTED:
        row = row._replace(reduction="running mean")
    if row.strategy not in STAGED:
        row = row._replace(stages=1)
    elif row.strategy.endswith("in stages") and row.stages in (1, "blocks"):
        row = row._replace(stages=2)
    elif row.stages == 1:
        row = row._replace(stages="blocks")
    if row.offloaded() == ["none"]:
        row = row._replace(io_mode="io", io_queues=1, tier="host", offload_threshold=2)
    if row.output != "all":
        row = row._replace(device_iterations=1)
    if row.io_mode == "compute":
        row = row._replace(io_queues=1)
    if row.launcher:  # Devices with queues run in one process.
        row = row._replace(devices="CPU")
    if row.devices == "mixed" and row.stages in (1, "blocks"):
        row = row._replace(devices="opaque")
    return row


def pairs(row):
    return {(a, row[a], b, row[b]) for a, b in itertools.combinations(range(len(row)), 2)}


def drawn(dimensions, noise, fixed=()):
    """Returns a random row. `fixed` has pairs of a dimension's number and its value."""
    values = [noise.choice(values) for values in dimensions]
    for axis, value in fixed:
        values[axis] = value
    return valid(MatrixRow(*values))


def covering(dimensions):
    """Returns rows in which every possible pair of values of two dimensions appears.

    The choice is greedy, from random rows, and deterministic. The rows with which others are
    compared are among them.
    """
    noise = random.Random(3)
    axes = itertools.combinations(range(len(dimensions)), 2)
    missing = dict.fromkeys((a, x, b, y) for a, b in axes
                            for x in dimensions[a] for y in dimensions[b])
    rows = {}

    def gain(row):
        """Returns the number of missing pairs by run. A row may need that of its first row too."""
        runs = {row.first(), row} - rows.keys()
        return len(missing.keys() & set().union(*map(pairs, runs))) / len(runs)

    while missing:
        a, x, b, y = pair = next(iter(missing))
        found = [drawn(dimensions, noise, ((a, x), (b, y))) for _ in range(60)]
        found = [row for row in found if pair in pairs(row)]
        if not found:
            del missing[pair]  # Not possible.
            continue
        best = max(found, key=gain)
        for row in (best.first(), best):
            rows[row] = None
            for pair in pairs(row):
                missing.pop(pair, None)
    return list(rows)


def write_digits(folder):
    """Writes noise in the format of MNIST: enough for the steps of four replicas, fast to load."""
    noise = random.Random(1)
    for part, count in (("train", 288), ("t10k", 320)):
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


def write_text(folder):
    noise = random.Random(3)
    Path(folder, "input.txt").write_text("".join(noise.choice("abcdefgh \n") for _ in range(3000)))


def prepare(folder):
    """Writes the samples of all models. Returns the folders of samples and of file tiers."""
    data, disk = Path(folder, "data"), Path(folder, "disk")
    data.mkdir()
    disk.mkdir()
    write_digits(data)
    write_objects(data)
    write_text(data)
    return str(data), str(disk)


def add_row_options(parser):
    """Adds the options that choose rows: see chosen_rows()."""
    parser.add_argument("--sample", action="store_true", help="a covering sample of pairs")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="N random combinations")
    parser.add_argument("--seed", type=int, default=1, help="of the random combinations")
    parser.add_argument("--opaque", action="store_true", help="also run on opaque devices")
    parser.add_argument("--model", default="", metavar="TEXT", help="only models with this text")
    parser.add_argument("--reduction", default="", metavar="TEXT",
                        help="only reductions with this text")


def dimensions_of(options, launchers=()):
    """Returns a row of lists: the values of each dimension."""
    models = [model for model in MODELS if options.model in model]
    reductions = [r for r in REDUCTIONS if options.reduction in r]
    if not models:
        sys.exit(f"--model: no name has '{options.model}'; there are: {', '.join(MODELS)}")
    if not reductions:
        sys.exit(f"--reduction: no name has '{options.reduction}'; there are: "
                 f"{', '.join(REDUCTIONS)}")
    return MatrixRow(models, [1, 2, 4], reductions, [False, True], OUTPUTS, list(STRATEGIES),
               [1, 2, 3, 4, "blocks"], [False, True], list(OFFLOADED),
               ["io", "compute", "io_overlapped"], [1, 3], ["host", "file"], [1, 3], [1, 2, 3],
               ["inf", 0, 512], [2, 100], list(COMPILED),
               list(DEVICES) if options.opaque else ["CPU"], ["", *launchers])


def chosen_rows(options, launchers=()):
    """Returns the rows that the options choose, after the rows that they are compared with."""
    dimensions = dimensions_of(options, launchers)
    rows = covering(dimensions) if options.sample else []
    noise = random.Random(options.seed)
    rows += [drawn(dimensions, noise) for _ in range(options.random)]
    if not rows:
        rows = dict.fromkeys(valid(MatrixRow(*values)) for values in itertools.product(*dimensions))
    return list(dict.fromkeys([*(row.first() for row in rows), *rows]))


class Matrix:
    def __init__(self, program, data, disk):
        self.program, self.data, self.disk = program, data, disk

    def run(self, row):
        """Returns the digest, or the reason why the run has no digest."""
        command = [
            *shlex.split(row.launcher.format(processes=row.processes())), self.program, "train",
            *row.command(self.data, self.disk)
        ]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=120, env={**os.environ, **row.environment()})
        except subprocess.TimeoutExpired:
            return "it did not end in 120 s"
        lines = [line for line in done.stdout.splitlines() if line.startswith("digest ")]
        if done.returncode != 0 or len(lines) != 1:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            return f"exit code {done.returncode}: {said}"
        return lines[0].removeprefix("digest ")


def name(row):
    return shlex.join(row.flags()) + "".join(
        f", {word}" for word in (row.tier, row.compiled, row.launcher) if word)


def wrong_rows(digests):
    """Returns the rows that have no digest, or not that of the row they are compared with."""
    return [row for row, digest in digests.items()
            if digest != digests[row.first()] or not digest.startswith(("fma-", "base-"))]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the sluice command")
    add_row_options(parser)
    parser.add_argument("--launcher", action="append", default=[], metavar="COMMAND",
                        help="also run under it; {processes} is the number of replicas, or twice "
                        "that number for two stages")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at once")
    options = parser.parse_args(arguments)
    rows = chosen_rows(options, options.launcher)
    firsts = list(dict.fromkeys(row.first() for row in rows))
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        data, disk = prepare(folder)
        matrix = Matrix(str(Path(options.program).resolve()), data, disk)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            digests = dict(zip(rows, pool.map(matrix.run, rows)))
        left = sorted(os.listdir(disk))
    wrong = wrong_rows(digests)
    for row in wrong:
        print(f"{name(row)}: {digests[row]}, not {digests[row.first()]}")
    kinds = len({digests[row] for row in firsts})
    print(f"{len(rows)} runs, {len(wrong)} differ; {kinds} digests of {len(firsts)} models, "
          "numbers of replicas, reductions, clippings and outputs; "
          f"{time.monotonic() - begin:.0f} s")
    if left:
        print(f"left behind: {left}")
    # Equal digests would mean that a result does not depend on the model, replicas or reduction.
    return 0 if not wrong and kinds == len(firsts) and not left else 1


if __name__ == "__main__":
    sys.exit(main())
