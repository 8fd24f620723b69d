"""Trainings that are saved, stopped, killed and resumed.

SLUICE_RESUMES is the number of random pairs of layouts (40), SLUICE_KILLS that of kills (40). A
tenth as many kills end one of two processes.
"""

import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

from cli_case import (DIGITS, HANG, MPI_ENVIRONMENT, MPIRUN, PROGRAM, FolderTest, MpiTest,
                      has_signal, kill, mpi, programs_under, sluice, wait_until)
from readers.event_reader import Events

RESUMES = int(os.environ.get("SLUICE_RESUMES", "40"))
KILLS = int(os.environ.get("SLUICE_KILLS", "40"))
STEPS = 6

SMALL_BLOCKS = ["--width", "16", "--blocks", "2", "--heads", "2"]
DROPOUT = ["--dropout", "0.1"]
SYNTHETIC = ["--synthetic"]
# The models of the registry, with small sizes and their data.
MODELS = {
    "mnist": ["--width", "16", *DROPOUT, *DIGITS],
    "mnist-rts": ["--width", "16", *DROPOUT, *DIGITS],
    "mnist-phased": ["--width", "16", *DROPOUT, *DIGITS],
    "mnist-cnn": [*DROPOUT, *DIGITS],
    "mlp": ["--width", "16", *DROPOUT, *DIGITS],
    "mlp-skip": ["--width", "16", *DIGITS],
    "resnet8": ["--micro-batch", "1", *SYNTHETIC],
    "resnet18": ["--width", "32", "--micro-batch", "1", *SYNTHETIC],
    "gpt": [*SMALL_BLOCKS, "--context", "16", *DROPOUT, *SYNTHETIC],
    "bert": [*SMALL_BLOCKS, "--context", "16", *DROPOUT, *SYNTHETIC],
    "vit": [*SMALL_BLOCKS, *DROPOUT, *SYNTHETIC],
}
# Strategies, each with variants, and the tensors that may leave the device in a variant.
PHASED = "weights,optimizer,activations"
STAGES = ["--stages", "2"]
STRATEGIES = {
    "resident": [(["resident"], ["optimizer", "weights,optimizer"])],
    "phased": [(["phased"], ["optimizer", PHASED]),
               (["phased", "--recompute"], [PHASED, PHASED + ",accumulators"])],
    "pipelined": [(["pipelined", *STAGES], ["optimizer"]),
                  (["pipelined", *STAGES, "--schedule", "sequential"], ["optimizer"])],
    "sharded": [(["sharded", *STAGES], ["optimizer"])],
    "phased in stages": [(["phased", *STAGES], [PHASED])],
}
WITHOUT_STAGES = ("resident", "phased")
TIERS = ("device", "host", "file")
# A layout as (strategy, tier, processes). Activations of phases in stages must be remote.
LAYOUTS = [(s, tier, processes) for s in STRATEGIES for tier in TIERS
           for processes in ((1, 2) if MPIRUN else (1,))
           if s != "phased in stages" or tier != "device"]


def can_run(layout, replicas):
    """Whether two processes have a replica or a stage each."""
    strategy, _, processes = layout
    return processes == 1 or replicas == 2 or strategy not in WITHOUT_STAGES


def values_of(pair):
    """Returns pairs of values of two different factors of a resumed run."""
    replicas, before, after = pair
    factors = enumerate((replicas, *before, *after))
    return set(itertools.combinations(factors, 2))


PAIRS = [(replicas, before, after) for replicas in (1, 2) for before in LAYOUTS
         for after in LAYOUTS if can_run(before, replicas) and can_run(after, replicas)]


def covering_pairs(draw, count):
    """Returns `count` pairs of layouts. The first ones cover each two values of their factors."""
    missing = set().union(*map(values_of, PAIRS))
    pairs = []
    while missing and len(pairs) < count:
        pair = max(draw.sample(PAIRS, 150), key=lambda p: len(missing & values_of(p)))
        missing -= values_of(pair)
        pairs.append(pair)
    return pairs + draw.choices(PAIRS, k=count - len(pairs)), missing


def digest_of(result):
    return re.search(r"digest (\S+)", result.stdout)[1]


def newest_step(folder):
    """Returns the step of the newest checkpoint in a folder; -1: there is none."""
    return max((int(path.name[5:]) for path in folder.glob("step-*")), default=-1)


def saves_since(folder, begin):
    """Whether a folder has an unfinished save that began after a time."""
    for path in folder.glob(".tmp-*"):
        try:
            if path.stat().st_mtime > begin:
                return True
        except FileNotFoundError:
            pass  # The save has ended.
    return False


class Resumes(FolderTest, MpiTest):
    """Any layout continues what any other has saved, with the digest of an uninterrupted run."""

    def options_of(self, draw, layout, replicas):
        """Returns the options of a layout. A random draw decides what it leaves open."""
        strategy, tier, processes = layout
        options, offloads = draw.choice(STRATEGIES[strategy])
        offload = "none" if tier == "device" else draw.choice(offloads)
        if processes == 2 and replicas == 2 and strategy not in WITHOUT_STAGES:
            options = [*options, *draw.choice([[], ["--map", "devices"]])]
        return ["--strategy", *options, "--offload", offload, "--remote",
                f"file:{self.folder}" if tier == "file" else "host", "--threads",
                draw.choice("12")]

    def train(self, *arguments, processes=1):
        command = ["train", *arguments, "--digest", "--quiet"]
        if processes == 1:
            return digest_of(self.expect_code(0, *command))
        result = self.finish(mpi(processes, *command))
        self.assertEqual(result.returncode, 0, f"{arguments}\n{result.stderr}")
        return digest_of(result)

    def test_pairs_of_layouts(self):
        """CI tries each two values of strategy, tier and processes, before and after."""
        draw = random.Random(6)
        pairs, missing = covering_pairs(draw, RESUMES)
        if RESUMES >= 40:
            self.assertEqual(missing, set())
        models = list(MODELS)
        saved = {}  # The digest of a run by its model and replicas.
        for number, (replicas, before, after) in enumerate(pairs):
            model = models[number % len(models)]
            common = [model, *MODELS[model], "--steps", STEPS, "--accumulate", "4", "--replicas",
                      replicas, "--lr-schedule", "cosine", "--warmup-steps", "2"]
            first, second = (self.options_of(draw, p, replicas) for p in (before, after))
            with self.subTest(model=model, replicas=replicas, before=(before, first),
                              after=(after, second)):
                folder = self.folder / f"run-{number}"
                digest = self.train(*common, *first, "--checkpoint", folder, "--save-every", 1,
                                    "--keep", STEPS, processes=before[-1])
                self.assertEqual(digest, saved.setdefault((model, replicas), digest))
                step = draw.randrange(1, STEPS)
                self.assertEqual(
                    self.train(*common, *second, "--resume", folder / f"step-{step:09}",
                               processes=after[-1]), digest)
                shutil.rmtree(folder)

    def test_halves_have_the_digest_of_the_whole(self):
        run = ["mnist", *DIGITS, "--width", "16", "--dropout", "0.2"]
        whole = self.train(*run, "--steps", "400")
        folder = self.folder / "c"
        self.train(*run, "--steps", "200", "--checkpoint", folder)
        self.assertEqual(self.train(*run, "--steps", "400", "--resume", folder), whole)
        by_epochs = self.train(*run, "--epochs", "4")
        self.assertEqual(self.train(*run, "--epochs", "4", "--resume", folder), by_epochs)

    def test_validations_continue(self):
        """The best weights, the patience and a rate on plateaus are part of the run."""
        best = self.folder / "best.safetensors"
        run = ["mnist", *DIGITS, "--width", "16", "--validate-every", "30", "--save-best", best,
               "--metric", "accuracy", "--patience", "4", "--lr-schedule", "plateau",
               "--plateau-patience", "1", "--epochs", "20"]
        folder, log = self.folder / "c", self.folder / "log"
        whole = self.record("train", *run, "--checkpoint", folder, "--save-every", "30", "--keep",
                            "100", "--log-dir", log)
        self.assertTrue(whole["stopped_early"])
        steps = [v["step"] for v in whole["validations"]]
        self.assertEqual(steps, [*range(30, whole["steps"] + 1, 30)])
        accuracies = [v["accuracy"] for v in whole["validations"]]
        self.assertEqual(whole["best_accuracy"], max(accuracies))
        self.assertEqual(whole["best_step"], steps[accuracies.index(max(accuracies))])
        self.assertEqual(whole["best_step"], whole["steps"] - 4 * 30)
        self.assertEqual(whole["accuracy"], whole["best_accuracy"])  # The model has them again.
        rows = (log / "metrics.csv").read_text().splitlines()
        column = rows[0].split(",").index("validation/accuracy")
        self.assertEqual([float(row.split(",")[column]) for row in rows[1:]
                          if row.split(",")[column]], accuracies)
        rates = {row.split(",")[4] for row in rows[1:]}
        self.assertGreater(len(rates), 1)
        for step in (30, whole["best_step"], whole["steps"] - 30, whole["steps"]):
            with self.subTest(step=step):
                resumed = self.record("train", *run, "--resume", folder / f"step-{step:09}",
                                      "--strategy", "phased")
                for key in ("digest", "steps", "best_step", "best_accuracy", "accuracy"):
                    self.assertEqual(resumed[key], whole[key])
                self.assertEqual([v["step"] for v in resumed.get("validations", [])],
                                 [s for s in steps if s > step])
        other = [*run]
        other[other.index("--patience") + 1] = "5"
        self.expect_error(2, "usage", "--patience: must be 4", "train", *other, "--resume", folder)
        self.expect_error(2, "usage", "--metric requires --patience or --save-best", "train",
                          "mnist", *DIGITS, "--metric", "loss")
        self.expect_error(2, "usage", "'speed'", "train", "mnist", *DIGITS, "--width", "16",
                          "--patience", "2", "--metric", "speed", "--epochs", "1")

    def test_changes_are_refused_or_named(self):
        run = ["train", "mnist", *DIGITS, "--width", "16"]
        folder = self.folder / "c"
        self.expect_code(0, *run, "--steps", "20", "--checkpoint", folder)
        step = folder / "step-000000020"
        schedule = ["--lr-schedule", "cosine"]
        for changed, name, before, now in (
            (["--accumulate", "4"], "accumulate", "1", "4"),
            (["--replicas", "2"], "replicas", "1", "2"),
            (["--lr", "0.01"], "lr", "0.05", "0.01"),
            (schedule, "lr-schedule", "absent", "cosine"),
            (["--optimizer", "adam"], "optimizer", "sgd", "adam"),
            (["--seed", "5"], "seed", "0", "5"),
            (["--micro-batch", "4"], "micro-batch", "8", "4"),
            (["--layers", "2"], "layers", "4", "2"),
            (["--clip-norm", "1"], "clip-norm", "none", "1"),
        ):
            with self.subTest(changed=changed):
                self.expect_error(
                    2, "usage", f"--{name}: must be {before}, as in {step}, got {now}; "
                    f"add --override {name} to continue with {now}\n", *run,
                    "--steps", "40", "--resume", folder, *changed)
        result = self.expect_code(0, *run, "--steps", "40", "--resume", folder, "--accumulate",
                                  "4", "--override", "accumulate")
        self.assertIn("changed --accumulate: 1, now 4\n", result.stderr)
        self.assertIn(f"resumed {step} after step 20\n", result.stderr)
        self.expect_error(2, "usage", "--steps: must be at least 20", *run, "--steps", "10",
                          "--resume", folder)
        self.expect_error(2, "usage", "got 'acumulate'", *run, "--resume", folder, "--override",
                          "acumulate")
        for steps in ("40", "20"):  # Also where no call is left.
            self.expect_error(2, "usage", "data: must be", "train", "mnist", "--synthetic",
                              "--width", "16", "--steps", steps, "--resume", folder)
        for options in (["--save-every", "5"], ["--keep", "3"], ["--save-copy", "none"]):
            self.expect_error(2, "usage", f"{options[0]} requires --checkpoint", *run, *options)
        self.expect_error(2, "usage", "--override requires --resume", *run, "--override", "data")
        for wrong in ("0", "-1", "5d", "m", "nan"):
            self.expect_error(2, "usage", "--save-every: must be steps of at least 1, or a time",
                              *run, "--checkpoint", folder, f"--save-every={wrong}")

    def test_a_folder_of_another_run_is_kept(self):
        run = ["train", "mnist", *DIGITS, "--width", "16", "--steps", "20"]
        folder = self.folder / "c"
        self.expect_code(0, *run, "--checkpoint", folder)
        self.expect_error(2, "usage", "must have no checkpoints but those that the model continues",
                          *run, "--checkpoint", folder)
        self.expect_error(7, "no checkpoint", f"{self.folder}/none: must be a folder of "
                          "checkpoints, got none\n", *run, "--resume", self.folder / "none")
        file = folder / "step-000000020" / "run.json"
        file.write_bytes(file.read_bytes().replace(b"20", b"21"))
        self.expect_error(7, "no checkpoint", f"{file}: must have the hash", *run, "--resume",
                          folder)
        self.assertIn(f"{folder}/step-000000020: damaged: {file}: must have the hash",
                      sluice("inspect", folder).stdout)
        self.expect_code(7, "inspect", folder)

    def test_the_copy_counts_as_remote_memory(self):
        run = ["train", "mnist", *DIGITS, "--width", "64", "--steps", "5", "--optimizer",
               "momentum", "--offload", "optimizer", "--remote-memory", "260K", "--checkpoint"]
        self.expect_error(4, "does not fit", "which the budget of remote memory leaves", *run,
                          self.folder / "host")
        self.expect_code(0, *run, self.folder / "none", "--save-copy", "none")

    def test_logs_of_other_runs_and_columns_remain(self):
        run = ["train", "mnist", *DIGITS, "--width", "16"]
        folder, own, other = (self.folder / name for name in ("c", "own", "other"))
        steps = lambda log: [int(line.split(",")[0]) for line in
                             (log / "metrics.csv").read_text().splitlines()[1:]]
        self.expect_code(0, *run, "--steps", "10", "--seed", "5", "--log-dir", other)
        self.expect_code(0, *run, "--steps", "10", "--log-dir", own, "--checkpoint", folder)
        resume = [*run, "--steps", "12", "--resume", folder, "--log-dir"]
        self.expect_code(0, *resume, other)
        self.expect_code(0, *resume, own, "--validate-every", "5")
        for log in (own, other):
            self.assertEqual(steps(log), [*range(1, 11)])
            self.assertEqual(steps(log / "run-2"), [11, 12])

    def test_inspect_describes_a_folder(self):
        folder = self.folder / "c"
        self.expect_code(0, "train", "mnist", *DIGITS, "--width", "16", "--steps", "20",
                         "--save-every", "15", "--checkpoint", folder)
        lines = self.expect_code(0, "inspect", folder).stdout.splitlines()
        self.assertEqual(len(lines), 2)
        self.assertIn(f"{folder}/step-000000020: step 20, epoch 0, 160 samples of it, 8 variables "
                      "in 1 files, ", lines[0])


class Overrides(FolderTest):
    """An override is the name of a flag, and covers the option of the library that it sets."""

    def test_flags_are_overridden_by_their_names(self):
        run = ["train", "mnist", *DIGITS, "--width", "16"]
        folder = self.folder / "c"
        self.expect_code(0, *run, "--steps", "20", "--checkpoint", folder)
        for changed, override, text in (
            (["--lr", "0.01"], "lr", "changed --lr: 0.05, now 0.01\n"),
            (["--clip-norm", "1"], "clip-norm", "changed --clip-norm: none, now 1\n"),
            (["--clip-norm", "1"], "max_grad_norm", "changed --clip-norm: none, now 1\n"),
            (["--lr-schedule", "cosine"], "lr-schedule,lr", "changed --lr-schedule: absent, now "
             "cosine\n"),
        ):
            with self.subTest(changed=changed):
                result = self.expect_code(0, *run, "--steps", "40", "--resume", folder, *changed,
                                          "--override", override)
                self.assertIn(text, result.stderr)

    def test_options_without_effect_need_no_override(self):
        """A validation decides no bit without --patience, so its options may then differ."""
        run = ["train", "mnist", *DIGITS, "--width", "16", "--steps", "40"]
        watch = ["--patience", "3", "--validate-every", "10"]
        folder = self.folder / "c"
        self.expect_code(0, *run[:-1], "20", *watch, "--checkpoint", folder)
        self.expect_error(2, "usage", "--patience: must be 3", *run, "--resume", folder)
        result = self.expect_code(0, *run, "--resume", folder, "--override", "patience")
        self.assertEqual(re.findall("changed .*", result.stderr),
                         ["changed --patience: 3, now 0"])


class BestWeights(FolderTest):
    """The best weights belong to the run that is continued."""

    def test_a_stop_after_better_weights(self):
        """A run is continued before its best validation, as after a kill."""
        folder, best = self.folder / "c", self.folder / "best.safetensors"
        # With this rate, each validation is better than those before it.
        run = ["train", "mlp", "--synthetic", "--width", "16", "--lr", "0.001", "--validate-every",
               "30", "--save-best", best]
        whole = self.record(*run, "--steps", "120", "--checkpoint", folder, "--save-every", "30",
                            "--keep", "100")
        self.assertEqual(whole["best_step"], 120)
        step, last = folder / "step-000000030", best.read_bytes()
        saved = (step / "best.safetensors").read_bytes()
        self.assertNotEqual(saved, last)
        stopped = self.record(*run, "--steps", "30", "--resume", step)
        self.assertEqual(stopped["best_step"], 30)
        self.assertEqual(best.read_bytes(), saved)
        best.unlink()
        self.assertEqual(self.record(*run, "--steps", "120", "--resume", step)["digest"],
                         whole["digest"])
        self.assertEqual(best.read_bytes(), last)


class CheckpointCopy(FolderTest):
    """The plan, a training and its report list the host memory of the copy."""

    KIND = "copy of the variables for checkpoints"

    def test_the_copy_is_listed(self):
        network = ["mnist", "--width", "64", "--optimizer", "momentum"]
        saves = ["--checkpoint", self.folder / "c"]
        plan = self.record("plan", *network, *saves)
        (copy,) = plan["host_buffers"]
        self.assertEqual(copy["kind"], self.KIND)
        self.assertEqual(self.record("plan", *network)["host_buffers"], [])
        self.assertEqual(self.record("plan", *network, *saves, "--save-copy", "none")
                         ["host_buffers"], [])
        line = f"host memory: {copy['bytes']:,} bytes, {self.KIND}\n"
        for view in ([], ["--memory-map"]):
            self.assertIn(line, self.expect_code(0, "plan", *network, *saves, *view).stdout)
        profile = self.folder / "p"
        train = self.expect_code(0, "train", *network, *DIGITS, *saves, "--steps", "2",
                                 f"--profile={profile}")
        self.assertIn(line, train.stderr)
        self.assertIn(f"a copy of {copy['bytes']} bytes", train.stderr)
        report = json.loads((profile / "training" / "report.json").read_text())
        self.assertEqual(report["host_buffers"], [copy])
        trained = self.record("train", *network, *DIGITS, *saves, "--steps", "4", "--resume",
                              self.folder / "c")
        self.assertEqual(trained["host_buffers"], [copy])

    def test_a_plan_refuses_a_copy_that_does_not_fit(self):
        self.expect_error(4, "does not fit", "which the budget of remote memory leaves", "plan",
                          "mnist", "--width", "64", "--optimizer", "momentum", "--offload",
                          "optimizer", "--remote-memory", "260K", "--checkpoint",
                          self.folder / "c")


class Kills(FolderTest):
    """A killed training loses no checkpoint."""

    RUN = ["train", "mnist", *DIGITS, "--width", "64", "--dropout", "0.1", "--accumulate", "2",
           "--quiet", "--digest"]

    def newest_after(self, folder, newest):
        """Returns the step of the newest checkpoint; -1: none. All are whole, and none is lost."""
        saved = sluice("inspect", folder) if folder.exists() else None
        if saved is None or saved.returncode != 0:
            self.assertEqual(newest, -1)
            return -1
        self.assertNotIn("damaged", saved.stdout)
        now = int(re.search(r"step (\d+),", saved.stdout)[1])
        self.assertGreaterEqual(now, newest)
        return now

    def test_kills_at_random_moments(self):
        draw = random.Random(2)
        run = [*self.RUN, "--steps", "3000"]
        whole = digest_of(self.expect_code(0, *run))
        kills, copies, saving = 0, {"host": 0, "none": 0}, 0
        while kills < KILLS:
            folder = self.folder / f"c{kills}"
            newest, result, log = -1, None, self.folder / f"log{kills}"
            while result is None or result.returncode != 0:
                start = ["--resume", folder] if newest >= 0 else []
                if newest < 0:
                    shutil.rmtree(log, ignore_errors=True)
                copy = draw.choice(["host", "none"])
                process = subprocess.Popen(
                    [PROGRAM, *map(str, [*run, "--checkpoint", folder, "--save-every", "20",
                                         "--save-copy", copy, "--log-dir", log, *start])],
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                try:
                    out, err = process.communicate(timeout=draw.uniform(0.03, 0.5))
                    result = subprocess.CompletedProcess([], process.returncode, out, err)
                    self.assertEqual(result.returncode, 0, err)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.communicate()
                    kills += 1
                    copies[copy] += 1
                    saving += any(folder.glob(".tmp-*"))
                newest = self.newest_after(folder, newest)
            self.assertEqual(digest_of(result), whole)
            lines = (log / "metrics.csv").read_text().splitlines()[1:]
            self.assertEqual([int(line.split(",")[0]) for line in lines], [*range(1, 3001)])
            seconds = [float(line.split(",")[5]) for line in lines]
            self.assertEqual(seconds, sorted(seconds))
            events = [Events(path) for path in sorted(log.glob("events.*"))]
            steps = sorted(s for e in events for s, _ in e.numbers.get("loss", []))
            self.assertEqual(steps, [*range(1, 3001)])
            shutil.rmtree(folder)
            shutil.rmtree(log)
        print(f"kills by --save-copy: {copies}; while saving: {saving}", file=sys.stderr)

    @unittest.skipUnless(MPIRUN, "requires a launcher of processes")
    def test_kills_of_one_process_of_several(self):
        """Half of the kills come once a save has begun, the others at random moments."""
        draw = random.Random(3)
        run = ["train", "mnist", *DIGITS, "--width", "256", "--dropout", "0.1", "--accumulate",
               "4", "--replicas", "2", "--quiet", "--digest", "--steps", "150"]
        layouts = [["--threads", "1"], ["--strategy", "pipelined", *STAGES],
                   ["--strategy", "phased", *STAGES, "--map", "devices"]]
        every, wanted = 5, max(KILLS // 10, 1)
        whole = digest_of(self.expect_code(0, *run))
        kills, interrupted = [0, 0], 0  # Kills of each rank, and those that left half a save.
        starts = 0
        while sum(kills) < wanted or interrupted == 0:
            folder, newest = self.folder / f"c{sum(kills)}", -1
            while True:
                starts += 1
                self.assertLess(starts, 20 * (wanted + 1), "the runs do not end")
                start = ["--resume", folder] if newest >= 0 else []
                process = subprocess.Popen(
                    mpi(2, *run, *draw.choice(layouts), "--checkpoint", folder, "--save-every",
                        every, "--keep", 2, "--save-copy", draw.choice(["host", "none"]), *start),
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    text=True, env=MPI_ENVIRONMENT)
                self.addCleanup(process.kill)
                begin = time.time()
                ends = lambda: process.poll() is not None
                saves = lambda: saves_since(folder, begin)
                wait_until(lambda: ends() or len(programs_under(process.pid)) == 2)
                if sum(kills) < wanted or interrupted == 0:
                    first = newest + every * draw.randrange(6)
                    while_saving = draw.choice([True, False])
                    wait_until(lambda: ends() or (newest_step(folder) >= first and
                                                  (saves() or not while_saving)), pause=0.0005)
                    if not while_saving:
                        time.sleep(draw.uniform(0, 0.05))
                    if not ends():
                        rank, pids = sum(kills) % 2, programs_under(process.pid)
                        kill(pids[rank:rank + 1])
                        kills[rank] += len(pids) == 2
                text, _ = process.communicate(timeout=HANG)
                interrupted += process.returncode != 0 and saves()
                newest = self.newest_after(folder, newest)
                if process.returncode == 0:
                    break
            self.assertEqual(re.search(r"digest (\S+)", text)[1], whole)
            shutil.rmtree(folder)
        print(f"kills by rank: {kills}; while saving: {interrupted}", file=sys.stderr)

    def stopped(self, number, *options):
        """Sends a signal to a training that has begun. Returns its exit code and stderr."""
        folder = self.folder / "c"
        command = ["train", "mnist", *DIGITS, "--width", "64", "--epochs", "1000000",
                   "--checkpoint", folder, *options]
        process = subprocess.Popen([PROGRAM, *map(str, command)], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        wait_until(lambda: has_signal(process.pid, signal.SIGUSR1, "SigCgt"))
        return process, folder, number

    def test_signals_save_and_stop(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(signal=number):
                process, folder, _ = self.stopped(number)
                time.sleep(0.1)
                process.send_signal(number)
                _, text = process.communicate(timeout=HANG)
                self.assertEqual(process.returncode, 75, text)
                self.assertRegex(text, rf"stopped by signal {number} after step \d+; saved to "
                                 rf"{folder}/step-\d+\n")
                step = int(re.search(r"after step (\d+)", text)[1])
                self.assertIn(f"step-{step:09}: step {step},", sluice("inspect", folder).stdout)
                shutil.rmtree(folder)

    def test_a_signal_saves_and_the_training_continues(self):
        process, folder, _ = self.stopped(signal.SIGUSR1)
        saves = lambda: [p.name for p in folder.glob("step-*")]
        self.assertEqual(saves(), [])
        process.send_signal(signal.SIGUSR1)
        wait_until(saves)
        first = saves()
        process.send_signal(signal.SIGUSR1)
        wait_until(lambda: len(saves()) == 2)
        self.assertIn(first[0], saves())
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=HANG)
        self.assertEqual(process.returncode, 75)

    def test_a_full_disk_leaves_the_checkpoint_before(self):
        folder = self.folder / "c"
        result = self.expect_code(5, *self.RUN, "--steps", "3000", "--checkpoint", folder,
                                  "--save-every", "100",
                                  env={"SLUICE_FAILPOINT": "pwrite@30=ENOSPC"})
        newest = sorted(p.name for p in folder.glob("step-*"))[-1]
        self.assertIn("No space left on device", result.stderr)
        self.assertIn(f"continue from {folder}/{newest} with --resume {folder}\n", result.stderr)
        whole = digest_of(self.expect_code(0, *self.RUN, "--steps", "3000"))
        resumed = self.expect_code(0, *self.RUN, "--steps", "3000", "--resume", folder)
        self.assertEqual(digest_of(resumed), whole)


if __name__ == "__main__":
    unittest.main()
