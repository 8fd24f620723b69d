"""The command line's contract: exit codes, help, --json, budgets and bits.

SLUICE_CLI names the program. Runs are short and use generated digits.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.environ["SLUICE_CLI"]
COMMANDS = ["train", "eval", "plan", "bench", "inspect", "doctor"]
SHORT = ["--synthetic", "--steps", "30", "--width", "64"]
MOST = 2 ** 63 - 1  # The largest integer of most flags.
RECORD_KEYS = ["loss", "accuracy", "steps", "samples_per_second", "planned_bytes", "measured_bytes", "digest",
               "compile_seconds"]


def sluice(*arguments, env=None):
    return subprocess.run([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env={**os.environ, **(env or {})}, timeout=240)


class CliTest(unittest.TestCase):
    def expect_code(self, code, *arguments, env=None):
        result = sluice(*arguments, env=env)
        self.assertEqual(result.returncode, code, f"{arguments}\n{result.stdout}\n{result.stderr}")
        return result

    def expect_error(self, code, kind, part, *arguments, env=None):
        """The run ends with `code` and "error (kind): ... part ..." on stderr, with nothing on stdout."""
        result = self.expect_code(code, *arguments, env=env)
        self.assertIn(f"error ({kind}): ", result.stderr)
        self.assertIn(part, result.stderr)
        self.assertEqual(result.stdout, "")

    def record(self, *arguments, env=None):
        return json.loads(self.expect_code(0, *arguments, "--json", env=env).stdout)


class Start(CliTest):
    def test_version_comes_at_once(self):
        times = []
        for _ in range(10):
            begin = time.perf_counter()
            result = self.expect_code(0, "--version")
            times.append(time.perf_counter() - begin)
        self.assertRegex(result.stdout, r"^sluice \d+\.\d+\.\d+ \(\w+\)\n$")
        self.assertLess(min(times), 0.050)

    def test_compiling_takes_no_time(self):
        self.assertLess(min(self.record("plan", "mnist")["compile_seconds"] for _ in range(3)), 0.2)


class Usage(CliTest):
    def test_help_shows_groups_and_fits_a_screen(self):
        self.assertLess(len(self.expect_code(0, "--help").stdout.splitlines()), 25)
        for command in COMMANDS:
            text = self.expect_code(0, command, "--help").stdout
            every = self.expect_code(0, command, "--help-all").stdout
            with self.subTest(command=command):
                self.assertLess(len(text.splitlines()), 55)
                for line in text.splitlines():
                    self.assertIn(line, every.splitlines())
                    self.assertLessEqual(len(line), 100)
        text = self.expect_code(0, "train", "--help").stdout
        for group in ("Model", "Training", "Memory", "Strategy", "Output"):
            self.assertIn(f"\n{group}:\n", text)
        for rare in ("--io-queues", "--dropout", "--verify-remote"):
            self.assertNotIn(rare, text)
            self.assertIn(f"\n  {rare}", self.expect_code(0, "train", "--help-all").stdout)

    def test_help_all_describes_every_option(self):
        text = self.expect_code(0, "--help-all").stdout
        entries = re.findall(r"^  (--\S+).*(?:\n {26}.*)*", text, re.M)
        self.assertGreater(len(entries), 100)
        for entry in re.finditer(r"^  --\S+.*(?:\n {26}.*)*", text, re.M):
            self.assertGreater(len(entry[0].split()), 3, entry[0])

    def test_mistyped_words_suggest_the_nearest(self):
        for arguments, part in ((["trian"], "got 'trian'; did you mean train?"),
                                (["train", "mnsit"], "got 'mnsit'; did you mean mnist?"),
                                (["train", "--sed", 3],
                                 "--sed: must be an option of sluice train (see sluice train --help-all); did you mean "
                                 "--seed?"),
                                (["plan", "mnist", "--memry=4M"], "did you mean --memory?"),
                                (["train", "--optimizer", "adma"], "did you mean adam?"),
                                (["train", "--strategy", "phase"], "did you mean phased?"),
                                (["--lsit"], "--lsit: must be an option of sluice (see sluice --help-all); did you mean "
                                             "--list?")):
            self.expect_error(2, "usage", part, *arguments)
        self.assertNotIn("did you mean", self.expect_code(2, "train", "--abcdefghij", 1).stderr)

    def test_options_are_given_once_with_a_value(self):
        self.expect_error(2, "usage", "--lr: must be given once", "train", "--lr", 1, "--lr", 2)
        self.expect_error(2, "usage", "--steps: must have a value", "train", "--steps")
        self.expect_error(2, "usage", "'mlp': must not be there", "train", "mnist", "mlp")

    def test_options_without_effect_name_what_they_require(self):
        train = ["train", "mnist", "--synthetic", "--steps", 1]
        for flags, part in ((["--io-mode", "compute"], "--io-mode requires --strategy phased (it is resident)"),
                            (["--io-queues", 3], "--io-queues requires --strategy phased (it is resident)"),
                            (["--recompute"], "--recompute requires --strategy phased (it is resident)"),
                            (["--remote-direct"], "--remote-direct requires --remote file:DIR (it is host)"),
                            (["--verify-remote"], "--verify-remote requires --remote file:DIR (it is host)"),
                            (["--warmup-steps", 5], "--warmup-steps requires --lr-schedule (it is absent)"),
                            (["--offload", "none", "--remote-memory", "1G"],
                             "--remote-memory requires offloaded tensors (it is --offload none)"),
                            (["--offload", "weights"], "--offload weights requires --strategy phased (it is resident)"),
                            (["--epochs", 1], "--epochs cannot be combined with --steps"),
                            (["--quiet", "--log-level", "info"], "--quiet cannot be combined with --log-level")):
            self.expect_error(2, "usage", part, *train, *flags)
        # The default may be repeated.
        self.expect_code(0, *train, "--io-mode", "io", "--io-queues", 1, "--width", 16)

    def test_forms_of_a_plan_exclude_each_other(self):
        for flags, part in ((["--full", "--json"], "--full cannot be combined with --json"),
                            (["--passes", "--json"], "--passes cannot be combined with --json"),
                            (["--full", "--replicas", "1,2"], "--full cannot be combined with several --replicas"),
                            (["--full", "--passes"], "--passes cannot be combined with another form of the plan"),
                            (["--capacity", 4096], "--capacity requires --problem FILE.csv")):
            self.expect_error(2, "usage", part, "plan", "mnist", *flags)
        self.expect_error(2, "usage", "--width cannot be combined with --problem", "plan", "--problem", "a.csv", "--width", 2)
        self.expect_error(2, "usage", "model cannot be combined with --check", "plan", "mnist", "--check", "a.plan")

    def test_numbers_may_have_separators_and_exponents(self):
        for text in ("1_000", "1e3", "1.0e3", "0_1_000", "1000"):
            self.assertEqual(self.record("plan", "mnist", "--shard-threshold", text)["shard_threshold"], "1000")
        self.assertEqual(self.record("plan", "mnist", "--shard-threshold", "1e10")["shard_threshold"], "10000000000")
        for text in ("1.5", "1.23e1", "_1", "1_", "1__0", "1e", "e3", "1e-3", "1e400", "1e19", "1E3", ".5e1"):
            self.expect_error(2, "usage", f"--shard-threshold: must be inf or an integer from 0 to {MOST}, got '{text}'",
                              "plan", "mnist", "--shard-threshold", text)

    def test_evaluation_in_other_batches_gives_the_same_accuracy(self):
        runs = [self.record("train", "mnist", *SHORT, *flags)
                for flags in ([], ["--test-batch", 16], ["--test-batch", 333])]
        self.assertEqual(len({(run["accuracy"], run["digest"]) for run in runs}), 1)
        self.assertEqual(len({run["planned_bytes"] for run in runs}), 3)

    def test_learning_rate_schedules(self):
        short = ["train", "mnist", *SHORT]
        plain = self.record(*short)
        runs = {name: self.record(*short, "--lr-schedule", name) for name in ("constant", "linear", "cosine")}
        self.assertEqual(runs["constant"]["digest"], plain["digest"])
        warm = self.record(*short, "--lr-schedule", "linear", "--warmup-steps", 10)
        digests = {run["digest"] for run in (*runs.values(), warm)}
        self.assertEqual(len(digests), 4)
        self.assertIn("lr 0.05 linear, 10 warm-up steps",
                      self.expect_code(0, *short, "--lr-schedule", "linear", "--warmup-steps", 10).stderr)

    def test_quiet_reports_results_alone(self):
        result = self.expect_code(0, "train", "mnist", *SHORT, "--quiet")
        self.assertEqual(result.stderr, "")
        self.assertIn("accuracy", result.stdout)

    def test_debug_reports_passes_and_storage(self):
        text = self.expect_code(0, "train", "mnist", *SHORT, "--log-level", "debug").stderr
        for part in ("compiled in ", "pass fuse ", "at the peak", "variable fc.0.weight", "Epoch 1/1", "Evaluation"):
            self.assertIn(part, text)
        self.assertNotIn("pass fuse", self.expect_code(0, "train", "mnist", *SHORT).stderr)

    def test_models(self):
        lines = self.expect_code(0, "--list").stdout.splitlines()
        names = [line.split()[0] for line in lines]
        self.assertLessEqual({"mnist", "mnist-rts", "mnist-phased", "mlp"}, set(names))
        for name, line in zip(names, lines):
            with self.subTest(model=name):
                self.assertRegex(line, rf"^{name} +\w+ .*\w$")
                self.assertEqual(self.record("plan", name)["model"], name)
        self.assertIn(", ".join(names), self.expect_code(2, "train", "nosuch").stderr)

    def test_defaults_of_a_model_yield_to_flags(self):
        keys = ["replicas", "shard_threshold", "offload"]
        flags = ["--replicas", 2, "--shard-threshold", "inf", "--offload", "none"]
        for given, expected in (([], [4, "512", "optimizer"]), (flags, [2, "inf", "none"])):
            record = self.record("plan", "mnist-rts", *given)
            self.assertEqual([record[k] for k in keys], expected)
        help_text = self.expect_code(0, "train", "--help").stdout
        self.assertIn("(default: 1; mnist-rts: 8, mnist-phased: 4)", " ".join(help_text.split()))

    def test_wrong_words(self):
        for arguments in [[], ["nosuch"], ["train", "nosuch"], ["train", "mnist", "--nosuch"], ["inspect"],
                          ["train", "mnist", "--steps", "x"], ["train", "mnist", "--log-level", "loud"],
                          ["train", "mnist", "--offload", "weights"], ["train", "mnist", "--strategy", "fast"],
                          ["train", "mnist", "--io-mode", "soon"], ["train", "mnist", "--offload", "none,optimizer"],
                          ["train", "mnist", "--offload", "optimizer", "--remote", "none"],
                          ["train", "mnist", "--strategy", "phased", "--remote", "none"]]:
            with self.subTest(arguments=arguments):
                self.expect_code(2, *arguments)

    def test_wrong_values(self):
        for flag, value, part in [("--offload", "all", "--offload: must be auto, none, or some of optimizer,weights, got 'all'"),
                                  ("--remote-bandwidth", 0, "the rate of remote memory must be more than 0 bytes a second"),
                                  ("--dropout", 1, "--dropout: must be at least 0 and below 1, got '1'"),
                                  ("--dropout", "nan", "--dropout: must be a finite number, got 'nan'"),
                                  ("--clip-norm", "nan", "--clip-norm: must be a finite number, got 'nan'"),
                                  ("--clip-norm", -1, "--clip-norm: must be at least 0, got '-1'"),
                                  ("--clip-norm", "inf", "--clip-norm: must be a finite number, got 'inf'"),
                                  ("--clip-norm", "1e-300", "the largest norm must be a float32 above 0, got 1e-300"),
                                  ("--lr", 0, "--lr: must be above 0, got '0'"),
                                  ("--lr", "nan", "--lr: must be a finite number, got 'nan'"),
                                  ("--lr", "1x", "--lr: must be a finite number, got '1x'"),
                                  ("--optimizer", "sdg", "--optimizer: must be one of sgd, momentum, adam, adam-f16, adamw, "
                                                         "adamax, lamb, got 'sdg'; did you mean sgd?"),
                                  ("--disable", "nosuch", "there is no pass 'nosuch'"),
                                  ("--disable", "offsets", "'offsets' is not optional")]:
            with self.subTest(flag=flag):
                self.expect_error(2, "usage", part, "train", "mnist", "--synthetic", flag, value)

    INTEGERS = {"--layers": (1, 100000), "--width": (1, MOST), "--micro-batch": (1, MOST), "--accumulate": (1, MOST),
                "--replicas": (1, 1024), "--io-queues": (0, 3), "--threads": (0, 1024), "--seed": (0, 2 ** 64 - 1),
                "--epochs": (0, MOST), "--steps": (0, MOST)}

    def test_integers(self):
        for flag, (least, most) in self.INTEGERS.items():
            for value in (least - 1, most + 1, 2 ** 63, 2 ** 64, -2 ** 63 - 1, 10 ** 30, "1e30", "0x10", "1_", "1.0", "+1",
                          " 1", "1 ", "x", "-", "7x"):
                if isinstance(value, int) and least <= value <= most:
                    continue
                with self.subTest(flag=flag, value=value):
                    self.expect_error(2, "usage", f"{flag}: must be an integer from {least} to {most}, got '{value}'",
                                      "train", "mnist", "--synthetic", "--log-level", "error", flag, value)
        self.expect_error(2, "usage", f"--steps: must be an integer from 1 to {MOST}, got '0'", "bench", "mnist", "--steps", 0)
        self.expect_error(2, "usage", "--rounds: must be an integer from 1 to 1000000, got '0'", "bench", "--rounds", 0)
        self.expect_error(2, "usage", "--replicas: must be an integer from 1 to 1024, got '0'", "plan", "mnist",
                          "--replicas", "1,0")
        for value in (-1, 2 ** 63, "some", "Inf"):
            self.expect_error(2, "usage", f"--shard-threshold: must be inf or an integer from 0 to {MOST}, got '{value}'",
                              "plan", "mnist", "--shard-threshold", value)

    def test_bytes(self):
        commands = {"--memory": ["plan", "mnist"], "--remote-memory": ["plan", "mnist"],
                    "--remote-bandwidth": ["plan", "mnist"], "--capacity": ["plan", "--problem", "a.csv"]}
        for flag, command in commands.items():
            for value in ("12Q", -5, "99999999T", 2 ** 63, "8388608T", "K", "1KK", "1 K", "+1K", "0x1K", "1e30"):
                with self.subTest(flag=flag, value=value):
                    self.expect_error(2, "usage", f"{flag}: must be bytes from 0 to {MOST} (4096, 512K, 64M, 2G, 1T), got "
                                      f"'{value}'", *command, flag, value)

    def test_leading_zeros_change_nothing(self):
        flags = ["train", "mnist", "--synthetic", "--width", "016", "--layers", "02"]
        record = self.record(*flags, "--steps", "010", "--micro-batch", "008", "--memory", "0100M")
        self.assertEqual(record["steps"], 10)
        plain = self.record("train", "mnist", "--synthetic", "--width", 16, "--layers", 2, "--steps", 10)
        self.assertEqual(record["digest"], plain["digest"])
        text = self.expect_code(0, "train", "mnist", "--synthetic", "--width", "16", "--micro-batch", "010", "--steps", 1).stderr
        self.assertIn("10 x 1 = 10 samples a step", text)

    def test_empty_values(self):
        for command, flag in (("train", "--steps"), ("train", "--width"), ("bench", "--steps"), ("plan", "--check"),
                              ("plan", "--problem"), ("train", "--save"), ("train", "--shard-threshold")):
            with self.subTest(command=command, flag=flag):
                self.assertIn(f"{flag}: must not be empty", self.expect_code(2, command, "mnist", flag, "").stderr)

    def test_what_cannot_be_offloaded(self):
        phased = ["plan", "mnist", "--strategy", "phased", "--offload"]
        for what, why in (("activations", "; with --strategy phased, activations wait in remote memory anyway"),
                          ("optimizer,activations", "; with --strategy phased, activations wait"),
                          ("accumulators", "; accumulators stay on the device"),
                          ("optimizer,weights,accumulators", "; accumulators stay on the device"), ("auto,weights", "")):
            self.expect_error(2, "usage", f"--offload: must be auto, none, or some of optimizer,weights, got '{what}'{why}",
                              *phased, what)

    def test_what_phases_cannot_do(self):
        phased = ["plan", "mnist", "--strategy", "phased"]
        for flags, part in ((["--io-queues", 2], "--io-queues: must be 0, 1 or 3, got 2"),
                            (["--io-queues", 0], "--io-queues: must be at least 1 for --io-mode io or io_overlapped, got 0"),
                            (["--clip-norm", 1], "--clip-norm: --strategy phased updates a layer before all")):
            self.expect_error(2, "usage", part, *phased, *flags)

    def test_values_that_the_data_shows_wrong(self):
        quiet = ["train", "mnist", "--synthetic", "--width", "16", "--log-level", "error"]
        self.expect_error(2, "usage", "no full batch: it takes 20001 samples, the data has 20000", *quiet,
                          "--micro-batch", 20001)
        self.expect_error(2, "usage", "exceeds 63 bits", *quiet, "--epochs", 2 ** 63 - 1)

    def test_wrong_words_of_other_commands(self):
        self.expect_error(2, "usage", "print-after: there is no pass 'nosuch'; passes: functionalise place inline ", "plan", "mnist",
                          "--print-after", "nosuch")
        for command in ("train", "eval", "plan", "bench"):
            self.expect_error(2, "usage", "--recompute requires --strategy phased (it is resident)",
                              command, "mnist", "--recompute")
        self.expect_error(2, "usage", "--io-mode requires --strategy phased", "plan", "mnist-phased", "--strategy", "resident",
                          "--io-mode", "io_overlapped")
        self.expect_error(2, "usage", "no case of 2 threads or fewer has 'nosuch'", "bench", "--threads", 2, "--only",
                          "nosuch")
        self.expect_error(2, "usage", "--width requires a model (sluice bench mnist)", "bench", "--width", 64)
        self.expect_error(2, "usage", "--only cannot be combined with a model", "bench", "mnist", "--only", "gemm")
        self.expect_error(2, "usage", f"inspect: {__file__} is none of *idx3-ubyte", "inspect", __file__)

    def test_wrong_instruction_set(self):
        self.expect_error(2, "usage", "'mmx'", "train", "mnist", *SHORT, env={"SLUICE_ISA": "mmx"})

    def test_eval_needs_weights(self):
        self.expect_error(2, "usage", "--weights", "eval", "mnist", "--synthetic")

    def test_doctor(self):
        self.assertIn("healthy", self.expect_code(0, "doctor").stdout)


class Records(CliTest):
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
        plan = self.expect_code(0, "plan", "mnist", "--width", 64).stdout
        self.assertRegex(plan, r"fused +\d+ x MatMul\+Add\+Gelu\n")
        self.assertRegex(plan, r"not fused +\d+ x MatMul\+Add after MatMul\+Add\+Gelu: no kernel runs both\n")
        self.assertNotIn("fused ", self.expect_code(0, "plan", "mnist", "--width", 64, "--disable", "fuse").stdout)

    def test_plan_says_what_a_step_moves(self):
        flags = ["plan", "mnist", "--width", 64, "--micro-batch", 8, "--optimizer", "adam", "--offload", "optimizer"]
        record = self.record(*flags)
        state = record["tier_bytes"]
        self.assertGreater(state, 0)
        self.assertEqual(state % 2, 0)  # What is loaded is stored.
        self.assertEqual(record["stream_bytes"] >= 8 * 784 * 4, True)
        self.assertLessEqual(record["io_queue_transfers"], record["transfers"])
        self.assertRegex(self.expect_code(0, *flags).stdout,
                         rf"tier host on queue compute, a run of 'train': \d+ in, {state // 2:,} bytes; "
                         rf"\d+ out, {state // 2:,} bytes\n")

    def test_plan_says_what_train_takes(self):
        self.assertEqual(self.record("plan", "mnist", "--width", 64)["planned_bytes"],
                         self.record("train", "mnist", *SHORT)["measured_bytes"])

    def test_bench(self):
        record = self.record("bench", "mnist", "--steps", 20, "--width", 64)
        self.assertEqual(record["steps"], 20)
        self.assertGreater(record["samples_per_second"], 0)

    def test_bench_on_ones(self):
        flags = ["bench", "mnist", "--synthetic", "--width", 64]
        number = r"\d+(\.\d+)?(e-\d+)?"
        line = rf"Mean duration: {number} s Throughput: +\d+\.\d samples/s \n"
        self.assertRegex(self.expect_code(0, *flags).stdout, rf"^train session\n{line}test session\n{line}$")
        record = self.record(*flags, "--steps", 3)
        self.assertEqual(record["runs"], 3)
        self.assertAlmostEqual(record["train_samples_per_second"] * record["train_mean_seconds"], 8)
        self.assertAlmostEqual(record["test_samples_per_second"] * record["test_mean_seconds"], 80)
        self.expect_error(2, "usage", "--synthetic requires a model", "bench", "--synthetic")

    BENCH = ["bench", "--rounds", 1]

    def test_bench_suite_with_and_without_pytorch(self):
        for python in (sys.executable, "/no/such/python", "/bin/true"):  # With torch or not.
            with self.subTest(python=python):
                only = [*self.BENCH, "--threads", 2, "--only", "8 layers of 8x8", "--python", python]
                record = self.record(*only)
                self.assertEqual([p["python"] for p in record["pytorch"]], [python])
                self.assertNotEqual(record["pytorch"][0]["version"] == "", record["pytorch"][0]["trouble"] == "")
                self.check_bench_rows(record, [("step", "8 layers of 8x8, batch 8, SGD", 2)])
        table = self.expect_code(0, *only).stdout
        self.assertRegex(table, r"(?m)^case +thr +Sluice +limit +part .* met +goal\n"
                                r"step 8 layers of 8x8, batch 8, SGD +2 +[\d.]+ us .* (yes|NO) +<= 20 us$")
        self.assertIn("PyTorch : /bin/true (its process ended)", table)

    def test_bench_suite_has_every_kind(self):
        for group, name, threads in [("limit", "hand-over between spinning threads", [2]),
                                     ("gemm", "64,512,10 dX", [1, 2]), ("memory", "sum-of-all", [1, 2]),
                                     ("compile", "perceptron of 4 layers", [1])]:
            with self.subTest(group=group):
                only = [*self.BENCH, "--only", f"{group} {name}", "--python", "/no/such/python"]
                self.check_bench_rows(self.record(*only, "--threads", 2), [(group, name, t) for t in threads])
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
        self.assertRegex(result.stdout, r"(?m)^accuracy \d+\.\d\d %$")
        self.assertRegex(result.stdout, r"(?m)^digest (fma|base)-[0-9a-f]{32}$")
        self.assertNotIn("samples dropped", result.stdout)
        self.assertIn("samples dropped", result.stderr)
        self.assertNotIn("\033", result.stdout + result.stderr)
        quiet = self.expect_code(0, "train", "mnist", *SHORT, "--log-level", "error")
        self.assertEqual(quiet.stderr, "")

    def test_divergence(self):
        self.expect_error(6, "diverged", "step", "train", "mnist", *SHORT, "--lr", "1e30")


class Memory(CliTest):
    def test_to_the_byte(self):
        planned = self.record("plan", "mnist", "--width", 64)["planned_bytes"]
        record = self.record("train", "mnist", *SHORT, "--memory", planned)
        self.assertEqual(record["planned_bytes"], planned)
        self.assertEqual(record["measured_bytes"], planned)
        for command in ("train", "plan", "bench"):
            arguments = ["mnist", "--width", 64, "--memory", planned - 1]
            result = self.expect_code(4, command, *arguments)
            self.assertEqual(result.stdout, "")
            self.assertIn(f"needs {planned} bytes, its budget is {planned - 1}", result.stderr)
            smallest = re.search(r"smallest budget found: (\d+) bytes; live-set bound: (\d+) bytes", result.stderr)
            self.assertIsNotNone(smallest, result.stderr)
            self.assertEqual(int(smallest[1]), planned)
            self.assertLessEqual(int(smallest[2]), planned)
            self.assertRegex(result.stderr, r"held at the peak:\n( +\d+ B  \w+ .*\n)+")

    def test_auto_offload(self):
        model = ["mnist", "--optimizer", "adam"]
        needs = {what: self.record("plan", *model, "--offload", what)["planned_bytes"] for what in ("none", "optimizer")}
        self.assertLess(needs["optimizer"], needs["none"])
        state = f"without it, device 0 (cpu) needs {needs['none']} bytes"
        for flags, choice, why in [([], "none", "device memory has no budget (--memory)"),
                                   (["--memory", needs["none"]], "none", "the program fits --memory"),
                                   (["--memory", needs["none"] - 1], "optimizer", state),
                                   (["--memory", needs["optimizer"]], "optimizer", state),
                                   (["--remote", "none"], "none", "--remote none leaves no other memory"),
                                   (["--remote", "none", "--memory", needs["none"]], "none", "--remote none leaves no other memory")]:
            with self.subTest(flags=flags):
                self.expect_choice(choice, why, *model, *flags)
        self.expect_choice("optimizer", "given by --offload", *model, "--offload", "optimizer", logged=False)
        deep = [*model, "--layers", 12, "--memory", "16M"]
        result = self.expect_code(4, "plan", *deep)
        self.assertIn("--strategy phased fits", result.stderr)
        self.expect_code(0, "plan", *deep, "--strategy", "phased")
        self.assertNotIn("phased fits", self.expect_code(4, "plan", *deep, "--clip-norm", 1).stderr)
        self.assertNotIn(" fits", self.expect_code(4, "plan", *model, "--memory", "64K").stderr)
        # State may stay where nothing else is allowed.
        self.expect_code(4, "plan", *model, "--memory", needs["none"] - 1, "--remote", "none")

    def expect_choice(self, choice, why, *flags, logged=True):
        """The choice and its reason are in the text and the record of every command, on one line."""
        line = f"offload: {choice}; {why}"
        lines = [text for text in self.expect_code(0, "plan", *flags).stdout.splitlines() if text.startswith("offload")]
        self.assertEqual([text[:len(line)] for text in lines], [line])
        for command in (["plan", *flags], ["train", *flags, "--synthetic", "--steps", 1], ["bench", *flags, "--steps", 1]):
            record = self.record(*command)
            self.assertEqual(record["offload"], choice)
            self.assertEqual(record["offload_reason"][:len(why)], why)
            if command[0] != "plan":
                self.assertEqual(self.expect_code(0, *command).stderr.count(line), 1 if logged else 0)

    def test_phases_start_with_remote_weights_and_state(self):
        model = ["mlp", "--layers", 24, "--width", 128]
        why = "phases keep weights and state in remote memory unless --offload none is given"
        for optimizer, choice in (("adam", "optimizer,weights"), ("sgd", "weights")):
            flags = [*model, "--optimizer", optimizer]
            phased = [*flags, "--strategy", "phased"]
            resident, kept = self.record("plan", *flags), self.record("plan", *phased, "--offload", "none")
            plan, asked = self.record("plan", *phased), self.record("plan", *phased, "--offload", "optimizer,weights")
            self.assertLess(plan["planned_bytes"], resident["planned_bytes"] / 2)
            self.assertGreater(kept["planned_bytes"], plan["planned_bytes"] * 2)
            for key in ("planned_bytes", "peak_bytes.host", "transfers"):
                self.assertEqual(plan[key], asked[key])
            for more in ([], ["--memory", plan["planned_bytes"]]):
                self.expect_choice(choice, why, *phased, *more)
            self.expect_code(4, "plan", *phased, "--memory", plan["planned_bytes"] - 1)
        for flags, part in ((["--strategy", "phased"], "--strategy phased requires --remote host or file:DIR (it is none)"),
                            (["--offload", "optimizer"], "--offload optimizer requires --remote host or file:DIR")):
            self.expect_error(2, "usage", part, "plan", *model, *flags, "--remote", "none")

    def test_units(self):
        self.expect_code(4, "plan", "mnist", "--memory", "512K")
        self.expect_code(0, "plan", "mnist", "--memory", "64M")


class Rates(CliTest):
    DEFAULTS = {"sgd": 0.05, "momentum": 0.005, "adam": 0.001, "adam-f16": 0.001, "adamw": 0.001, "adamax": 0.002, "lamb": 0.002}

    def test_each_optimizer_learns_at_its_own(self):
        for optimizer, rate in self.DEFAULTS.items():
            with self.subTest(optimizer=optimizer):
                run = ["train", "mnist", "--synthetic", "--width", 128, "--threads", 1, "--optimizer", optimizer]
                record = self.record(*run)
                self.assertGreater(record["accuracy"], 90)
                short = [*run, "--steps", 5]
                digest = self.record(*short)["digest"]
                self.assertEqual(self.record(*short, "--lr", rate)["digest"], digest)
                self.assertNotEqual(self.record(*short, "--lr", 2 * rate)["digest"], digest)

    def test_deep_networks_do_not_diverge(self):
        for optimizer in self.DEFAULTS:
            record = self.record("train", "mlp", "--layers", 64, "--width", 64, "--optimizer", optimizer, "--synthetic", "--steps",
                                 50, "--threads", 1)
            self.assertLess(record["loss"], 4, optimizer)

    def test_help_names_them(self):
        rates = ", ".join(f"{optimizer} {rate}" for optimizer, rate in self.DEFAULTS.items())
        for command in ("train", "eval", "plan", "bench"):
            self.assertIn(f"Set the learning rate (default: {rates})", " ".join(self.expect_code(0, command, "--help").stdout.split()))


class Bits(CliTest):
    FLAGS = ["train", "mnist", *SHORT, "--dropout", "0.1", "--optimizer", "adam", "--lr", "0.001"]

    @classmethod
    def setUpClass(cls):
        cls.plain = json.loads(sluice(*cls.FLAGS, "--json").stdout)

    def expect_same_bits(self, *arguments, env=None):
        record = self.record(*self.FLAGS, *arguments, env=env)
        for key in ("digest", "loss", "accuracy"):
            self.assertEqual(record[key], self.plain[key], arguments)

    def test_again(self):
        self.expect_same_bits()

    def test_threads(self):
        for threads in (1, 2, 3):
            with self.subTest(threads=threads):
                self.expect_same_bits("--threads", threads)

    def test_instruction_sets(self):
        available = re.search(r"instruction sets +([\w ]+)\(", sluice("doctor").stdout)[1].split()
        for isa in available:
            if isa != "base":  # Without FMA instructions the same bits take too long here; isa_test has it.
                with self.subTest(isa=isa):
                    self.expect_same_bits(env={"SLUICE_ISA": isa})

    def test_passes(self):
        names = re.findall(r"(?m)^pass (\S+) ", self.expect_code(0, "plan", "mnist", "--passes").stdout)
        self.assertIn("inline", names)
        optional = [n for n in names if sluice("plan", "mnist", "--disable", n).returncode == 0]
        self.assertGreaterEqual(len(optional), 2)
        for name in optional:
            with self.subTest(disabled=name):
                self.expect_same_bits("--disable", name)

    def test_budgets(self):
        for memory in (self.plain["planned_bytes"], "64M"):
            with self.subTest(memory=memory):
                self.expect_same_bits("--memory", memory)

    def test_offloaded_state(self):
        with tempfile.TemporaryDirectory() as folder:
            for remote in ("host", f"file:{folder}"):
                with self.subTest(remote=remote):
                    flags = ["--offload", "optimizer", "--remote", remote, "--threads", "2"]
                    self.expect_same_bits(*flags)
                    plans = [self.record("plan", "mnist", "--optimizer", "adam", *f) for f in (flags, flags[-2:])]
                    self.assertLess(plans[0]["planned_bytes"], plans[1]["planned_bytes"])
                    self.assertEqual(os.listdir(folder), [])

    # That phases and shards have the same bits is what bench/equality_matrix.py shows.
    def test_what_phases_and_shards_save(self):
        def planned(*way):
            return self.record("plan", "mnist", "--layers", 5, "--width", 64, "--optimizer", "adam", "--accumulate", 4,
                               *way)["planned_bytes"]

        resident = planned("--offload", "none")
        for way in (["--offload", "optimizer"], ["--strategy", "phased"],
                    ["--strategy", "phased", "--offload", "weights,optimizer", "--recompute"]):
            with self.subTest(way=way):
                self.assertLess(planned(*way), resident)
        for replicas in (2, 4):
            for phased in ([], ["--strategy", "phased", "--offload", "optimizer,weights"]):
                whole = planned("--replicas", replicas, *phased)
                for threshold in (0, 512):
                    with self.subTest(replicas=replicas, threshold=threshold, phased=phased):
                        self.assertLess(planned("--replicas", replicas, "--shard-threshold", threshold, *phased), whole)

    def test_bytes_of_state_per_update(self):
        parameters, variables = 784 * 64 + 64 + 64 * 10 + 10, 4
        moved = {"sgd": 0, "momentum": 8 * parameters, "adam": 16 * parameters + 8 * variables,
                 "adam-f16": 12 * parameters, "adamax": 16 * parameters + 8 * variables}
        for optimizer, expected in moved.items():
            for ways in ([], ["--strategy", "phased", "--accumulate", 2]):
                with self.subTest(optimizer=optimizer, ways=ways):
                    plan = ["plan", "mnist", "--width", 64, "--layers", 2, "--optimizer", optimizer, *ways]
                    self.assertEqual(self.record(*plan, "--offload", "optimizer")["state_bytes_per_update"], expected)
                    self.assertEqual(self.record(*plan, "--offload", "none")["state_bytes_per_update"], 0)

    def test_samples_of_replicas(self):
        said = self.expect_code(0, *self.FLAGS, "--accumulate", "2", "--replicas", 4).stderr
        self.assertIn("8 x 2 x 4 = 64 samples a step, 312 steps an epoch, 32 samples dropped", said)

    def test_norms(self):
        flags = ["train", "mnist", *SHORT, "--replicas", "4"]
        for way in (["--optimizer", "lamb"], ["--clip-norm", "0.05"]):
            digests = {self.record(*flags, *way, "--shard-threshold", t)["digest"] for t in (0, 512, "inf")}
            self.assertEqual(len(digests | {self.record(*flags)["digest"]}), 2, way)

    def test_models_of_the_documents(self):
        flags = ["--replicas", 4, "--accumulate", 8, "--micro-batch", 8, "--optimizer", "adam-f16", "--offload", "optimizer"]
        for threshold, state in (("inf", 11188344), (262145, 7575672), (1024, 2811000), (512, 2797176)):
            for model in (["mnist-rts"], ["mnist", *flags]):
                record = self.record("plan", *model, "--shard-threshold", threshold)
                self.assertEqual(record["state_bytes_per_update"], state)
        rows = self.expect_code(0, "plan", "mnist-rts", "--replicas", "1,2,4", "--shard-threshold", "inf,512").stdout
        self.assertEqual(len(rows.splitlines()), 7)
        self.assertRegex(rows, r"(?m)^ +4 +inf +\d+ +\d+ +11188344 +[\d.]+$")
        self.assertRegex(rows, r"(?m)^ +4 +512 +\d+ +\d+ +2797176 +[\d.]+$")
        lines = self.expect_code(0, "plan", "mnist-rts", "--replicas", "2,4", "--json").stdout.splitlines()
        self.assertEqual([json.loads(line)["replicas"] for line in lines], [2, 4])
        self.assertGreater(json.loads(lines[0])["peak_bytes.host"], 0)
        self.expect_error(2, "usage", "lists are for sluice plan", "train", "mnist", "--replicas", "1,2")
        short = ["--synthetic", "--steps", 4, "--width", 64]
        for threshold in ("inf", 0, 512):
            digests = {self.record("train", "mnist-phased", *short, "--shard-threshold", threshold, *way)["digest"]
                       for way in (["--strategy", "resident", "--offload", "none"], ["--io-mode", "compute"],
                                   ["--io-mode", "io", "--threads", 3], ["--io-mode", "io_overlapped", "--recompute"],
                                   ["--offload", "weights", "--threads", 1], ["--offload", "optimizer"])}
            self.assertEqual(len(digests), 1, threshold)

    def test_another_seed_is_another_run(self):
        self.assertNotEqual(self.record(*self.FLAGS, "--seed", 1)["digest"], self.plain["digest"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
