"""Failures and the files that they leave: failing system calls, bad files, signals."""

import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import unittest
from pathlib import Path

from cli_case import DIGITS, HANG, PROGRAM, SHORT, CliTest, has_signal, sluice, wait_until


class Faults(CliTest):
    """System calls that fail in a phased run.

    The run ends with one clear error or computes the same bits, and leaves no file behind.
    """

    FLAGS = [
        "train", "mlp", *DIGITS, "--layers", "3", "--width", "8", "--steps", "1",
        "--optimizer", "adam", "--accumulate", "2", "--strategy", "phased", "--offload",
        "optimizer,weights,activations"
    ]

    def run_failing(self, failpoint, folder, *more):
        result = sluice(*self.FLAGS, "--remote", f"file:{folder}", "--json", *more,
                        env={"SLUICE_FAILPOINT": failpoint})
        self.assertEqual(os.listdir(folder), [])
        return result

    def test_calls_fail(self):
        # train_test makes every call fail in turn.
        with tempfile.TemporaryDirectory() as folder:
            for number, mode in (
                (1, "compute"),
                (2, "io"),
                (9, "io"),
                (60, "io"),
                (70, "io_overlapped"),
            ):
                result = self.run_failing(f"any@{number}=EIO", folder, "--io-mode", mode)
                self.assertEqual(result.returncode, 5, (number, result.stderr))
                self.assertIn("error (input/output): cannot ", result.stderr)
                self.assertIn(folder, result.stderr)
                self.assertEqual(result.stdout, "")
            self.assertRegex(result.stderr,
                             r"(loading|storing) entry \d+ of remote buffer remote\d+")

    def test_what_a_run_survives(self):
        with tempfile.TemporaryDirectory() as folder:
            plain = self.record(*self.FLAGS)
            # Reads 1 to 4 are of the samples.
            for failpoint in ("fallocate@1=EINTR", "pread@8=short", "pwrite@5=EINTR"):
                with self.subTest(failpoint=failpoint):
                    result = self.run_failing(failpoint, folder)
                    self.assertEqual(result.returncode, 0, result.stderr)
                    self.assertEqual(json.loads(result.stdout)["digest"], plain["digest"])

    def test_no_space(self):
        with tempfile.TemporaryDirectory() as folder:
            for failpoint in ("fallocate@1=ENOSPC", "pwrite@2=ENOSPC", "pwrite@40=EDQUOT"):
                result = self.run_failing(failpoint, folder)
                self.assertEqual(result.returncode, 5, result.stderr)
                self.assertIn("a file in " + folder, result.stderr)

    def test_wrong_failpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.run_failing("pread@never", folder).returncode, 2)


class Files(CliTest):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return Path(self.folder.name) / name

    def test_save_then_eval(self):
        weights, mine = self.path("w.safetensors"), self.path("w.safetensors.tmp")
        mine.write_text("mine")
        trained = self.record("train", "mnist", *SHORT, "--save", weights)
        evaluated = self.record("eval", "mnist", *DIGITS, "--width", 64, "--weights", weights)
        self.assertEqual(evaluated["accuracy"], trained["accuracy"])
        self.assertEqual(evaluated["test_loss"], trained["test_loss"])
        said = self.expect_code(0, "eval", "mnist", *DIGITS, "--width", 64, "--weights", weights)
        self.assertTrue(trained["accuracy"] <= trained["top5_accuracy"] <= 100)
        self.assertIn(f"test loss {trained['test_loss']:.4f}, perplexity "
                      f"{trained['perplexity']:.4f}, accuracy {trained['accuracy']:.2f} %, top5 "
                      f"accuracy {trained['top5_accuracy']:.2f} %\n", said.stdout)
        for replicas in (3, 64):  # Batches of 240 and 5,120 digits do not divide 400.
            shared = self.record("eval", "mnist", *DIGITS, "--width", 64, "--weights", weights,
                                 "--replicas", replicas)
            self.assertEqual(shared["accuracy"], trained["accuracy"])
        self.assertEqual(sorted(p.name for p in self.path("").iterdir()),
                         ["w.safetensors", "w.safetensors.tmp"])
        self.assertEqual(mine.read_text(), "mine")
        self.assertIn("fc.0.weight", self.expect_code(0, "inspect", weights).stdout)

    def test_the_state_of_an_optimizer_starts_anew(self):
        weights, others = self.path("w.safetensors"), self.path("adam.safetensors")
        run = ["mlp", *DIGITS, "--width", 16, "--quiet"]
        adam = [*run, "--optimizer", "adam", "--steps", 2]
        self.expect_code(0, "train", *run, "--steps", 2, "--save", weights)
        self.expect_error(3, "bad file", "must have the optimizer's state 'fc.0.bias.first_order', "
                          "got the weights alone; load_weights() (--fresh-optimizer) starts the "
                          "state anew", "train", *adam, "--weights", weights)
        fresh = self.record("train", *adam, "--weights", weights, "--fresh-optimizer")
        # The state in a file is not read either.
        self.expect_code(0, "train", *adam[:-1], 0, "--weights", weights, "--fresh-optimizer",
                         "--save", others)
        again = self.record("train", *adam, "--weights", others, "--fresh-optimizer")
        self.assertEqual(again["digest"], fresh["digest"])
        self.expect_code(0, "train", *adam, "--save", others)
        runs = [self.expect_code(0, "train", *adam, "--weights", others, *flags, "--digest")
                for flags in ([], ["--fresh-optimizer"])]
        self.assertNotEqual(runs[0].stdout.splitlines()[-1], runs[1].stdout.splitlines()[-1])
        self.assertEqual([r.stderr for r in runs], ["", ""])
        for command in ("train", "eval"):
            self.expect_error(2, "usage", "--fresh-optimizer requires --weights (it is absent)",
                              command, "mlp", *DIGITS, "--fresh-optimizer")

    def test_a_part_of_the_weights_is_loaded(self):
        weights, more = self.path("w.safetensors"), self.path("more.safetensors")
        run = ["mlp", *DIGITS, "--width", 16]
        self.expect_code(0, "train", *run, "--layers", 2, "--steps", 2, "--save", weights)
        # The last layer of the file is that of a deeper network.
        deeper = ["train", *run, "--layers", 3, "--steps", 0, "--weights", weights]
        self.expect_error(3, "bad file", "'fc.1.bias' must be (16,) float32, got (10,) float32",
                          *deeper, "--load-strict", "no")
        moved = ["--load-names", "fc.1.*=fc.2.*"]
        self.expect_error(3, "bad file", "variable 'fc.1.weight' is missing", *deeper, *moved)
        said = self.expect_code(0, *deeper, *moved, "--load-strict", "no", "--save", more).stderr
        for path in ("fc.1.bias", "fc.1.weight"):
            self.assertIn(f"{weights}: variable '{path}' is missing and keeps its first value\n",
                          said)
        self.assertNotIn("left out", said)
        # An empty path leaves a tensor out; another path that is no variable is listed.
        said = self.expect_code(0, *deeper, "--load-names", "fc.1.weight=,fc.1.bias=head",
                                "--load-strict", "no").stderr
        self.assertIn(f"{weights}: 'fc.1.bias' is not part of this model and was left out\n", said)
        self.assertNotIn("'fc.1.weight' is not", said)
        self.assertIn("variable 'fc.2.weight' is missing", said)
        back = ["train", *run, "--layers", 2, "--steps", 0, "--digest", "--quiet", "--weights"]
        same = self.expect_code(0, *back, weights).stdout
        self.assertEqual(self.expect_code(0, *back, more, "--load-names",
                                          "fc.1.*=,fc.2.*=fc.1.*").stdout, same)
        self.expect_error(2, "usage", "load: 'fc.7.*' must match a tensor of ", *back,
                          weights, "--load-names", "fc.7.*=fc.0.*")
        self.expect_error(2, "usage", "--load-names: a pair must be NAME=PATH, or NAME= to leave "
                          "a tensor out, got 'fc'", *back, weights, "--load-names", "fc")
        self.expect_error(2, "usage", "--load-names: must have different names, got 'a' twice",
                          *back, weights, "--load-names", "a=b,a=c")
        for flag, value in (("--load-strict", "no"), ("--load-names", "a=b")):
            self.expect_error(2, "usage", f"{flag} requires --weights (it is absent)", "eval",
                              "mlp", *DIGITS, flag, value)

    def test_averages_are_evaluated(self):
        weights = self.path("w.safetensors")
        run = ["mlp", *DIGITS, "--width", 16]
        train = ["train", *run, "--steps", 20, "--lr", 0.5, "--ema-decay", 0.9]
        trained = self.record(*train, "--save", weights)
        said = self.expect_code(0, "eval", *run, "--weights", weights, "--quiet")
        self.assertEqual(said.stderr, "")
        averages = self.record("eval", *run, "--weights", weights)
        plain = self.record("eval", *run, "--weights", weights, "--load-names", "ema.*=")
        self.assertEqual(averages["test_loss"], trained["test_loss"])
        self.assertNotEqual(averages["test_loss"], plain["test_loss"])
        self.assertEqual(plain["test_loss"],
                         self.record(*train[:-2], "--save", self.path("p"))["test_loss"])
        # Phases and shards have the digest, and remote memory holds the averages.
        for flags in (["--strategy", "phased", "--io-mode", "io_overlapped"],
                      ["--strategy", "pipelined", "--stages", 2], ["--accumulate", 1]):
            self.assertEqual(self.record(*train, *flags)["digest"], trained["digest"])
        two = [*train, "--replicas", 2]
        self.assertEqual(self.record(*two, "--shard-threshold", 16)["digest"],
                         self.record(*two)["digest"])
        # A training resumes with the averages of its file.
        resumed = self.record("train", *run, "--ema-decay", 0.9, "--steps", 0,
                              "--weights", weights)
        self.assertEqual(resumed["test_loss"], trained["test_loss"])
        self.expect_error(2, "usage", "--ema-decay: must be a finite float32 number from 0 to "
                          "below 1, got '1'", *train[:-1], 1)

    def test_checkpoints_are_weights(self):
        run, weights = self.path("run"), self.path("w.safetensors")
        model = ["mlp", *DIGITS, "--width", 16, "--ema-decay", 0.9]
        self.record("train", *model, "--steps", 20, "--checkpoint", run, "--save-every", 10,
                    "--save", weights)
        test = lambda file: self.record("eval", *model[:-2], "--weights", file)["test_loss"]
        newest, older = test(run), test(run / "step-000000010")
        self.assertEqual(newest, test(weights))
        self.assertNotEqual(newest, older)
        said = self.expect_code(0, "eval", *model[:-2], "--weights", run)
        self.assertIn(f"weights of {run}/step-000000020\n", said.stderr)
        # A training starts from them, and a damaged checkpoint is left out.
        started = self.record("train", *model, "--steps", 0, "--weights", run)
        self.assertEqual(started["test_loss"], newest)
        file = run / "step-000000020" / "model-00001-of-00001.safetensors"
        file.write_bytes(file.read_bytes()[:-1] + b"\x77")
        self.assertEqual(test(run), older)
        self.expect_error(7, "no checkpoint", "must have a whole checkpoint, got", "eval",
                          *model[:-2], "--weights", file.parent)

    def test_weights_of_another_shape(self):
        weights = self.path("w.safetensors")
        self.expect_code(0, "train", "mnist", *SHORT, "--save", weights)
        self.expect_error(3, "bad file", "fc.0", "eval", "mnist", *DIGITS, "--width", 32,
                          "--weights", weights)

    def test_missing_files(self):
        missing = self.path("missing.safetensors")
        self.expect_error(5, "input/output", str(missing), "eval", "mnist", *DIGITS,
                          "--weights", missing)
        self.expect_error(5, "input/output", str(missing), "inspect", missing)
        self.expect_error(5, "input/output", "train-images-idx3-ubyte", "train", "mnist", "--data",
                          self.folder.name)
        self.expect_error(5, "input/output", str(missing), "train", "mnist", *SHORT, "--optimizer",
                          "adam", "--offload", "optimizer", "--remote", f"file:{missing}")
        self.expect_error(2, "usage", "remote memory", "train", "mnist", *SHORT, "--remote", "disk")
        # A file that cannot be written is an error before the training, not after it.
        long = [
            "train", "mnist", *DIGITS, "--width", "16", "--steps", "100000000", "--log-level",
            "error"
        ]
        self.expect_error(5, "input/output", "cannot create", *long, "--save",
                          self.path("no/such/folder"))
        self.expect_error(
            5, "input/output",
            f"cannot replace {self.folder.name}: must be a regular file, got a folder", *long,
            "--save", self.folder.name)
        self.assertEqual(list(self.path("").iterdir()), [])
        os.mkfifo(self.path("pipe"))
        self.expect_error(5, "input/output", "pipe: must be a regular file, got a pipe", *long,
                          "--save", self.path("pipe"))
        self.assertTrue(self.path("pipe").is_fifo())

    def test_what_is_no_file(self):
        """Folders, pipes without a writer, sockets and devices are refused at once as inputs."""
        pipe, folder, endpoint = (self.path(f"{kind}.safetensors")
                                  for kind in ("pipe", "folder", "socket"))
        os.mkfifo(pipe)
        folder.mkdir()
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(endpoint))
        train = ["train", "mnist", *SHORT, "--log-level", "error"]
        for file, kind in (
            (pipe, "pipe"),
            (folder, "folder"),
            (endpoint, "socket"),
            ("/dev/zero", "device"),
            ("/dev/null", "device"),
        ):
            for command in (
                ["inspect"],
                ["plan", "--check"],
                ["plan", "--problem"],
                [*train, "--weights"],
                ["eval", "mnist", *DIGITS, "--weights"],
            ):
                with self.subTest(kind=kind, command=command):
                    if kind == "folder" and command == ["inspect"]:
                        self.expect_error(7, "no checkpoint",
                                          f"{file}: must have a checkpoint, got none\n",
                                          *command, file)
                        continue
                    self.expect_error(
                        3, "bad file",
                        f"cannot read {file}: must be a regular file, got a {kind}\n", *command,
                        file)
        names = [
            "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
            "t10k-labels-idx1-ubyte"
        ]
        for name in names:
            os.mkfifo(self.path(name))
        error = f"{self.path(names[0])}: must be a regular file, got a pipe"
        self.expect_error(3, "bad file", error, "train", "mnist", "--log-level", "error", "--data",
                          self.folder.name)
        for command in (["train", "mnist", "--log-level", "error"], ["doctor"]):
            result = self.expect_code(3, *command, "--data", pipe)
            self.assertIn(f"error (bad file): cannot read {pipe}: must be a folder, got a pipe\n",
                          result.stderr)
        self.expect_code(5, "doctor", "--data", self.path("missing"))

    def test_the_target_of_a_link_is_replaced(self):
        target, link = self.path("w.safetensors"), self.path("link")
        target.write_text("old")
        link.symlink_to(target.name)
        self.expect_code(0, "train", "mnist", *SHORT, "--save", link)
        self.assertTrue(link.is_symlink())
        self.assertFalse(target.is_symlink())
        self.expect_code(0, "inspect", target)

    def test_damaged_files(self):
        weights = self.path("w.safetensors")
        self.expect_code(0, "train", "mnist", *SHORT, "--save", weights)
        weights.write_bytes(weights.read_bytes()[:-1])
        self.expect_error(3, "bad file", weights.name, "eval", "mnist", *DIGITS, "--width", 64,
                          "--weights", weights)
        self.expect_error(3, "bad file", weights.name, "inspect", weights)
        for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3",
                     "t10k-labels-idx1"):
            self.path(f"{part}-ubyte").write_bytes(b"\0\0\x08\x03" + b"\0" * 12)
        self.expect_error(3, "bad file", "idx", "train", "mnist", "--data", self.folder.name)
        plan = self.path("a.plan")
        plan.write_text("executable\nnonsense\n")
        self.expect_error(3, "bad file", "a.plan", "plan", "--check", plan)
        problem = self.path("a.csv")
        problem.write_text("id,lower,upper,size\na,0,1\n")
        self.expect_error(3, "bad file", "a.csv", "plan", "--problem", problem)

    def test_a_plan_parses_back_and_is_proved(self):
        plan = self.path("a.plan")
        plan.write_text(self.expect_code(0, "plan", "mnist", "--full").stdout)
        self.assertIn("proved", self.expect_code(0, "plan", "--check", plan).stdout)
        self.assertEqual(self.expect_code(0, "inspect", plan).stdout.splitlines()[0],
                         self.expect_code(0, "plan", "mnist").stdout.splitlines()[0])

    def test_an_edited_plan_is_refused(self):
        text = self.expect_code(0, "plan", "mnist", "--full").stdout
        plan = self.path("a.plan")

        def check(code, old, new):
            self.assertIn(old, text)
            plan.write_text(text.replace(old, new, 1))
            return self.expect_code(code, "plan", "--check", plan)

        # The device checks kernels, a fingerprint options, and the checker everything else.
        self.assertIn("[kernel] function",
                      check(3, "kernel cpu.fused ", "kernel cpu.nosuch ").stdout)
        self.assertIn("the cpu has no kernel 'cpu.nosuch'",
                      check(3, "kernel cpu.fused ", "kernel cpu.nosuch ").stdout)
        self.assertIn("[kernel] device 0: instruction set: must be base, avx2 or avx512, got 'mmx'",
                      check(3, f" isa {self.isa_of(text)} ", " isa mmx ").stdout)
        self.assertIn("its kind must be cpu, got gpu",
                      check(0, "device 0 kind cpu", "device 0 kind gpu").stderr)
        self.assertIn("computes: must be ",
                      check(3, "rhs_transposed=false", "rhs_transposed=true").stderr)
        self.assertIn("computes: must be ", check(3, "computes ", "# computes ").stderr)
        self.assertIn("[bounds]",
                      check(3, "arena 0 offset 0 bytes", "arena 1 offset 0 bytes").stdout)

    @staticmethod
    def isa_of(text):
        words = text[text.index("device 0 "):].split()
        return words[words.index("isa") + 1]

    def test_a_planner_problem(self):
        problem = self.path("a.csv")
        problem.write_text("id,lower,upper,size\na,0,2,4\nb,1,3,4\nc,2,4,4\n")
        solution = self.expect_code(0, "plan", "--problem", problem, "--capacity", 8)
        self.assertEqual(solution.stdout.splitlines()[0], "id,lower,upper,size,offset")
        self.assertIn("height 8", solution.stderr)
        self.expect_code(4, "plan", "--problem", problem, "--capacity", 7)
        # A byte order mark, and a buffer that is never alive.
        problem.write_text("\ufeffid,lower,upper,size\na,7,7,4\nb,1,3,4\n")
        self.assertEqual(self.expect_code(0, "plan", "--problem", problem).stdout.splitlines()[1],
                         "a,7,7,4,0")
        # Problems that contradict themselves.
        head = "id,lower,upper,size,offset\n"
        for text, part in (("a,0,2,4,0\nc,5,6,4,\nb,1,3,4,2\n", "a.csv: line 2, 4: buffers "),
                           (f"a,0,2,{2**62},\nb,0,2,{2**62},\n", "a.csv: line 2, 3: ")):
            problem.write_text(head + text)
            self.expect_error(3, "bad file", part, "plan", "--problem", problem)
        problem.write_text("<!DOCTYPE html>\n<html>")
        self.expect_error(3, "bad file", "got an HTML page", "plan", "--problem", problem)

    @staticmethod
    def packing(count, steps, size, seed):
        """Returns a CSV problem of the pieces of a rectangle, so that a plan of its size exists."""
        draw = random.Random(seed)
        pieces = [(0, steps, size)]
        while len(pieces) < count:
            k = max(range(len(pieces)), key=lambda k: (pieces[k][1] - pieces[k][0]) * pieces[k][2])
            begin, end, size = pieces[k]
            if size == 1 or (end - begin > 1 and draw.random() < 0.5):
                middle = draw.randrange(begin + 1, end)
                pieces[k:k + 1] = [(begin, middle, size), (middle, end, size)]
            else:
                lower = draw.randrange(1, size)
                pieces[k:k + 1] = [(begin, end, lower), (begin, end, size - lower)]
        rows = (f"b{k},{b},{e},{s}\n" for k, (b, e, s) in enumerate(pieces))
        return "id,lower,upper,size\n" + "".join(rows)

    def test_nodes_of_a_planner_problem(self):
        problem = self.path("a.csv")
        problem.write_text(self.packing(300, 4000, 1 << 20, 1))
        fit = ["plan", "--problem", problem, "--capacity", 1 << 20]
        self.assertIn("300 buffers, height 1048576, live-set bound 1048576, no plan is lower",
                      self.expect_code(0, *fit).stderr)
        solved = self.record(*fit)
        self.assertEqual([solved[key] for key in ("height", "bound", "lower_bound")], [1 << 20] * 3)
        self.assertGreater(solved["exact_nodes"], 200000)
        self.assertEqual(self.record(*fit, "--nodes", 1000000000)["height"], 1 << 20)
        self.expect_error(4, "does not fit", "; the exact search gave up after 2", *fit,
                          "--nodes", 200000)
        self.expect_error(4, "does not fit",
                          "; the exact search requires at least 90000 nodes, got 89999", *fit,
                          "--nodes", 89999)
        few = self.expect_code(0, "plan", "--problem", problem, "--nodes", 1).stderr
        self.assertRegex(few, r"height \d+, live-set bound 1048576, no plan is below 1048576")
        self.assertNotIn("height 1048576,", few)


class Signals(CliTest):
    def stop(self, number, *arguments):
        """Ends a long training by a signal after its begin. Returns its exit code and stderr."""
        process = subprocess.Popen([
            PROGRAM, "train", "mnist", *DIGITS, "--steps", "10000000", "--width", "16",
            *map(str, arguments)
        ], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        seen = ""
        while "steps an epoch" not in seen:  # Printed before the first step.
            line = process.stderr.readline()
            self.assertNotEqual(line, "", f"the run ended: {seen}")
            seen += line
        process.send_signal(number)
        _, rest = process.communicate(timeout=HANG)
        return process.returncode, seen + rest

    def test_saves_and_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
                weights = Path(folder) / f"{number}.safetensors"
                code, text = self.stop(number, "--save", weights)
                self.assertEqual(code, 75, text)
                self.assertIn("stopped by signal", text)
                self.assertIn(str(weights), text)
                self.expect_code(0, "eval", "mnist", *DIGITS, "--width", 16, "--weights", weights)

    def test_a_second_signal_ends_the_step_too(self):
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen([
                PROGRAM, "train", "mnist", *DIGITS, "--width", "16", "--optimizer", "adam",
                "--offload", "optimizer", "--remote", f"file:{folder}", "--remote-bandwidth", "1"
            ], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            self.addCleanup(lambda: (process.kill(), process.stderr.close()))
            while "steps an epoch" not in process.stderr.readline():
                self.assertIsNone(process.poll())
            process.send_signal(signal.SIGTERM)
            # The handler of the first signal restores the default actions.
            wait_until(lambda: not has_signal(process.pid, signal.SIGTERM, "SigCgt"))
            self.assertIsNone(process.poll())
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=HANG), -signal.SIGINT)
            self.assertEqual(os.listdir(folder), [])

    def test_a_second_signal_while_saving_leaves_nothing(self):
        # A large network, so that saving takes long enough to be observed.
        train = [
            "train", "mnist", *DIGITS, "--width", "4096", "--layers", "4", "--micro-batch", "1",
            "--steps", "100000"
        ]
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder).resolve()
            process = subprocess.Popen([PROGRAM, *train, "--save", folder / "w.safetensors"],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, text=True)
            self.addCleanup(lambda: (process.kill(), process.stderr.close()))
            while "steps an epoch" not in process.stderr.readline():
                self.assertIsNone(process.poll())
            process.send_signal(signal.SIGINT)
            while not self.writes_into(process.pid, folder):
                self.assertIsNone(process.poll(), "it has saved before this test looked")
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=HANG), -signal.SIGINT)
            self.assertEqual(os.listdir(folder), [])

    def writes_into(self, pid, folder):
        """Whether a process has a file of the folder open, possibly a deleted one."""
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if descriptor.readlink().parent == folder and descriptor.stat().st_size > 0:
                    return True
            except OSError:  # Closed meanwhile.
                pass
        return False

    def test_a_terminal_that_closes_does_not_end_nohup(self):
        ignoring = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
        process = subprocess.Popen(
            [PROGRAM, "train", "mnist", *DIGITS, "--width", "16", "--steps", "100000000"],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=ignoring)
        self.addCleanup(lambda: (process.kill(), process.stderr.close()))
        while "steps an epoch" not in process.stderr.readline():
            self.assertIsNone(process.poll())
        self.assertTrue(has_signal(process.pid, signal.SIGTERM, "SigCgt"))
        # The system discards an ignored signal at once. A caught one would be the exit code.
        self.assertTrue(has_signal(process.pid, signal.SIGHUP, "SigIgn"))
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=HANG), 128 + signal.SIGTERM)

    def test_without_a_file_nothing_is_saved(self):
        code, text = self.stop(signal.SIGINT)
        self.assertEqual(code, 128 + signal.SIGINT, text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
