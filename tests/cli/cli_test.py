"""The command line's contract: --json, budgets, learning rates and bits.

SLUICE_CLI names the program. Runs are short.
"""

import json
import os
import re
import sys
import tempfile
import unittest

from cli_case import DIGITS, SHORT, CliTest, sluice
from machine_test import FLAT
from readers.report_reader import Report

RECORD_KEYS = [
    "loss", "accuracy", "steps", "samples_per_second", "planned_bytes", "measured_bytes", "digest",
    "compile_seconds"
]


class Records(CliTest):
    def test_version(self):
        self.assertRegex(self.expect_code(0, "--version").stdout,
                         r"^sluice \d+\.\d+\.\d+ \(\w+\)\n$")

    def test_train(self):
        record = self.record("train", "mnist", *SHORT)
        for key in RECORD_KEYS:
            self.assertIn(key, record)
        self.assertEqual(record["steps"], 30)
        self.assertGreater(record["loss"], 0)
        self.assertTrue(1 <= record["accuracy"] <= 100)
        self.assertGreater(record["samples_per_second"], 0)
        self.assertRegex(record["digest"], r"^(fma|base)-[0-9a-f]{32}$")
        self.assertGreater(record["compile_seconds"], 0)
        self.assertEqual(record["planned_bytes"], record["measured_bytes"])

    def test_plan_says_what_fused_and_what_not(self):
        flags = ["plan", "mnist", "--width", 64, "--fusions"]
        plan = self.expect_code(0, *flags).stdout
        self.assertRegex(plan, r"fused +\d+ x MatMul\+Add\+Gelu\n")
        self.assertRegex(
            plan, r"not fused +\d+ x MatMul\+Add after MatMul\+Add\+Gelu: no kernel runs both\n")
        self.assertNotIn("fused ", self.expect_code(0, *flags, "--disable", "fuse").stdout)

    def test_plan_says_what_a_step_moves(self):
        flags = [
            "plan", "mnist", "--width", 64, "--micro-batch", 8, "--optimizer", "adam", "--offload",
            "optimizer"
        ]
        record = self.record(*flags)
        state = record["tier_bytes"]
        self.assertGreater(state, 0)
        self.assertEqual(state % 2, 0)  # Each loaded value is stored too.
        self.assertEqual(record["stream_bytes"] >= 8 * 784 * 4, True)
        self.assertLessEqual(record["io_queue_transfers"], record["transfers"])
        self.assertRegex(
            self.expect_code(0, *flags, "--memory-map").stdout,
            rf"tier host on queue io, a run of 'train': \d+ in, {state // 2:,} bytes; "
            rf"\d+ out, {state // 2:,} bytes\n")

    PLANS = [["mnist"], ["mnist-rts"], ["mnist-phased"],
             ["mnist-cnn", "--strategy", "resident"],
             ["mlp", "--layers", 128, "--strategy", "phased"],
             ["mlp-skip", "--layers", 20, "--strategy", "phased"],
             [
                 "mlp", "--layers", 40, "--strategy", "phased", "--optimizer", "adam",
                 "--accumulate", 4, "--recompute", "--io-mode", "io_overlapped", "--memory", "16M",
                 "--remote-memory", "2G"
             ]]

    def expect_screen(self, flags, text):
        self.assertLessEqual(len(text.splitlines()), 25, text)
        self.assertLessEqual(max(map(len, text.splitlines())), 100, text)
        self.assertIsNone(
            re.search(r"subgraph|__t\d|remote\d|accum\.|_remote_load|Gradient___|_\d", text), text)
        self.assertTrue(
            text.startswith("fits: yes (" if "--memory" in flags else "fits: no budget is given; "),
            text)
        raw = self.expect_code(0, "plan", *flags, "--memory-map").stdout
        self.assertIn("  at the peak", raw)

    def test_a_plan_fits_a_screen_and_has_the_numbers_of_its_record(self):
        # Measured rates differ between two processes, and so would their suggestions.
        machine = tempfile.NamedTemporaryFile("w", suffix=".json")
        self.addCleanup(machine.close)
        json.dump(FLAT | {"flops": 1e11, "copies": 1e10, "remote": 1e10}, machine)
        machine.flush()
        compared = 0
        for plan in self.PLANS:
            flags = [*plan, "--machine", machine.name]
            with self.subTest(flags=flags):
                record = self.record("plan", *flags)
                text = self.expect_code(0, "plan", *flags).stdout
                self.expect_screen(flags, text)
                self.assertIs(record["fits"], True)
                self.assertEqual(record["functions"], len(record["function_list"]))
                self.assertEqual(
                    record["transfers"],
                    sum(t["loads"] + t["stores"] for t in record["transfer_list"]
                        if t["program"] == "train"))
                for memory in record["memories"]:
                    self.assertIn(f"{memory['name']}: {memory['total_bytes']:,} bytes", text)
                    self.assertEqual(sum(kind["bytes"] for kind in memory["kinds"]),
                                     memory["total_bytes"])
                    self.assertTrue(all(kind["bytes"] > 0 for kind in memory["kinds"]),
                                    memory["kinds"])
                    for kind in memory["kinds"][:3]:
                        self.assertRegex(
                            text, rf"(?m)^  [#.]{{12}} +{kind['bytes']:,} {kind['kind']}( |$)")
                    for holder in memory["holders"][:3]:
                        self.assertRegex(
                            text, rf"(?m)\| +{holder['bytes']:,} {re.escape(holder['place'][:20])}")
                largest = max(record["function_list"], key=lambda f: f["frame_bytes"])
                self.assertRegex(
                    text,
                    rf"(?m)^ +{largest['frame_bytes']:,} {re.escape(largest['place'])}, "
                    rf"{largest['steps']} steps$"
                )
                for t in record["transfer_list"]:
                    if t["program"] == "train" and t["memory"] == "streams":
                        self.assertIn(
                            f"streams {t['loaded_bytes']:,} in, {t['stored_bytes']:,} out", text)
                # A busy machine leaves out the bytes of some, whose order then differs.
                if "(bytes not computed)" in text or \
                        not all("device_bytes" in s for s in record["suggestions"]):
                    continue
                for s in record["suggestions"][:3]:
                    compared += 1
                    self.assertIn(
                        f" {s['option']}: {s['device_bytes']:,} bytes on the device", text)
        self.assertGreater(compared, 0)

    def test_suggestions_do_what_they_say(self):
        plan = ["plan", "mnist", "--optimizer", "adam", "--accumulate", 2]
        for flags, expected in (
            (plan, {"--offload optimizer", "--strategy phased"}),
            # Its own offload would move less.
            (["plan", "mnist-rts"], {"--strategy phased --offload auto"}),
            # The smaller program fits without the offload.
            (
                [
                    "plan", "mnist", "--optimizer", "adam", "--width", 128, "--memory", 5000000,
                    "--test-batch", 1024
                ],
                {"--strategy phased", "--test-batch 512 --offload optimizer"},
            ),
        ):
            record = self.record(*flags)
            options = {s["option"]: s for s in record["suggestions"]}
            self.assertLessEqual(expected, set(options))
            for option, s in options.items():
                with self.subTest(flags=flags, option=option):
                    kept = flags[:-2] if option.startswith(str(flags[-2])) else flags
                    self.assertLess(s["device_bytes"], record["planned_bytes"])
                    self.assertEqual(self.record(*kept, *option.split())["planned_bytes"],
                                     s["device_bytes"])

    def test_plan_says_what_train_takes(self):
        self.assertEqual(
            self.record("plan", "mnist", "--width", 64)["planned_bytes"],
            self.record("train", "mnist", *SHORT)["measured_bytes"])

    def test_bench(self):
        record = self.record("bench", "mnist", "--steps", 20, "--width", 64)
        self.assertEqual(record["steps"], 20)
        self.assertGreater(record["samples_per_second"], 0)

    def test_bench_on_ones(self):
        flags = ["bench", "mnist", "--synthetic", "--width", 64]
        number = r"\d+(\.\d+)?(e-\d+)?"
        line = rf"Mean duration: {number} s Throughput: +\d+\.\d samples/s \n"
        self.assertRegex(
            self.expect_code(0, *flags).stdout, rf"^train session\n{line}test session\n{line}$")
        record = self.record(*flags, "--steps", 3)
        self.assertEqual(record["runs"], 3)
        self.assertAlmostEqual(record["train_samples_per_second"] * record["train_mean_seconds"], 8)
        self.assertAlmostEqual(record["test_samples_per_second"] * record["test_mean_seconds"], 80)
        self.expect_error(2, "usage", "--synthetic requires a model", "bench", "--synthetic")

    BENCH = ["bench", "--rounds", 1]

    def test_bench_suite_with_and_without_pytorch(self):
        for python in (sys.executable, "/no/such/python", "/bin/true"):  # With and without torch.
            with self.subTest(python=python):
                only = [
                    *self.BENCH, "--threads", 2, "--only", "8 layers of 8x8", "--python", python
                ]
                record = self.record(*only)
                self.assertEqual([p["python"] for p in record["pytorch"]], [python])
                self.assertNotEqual(record["pytorch"][0]["version"] == "",
                                    record["pytorch"][0]["trouble"] == "")
                self.check_bench_rows(record, [("step", "8 layers of 8x8, batch 8, SGD", 2)])
        table = self.expect_code(0, *only).stdout
        self.assertRegex(
            table, r"(?m)^case +thr +Sluice +limit +part .* met +goal\n"
            r"step 8 layers of 8x8, batch 8, SGD +2 +[\d.]+ us .* (yes|NO) +<= 20 us$")
        self.assertIn("PyTorch : /bin/true (its process ended)", table)

    def test_bench_suite_has_every_kind(self):
        for group, name, threads in [
            ("limit", "hand-over between spinning threads", [2]),
            ("gemm", "64,512,10 dX", [1, 2]),
            ("memory", "sum-of-all", [1, 2]),
            ("compile", "perceptron of 4 layers", [1]),
        ]:
            with self.subTest(group=group):
                only = [*self.BENCH, "--only", f"{group} {name}", "--python", "/no/such/python"]
                self.check_bench_rows(self.record(*only, "--threads", 2),
                                      [(group, name, t) for t in threads])
                if 1 in threads:
                    self.check_bench_rows(self.record(*only, "--threads", 1), [(group, name, 1)])

    def check_bench_rows(self, record, expected):
        self.assertEqual([(r["group"], r["case"], r["threads"]) for r in record["rows"]], expected)
        for row in record["rows"]:
            self.assertGreater(row["measured"], 0)
            self.assertGreater(row["best"], 0)
            if row["limit"] is not None:
                self.assertGreater(row["limit"], 0)
                self.assertGreater(row["part"], 0)
            for goal in row["goals"]:
                self.assertIn(goal["of"], ["part", "pytorch", "one thread", "at most"])
                self.assertEqual(goal["met"] is None, goal["value"] is None)

    def test_stdout_carries_results_and_stderr_the_rest(self):
        result = self.expect_code(0, "train", "mnist", *SHORT, "--digest")
        self.assertRegex(result.stdout, r"(?m), accuracy \d+\.\d\d %, top5 accuracy")
        self.assertRegex(result.stdout, r"(?m)^digest (fma|base)-[0-9a-f]{32}$")
        self.assertNotIn("samples dropped", result.stdout)
        self.assertIn("samples dropped", result.stderr)
        self.assertNotIn("\033", result.stdout + result.stderr)
        quiet = self.expect_code(0, "train", "mnist", *SHORT, "--log-level", "error")
        self.assertEqual(quiet.stderr, "")

    def test_divergence(self):
        self.expect_error(6, "diverged", "step", "train", "mnist", *SHORT, "--lr", "1e30")


class Rates(CliTest):
    DEFAULTS = {
        "sgd": 0.05,
        "momentum": 0.005,
        "nesterov": 0.005,
        "adam": 0.001,
        "adam-f16": 0.001,
        "adamw": 0.001,
        "adamax": 0.002,
        "lamb": 0.002,
        "rmsprop": 0.001
    }

    def test_each_optimizer_learns_at_its_own(self):
        digests = set()
        for optimizer, rate in self.DEFAULTS.items():
            with self.subTest(optimizer=optimizer):
                run = [
                    "train", "mnist", "--width", 128, "--threads", 1, "--optimizer", optimizer
                ]
                self.assertGreater(self.record(*run, "--synthetic")["accuracy"], 90)
                short = [*run, *DIGITS, "--steps", 5]
                digest = self.record(*short)["digest"]
                digests.add(digest)
                self.assertEqual(self.record(*short, "--lr", rate)["digest"], digest)
                self.assertNotEqual(self.record(*short, "--lr", 2 * rate)["digest"], digest)
        self.assertEqual(len(digests), len(self.DEFAULTS))

    def test_deep_networks_do_not_diverge(self):
        for optimizer in self.DEFAULTS:
            record = self.record("train", "mlp", "--layers", 64, "--width", 64, "--optimizer",
                                 optimizer, "--synthetic", "--steps", 50, "--threads", 1)
            self.assertLess(record["loss"], 4, optimizer)

    def test_help_names_them(self):
        rates = ", ".join(f"{optimizer} {rate}" for optimizer, rate in self.DEFAULTS.items())
        for command in ("train", "plan", "bench"):
            self.assertIn(f"Set the learning rate (default: {rates})",
                          " ".join(self.expect_code(0, command, "--help").stdout.split()))


class Bits(CliTest):
    FLAGS = ["train", "mnist", *SHORT, "--dropout", "0.1", "--optimizer", "adam", "--lr", "0.001"]

    @classmethod
    def setUpClass(cls):
        cls.plain = json.loads(sluice(*cls.FLAGS, "--json").stdout)

    def assert_same_bits(self, record):
        for key in ("digest", "loss", "accuracy"):
            self.assertEqual(record[key], self.plain[key])

    # session_test (SameBits) has other threads, instruction sets, passes and budgets.
    def test_options_reach_the_run_and_keep_its_bits(self):
        isas = re.search(r"instruction sets +([\w ]+)\(", sluice("doctor").stdout)[1].split()
        isa = isas[:2][-1]  # Equal bits without FMA are slow: see isa_test.
        with tempfile.TemporaryDirectory() as folder:
            result = self.expect_code(
                0, *self.FLAGS, "--threads", 3, "--disable", "fuse", "--memory", "64M",
                f"--profile={folder}", "--log-level", "debug", "--json", env={"SLUICE_ISA": isa})
            device, = Report(f"{folder}/training/report.json").data["devices"]
        self.assertEqual((device["workers"], device["isa"], device["budget_bytes"]),
                         (3, isa, 64 << 20))
        self.assertRegex(result.stderr, r"(?m)^pass fuse +disabled ")
        self.assert_same_bits(json.loads(result.stdout))

    def test_offloaded_state(self):
        with tempfile.TemporaryDirectory() as folder:
            for remote in ("host", f"file:{folder}"):
                with self.subTest(remote=remote):
                    flags = ["--offload", "optimizer", "--remote", remote, "--threads", "2"]
                    self.assert_same_bits(self.record(*self.FLAGS, *flags))
                    plans = [
                        self.record("plan", "mnist", "--optimizer", "adam", *f)
                        for f in (flags, flags[-2:])
                    ]
                    self.assertLess(plans[0]["planned_bytes"], plans[1]["planned_bytes"])
                    self.assertEqual(os.listdir(folder), [])

    # bench/equality_matrix.py shows that phases and shards compute the same bits.
    def test_what_phases_and_shards_save(self):
        def planned(*way):
            return self.record("plan", "mnist", "--layers", 5, "--width", 64, "--optimizer", "adam",
                               "--accumulate", 4, *way)["planned_bytes"]

        resident = planned("--offload", "none")
        for way in (["--offload", "optimizer"], ["--strategy", "phased"],
                    ["--strategy", "phased", "--offload", "weights,optimizer,activations",
                     "--recompute"]):
            with self.subTest(way=way):
                self.assertLess(planned(*way), resident)
        for replicas in (2, 4):
            for phased in ([], ["--strategy", "phased", "--offload",
                                "optimizer,weights,activations"]):
                whole = planned("--replicas", replicas, *phased)
                for threshold in (0, 512):
                    with self.subTest(replicas=replicas, threshold=threshold, phased=phased):
                        self.assertLess(
                            planned("--replicas", replicas, "--shard-threshold", threshold,
                                    *phased), whole)

    def test_bytes_of_state_per_update(self):
        parameters, variables = 784 * 64 + 64 + 64 * 10 + 10, 4
        moved = {
            "sgd": 0,
            "momentum": 8 * parameters,
            "nesterov": 8 * parameters,
            "rmsprop": 8 * parameters,
            "adam": 16 * parameters,
            "adam-f16": 12 * parameters,
            "adamax": 16 * parameters
        }
        # Scalars stay on the device, unless the threshold states otherwise.
        scalars = {"adam": 8 * variables, "adamax": 8 * variables}
        for optimizer, expected in moved.items():
            for ways in ([], ["--strategy", "phased", "--accumulate", 2],
                         ["--offload-threshold", 0]):
                if "--offload-threshold" in ways:
                    expected += scalars.get(optimizer, 0)
                with self.subTest(optimizer=optimizer, ways=ways):
                    plan = [
                        "plan", "mnist", "--width", 64, "--layers", 2, "--optimizer", optimizer,
                        *ways
                    ]
                    self.assertEqual(
                        self.record(*plan, "--offload", "optimizer")["state_bytes_per_update"],
                        expected)
                    self.assertEqual(
                        self.record(*plan, "--offload", "none")["state_bytes_per_update"], 0)
        # A call of several updates moves the state for each of them.
        plan = ["plan", "mnist", "--width", 64, "--layers", 2, "--optimizer", "adam", "--offload",
                "optimizer"]
        self.assertEqual(
            self.record(*plan, "--device-iterations", 3)["state_bytes_per_update"],
            self.record(*plan)["state_bytes_per_update"])

    def test_samples_of_replicas(self):
        said = self.expect_code(0, *self.FLAGS, "--accumulate", "2", "--replicas", 3).stderr
        self.assertIn("micro-batch 8 x accumulate 2 x replicas 3 = 48 samples a step, 21 steps an "
                      "epoch, 16 samples dropped", said)

    def test_models_of_the_documents(self):
        flags = [
            "--replicas", 4, "--accumulate", 8, "--micro-batch", 8, "--optimizer", "adam-f16",
            "--offload", "optimizer"
        ]
        for threshold, state in (
            ("inf", 11188344),
            (262145, 7575672),
            (1024, 2811000),
            (512, 2797176),
        ):
            for model in (["mnist-rts"], ["mnist", *flags]):
                record = self.record("plan", *model, "--shard-threshold", threshold)
                self.assertEqual(record["state_bytes_per_update"], state)
        self.expect_error(2, "usage", "--replicas: must be an integer", "train", "mnist",
                          "--replicas", "1,2")
        # train_test (TrainingStep) has the other combinations.
        short = ["train", "mnist-phased", *DIGITS, "--steps", 4, "--width", 64]
        digests = {
            self.record(*short, "--shard-threshold", threshold, *way)["digest"]
            for threshold, way in (
                ("inf", ["--strategy", "resident", "--offload", "none"]),
                (0, ["--io-mode", "compute"]), (512, ["--io-mode", "io", "--threads", 3]),
                ("inf", ["--io-mode", "io_overlapped", "--recompute"]),
                (0, ["--offload", "weights", "--threads", 1]), (512, ["--offload", "optimizer"]))
        }
        self.assertEqual(len(digests), 1)

    def test_what_changes_the_bits(self):
        for way in (["--seed", 1], ["--clip-norm", "0.05"]):
            self.assertNotEqual(self.record(*self.FLAGS, *way)["digest"], self.plain["digest"], way)


if __name__ == "__main__":
    unittest.main(verbosity=2)
