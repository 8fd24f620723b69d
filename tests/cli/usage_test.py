"""Help of the command line, and errors for wrong words and values.

SLUICE_CLI names the program.
"""

import pathlib
import re
import subprocess
import sys
import unittest

from cli_case import COMMANDS, DIGITS, MOST, PROGRAM, SHORT, CliTest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Help(CliTest):
    def test_help_shows_groups_and_fits_a_screen(self):
        self.assertLessEqual(len(self.expect_code(0, "--help").stdout.splitlines()), 25)
        for command in COMMANDS:
            text = self.expect_code(0, command, "--help").stdout
            every = self.expect_code(0, command, "--help-all").stdout
            with self.subTest(command=command):
                self.assertLessEqual(len(text.splitlines()), 55)
                for line in text.splitlines():
                    self.assertIn(line, every.splitlines())
                    self.assertLessEqual(len(line), 100)
        text = self.expect_code(0, "train", "--help").stdout
        for group in ("Model", "Training", "Memory", "Strategy", "Output"):
            self.assertIn(f"\n{group}:\n", text)
        for rare in ("--io-queues", "--dropout", "--verify-remote"):
            self.assertNotIn(rare, text)
            self.assertIn(f"\n  {rare}", self.expect_code(0, "train", "--help-all").stdout)

    def test_one_letter_asks_for_help(self):
        for command in ([], *([c] for c in COMMANDS)):
            with self.subTest(command=command):
                self.assertEqual(self.expect_code(0, *command, "-h").stdout,
                                 self.expect_code(0, *command, "--help").stdout)

    def test_help_all_describes_every_option(self):
        text = self.expect_code(0, "--help-all").stdout
        entries = re.findall(r"^  (--\S+).*(?:\n {26}.*)*", text, re.M)
        self.assertGreater(len(entries), 100)
        for entry in re.finditer(r"^  --\S+.*(?:\n {26}.*)*", text, re.M):
            self.assertGreater(len(entry[0].split()), 3, entry[0])

    def test_mistyped_words_suggest_the_nearest(self):
        for arguments, part in (
            (["trian"], "got 'trian'; did you mean train?"),
            (["train", "mnsit"], "got 'mnsit'; did you mean mnist?"),
            (
                ["train", "--sed", 3],
                "--sed: must be an option of sluice train (see sluice train --help-all); did you "
                "mean --seed?",
            ),
            (["plan", "mnist", "--memry=4M"], "did you mean --memory?"),
            (["train", "--optimizer", "adma"], "did you mean adam?"),
            (["train", "--strategy", "phase"], "did you mean phased?"),
            (
                ["--lsit"],
                "--lsit: must be an option of sluice (see sluice --help-all); did you mean "
                "--list?",
            ),
        ):
            self.expect_error(2, "usage", part, *arguments)
        self.assertNotIn("did you mean", self.expect_code(2, "train", "--abcdefghij", 1).stderr)

    def test_docs_and_completions_follow_the_help(self):
        subprocess.run([sys.executable, ROOT / "scripts/write_cli_docs.py", PROGRAM, "--check"],
                       check=True)
        subprocess.run(["bash", "-n", ROOT / "tools/completion/sluice.bash"], check=True)

    def test_zsh_shows_a_sentence_for_each_option(self):
        text = (ROOT / "tools/completion/_sluice").read_text()
        sentences = re.findall(r"^ +'--[a-z-]+\[(.)", text, re.M)
        self.assertGreater(len(sentences), 60)
        self.assertTrue(all(first.isupper() for first in sentences), sentences)

    def test_bash_completes_commands_options_and_words(self):
        for words, expected in (
            (["sluice", "tr"], {"train"}),
            (["sluice", "train", "mnist-p"], {"mnist-phased"}),
            (["sluice", "train", "--io-m"], {"--io-mode"}),
            (["sluice", "plan", "--strategy", ""],
             {"resident", "phased", "sharded", "pipelined"}),
            (["sluice", "train", "--optimizer", "r"], {"rmsprop"}),
        ):
            script = (
                f"source {ROOT}/tools/completion/sluice.bash; "
                f"COMP_WORDS=({' '.join(repr(w) for w in words)}); "
                f"COMP_CWORD={len(words) - 1}; _sluice; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
            result = subprocess.run(["bash", "-c", script], capture_output=True, text=True,
                                    check=True)
            self.assertEqual((set(result.stdout.split()), result.stderr), (expected, ""))


class Usage(CliTest):
    def test_options_are_given_once_with_a_value(self):
        self.expect_error(2, "usage", "--lr: must be given once", "train", "--lr", 1, "--lr", 2)
        self.expect_error(2, "usage", "--steps: must have a value", "train", "--steps")
        self.expect_error(2, "usage", "--lr: must have a value", "train", "--lr", "--steps", 3)
        self.expect_error(2, "usage", "--lr: must have a value", "train", "--lr=")
        self.expect_error(2, "usage", "--seed: must be given once", "train", "--seed=1",
                          "--seed", 1)
        for twice in (["--disable", "fuse"], ["--json"]):
            self.expect_code(0, "plan", "mlp", "--width", 8, *twice, *twice)
        self.assertNotIn("{", self.expect_code(0, "plan", "mlp", "--width", 8,
                                               "--json=false").stdout[:1])
        self.expect_error(2, "usage", "unexpected argument 'mlp'", "train", "mnist", "mlp")

    def test_a_plan_too_long_to_be_proved_is_refused_at_once(self):
        # An enumeration of the entries would take minutes.
        self.expect_error(2, "usage", "the plan is too long to be proved", "plan", "mlp",
                          "--strategy", "phased", "--accumulate", 2**31 - 1)

    def test_options_without_effect_name_what_they_require(self):
        train = ["train", "mnist", *DIGITS, "--steps", 1]
        for flags, part in (
            (["--io-mode", "compute"], "--io-mode requires offloaded tensors (it is --offload auto "
             "without --memory and --strategy phased)"),
            (["--io-queues", 3], "--io-queues requires offloaded tensors (it is --offload auto "
             "without --memory and --strategy phased)"),
            (["--recompute", "--recompute-blocks", "fc.0"],
             "--recompute cannot be combined with --recompute-blocks"),
            (["--recompute-blocks", "fc.9"],
             "recompute: 'fc.9' must be a block of the network, which has fc.0, fc.1"),
            (["--strategy", "phased", "--offload", "none", "--io-mode", "compute"],
             "--io-mode requires offloaded tensors (it is --offload none)"),
            (["--remote-direct"], "--remote-direct requires --remote file:DIR (it is host)"),
            (["--verify-remote"], "--verify-remote requires --remote file:DIR (it is host)"),
            (["--warmup-steps", 5],
             "--warmup-steps requires --lr-schedule constant, linear, cosine, restarts, step, "
             "milestones, inverse_sqrt or plateau (it is absent)"),
            (["--lr-schedule", "one_cycle", "--warmup-steps", 5], "--warmup-steps requires "),
            (["--lr-period", 5],
             "--lr-period requires --lr-schedule restarts, step or inverse_sqrt (it is absent)"),
            (["--lr-schedule", "linear", "--lr-period", 5], "--lr-period requires "),
            (["--lr-schedule", "step", "--lr-period", 5, "--lr-multiplier", 2],
             "--lr-multiplier requires --lr-schedule restarts (it is step)"),
            (["--lr-schedule", "cosine", "--lr-factor", 0.5],
             "--lr-factor requires --lr-schedule step, milestones or plateau (it is cosine)"),
            (["--lr-schedule", "step", "--lr-milestones", 3],
             "--lr-milestones requires --lr-schedule milestones (it is step)"),
            (["--lr-schedule", "cosine", "--lr-pct-start", 0.5],
             "--lr-pct-start requires --lr-schedule one_cycle (it is cosine)"),
            (["--lr-schedule", "one_cycle", "--min-lr", 0.5],
             "--min-lr requires --lr-schedule linear, cosine, restarts, step, milestones, "
             "inverse_sqrt or plateau (it is one_cycle)"),
            (
                ["--offload", "none", "--remote-memory", "1G"],
                "--remote-memory requires offloaded tensors (it is --offload none)",
            ),
            (["--epochs", 1], "--epochs cannot be combined with --steps"),
            (["--quiet", "--log-level", "info"], "--quiet cannot be combined with --log-level"),
            (["--save", "/tmp/w", "--torch-save", "/tmp/w"],
             "--save and --torch-save must name two files, got '/tmp/w' for both"),
        ):
            self.expect_error(2, "usage", part, *train, *flags)
        for model, size in (("resnet8", "--width"), ("resnet18", "--layers"),
                            ("resnet18", "--dropout"), ("mnist-cnn", "--layers")):
            self.expect_error(2, "usage", f"{size}: {model} does not have this size; leave it out",
                              "plan", model, size, 0.5 if size == "--dropout" else 16)
        # The default may be repeated.
        self.expect_code(0, *train, "--io-mode", "io", "--io-queues", 1, "--width", 16)

    def test_options_are_refused_without_what_their_help_requires(self):
        tested = set()
        for command in ("train", "eval", "plan"):
            text = self.expect_code(0, command, "--help-all").stdout
            for entry in re.finditer(r"^  (--\S+) ?(\S*)(.*(?:\n {26}.*)*)", text, re.M):
                flag, value, words = entry[1], entry[2], " ".join(entry[3].split())
                required = re.search(r"; requires (--[a-z-]+|[a-z ]+?)(?: and|\.| \(|$| )", words)
                if not required or flag in ("--loss", "--check-replicas"):  # For some values only.
                    continue
                default = re.search(r"\(default: (\w+)\)", words)
                values = [w for w in value.split("|") if default is None or w != default[1]]
                given = {"": [], "N": ["3"], "RATE": ["0.1"], "BYTES": ["4K"], "SHARE": ["0.5"],
                         "CHAR": [";"], "X": ["2"], "FACTOR": ["0.5"], "FRACTION": ["0.5"],
                         "STEPS": ["3"]}.get(value, values[-1:])
                strategy = ["--offload", "none"] if "offloaded" in required[1] else []
                with self.subTest(command=command, flag=flag):
                    self.expect_error(2, "usage", f"{flag} requires {required[1].strip()}", command,
                                      "mnist", *strategy, flag, *given)
                tested.add(flag)
        self.assertGreater(len(tested), 25)

    def test_a_norm_of_0_is_no_limit(self):
        plans = [self.expect_code(0, "plan", "mlp", "--width", 8, "--full", *flags).stdout
                 for flags in ([], ["--clip-norm", 0], ["--clip-norm", 1])]
        self.assertEqual(plans[0], plans[1])
        self.assertNotEqual(plans[0], plans[2])

    def test_commands_take_only_options_that_they_use(self):
        for command, flags in (
            ("predict", ("--lr", "--optimizer", "--accumulate", "--micro-batch", "--validation",
                         "--data", "--epochs", "--save", "--dropout", "--digest",
                         "--accumulation-reduction", "--recompute-blocks", "--shard-threshold")),
            ("eval", ("--lr", "--lr-schedule", "--warmup-steps", "--seed", "--steps", "--save")),
            ("plan", ("--warmup-steps", "--seed", "--steps", "--weights", "--data")),
            ("bench", ("--warmup-steps", "--seed", "--weights", "--save")),
        ):
            for flag in flags:
                self.expect_error(2, "usage", f"{flag}: must be an option of sluice {command}",
                                  command, "mnist", flag, 1)
        for command in ("plan", "bench"):
            self.expect_error(2, "usage",
                              f"--lr cannot be combined with --lr-schedule in sluice {command}",
                              command, "mnist", "--lr", 0.1, "--lr-schedule", "linear")

    def test_reductions_require_something_to_reduce(self):
        weights = ["--weights", "w.safetensors"]
        several = "of at least 2 (it is 1)"
        for command, more in (("train", ["--synthetic"]), ("eval", weights), ("plan", []),
                              ("bench", [])):
            for flags, part in (
                (["--accumulation-reduction", "sum"],
                 f"--accumulation-reduction requires --accumulate {several}"),
                (["--accumulator-dtype", "f16"],
                 f"--accumulator-dtype requires --accumulate {several}"),
                (["--replica-reduction", "sum"],
                 f"--replica-reduction requires --replicas {several}"),
                (["--accumulation-reduction", "summ"],
                 "--accumulation-reduction: must be one of sum, mean, running_mean, got 'summ'; "
                 "did you mean sum?"),
                (["--replica-reduction", "running_mean"],
                 "--replica-reduction: must be one of sum, mean, got 'running_mean'"),
                (["--accumulator-dtype", "i32"],
                 "--accumulator-dtype: must be one of f32, f16, bf16, got 'i32'"),
            ):
                with self.subTest(command=command, flags=flags):
                    self.expect_error(2, "usage", part, command, "mnist", *more, *flags)
        # The defaults may be repeated.
        self.expect_code(0, "plan", "mnist", "--accumulation-reduction", "running_mean")
        text = self.expect_code(0, "plan", "mnist", "--accumulate", 4, "--replicas", 2,
                                "--accumulation-reduction", "sum", "--replica-reduction", "sum",
                                "--accumulator-dtype", "f16").stdout
        self.assertIn("sum of 4 micro-batches, sum of 2 replicas, accumulators float16", text)

    def test_forms_of_a_plan_exclude_each_other(self):
        for flags, part in (
            (["--full", "--json"], "--full cannot be combined with --json"),
            (["--passes", "--json"], "--passes cannot be combined with --json"),
            (["--full", "--sweep", "replicas=1;2"], "--full cannot be combined with --sweep"),
            (["--full", "--passes"], "--passes cannot be combined with --full"),
            (["--capacity", 4096], "--capacity requires --problem (it is absent)"),
            (["--nodes", 4096], "--nodes requires --problem (it is absent)"),
        ):
            self.expect_error(2, "usage", part, "plan", "mnist", *flags)
        self.expect_error(2, "usage", "--width cannot be combined with --problem", "plan",
                          "--problem", "a.csv", "--width", 2)
        self.expect_error(2, "usage", "model cannot be combined with --check", "plan", "mnist",
                          "--check", "a.plan")

    def test_numbers_may_have_separators_and_exponents(self):
        for text in ("1_000", "1e3", "1.0e3", "0_1_000", "1000"):
            self.assertEqual(
                self.record("plan", "mnist", "--shard-threshold", text)["shard_threshold"], "1000")
        self.assertEqual(
            self.record("plan", "mnist", "--shard-threshold", "1e10")["shard_threshold"],
            "10000000000")
        for text in ("1.5", "1.23e1", "_1", "1_", "1__0", "1e", "e3", "1e-3", "1e400", "1e19",
                     "1E3", ".5e1"):
            self.expect_error(
                2, "usage",
                f"--shard-threshold: must be inf or an integer from 0 to {MOST}, got '{text}'",
                "plan", "mnist", "--shard-threshold", text)

    def test_evaluation_in_other_batches_gives_the_same_accuracy(self):
        runs = [self.record("train", "mnist", *SHORT, *flags)
                for flags in ([], ["--test-batch", 16], ["--test-batch", 333])]
        self.assertEqual(len({(run["accuracy"], run["digest"]) for run in runs}), 1)
        self.assertEqual(len({run["planned_bytes"] for run in runs}), 3)

    def test_learning_rate_schedules(self):
        short = ["train", "mnist", *SHORT]
        plain = self.record(*short)
        runs = {
            name: self.record(*short, "--lr-schedule", name)
            for name in ("constant", "linear", "cosine", "one_cycle")
        }
        self.assertEqual(runs["constant"]["digest"], plain["digest"])
        others = [self.record(*short, "--lr-schedule", *flags) for flags in (
            ("linear", "--warmup-steps", 10), ("restarts", "--lr-period", 5),
            ("restarts", "--lr-period", 5, "--lr-multiplier", 2),
            ("restarts", "--lr-period", 5, "--min-lr", 0.01), ("step", "--lr-period", 5),
            ("step", "--lr-period", 5, "--lr-factor", 0.5),
            ("step", "--lr-period", 5, "--min-lr", 0.02), ("milestones", "--lr-milestones", "4,6"),
            ("milestones", "--lr-milestones", "4,7", "--lr-factor", 0.5),
            ("inverse_sqrt", "--lr-period", 4), ("inverse_sqrt", "--warmup-steps", 4),
            ("one_cycle", "--lr-pct-start", 0.5), ("one_cycle", "--lr-div-factor", 2),
            ("one_cycle", "--lr-final-div-factor", 2), ("one_cycle", "--lr-anneal", "linear"),
            ("one_cycle", "--lr-three-phase"))]
        digests = {run["digest"] for run in (*runs.values(), *others)}
        self.assertEqual(len(digests), len(runs) + len(others))
        for flags, error in (
            (["restarts"], "--lr-schedule restarts requires --lr-period (it is absent)"),
            (["step"], "--lr-schedule step requires --lr-period (it is absent)"),
            (["milestones"], "--lr-schedule milestones requires --lr-milestones (it is none)"),
            (["inverse_sqrt"],
             "--lr-schedule inverse_sqrt requires --lr-period or --warmup-steps (both are absent)"),
            (["milestones", "--lr-milestones", "5,5"],
             "--lr-milestones: must be ascending and above the 0 warm-up steps, got 5, 5"),
            (["milestones", "--lr-milestones", "5,x"],
             "--lr-milestones: must be an integer from 1 to"),
            (["step", "--lr-period", 5, "--lr-factor", 1], "--lr-factor: must be "),
            (["function"], "--lr-schedule: must be one of constant, linear, cosine, "),
            (["step", "--lr-period", 5, "--plateau-patience", 1],
             "--plateau-patience requires --lr-schedule plateau (it is step)"),
        ):
            self.expect_error(2, "usage", error, *short, "--lr-schedule", *flags)
        self.assertIn(
            "lr 0.05 linear, 10 warm-up steps",
            self.expect_code(0, *short, "--lr-schedule", "linear", "--warmup-steps", 10).stderr)

    def test_quiet_reports_results_alone(self):
        result = self.expect_code(0, "train", "mnist", *SHORT, "--quiet")
        self.assertEqual(result.stderr, "")
        self.assertIn("accuracy", result.stdout)

    def test_debug_reports_passes_and_storage(self):
        text = self.expect_code(0, "train", "mnist", *SHORT, "--log-level", "debug").stderr
        for part in ("compiled in ", "pass fuse ", "at the peak", "variable fc.0.weight",
                     "Epoch 1/1", "Evaluation", " waits\n"):
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
        self.assertIn("(default: 1; mnist-rts: 8, mnist-phased: 4, mnist-cnn: 10)",
                      " ".join(help_text.split()))

    def test_wrong_words(self):
        for arguments in [
            [],
            ["nosuch"],
            ["train", "nosuch"],
            ["train", "mnist", "--nosuch"],
            ["inspect"],
            ["train", "mnist", "--steps", "x"],
            ["train", "mnist", "--log-level", "loud"],
            ["train", "mnist", "--offload", "weight"],
            ["train", "mnist", "--strategy", "fast"],
            ["train", "mnist", "--io-mode", "soon"],
            ["train", "mnist", "--offload", "none,optimizer"],
            ["train", "mnist", "--offload", "optimizer", "--remote", "none"],
            ["train", "mnist", "--strategy", "phased", "--remote", "none"],
        ]:
            with self.subTest(arguments=arguments):
                self.expect_code(2, *arguments)

    def test_wrong_values(self):
        for flag, value, part in [
            (
                "--offload",
                "all",
                "--offload: must be auto, none, or some of "
                "optimizer,weights,activations,accumulators, got 'all'",
            ),
            (
                "--remote-bandwidth",
                0,
                "--remote-bandwidth: must be none or bytes from 1 to ",
            ),
            ("--dropout", 1, "must be a finite float32 number from 0 to below 1, got '1'"),
            ("--dropout", "0.9999999999", "--dropout: must be a finite float32 number from 0"),
            ("--clip-norm", -1, "must be a finite float32 number of at least 0, got '-1'"),
            ("--lr", 0, "--lr: must be a finite float32 number above 0, got '0'"),
            (
                "--optimizer",
                "sdg",
                "--optimizer: must be one of sgd, momentum, nesterov, adam, adam-f16, adamw, "
                "adamax, lamb, rmsprop, got 'sdg'; did you mean sgd?",
            ),
            ("--disable", "nosuch", "disable: must be optional passes of inline, "),
            ("--disable", "offsets", "got 'offsets'"),
            ("--disable", "fuse,", "--disable: must not be empty, nor a part between commas"),
            ("--io-queues", 0, "--io-queues: must be one of 1, 3, got '0'"),
            ("--io-queues", 2, "--io-queues: must be one of 1, 3, got '2'"),
        ]:
            with self.subTest(flag=flag):
                self.expect_error(2, "usage", part, "train", "mnist", "--synthetic", flag, value)

    def test_real_numbers(self):
        # float32 would round the numbers with exponents to 0 or to infinity.
        for flag, values in (("--lr", "above 0"), ("--clip-norm", "of at least 0"),
                             ("--dropout", "from 0 to below 1")):
            for value in ("nan", "inf", "1x", "0x1p3", "+1", " 1", "1e400", "1e-60", "1e39"):
                with self.subTest(flag=flag, value=value):
                    self.expect_error(
                        2, "usage",
                        f"{flag}: must be a finite float32 number {values}, got '{value}'",
                        "train", "mnist", "--synthetic", flag, value)

    INTEGERS = {
        "--layers": (1, 100000),
        "--width": (1, MOST),
        "--micro-batch": (1, MOST),
        "--accumulate": (1, 2**31 - 1),
        "--replicas": (1, 1024),
        "--threads": (0, 1024),
        "--seed": (0, 2**64 - 1),
        "--epochs": (0, MOST),
        "--steps": (0, MOST)
    }

    def test_integers(self):
        for flag, (least, most) in self.INTEGERS.items():
            for value in (least - 1, most + 1, 2**63, 2**64, -2**63 - 1, 10**30, "1e30", "0x10",
                          "1_", "1.0", "+1", " 1", "1 ", "x", "-", "7x"):
                if isinstance(value, int) and least <= value <= most:
                    continue
                with self.subTest(flag=flag, value=value):
                    self.expect_error(
                        2, "usage",
                        f"{flag}: must be an integer from {least} to {most}, got '{value}'",
                        "train", "mnist", "--synthetic", "--log-level", "error", flag, value)
        self.expect_error(2, "usage", f"--steps: must be an integer from 1 to {MOST}, got '0'",
                          "bench", "mnist", "--steps", 0)
        self.expect_error(2, "usage", "--rounds: must be an integer from 1 to 1000000, got '0'",
                          "bench", "--rounds", 0)
        self.expect_error(2, "usage", "--replicas: must be an integer from 1 to 1024, got '0'",
                          "plan", "mnist", "--replicas", 0)
        for value in (0, -1, 2 ** 63, "1e30"):
            self.expect_error(2, "usage",
                              f"--nodes: must be an integer from 1 to {MOST}, got '{value}'",
                              "plan", "--problem", "a.csv", "--nodes", value)
        for value in (-1, 2 ** 63, "some", "Inf"):
            self.expect_error(
                2, "usage",
                f"--shard-threshold: must be inf or an integer from 0 to {MOST}, got '{value}'",
                "plan", "mnist", "--shard-threshold", value)

    def test_bytes(self):
        for flag, smallest, command in (
            ("--memory", 0, ["plan", "mnist"]),
            ("--remote-memory", 0, ["plan", "mnist"]),
            ("--remote-bandwidth", 1, ["plan", "mnist"]),
            ("--capacity", 0, ["plan", "--problem", "a.csv"]),
        ):
            for value in ("12Q", -5, "99999999T", 2**63, "8388608T", "K", "1KK", "1 K", "+1K",
                          "0x1K", "1e30"):
                with self.subTest(flag=flag, value=value):
                    self.expect_error(
                        2, "usage",
                        f"{flag}: must be none or bytes from {smallest} to {MOST} (4096, 512K, "
                        f"64M, 2G, 1T), got '{value}'", *command, flag, value)

    def test_leading_zeros_change_nothing(self):
        flags = ["train", "mnist", *DIGITS, "--width", "016", "--layers", "02"]
        record = self.record(*flags, "--steps", "010", "--micro-batch", "008", "--memory", "0100M")
        self.assertEqual(record["steps"], 10)
        plain = self.record("train", "mnist", *DIGITS, "--width", 16, "--layers", 2, "--steps", 10)
        self.assertEqual(record["digest"], plain["digest"])
        text = self.expect_code(0, "train", "mnist", *DIGITS, "--width", "16", "--micro-batch",
                                "010", "--steps", 1).stderr
        self.assertIn("micro-batch 10 = 10 samples a step", text)

    def test_empty_values(self):
        for command, flag in (
            ("train", "--steps"),
            ("train", "--width"),
            ("bench", "--steps"),
            ("plan", "--check"),
            ("plan", "--problem"),
            ("train", "--save"),
            ("train", "--shard-threshold"),
        ):
            with self.subTest(command=command, flag=flag):
                self.assertIn(f"{flag}: must not be empty",
                              self.expect_code(2, command, "mnist", flag, "").stderr)

    def test_what_cannot_be_offloaded(self):
        self.expect_error(
            2, "usage", "--offload accumulators requires --accumulate of at least 2, or --strategy "
            "phased (it is 1, without phases)", "plan", "mnist", "--offload", "accumulators")
        for what in ("auto,weights", "none,weights", "optimizer,state"):
            self.expect_error(
                2, "usage", "--offload: must be auto, none, or some of "
                f"optimizer,weights,activations,accumulators, got '{what}'", "plan", "mnist",
                "--offload", what)

    def test_what_phases_cannot_do(self):
        phased = ["plan", "mnist", "--strategy", "phased"]
        for flags, part in (
            (
                ["--io-queues", 3, "--io-mode", "compute"],
                "--io-queues requires --io-mode io or io_overlapped (it is compute)",
            ),
        ):
            self.expect_error(2, "usage", part, *phased, *flags)

    def test_values_that_the_data_shows_wrong(self):
        quiet = ["train", "mnist", *DIGITS, "--width", "16", "--log-level", "error"]
        self.expect_error(2, "usage", "0 full batches: micro-batch 1025 = 1025, the dataset has "
                          "1024", *quiet, "--micro-batch", 1025)
        self.expect_error(2, "usage", "exceeds 63 bits", *quiet, "--epochs", 2 ** 63 - 1)

    def test_wrong_words_of_other_commands(self):
        self.expect_error(
            2, "usage",
            "print-after: must be all or one of functionalise, place, inline, ", "plan", "mnist",
            "--print-after", "nosuch")
        self.expect_error(2, "usage", "--io-mode requires offloaded tensors", "plan",
                          "mnist-phased", "--strategy", "resident", "--io-mode", "io_overlapped")
        self.expect_error(2, "usage", "with at most 2 threads, got 'nosuch'", "bench",
                          "--threads", 2, "--only", "nosuch")
        self.expect_error(2, "usage", "--width requires a model (sluice bench mnist)", "bench",
                          "--width", 64)
        self.expect_error(2, "usage", "--only cannot be combined with a model", "bench", "mnist",
                          "--only", "gemm")
        self.expect_error(2, "usage", f"inspect: {__file__} is none of *idx3-ubyte", "inspect",
                          __file__)

    def test_wrong_instruction_set(self):
        self.expect_error(2, "usage", "'mmx'", "train", "mnist", *SHORT, env={"SLUICE_ISA": "mmx"})

    def test_eval_needs_weights(self):
        self.expect_error(2, "usage", "--weights", "eval", "mnist", "--synthetic")

    def test_doctor(self):
        self.assertIn("healthy", self.expect_code(0, "doctor").stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
