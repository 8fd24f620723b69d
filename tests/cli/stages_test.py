#!/usr/bin/env python3
"""Tests training in stages on several devices from the command line."""

import unittest

from cli_case import DIGITS, CliTest


class Stages(CliTest):
    MODEL = ["mnist-cnn", *DIGITS, "--micro-batch", 4, "--accumulate", 6, "--test-batch", 200,
             "--test-iterations", 1]
    CNN = [*MODEL, "--steps", 3]

    def digest(self, *flags):
        return self.record("train", *flags)["digest"]

    def test_every_strategy_has_the_bits_of_the_resident_step(self):
        resident = self.digest(*self.CNN, "--strategy", "resident")
        halves = ["--stages", "B1+B2,B3+B4"]
        for flags in (
            ["--devices", 4, "--strategy", "pipelined"],
            ["--devices", 4, "--strategy", "pipelined", "--schedule", "interleaved"],
            ["--strategy", "pipelined", "--schedule", "sequential", *halves],
            ["--devices", 4, "--strategy", "sharded"],
            ["--devices", 2, "--strategy", "pipelined", *halves],
            ["--strategy", "sharded", *halves],
            ["--strategy", "pipelined", "--offload", "optimizer,activations", *halves],
        ):
            with self.subTest(flags=flags):
                self.assertEqual(self.digest(*self.CNN, *flags), resident)
        replicas = [*self.CNN, "--replicas", 2]
        two = self.digest(*replicas, "--strategy", "resident")
        self.assertNotEqual(two, resident)
        pipelined = ["--strategy", "pipelined", *halves]
        self.assertEqual(self.digest(*replicas, "--devices", 4, *pipelined), two)
        self.assertEqual(self.digest(*self.CNN, "--devices", 4, *pipelined), two)
        named = ["--device-ids", "5,3,1,0", *pipelined]
        self.assertEqual(self.digest(*self.CNN, *named), two)
        self.assertIn("\ndevice 0 is cpu 5/1, device 1 is cpu 3/0\n",
                      self.expect_code(0, "plan", *self.CNN[:1], *named).stdout)

    def test_mnist_cnn_is_the_program_of_document_002(self):
        def plan(*flags):
            return self.expect_code(0, "plan", "mnist-cnn", "--full", *flags).stdout

        usual = plan()
        self.assertEqual(plan("--batch-size", 40, "--accumulate", 10, "--device-iterations", 10,
                              "--test-batch-size", 8, "--test-iterations", 100,
                              "--learning-rate", 0.001, "--optimizer", "adamw",
                              "--strategy", "pipelined", "--stages", "B1,B2,B3,B4"), usual)
        self.assertEqual(plan("--offload-optimiser"), plan("--offload", "optimizer"))
        plans = {usual, plan("--strategy", "sharded"), plan("--offload-optimiser"),
                 plan("--learning-rate=0.002"), plan("--batch-size", 20),
                 plan("--test-batch-size", 4), plan("--test-iterations", 10)}
        self.assertEqual(len(plans), 7)
        run = ["train", "mnist-cnn", *DIGITS, "--batch-size", 4, "--steps", 2]
        self.assertIn(" kernel tasks, ", self.expect_code(0, *run, "--debug").stderr)
        # All samples are tested, whatever the batches of a call.
        accuracies = {self.record(*run, "--test-iterations", n)["accuracy"] for n in (1, 7, 100)}
        self.assertEqual(len(accuracies), 1)

    def test_two_devices_hold_what_one_cannot(self):
        # Weights, the mean of their gradients and two values of state, in bytes.
        width, layers = 256, 6
        weights = [784 * width + width] + [width * width + width] * (layers - 2)
        weights.append(width * 10 + 10)
        model = ["mlp", "--layers", layers, "--width", width, "--dropout", 0, "--micro-batch", 2,
                 "--accumulate", 3, "--optimizer", "adam", "--offload", "none"]
        held = sum(weights) * 4 * 4
        budget = held * 2 // 3
        run = [*model, *DIGITS, "--steps", 3]
        self.expect_error(4, "does not fit", f"its budget is {budget}", "train", *run, "--memory",
                          budget)
        stages = ["--stages", "fc.0," + "+".join(f"fc.{i}" for i in range(1, layers))]
        digest = self.digest(*run)
        for strategy in ("pipelined", "sharded"):
            flags = ["--strategy", strategy, *stages, "--memory", budget]
            self.assertEqual(self.digest(*run, *flags), digest)
            record = self.record("plan", *model, *flags)
            self.assertLessEqual(record["planned_bytes"], budget)

    def test_updates_in_a_call_have_the_bits_of_single_ones(self):
        run = [*self.MODEL, "--steps", 6, "--optimizer", "adam"]
        single = self.digest(*run)
        for flags in (["--device-iterations", 3], ["--device-iterations", 6, "--threads", 1],
                      ["--device-iterations", 2, "--strategy", "pipelined", "--stages", 2]):
            with self.subTest(flags=flags):
                self.assertEqual(self.digest(*run, *flags), single)
        run += ["--lr-schedule", "linear", "--warmup-steps", 3]
        scheduled = self.digest(*run)
        self.assertNotEqual(scheduled, single)
        for flags in (["--device-iterations", 3],
                      ["--device-iterations", 6, "--strategy", "sharded", "--stages", 2],
                      ["--device-iterations", 2, "--strategy", "pipelined", "--stages", 2]):
            with self.subTest(flags=flags):
                self.assertEqual(self.digest(*run, *flags), scheduled)
        said = self.expect_code(0, "train", *run, "--device-iterations", 3, "--replicas", 2).stderr
        self.assertIn("micro-batch 4 x device iterations 3 x accumulate 6 x replicas 2 = 144 "
                      "samples a call, 7 calls an epoch, 16 samples dropped", said)
        # --steps counts updates: calls are shortened where they would do more or less.
        for asked, used in ((4, 3), (5, 3), (7, 6), (100, 6)):
            said = self.expect_code(0, "train", *run, "--device-iterations", asked, "--digest")
            self.assertIn(f"digest {scheduled}", said.stdout)
            self.assertIn(f"--device-iterations {asked}: calls of {used} updates, so that 6 steps "
                          "are whole calls\n", said.stderr)
        bench = ["bench", "mlp", "--width", 16, "--device-iterations", 4, "--steps"]
        for steps in (8, 6, 5):
            self.assertEqual(self.record(*bench, steps)["steps"], steps)
        for steps, calls in ((8, 2), (6, 2), (5, 5)):
            self.assertEqual(self.record(*bench, steps, "--synthetic")["runs"], calls)
        for part, flags in (
            ("--steps: must be a multiple of the N of --output-mode every:N, 4, got 6",
             [*run, "--device-iterations", 8, "--output-mode", "every:4"]),
            ("--device-iterations: must be an integer from 1", [*run, "--device-iterations", 0]),
        ):
            with self.subTest(flags=flags):
                self.expect_error(2, "usage", part, "train", *flags)

    def test_a_budget_of_each_device(self):
        stages = ["mnist-cnn", "--strategy", "pipelined", "--stages", "B1+B2,B3+B4"]
        self.expect_code(0, "plan", *stages, "--memory", "64M,32M")
        said = self.expect_code(4, "plan", *stages, "--memory", "64M,16K").stderr
        self.assertIn("device 1", said)
        self.assertIn("its budget is 16384", said)
        self.assertIn("its budget is 16384", self.expect_code(
            4, "plan", *stages, "--memory", "16K,64M").stderr)
        self.expect_error(
            2, "usage",
            "--memory: must have one limit or 2, one for each device of a replica, got 3", "plan",
            *stages, "--memory", "2M,1M,1M")

    def test_replicas_are_compared(self):
        model = ["mlp", *DIGITS, "--width", 32, "--steps", 6, "--optimizer", "adam"]
        check = ["--check-replicas", 2]
        two = [*model, "--replicas", 2]
        self.assertEqual(self.digest(*two, *check), self.digest(*two))
        sharded = [*two, "--shard-threshold", 8]
        self.assertEqual(self.digest(*sharded, *check), self.digest(*sharded))
        self.expect_error(2, "usage", "--check-replicas requires --replicas of at least 2",
                          "train", *model, *check)
        self.expect_error(2, "usage", "--check-replicas", "train", *two, "--check-replicas", 0)

    def test_refusals(self):
        pipelined = ["mnist-cnn", "--strategy", "pipelined"]
        for part, flags in (
            (
                "Unknown Block 'B5': the blocks of the model are B1, B2, B3, B4",
                [*pipelined, "--stages", "B1+B2,B3+B5"],
            ),
            (
                "block 'B2' must be in one stage, is associated with more than one stage: 0 and 1",
                [*pipelined, "--stages", "B1+B2,B2+B3+B4"],
            ),
            ("grouped, interleaved, sequential", [*pipelined, "--schedule", "zigzag"]),
            (
                "--devices: must be a multiple of the 3 devices of a replica, got 8",
                [*pipelined, "--stages", "B1,B2,B3+B4", "--devices", 8],
            ),
            (
                "--device-ids: must be a multiple of the 3 devices of a replica, got 2",
                [*pipelined, "--stages", "B1,B2,B3+B4", "--device-ids", "0,1"],
            ),
            (
                "--device-ids: must have each device once, got 2 twice",
                [*pipelined, "--device-ids", "0,2,1,2"],
            ),
            (
                "--device-ids: must be an integer from 0 to 4095, got 'cpu'",
                [*pipelined, "--device-ids", "0,cpu"],
            ),
            (
                "--device-ids cannot be combined with --devices",
                [*pipelined, "--device-ids", "0,1,2,3", "--devices", 4],
            ),
            (
                "--devices: must be 6 (3 of a replica, 2 replicas), got 8",
                [*pipelined, "--stages", "B1,B2,B3+B4", "--devices", 8, "--replicas", 2],
            ),
            (
                "--stages requires --strategy phased, pipelined or sharded (it is resident)",
                ["mnist-cnn", "--strategy", "resident", "--stages", "B1+B2,B3+B4"],
            ),
            (
                "--group requires --strategy phased (it is pipelined)",
                [*pipelined, "--group", 2],
            ),
            (
                "order: the group must divide the 10 micro-batches of an update, got 4",
                ["mnist-cnn", "--strategy", "phased", "--group", 4],
            ),
            ("stages: must be from 2 to 4096, or names of blocks, got '1'",
             [*pipelined, "--stages", 1]),
            (
                "--schedule requires --strategy pipelined (it is resident)",
                ["mnist-cnn", "--strategy", "resident", "--schedule", "grouped"],
            ),
            (
                "--schedule requires --strategy pipelined (it is sharded)",
                ["mnist-cnn", "--strategy", "sharded", "--schedule", "interleaved"],
            ),
        ):
            for command in ("train", "plan"):
                with self.subTest(command=command, flags=flags):
                    self.expect_error(2, "usage", part, command, *flags)


if __name__ == "__main__":
    unittest.main(verbosity=2)
