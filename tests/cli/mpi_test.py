"""Replicas and stages in processes that mpirun starts.

They compute the bits of one process, only one of them prints, and all end if one ends.

SLUICE_MPIRUN names the launcher.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from cli_case import (DIGITS, HANG, MPI_ENVIRONMENT, MPIRUN, PROGRAM, MpiTest, kill, mpi,
                      programs_under, runs, wait_until)
from readers.event_reader import Events
from readers.report_reader import Report

SHORT = [*DIGITS, "--steps", "10", "--width", "64"]
# A run that does not end on its own. Long epochs report little progress to a pipe.
LONG = ["train", "mnist", "--synthetic", "--epochs", "1000000", "--width", "64"]
STEP = 8  # Micro-batches of a measured step.
STAGES = ["--strategy", "pipelined", "--stages", "2", "--accumulate", "4"]


def metrics(folder):
    """Returns the bytes of a log's table of steps. Its file exists once a run has begun."""
    path = Path(folder, "metrics.csv")
    return path.read_bytes() if path.exists() else b""


class Mpi(MpiTest):
    @classmethod
    def tearDownClass(cls):
        print(f"launcher crashed inside PMIx_server_finalize: {cls.crashes} of {cls.launches} "
              f"runs, each repeated; at most {cls.MAX_CRASHES} are allowed", file=sys.stderr)

    def start(self, processes, *arguments):
        """Starts a long run. Returns it, its process ids by rank, and the folder of its log, once
        all processes have trained a step."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        MpiTest.launches += 1
        run = subprocess.Popen(mpi(processes, *arguments, "--log-dir", folder.name),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env=MPI_ENVIRONMENT)
        self.addCleanup(run.kill)
        while "samples a step" not in (line := run.stderr.readline()):
            self.assertNotEqual(line, "", "it has ended")

        def has_trained():
            self.assertIsNone(run.poll(), "it has ended")
            return metrics(folder.name).count(b"\n") > 1

        wait_until(has_trained)
        pids = programs_under(run.pid)
        self.addCleanup(kill, pids)
        return run, pids, folder.name

    def expect_no_orphans(self, pids):
        """Expects that all processes end. One that missed the end of the others trains on."""
        wait_until(lambda: not any(map(runs, pids)))

    def test_processes_have_the_bits_of_one(self):
        with tempfile.TemporaryDirectory() as folder:
            for replicas, flags in (
                (2, ["--dropout", "0.1"]),
                (4, ["--optimizer", "adam", "--offload", "optimizer", "--shard-threshold", "512"]),
                (
                    4,
                    [
                        "--strategy",
                        "phased",
                        "--optimizer",
                        "adam",
                        "--offload",
                        "optimizer,weights,activations",
                        "--io-mode",
                        "io_overlapped",
                        "--shard-threshold",
                        "0",
                        "--accumulate",
                        "2",
                        "--remote",
                        f"file:{folder}",
                    ],
                ),
            ):
                run = ["train", "mnist", *SHORT, "--replicas", replicas, *flags, "--json"]
                plain = json.loads(self.expect_code(0, *run).stdout)
                for processes in (2, 4):
                    if replicas % processes:
                        continue
                    with self.subTest(replicas=replicas, processes=processes, flags=flags):
                        result = self.finish(mpi(processes, *run))
                        self.assertEqual(result.returncode, 0, result.stderr)
                        record = json.loads(result.stdout)  # Only one process prints.
                        for key in ("digest", "loss", "accuracy", "planned_bytes"):
                            self.assertEqual(record[key], plain[key])
            self.assertEqual(os.listdir(folder), [])

    def test_a_report_has_what_all_processes_did(self):
        stages = ["--strategy", "pipelined", "--stages", 2, "--map", "devices"]
        with tempfile.TemporaryDirectory() as folder:
            for name, flags in (("replicas", ["--replicas", 2]), ("stages", stages)):
                with self.subTest(flags=flags):
                    result = self.finish(mpi(2, "bench", "mnist-cnn", "--micro-batch", 40,
                                             "--accumulate", STEP, "--device-iterations", 1,
                                             "--steps", 2, "--threads", 1, *flags,
                                             f"--profile={folder}/{name}"))
                    self.assertEqual(result.returncode, 0, result.stderr)
                    report = Report(f"{folder}/{name}/training/report.json")
                    report.check()  # The run moved the planned bytes.
                    measured = report.data["measured"]
                    self.assertEqual([m["replica"] for m in measured],
                                     list(range(report.data["replicas"])))
                    self.assertEqual({e["device"] for m in measured
                                      for e in m["trace"]["events"]},
                                     set(range(len(report.data["devices"]))))
                    self.expect_messages_after_they_are_sent(report, measured[0])

    def expect_messages_after_they_are_sent(self, report, run):
        """On one clock, message i is sent before message i + STEP / 2 is received."""
        sent, received = {}, {}
        for e in run["trace"]["events"]:
            step = report.functions[e["function"]]["steps"][e["step"]]
            if e["kind"] == "step" and step["kind"] in ("send", "receive"):
                (sent if step["kind"] == "send" else received).setdefault(
                    step["name"], []).append(e)
        self.assertEqual({k: len(v) for k, v in sent.items()},
                         {k: len(v) for k, v in received.items()})
        for name, events in sent.items():
            self.assertEqual(len(events), STEP, name)
            for before, after in zip(events, received[name][STEP // 2:]):
                self.assertLess(before["begin_ns"], after["end_ns"], name)

    def test_one_process_writes_the_predictions_of_all(self):
        with tempfile.TemporaryDirectory() as folder:
            table, weights = f"{folder}/samples.csv", f"{folder}/weights.safetensors"
            with open(table, "w") as f:
                f.write("".join(f"{k % 7},{k % 5},{k % 3},{k % 2}\n" for k in range(101)))
            model = ["mlp", "--loss", "mse", "--dataset", f"csv:{table}"]
            train = ["train", *model, "--layers", 2, "--width", 8, "--lr", 0.001, "--replicas", 2]
            plain = self.record(*train, "--save", weights)
            several = json.loads(self.finish(mpi(2, *train, "--json")).stdout)
            for key in ("digest", "mean_squared_error"):
                self.assertEqual(several[key], plain[key])
            predict = ["predict", *model, "--weights", weights, "--to"]
            self.expect_code(0, *predict, f"{folder}/one.npz")
            for flags in (["--replicas", 2], ["--strategy", "pipelined", "--stages", 2]):
                with self.subTest(flags=flags):
                    result = self.finish(mpi(2, *predict, f"{folder}/two.npz", *flags))
                    self.assertEqual(result.returncode, 0, result.stderr)
                    self.assertEqual(result.stdout.count("101 samples"), 1)
                    with open(f"{folder}/one.npz", "rb") as one:
                        with open(f"{folder}/two.npz", "rb") as two:
                            self.assertEqual(one.read(), two.read())
                    os.remove(f"{folder}/two.npz")
            self.assertEqual(len(os.listdir(folder)), 3)

    def test_one_process_writes_the_log_of_all(self):
        with tempfile.TemporaryDirectory() as folder:
            run = ["train", "mnist", *SHORT, "--replicas", 2, "--strategy", "phased", "--optimizer",
                   "adam", "--offload", "optimizer,weights", "--shard-threshold", 0, "--json"]
            log = ["--log-histograms", 4, "--log-dir"]
            plain = self.record(*run[:-1], *log, f"{folder}/one")
            result = self.finish(mpi(2, *run, *log, f"{folder}/two"))
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(json.loads(result.stdout)["digest"], plain["digest"])
            found = []
            for name in ("one", "two"):
                (events,) = Path(folder, name).glob("*tfevents*")
                read = Events(events)
                found.append((read.numbers["loss"],
                              {tag: [(s, vars(h)) for s, h in values]
                               for tag, values in read.histograms.items()}))
            self.assertEqual(found[0], found[1])
            self.assertEqual(len(found[0][0]), 10)
            self.assertGreater(len(found[0][1]), 3)
            result = self.finish(mpi(2, *run, *log, f"{folder}/one/metrics.csv"))
            self.assertEqual(result.returncode, 5, result.stderr)
            self.assertEqual(result.stderr.count("error ("), 1, result.stderr)

    def test_stages_have_the_bits_of_one(self):
        for replicas, processes, flags in (
            (1, 2, []),
            (1, 2, ["--map", "1,0"]),
            (2, 2, []),
            (2, 2, ["--map", "devices"]),
            (2, 4, ["--map", "0,2,1,3"]),
        ):
            with self.subTest(replicas=replicas, processes=processes, flags=flags):
                run = [
                    "train", "mlp-skip", *SHORT, *STAGES, "--optimizer", "adam", "--offload",
                    "optimizer", "--threads", "1", "--json"
                ]
                plain = json.loads(self.expect_code(0, *run, "--replicas", replicas).stdout)
                if replicas > 1 and processes < 4:
                    run += ["--replicas", replicas]  # Four processes have a device each.
                result = self.finish(mpi(processes, *run, *flags))
                self.assertEqual(result.returncode, 0, result.stderr)
                record = json.loads(result.stdout)
                for key in ("digest", "loss", "accuracy", "planned_bytes", "measured_bytes"):
                    self.assertEqual(record[key], plain[key])

    def test_maps_that_cannot_run_are_refused(self):
        run = ["train", "mlp-skip", *SHORT, *STAGES]
        self.assertIn("--map requires several processes of mpirun",
                      self.expect_code(2, *run, "--map", "0,1").stderr)
        for processes, flags, part in (
            (3, [], "3 processes cannot share 2 devices evenly"),
            (2, ["--map", "0,1,0"], "must have 2 numbers, one for each of 2 devices, got 3"),
            (2, ["--map", "0,0"], "process 1 must run a device, got none"),
            (2, ["--map", "0,2"], "--map: must be an integer from 0 to 1, got '2'"),
            (2, ["--map", "stages"], "--map: must be an integer from 0 to 1, got 'stages'"),
        ):
            with self.subTest(processes=processes, flags=flags):
                result = self.finish(mpi(processes, *run, *flags))
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertEqual(result.stderr.count(part), 1, result.stderr)

    def test_a_lost_stage_is_named(self):
        run, pids, _ = self.start(2, "train", "mlp-skip", *LONG[2:], *STAGES)
        os.kill(pids[1], signal.SIGSTOP)
        _, errors = run.communicate(timeout=HANG)
        self.assertEqual(run.returncode, 8, errors)
        self.assertEqual(errors.count("error ("), 1, errors)
        self.assertRegex(
            errors, r"error \(peer lost\): process 1 has given no sign of life for 5 s\n"
            r"  while (receiving message \d+ of channel 1to0 from process 1|"
            r"sending message \d+ of channel 0to1 to process 1|"
            r"ending channel \wto\w with process 1|gathering data of all)")
        if "gathering data of all" not in errors:  # Between two runs, no stage runs.
            self.assertRegex(errors,
                             r"  while running stage 0 \(.*\) on device 0, stage 1 \(.*\) on ")
        self.expect_no_orphans(pids)

    def test_what_one_saves_is_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [f"{folder}/{n}.safetensors" for n in (1, 2)]
            run = [
                "train", "mnist", *SHORT, "--replicas", "2", "--optimizer", "adam",
                "--shard-threshold", "0", "--save"
            ]
            self.expect_code(0, *run, paths[0])
            self.assertEqual(self.finish(mpi(2, *run, paths[1])).returncode, 0)
            with open(paths[0], "rb") as a, open(paths[1], "rb") as b:
                self.assertEqual(a.read(), b.read())

    def test_a_replica_each_unless_told(self):
        text = self.finish(mpi(3, "train", "mnist", *SHORT)).stderr
        self.assertIn("micro-batch 8 x replicas 3 = 24 samples a step", text)

    def test_all_refuse_with_one_voice(self):
        for flags, code, part in (
            (["--replicas", "4"], 2, "3 processes cannot share 4 replicas evenly"),
            (["--memory", "100K"], 4, "device 0 (cpu, each of 3 replicas) needs"),
        ):
            with self.subTest(flags=flags):
                result = self.finish(mpi(3, "train", "mnist", *SHORT, *flags))
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertEqual(result.stderr.count(part), 1, result.stderr)

    def test_a_failed_advice_does_not_replace_a_refusal(self):
        run = ["train", "mlp", *DIGITS, "--layers", "4", "--width", "32", *STAGES]
        result = self.finish(mpi(2, *run, "--memory", "1000"))
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertEqual(result.stderr.count("its budget is 1000"), 1, result.stderr)

    def test_processes_that_are_asked_for_different_things_refuse(self):
        run = ["train", "mnist", *SHORT, "--replicas", "2"]
        result = self.finish([*mpi(1, *run), ":", *mpi(1, *run, "--lr", "0.1")[1:]])
        self.assertEqual(result.returncode, 2)
        self.assertIn("processes 0 and 1 have different command lines", result.stderr)

    def test_the_launcher_of_another_mpi_is_refused(self):
        for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
            result = self.expect_code(2, "train", "mnist", *SHORT,
                                      env={**MPI_ENVIRONMENT, name: "2"})
            self.assertRegex(
                result.stderr,
                r"the launcher started 2 processes but .* sees 1; "
                r"start the program with the mpirun of ")

    def test_processes_that_find_different_files_refuse(self):
        with tempfile.TemporaryDirectory() as folder:
            runs = []
            for seed in (0, 1):
                place = f"{folder}/{seed}"
                os.mkdir(place)
                self.expect_code(0, "train", "mnist", *SHORT, "--seed", seed, "--save",
                                 f"{place}/w.safetensors")
                runs += [
                    ":", "-n", "1", "-wdir", place, PROGRAM, "eval", "mnist", *DIGITS,
                    "--width", "64", "--weights", "w.safetensors"
                ]
            result = self.finish([MPIRUN, *runs[1:]])
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertEqual(result.stderr.count("0 and 1 have different values in w.safetensors"),
                             1, result.stderr)

            one = mpi(1, "train", "mnist", *SHORT[2:])
            other = ["env", f"SLUICE_DATA={DIGITS[1]}", *one[3:]]
            result = self.finish([*one, ":", *one[1:3], *other])
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertEqual(result.stderr.count("processes 0 and 1 have different digits"), 1,
                             result.stderr)

    def test_a_killed_process_ends_all(self):
        run, pids, _ = self.start(2, *LONG)
        self.assertEqual(len(pids), 2)
        os.kill(pids[1], signal.SIGKILL)
        run.communicate(timeout=HANG)
        self.assertNotEqual(run.returncode, 0)
        self.expect_no_orphans(pids)

    def test_a_stopped_process_is_waited_for_and_then_given_up(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        run, pids, log = self.start(3, *LONG, "--checkpoint", folder.name, "--save-every", "50")
        wait_until(lambda: list(Path(folder.name).glob("step-*")))
        os.kill(pids[1], signal.SIGSTOP)
        time.sleep(2)  # Shorter than the 20 silent beats after which a process is lost.
        trained = len(metrics(log))
        os.kill(pids[1], signal.SIGCONT)

        def trains_on():
            self.assertIsNone(run.poll(), "two seconds are no loss")
            return len(metrics(log)) > trained

        wait_until(trains_on)
        os.kill(pids[1], signal.SIGSTOP)
        _, errors = run.communicate(timeout=HANG)
        self.assertEqual(run.returncode, 8, errors)
        self.assertEqual(errors.count("error ("), 1, errors)
        self.assertRegex(
            errors, r"error \(peer lost\): process 1 has given no sign of life for 5 s\n"
            r"  while (running Replicated\w+\.\d+ made at |gathering data of all)")
        self.assertRegex(errors, rf"\n  continue from {folder.name}/step-\d+ with --resume "
                         rf"{folder.name}\n")
        self.expect_no_orphans(pids)

    def test_a_killed_process_loses_no_checkpoint(self):
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        saves = lambda: sorted(p.name for p in folder.glob("step-*"))
        for copy, flags in (("host", []), ("none", ["--map", "devices"])):
            with self.subTest(copy=copy):
                shutil.rmtree(folder)
                run, pids, _ = self.start(2, *LONG, *STAGES, *flags, "--replicas", "2",
                                          "--checkpoint", folder, "--save-every", "20",
                                          "--save-copy", copy)
                wait_until(lambda: len(saves()) > 1)
                os.kill(pids[1], signal.SIGKILL)
                run.communicate(timeout=HANG)
                self.assertNotEqual(run.returncode, 0)
                self.expect_no_orphans(pids)
                newest = saves()[-1]
                self.assertEqual(len(list((folder / newest).glob("*.safetensors"))), 2)
                train = ["train", "mnist", "--synthetic", "--width", "64", "--replicas", "2",
                         "--accumulate", "4", "--digest", "--steps", int(newest[5:]) + 20]
                whole = self.expect_code(0, *train)
                resumed = self.expect_code(0, *train, "--resume", folder)
                self.assertIn(f"resumed {folder}/{newest} after", resumed.stderr)
                self.assertEqual(resumed.stdout.splitlines()[-1], whole.stdout.splitlines()[-1])
                # Processes continue what one has saved, too.
                shared = self.finish(mpi(2, *train, *STAGES[:4], *flags, "--resume", folder))
                self.assertEqual(shared.returncode, 0, shared.stderr)
                self.assertEqual(shared.stdout.splitlines()[-1], whole.stdout.splitlines()[-1])
                # So does a run without steps left, in the folder that it saves to.
                for steps in (20, 20):
                    train[-1] = int(newest[5:]) + steps
                    ended = self.finish(mpi(2, *train, *STAGES[:4], *flags, "--resume", folder,
                                            "--checkpoint", folder))
                    self.assertEqual(ended.returncode, 0, ended.stderr)
                    self.assertEqual(ended.stdout.splitlines()[-1], whole.stdout.splitlines()[-1])

    def test_an_error_of_one_stops_all(self):
        with tempfile.TemporaryDirectory() as folder:
            run = [
                "train", "mnist", *SHORT, "--replicas", "2", "--strategy", "phased", "--remote",
                f"file:{folder}"
            ]
            one = mpi(1, *run)
            broken = [*one[:3], "env", "SLUICE_FAILPOINT=pwrite@40=EIO", *one[3:]]
            result = self.finish([*broken, ":", *one[1:]])
            self.assertEqual(result.returncode, 5, result.stderr)
            self.assertEqual(len(re.findall(r"error \(", result.stderr)), 1, result.stderr)
            self.assertIn(f"a file in {folder}", result.stderr)
            self.assertEqual(os.listdir(folder), [])

    def test_of_several_errors_one_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            one = mpi(1, "train", "mnist", *SHORT, "--strategy", "phased", "--remote",
                      f"file:{folder}")
            apps = [[":", *one[1:3], "env", f"SLUICE_FAILPOINT=mkostemp@1={code}", *one[3:]]
                    for code in ("EIO", "ENOSPC")]
            result = self.finish([*one, *apps[0], *apps[1]])
            self.assertEqual(result.returncode, 5, result.stderr)
            self.assertEqual(result.stderr.count("error ("), 1, result.stderr)

    def test_a_signal_ends_all_in_order(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/w.safetensors"
            run, pids, _ = self.start(2, *LONG, "--save", path)
            for pid in pids:
                os.kill(pid, signal.SIGTERM)
            _, errors = run.communicate(timeout=HANG)
            self.assertEqual(run.returncode, 75, errors)
            self.assertEqual(
                len(re.findall(r"stopped by signal 15 after step \d+; saved to ", errors)), 1,
                errors)
            self.assertTrue(os.path.exists(path))
            self.expect_no_orphans(pids)


if __name__ == "__main__":
    unittest.main(verbosity=2)
