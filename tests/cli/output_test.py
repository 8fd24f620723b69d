#!/usr/bin/env python3
"""Tests the results that a call of the training program returns (--output-mode)."""

import unittest

from cli_case import DIGITS, FolderTest

MODES = ["all", "final", "sum", "every:2", "every:4"]


class Output(FolderTest):
    CNN = ["mnist-cnn", *DIGITS, "--batch-size", 4, "--accumulate", 3, "--test-batch", 200,
           "--test-iterations", 1, "--steps", 8]

    def train(self, *flags):
        return self.record("train", *self.CNN, *flags)

    def test_the_plan_has_the_bytes_of_the_results(self):
        for mode, text, result in (
            ("all", "loss (100,), logits (4000, 10): 160400 bytes; --output-mode final: 1604",
             160400),
            ("final", "loss (), logits (40, 10): 1604 bytes; --output-mode all: 160400", 1604),
            ("sum", "loss (), logits (40, 10): 1604 bytes; --output-mode all: 160400, final: 1604",
             1604),
            ("every:5", "loss (20,), logits (800, 10): 32080 bytes; --output-mode all: 160400, "
             "final: 1604", 32080),
        ):
            with self.subTest(mode=mode):
                flags = ["plan", "mnist-cnn", "--output-mode", mode]
                self.assertIn(f"\nresults of a call: {text}\n", self.expect_code(0, *flags).stdout)
                record = self.record(*flags)
                self.assertEqual(record["result_bytes"], result)
                written = 160400 if mode.startswith("every") else result
                # Images and labels of 4,000 samples, the results, and with `final` the loss's sum.
                self.assertEqual(record["stream_bytes"],
                                 4000 * (784 + 1) * 4 + written + 4 * (mode == "final"))
        usual = self.expect_code(0, "plan", "mnist-cnn", "--full").stdout
        self.assertEqual(
            self.expect_code(0, "plan", "mnist-cnn", "--full", "--output-mode", "all").stdout,
            usual)

    def test_a_run_says_once_what_a_call_returns(self):
        run = ["train", *self.CNN]
        said = self.expect_code(0, *run, "--device-iterations", 4, "--replicas", 2).stderr
        self.assertEqual(said.count("\nresults of a call: loss (24,), logits (96, 10): 3936 bytes; "
                                    "--output-mode final: 328\n"), 1)
        self.assertNotIn("results of a call", self.expect_code(0, *run).stderr)

    def test_the_loss_is_that_of_all_micro_batches_in_each_mode(self):
        found, weights = {}, set()
        for mode in MODES:
            found[mode] = self.train("--device-iterations", 4, "--output-mode", mode, "--save",
                                     self.weights)
            weights.add(self.weights.read_bytes())
        self.assertEqual(len(weights), 1)
        self.assertEqual(len({r["digest"] for r in found.values()}), len(MODES))
        # A program of one update a call has the loss of the last update.
        self.assertNotEqual(found["all"]["loss"], self.train()["loss"])
        for mode, record in found.items():
            self.assertAlmostEqual(record["loss"], found["all"]["loss"], delta=1e-6)
            self.assertEqual("train_accuracy" in record, mode in ("all", "final"), mode)
        self.assertEqual(self.train("--device-iterations", 4)["digest"], found["all"]["digest"])
        self.assertEqual(self.train("--device-iterations", 4, "--output-mode", "every:1")["digest"],
                         found["all"]["digest"])

    def test_modes_have_the_same_results_in_every_strategy(self):
        for mode in ("final", "sum"):
            digests = {
                self.train("--device-iterations", 4, "--output-mode", mode, *flags)["digest"]
                for flags in ([], ["--strategy", "sharded"], ["--strategy", "resident"])
            }
            self.assertEqual(len(digests), 1)

    def test_refusals(self):
        for part, flags in (
            ("--output-mode: must be one of all, final, sum, every:N with N of at least 1, got "
             "'finall'; did you mean "
             "final?", ["--output-mode", "finall"]),
            ("--output-mode: must be one of all, final, sum, every:N with N of at least 1, got "
             "'every:0'", ["--output-mode", "every:0"]),
            ("every:N with N of at least 1, got 'every:N'", ["--output-mode", "every:N"]),
            ("--output-mode: must be one of", ["--output-mode", "every"]),
            ("--output-mode every:N: N must be a divisor of --device-iterations 10, got 3",
             ["--output-mode", "every:3"]),
        ):
            for command in ("train", "plan"):
                with self.subTest(command=command, flags=flags):
                    self.expect_error(2, "usage", part, command, "mnist-cnn", *flags)
        for command in ("eval", "predict", "bench"):
            self.expect_error(2, "usage", f"--output-mode: must be an option of sluice {command}",
                              command, "mnist-cnn", "--output-mode", "all")


if __name__ == "__main__":
    unittest.main(verbosity=2)
