#!/usr/bin/env python3
"""Counts the instructions of training steps of mnist, a perceptron (784-512-512-512-10), and
mnist-cnn, and compares them with bounds. Uses one thread and AVX2, which valgrind supports.

usage: instructions_test.py VALGRIND SLUICE

A bound is an earlier count, rounded up by a few percent. A change that exceeds it is slower. After
a change that needs fewer instructions, lower the bound.
"""
import os
import re
import subprocess
import sys

# (model, batch, optimizer, bound in million instructions of a step)
BOUNDS = [("mnist", 8, "sgd", 11.0), ("mnist", 8, "adam", 14.8), ("mnist-cnn", 8, "adamw", 13.5)]


# Instructions are counted only in runs of the executor, so that one run of the program is enough.
COUNTED = ("sluice::runtime::Executor::run(sluice::exe::Program const&, "
           "sluice::runtime::HostStreams&)")
STEPS = 2


def instructions(valgrind, sluice, model, batch, optimizer):
    command = [
        valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no",
        f"--toggle-collect={COUNTED}", sluice, "bench", model, "--strategy",
        "resident", "--threads", "1", "--micro-batch",
        str(batch), "--accumulate", "1", "--optimizer", optimizer, "--steps",
        str(STEPS)
    ]
    result = subprocess.run(command, capture_output=True, text=True,
                            env=dict(os.environ, SLUICE_ISA="avx2"), check=True)
    return int(re.search(r"Collected : (\d+)", result.stderr)[1])


def main():
    valgrind, sluice = sys.argv[1:]
    failed = False
    for model, batch, optimizer, bound in BOUNDS:
        # The program warms up with as many steps as it measures.
        millions = instructions(valgrind, sluice, model, batch, optimizer) / (2 * STEPS) / 1e6
        # A count near 0 means that the name of the function is outdated.
        failed = failed or not bound / 2 < millions <= bound
        print(f"{model}, batch {batch}, {optimizer}: {millions:.2f} million instructions a step, "
              f"at most {bound}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
