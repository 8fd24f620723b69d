#!/usr/bin/env python3
"""Tests what the command line shows of a network's blocks and results."""

import re
import unittest

from cli_case import DIGITS, CliTest


class Blocks(CliTest):
    def test_train_shows_its_accuracy_where_the_network_returns_scores(self):
        run = ["train", "mlp-skip", "--width", 64, "--micro-batch", 32]
        learns = [*run, "--synthetic", "--steps", 320]
        result = self.expect_code(0, *learns)
        accuracy = float(re.search(r", train accuracy (\d+\.\d\d) %, ", result.stdout)[1])
        self.assertGreater(accuracy, 75)
        self.assertIn(f" | Accuracy:{accuracy:.2f}%", result.stderr.replace("\r", "\n"))
        record = self.record(*learns)
        self.assertAlmostEqual(record["train_accuracy"], accuracy, places=2)
        self.assertGreater(record["accuracy"], 80)
        self.assertNotIn("train_accuracy", self.record(*run, *DIGITS, "--steps", 0))
        short = [*DIGITS, "--width", 32, "--steps", 8]
        record = self.record("train", "mnist", *short)
        self.assertNotIn("train_accuracy", record)
        self.assertNotIn("train accuracy", self.expect_code(0, "train", "mnist", *short).stdout)

    def test_a_plan_names_phases_in_order(self):
        rows = "fc.0 fwd, fc.1 … fc.4 fwd, fc.5 fwd, fc.5 bwd, fc.1 … fc.4 bwd, fc.0 bwd"
        flags = ["plan", "mlp", "--layers", 6, "--width", 32, "--dropout", 0]
        for more in ([], ["--recompute"], ["--io-mode", "io_overlapped"],
                     ["--optimizer", "adam", "--replicas", 2, "--shard-threshold", 8]):
            for steps in (1, 3):
                phased = [*flags, "--strategy", "phased", "--accumulate", steps, *more]
                with self.subTest(flags=phased):
                    text = self.expect_code(0, *phased).stdout
                    self.assertIn(f"\nphases of 'train': {rows}\n", text)
        phased = [*flags, "--strategy", "phased", "--accumulate", 2]
        self.assertEqual(self.record(*phased)["phase_list"], [{
            "program": "train",
            "phases": [{"phase": p} for p in rows.split(", ")]
        }])
        # With all tensors on the device, blocks are not the rows of loops.
        apart = [*range(6)]
        self.assertEqual(
            self.record(*phased, "--offload", "none")["phase_list"][0]["phases"],
            [{"phase": f"fc.{i} fwd"} for i in apart] +
            [{"phase": f"fc.{i} bwd"} for i in reversed(apart)])
        table = self.expect_code(0, *phased, "--memory-map").stdout
        self.assertRegex(table, r"(?m)^fc\.0_bwd__\S+ .*  fc\.0 bwd, a micro-batch of a loop$")
        self.assertRegex(table, r"(?m)^rows_\S+ .*  fc\.1 … fc\.4 fwd, a row of a loop$")
        self.assertIn(f"phases of 'train', in order: {rows}\n", table)
        skip = self.expect_code(0, "plan", "mlp-skip", "--layers", 7, "--width", 32, "--strategy",
                                "phased", "--memory-map").stdout
        self.assertIn(
            "order: in fwd, res.0 fwd, res.1 … res.2 fwd, aside fwd, res.3 … res.4 fwd, out fwd, "
            "out bwd, res.3 … res.4 bwd, aside bwd, res.1 … res.2 bwd, res.0 bwd, in bwd\n", skip)
        self.assertNotIn("phases of", self.expect_code(0, *flags).stdout)
        self.assertEqual(self.record(*flags)["phase_list"], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
