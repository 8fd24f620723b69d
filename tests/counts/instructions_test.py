#!/usr/bin/env python3
"""Counts instructions and compares them with bounds: those of training steps, of the begin of the
program, of a compilation, of plans of many micro-batches, of a proof and of a report. Unlike
times, they do not depend on what else the machine runs. Uses one thread and AVX2, which valgrind
supports.

usage: instructions_test.py VALGRIND SLUICE CHECK_TEST REPORT_TEST

A bound is an earlier count, rounded up by a few percent. A change that exceeds it is slower. After
a change that needs fewer instructions, lower the bound.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

VALGRIND, SLUICE, CHECK_TEST, REPORT_TEST = sys.argv[1:5]
# Instructions are counted only in these functions. Nothing else of a run matters.
RUN = ("sluice::runtime::Executor::run(sluice::exe::Program const&, "
       "sluice::runtime::HostStreams&)")
COMPILE = "sluice::compile(sluice::Ir const&, sluice::CompileOptions const&)"
# `sluice plan` compiles more programs to suggest options, as long as it has time.
PLAN = ["sluice::check::prove(*)", "sluice::report::forecast(*)"]
PROVE = "sluice::check::violations(*)"
WRITE = "sluice::report::to_html*"
STEPS = 2
# A machine for `sluice plan`, which otherwise measures this one.
MACHINE = {"schema": "sluice machine", "version": 1, "threads": 1, "flops": 1e11, "copies": 1e10,
           "remote": 1e10, "messages": 1e10, "latency": 0, "kernel_begin": 0, "together": 1,
           "kernels": {}, "caches": []}


def instructions(command, *functions):
    """Returns the number of instructions in functions of a program, or in all of it without any, in
    millions."""
    only = [f"--toggle-collect={f}" for f in functions]
    result = subprocess.run(
        [VALGRIND, "--tool=callgrind", "--callgrind-out-file=/dev/null",
         f"--collect-atstart={'no' if only else 'yes'}", *only, *map(str, command)],
        capture_output=True, text=True, env=dict(os.environ, SLUICE_ISA="avx2"))
    if result.returncode != 0:
        raise RuntimeError(f"{command}: exit code {result.returncode}\n{result.stderr}")
    return int(re.search(r"Collected : (\d+)", result.stderr)[1]) / 1e6


class Instructions(unittest.TestCase):
    def expect(self, what, millions, bound):
        print(f"{what}: {millions:.2f} million instructions, at most {bound}", flush=True)
        self.assertLessEqual(millions, bound, what)
        # A count near 0 means that the name of a function is outdated.
        self.assertGreater(millions, bound / 2, f"{what}: the bound or a function is outdated")

    def test_a_training_step(self):
        for model, batch, optimizer, bound in (
            ("mnist", 8, "sgd", 11.0),  # A perceptron (784-512-512-512-10).
            ("mnist", 8, "adam", 14.8),
            ("mnist-cnn", 8, "adamw", 13.5),
        ):
            command = [SLUICE, "bench", model, "--strategy", "resident", "--threads", 1,
                       "--micro-batch", batch, "--accumulate", 1, "--optimizer", optimizer,
                       "--steps", STEPS]
            # The program warms up with as many steps as it measures.
            self.expect(f"{model}, batch {batch}, {optimizer}, a step",
                        instructions(command, RUN) / (2 * STEPS), bound)

    def test_the_version(self):
        self.expect("sluice --version", instructions([SLUICE, "--version"]), 5.4)

    def test_a_compilation(self):
        command = [SLUICE, "bench", "mnist", "--threads", 1, "--steps", 1]
        self.expect("compiling mnist", instructions(command, COMPILE), 11.4)

    def test_a_deep_model(self):
        # Costs that grow with the square of the layers take a quarter of these instructions.
        command = [SLUICE, "bench", "mlp", "--layers", 300, "--width", 8, "--threads", 1,
                   "--steps", 1]
        self.expect("building, compiling and proving 300 layers",
                    instructions(command, "sluice::train::build_training(*)", COMPILE, PLAN[0]),
                    1150)

    def test_plans_of_many_micro_batches(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as machine:
            json.dump(MACHINE, machine)
            machine.flush()

            def plan(count):
                return instructions([SLUICE, "plan", "mlp", "--width", 16, "--strategy",
                                     "pipelined", "--threads", 1, "--machine", machine.name,
                                     "--accumulate", count], *PLAN)
            few = plan(10_000)
            self.expect("proving and forecasting 2,147,483,647 micro-batches", plan(2_147_483_647),
                        round(1.5 * few, 2))  # Measured: 1.13.

    def test_a_proof(self):
        command = [CHECK_TEST, "--gtest_filter=Checker.WalksEachStepOnce"]
        self.expect("proving 1,000 calls", instructions(command, PROVE), 76)

    def test_a_report(self):
        command = [REPORT_TEST, "--gtest_filter=Report.WritesAHundredThousandEvents"]
        self.expect("writing 100,000 events", instructions(command, WRITE), 650)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[5:], verbosity=2)
