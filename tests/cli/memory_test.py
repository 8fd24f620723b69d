#!/usr/bin/env python3
"""Tests what the command line plans for a budget, and where it puts tensors."""

import json
import re
import tempfile
import unittest

from cli_case import DIGITS, SHORT, CliTest


class Memory(CliTest):
    def test_to_the_byte(self):
        planned = self.record("plan", "mnist", "--width", 64)["planned_bytes"]
        record = self.record("train", "mnist", *SHORT, "--memory", planned)
        self.assertEqual(record["planned_bytes"], planned)
        self.assertEqual(record["measured_bytes"], planned)
        for command in ("train", "plan", "bench"):
            arguments = ["mnist", "--width", 64, "--memory", planned - 1]
            result = self.expect_code(4, command, *arguments)
            refusal = (f"fits: no (device 0 {planned:,} of {planned - 1:,} bytes); "
                       f"smallest budget: device 0 {planned:,} bytes")
            self.assertEqual(result.stdout.partition("\n")[0], refusal if command == "plan" else "")
            self.assertIn(f"needs {planned} bytes, its budget is {planned - 1}", result.stderr)
            smallest = re.search(r"smallest budget found: (\d+) bytes; live-set bound: (\d+) bytes",
                                 result.stderr)
            self.assertIsNotNone(smallest, result.stderr)
            self.assertEqual(int(smallest[1]), planned)
            self.assertLessEqual(int(smallest[2]), planned)
            self.assertRegex(result.stderr, r"held at the peak:\n( +\d+ B  \S.*\n){6}")
            holders = re.findall(r"^ +(\d+) B  (.*)$", result.stderr, re.MULTILINE)
            for size, holder in holders[:3] if command == "plan" else []:
                self.assertRegex(result.stdout, rf"\| +{int(size):,} {re.escape(holder)}\n")

    def test_auto_offload(self):
        model = ["mnist", "--optimizer", "adam"]
        needs = {
            what: self.record("plan", *model, "--offload", what)["planned_bytes"]
            for what in ("none", "optimizer")
        }
        self.assertLess(needs["optimizer"], needs["none"])
        state = f"without it, device 0 (cpu) needs {needs['none']} bytes"
        for flags, choice, why in [
            ([], "none", "device memory has no budget (--memory)"),
            (["--memory", needs["none"]], "none", "the program fits --memory"),
            (["--memory", needs["none"] - 1], "optimizer", state),
            (["--memory", needs["optimizer"]], "optimizer", state),
            (["--remote", "none"], "none", "--remote none leaves no other memory"),
            (
                ["--remote", "none", "--memory", needs["none"]],
                "none",
                "--remote none leaves no other memory",
            ),
        ]:
            with self.subTest(flags=flags):
                self.expect_choice(choice, why, *model, *flags)
        self.expect_choice("optimizer",
                           "given by --offload",
                           *model,
                           "--offload",
                           "optimizer",
                           logged=False)
        deep = [*model, "--layers", 12, "--memory", "8M"]
        for more in ([], ["--clip-norm", 1]):
            said = self.expect_code(4, "plan", *deep, *more).stderr
            phased = re.search(r"--(strategy phased --offload \S+) fits", said)
            self.assertIsNotNone(phased, said)
            self.expect_code(0, "plan", *deep, *more, *f"--{phased[1]}".split())
            self.expect_code(0, "plan", *deep, *more, "--strategy", "phased")
        self.assertNotIn(" fits", self.expect_code(4, "plan", *model, "--memory", "64K").stderr)
        # The state may stay even if no other tensor may.
        self.expect_code(4, "plan", *model, "--memory", needs["none"] - 1, "--remote", "none")

    def test_a_failed_advice_does_not_replace_a_refusal(self):
        # Phases support these flags, so the advice keeps them.
        model = ["mlp", "--layers", 12, "--width", 64]
        threshold, outputs = ["--offload-threshold", 5], ["--output-mode", "every:2",
                                                          "--device-iterations", 4]
        budget = self.record("plan", *model, "--strategy", "phased")["planned_bytes"]
        for flags in (threshold, outputs, [*outputs, *threshold]):
            with self.subTest(flags=flags):
                self.expect_does_not_fit(1000, "train", *DIGITS, *model, *flags, "--memory", 1000)
                said = self.expect_does_not_fit(budget, "plan", *model, *flags, "--memory", budget)
                self.assertRegex(said, r"--strategy phased --offload \S+ fits")
        stages = ["--strategy", "pipelined", "--stages", 2, "--schedule", "interleaved"]
        self.expect_does_not_fit(1000, "plan", *model, *stages, "--memory", 1000)
        with tempfile.TemporaryDirectory() as folder:
            self.expect_does_not_fit(1000, "train", *model, *threshold, *DIGITS, "--memory", 1000,
                                     f"--profile={folder}")

    def expect_does_not_fit(self, budget, *arguments):
        said = self.expect_code(4, *arguments).stderr
        self.assertIn("error (does not fit): ", said)
        self.assertRegex(said, rf"needs \d+ bytes, its budget is {budget}\b")
        return said

    def test_auto_offload_adds_kinds_until_the_plan_fits(self):
        model = ["mlp", "--layers", 8, "--width", 64, "--micro-batch", 256, "--accumulate", 2]
        kinds, words = ["optimizer", "accumulators", "activations"], []
        model += ["--optimizer", "adam"]
        needs = [self.record("plan", *model, "--offload", "none")["planned_bytes"]]
        for kind in kinds:
            words.append(kind)
            needs.append(self.record("plan", *model, "--offload", ",".join(words))["planned_bytes"])
        self.assertEqual(sorted(needs, reverse=True), needs)
        for count, least in enumerate(needs[1:], 1):
            if least == needs[count - 1]:
                continue
            result = self.expect_code(0, "plan", *model, "--memory", least, "--json",
                                      "--print-after", "offsets")
            # Each program is compiled once.
            self.assertEqual(result.stderr.count("--- after offsets"), 1 + count)
            record = json.loads(result.stdout)
            self.assertEqual(set(record["offload"].split(",")), set(kinds[:count]))
            for kind, before, after in zip(kinds[:count], needs, needs[1:]):
                self.assertRegex(
                    record["offload_reason"],
                    rf"{kind} saves {before - after} bytes for [0-9.]+ ms an update")
        self.expect_code(4, "plan", *model, "--memory", needs[-1] - 1)

    def test_each_option_of_a_strategy_changes_the_plan(self):
        model = ["plan", "mlp", "--layers", 5, "--width", 16, "--optimizer", "adam", "--full",
                 "--accumulate", 3]
        kinds = ["optimizer", "weights", "activations", "accumulators"]
        every = ["--offload", ",".join(kinds)]
        for strategy in ("resident", "phased"):
            base = [*model, "--strategy", strategy]
            ways = [["--offload", "none"], ["--offload", "none", "--recompute"],
                    ["--offload", "none", "--recompute-blocks", "fc.1"]]
            ways += [["--offload", kind] for kind in kinds]
            ways += [[*every, "--io-mode", mode] for mode in ("compute", "io", "io_overlapped")]
            ways += [[*every, "--remote", f"file:{tempfile.gettempdir()}"], [*every, "--recompute"],
                     [*every, "--io-mode", "io_overlapped", "--io-queues", 3],
                     [*every, "--offload-threshold", 17]]
            plans = {}
            for way in ways:
                text = self.expect_code(0, *base, *way).stdout
                plan = re.sub(r"(?m)^(offload|compiled).*", "", text)
                self.assertNotIn(plan, plans, f"{way} has the plan of {plans.get(plan)}")
                plans[plan] = way

    def test_no_offload_raises_the_peak(self):
        kinds = ["optimizer", "weights", "activations", "accumulators"]
        model = ["mlp", "--layers", 6, "--width", 64, "--micro-batch", 64, "--accumulate", 2,
                 "--optimizer", "adam"]
        for strategy in ("resident", "phased"):
            for recompute in ([], ["--recompute"]):
                flags = ["plan", *model, "--strategy", strategy, *recompute, "--offload"]
                before = self.record(*flags, "none")["planned_bytes"]
                for kind in kinds:
                    with self.subTest(strategy=strategy, kind=kind):
                        self.assertLessEqual(self.record(*flags, kind)["planned_bytes"], before)

    def test_phases_need_less_than_a_resident_step(self):
        def planned(depth, *flags):
            return self.record("plan", "mlp", "--layers", depth, "--optimizer", "adam",
                               *flags)["planned_bytes"]

        for mode in ("compute", "io", "io_overlapped"):
            self.assertLess(planned(12, "--strategy", "phased", "--io-mode", mode), planned(12))
        for depth in (3, 4, 5):
            self.assertLess(planned(depth, "--strategy", "phased", "--io-mode", "io"),
                            planned(depth))

    def expect_choice(self, choice, why, *flags, logged=True):
        """Every command prints the choice and its reason on one line of its text and record."""
        line = f"offload: {choice}; {why}"
        text = self.expect_code(0, "plan", *flags).stdout
        self.assertEqual(len(re.findall("(?m)^offload: ", text)), 1)
        self.assertIn(line, " ".join(text.split()))  # It has two lines where it is long.
        for command in (["plan", *flags], ["train", *flags, *DIGITS, "--steps", 1],
                        ["bench", *flags, "--steps", 1]):
            result = self.expect_code(0, *command, "--json")
            record = json.loads(result.stdout)
            self.assertEqual(record["offload"], choice)
            self.assertEqual(record["offload_reason"][:len(why)], why)
            if command[0] != "plan":
                self.assertEqual(result.stderr.count(line), 1 if logged else 0)

    def test_phases_start_with_remote_weights_and_state(self):
        model = ["mlp", "--layers", 24, "--width", 128]
        why = ("phased runs offload weights, state and activations by default; --offload changes "
               "this")
        for optimizer, choice in (("adam", "optimizer,weights,activations"),
                                  ("sgd", "weights,activations")):
            flags = [*model, "--optimizer", optimizer]
            phased = [*flags, "--strategy", "phased"]
            resident, kept = self.record("plan", *flags), self.record("plan", *phased, "--offload",
                                                                      "none")
            plan, asked = self.record("plan", *phased), self.record("plan", *phased, "--offload",
                                                                    "optimizer,weights,activations")
            self.assertLess(plan["planned_bytes"], resident["planned_bytes"] / 2)
            self.assertGreater(kept["planned_bytes"], plan["planned_bytes"] * 2)
            for key in ("planned_bytes", "peak_bytes.host", "transfers"):
                self.assertEqual(plan[key], asked[key])
            for more in ([], ["--memory", plan["planned_bytes"]]):
                self.expect_choice(choice, why, *phased, *more)
            self.expect_code(4, "plan", *phased, "--offload", choice, "--memory",
                             plan["planned_bytes"] - 1)
        for flags, part in (
            (
                ["--strategy", "phased"],
                "--strategy phased requires --remote host or file:DIR (it is none)",
            ),
            (["--offload", "optimizer"], "--offload optimizer requires --remote host or file:DIR"),
        ):
            self.expect_error(2, "usage", part, "plan", *model, *flags, "--remote", "none")

    def test_units(self):
        self.expect_code(4, "plan", "mnist", "--memory", "512K")
        self.expect_code(0, "plan", "mnist", "--memory", "64M")


if __name__ == "__main__":
    unittest.main(verbosity=2)
