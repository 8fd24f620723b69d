#!/usr/bin/env python3
"""Tests the files of `sluice train --log-dir`: TensorBoard's event files and metrics.csv.

The tests of TensorBoard's own reader require a Python with its package.
"""

import bisect
import csv
import math
import os
import re
import resource
import struct
import subprocess
import sys
import unittest

from cli_case import DIGITS, HANG, PROGRAM, FolderTest
from readers.event_reader import Events, crc32c, read_safetensors, records

try:
    from tensorboard.backend.event_processing import plugin_event_accumulator
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util
    import numpy
except ImportError:
    EventAccumulator = None

RUN = ["mlp", *DIGITS, "--width", "32", "--threads", "1"]


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bucket_limits():
    """The limits of TensorFlow's histograms, ascending (core/lib/histogram)."""
    positive, value = [], 1e-12
    while value < 1e20:
        positive.append(value)
        value *= 1.1
    positive.append(sys.float_info.max)
    return [-v for v in reversed(positive)] + [0.0] + positive


class LogCase(FolderTest):
    def setUp(self):
        super().setUp()
        self.log = self.folder / "runs" / "first"

    def train(self, *flags):
        return self.record("train", *RUN, *flags)

    def event_files(self):
        return sorted(self.log.glob("events.out.tfevents.*"))

    def events(self):
        (file,) = self.event_files()
        return Events(file)

    def rows(self):
        with open(self.log / "metrics.csv", newline="") as file:
            return list(csv.DictReader(file))


class Log(LogCase):
    def test_the_reader_finds_damage(self):
        self.assertEqual(crc32c(b"123456789"), 0xe3069283)
        self.train("--steps", 3, "--log-dir", self.log)
        data = self.event_files()[0].read_bytes()
        self.assertEqual(len(records(data)), 1 + 1 + 3)
        for place in (3, 9, 20, len(data) - 1):
            damaged = bytearray(data)
            damaged[place] ^= 1
            with self.assertRaises(ValueError):
                records(bytes(damaged))
        with self.assertRaises(ValueError):
            records(data[:-1])

    def test_losses_are_those_that_runs_of_fewer_steps_return(self):
        logged = self.train("--steps", 5, "--log-dir", self.log)
        rows = self.rows()
        self.assertEqual([int(r["step"]) for r in rows], list(range(1, 6)))
        for row in rows:
            found = self.train("--steps", row["step"])
            self.assertEqual(float(row["loss"]), found["loss"])
        self.assertEqual(found["digest"], logged["digest"])
        self.assertEqual({r["accuracy"] for r in rows}, {""})
        self.assertEqual({r["learning_rate"] for r in rows}, {"0.05"})
        self.assertNotIn("train_accuracy", found)
        planned = [(0, float32(found["planned_bytes"]))]
        numbers = self.events().numbers
        self.assertEqual(numbers["bytes/device_0/planned"], planned)
        self.assertEqual(numbers["bytes/device_0/measured"], planned)

    def test_events_are_the_lines(self):
        cnn = ["mnist-cnn", *DIGITS, "--micro-batch", 8, "--accumulate", 2, "--test-batch",
               80, "--test-iterations", 1, "--device-iterations", 1, "--steps", 12]
        found = self.record("train", *cnn, "--lr-schedule", "linear", "--log-dir", self.log)
        rows, events = self.rows(), self.events()
        self.assertEqual(
            list(rows[0]),
            ["step", "loss", "accuracy", "samples_per_second", "learning_rate", "seconds"])
        self.assertEqual([int(r["step"]) for r in rows], list(range(1, 13)))
        self.assertEqual(float(rows[-1]["loss"]), found["loss"])
        self.assertEqual(float(rows[-1]["accuracy"]), found["train_accuracy"])
        self.assertEqual(events.version, "brain.Event:2")
        self.assertEqual(events.histograms, {})
        self.assertEqual(events.times, sorted(events.times))
        for column in ("loss", "accuracy", "learning_rate"):
            expected = [(int(r["step"]), float32(float(r[column]))) for r in rows]
            self.assertEqual(events.numbers[column], expected)
        for row, (step, rate) in zip(rows, events.numbers["samples_per_second"]):
            self.assertEqual(step, int(row["step"]))
            self.assertGreater(rate, 0)
            # metrics.csv has one digit after the point.
            self.assertAlmostEqual(rate, float(row["samples_per_second"]), delta=0.06 + 1e-6 * rate)
        rates = [float(r["learning_rate"]) for r in rows]
        self.assertEqual(rates, sorted(rates, reverse=True))
        self.assertEqual(len(set(rates)), 12)
        seconds = [float(r["seconds"]) for r in rows]
        self.assertEqual(seconds, sorted(seconds))
        # Rates are measured: the calls' times add up to less than the time of all.
        self.assertLess(sum(16 / float(r["samples_per_second"]) for r in rows), seconds[-1])

    def test_a_call_of_several_updates_has_one_line(self):
        self.train("--steps", 12, "--device-iterations", 4, "--log-dir", self.log)
        self.assertEqual([r["step"] for r in self.rows()], ["4", "8", "12"])
        self.assertEqual([s for s, _ in self.events().numbers["loss"]], [4, 8, 12])

    def test_moved_bytes_are_those_of_the_plan(self):
        flags = ["--strategy", "phased", "--optimizer", "adam", "--offload", "optimizer"]
        self.train("--steps", 1, *flags, "--log-dir", self.log)
        plan = ["plan", "mlp", "--width", 32, "--threads", 1, *flags]
        numbers = {tag: value for tag, ((_, value),) in self.events().numbers.items()}
        tier = re.search(r"^tier host: ([\d,]+) bytes", self.expect_code(0, *plan).stdout, re.M)
        self.assertEqual(numbers["bytes/tier_host"], float32(int(tier[1].replace(",", ""))))
        moved = self.record(*plan)["tier_bytes"]
        self.assertEqual(numbers["bytes/remote_per_call"], float32(moved))

    def test_histograms_are_those_of_the_saved_weights(self):
        limits = bucket_limits()
        for steps, every in ((6, 3), (4, 1)):
            with self.subTest(steps=steps, every=every):
                self.log = self.folder / f"{steps}"
                self.train("--steps", steps, "--optimizer", "adam", "--log-dir", self.log,
                           "--log-histograms", every, "--save", self.weights)
                saved = read_safetensors(self.weights)
                weights = {n: v for n, v in saved.items()
                           if n.rpartition(".")[2] in ("weight", "bias")}
                found = self.events().histograms
                self.assertEqual(set(found), {f"weights/{name}" for name in weights})
                for name, values in weights.items():
                    series = found[f"weights/{name}"]
                    self.assertEqual([s for s, _ in series], list(range(every, steps + 1, every)))
                    self.expect_histogram(series[-1][1], values, limits)
                self.assertGreater(len(weights), 3)

    def expect_histogram(self, histogram, values, limits):
        self.assertEqual(histogram.num, len(values))
        self.assertEqual(sum(histogram.counts), len(values))
        self.assertEqual(histogram.min, min(values))
        self.assertEqual(histogram.max, max(values))
        size = math.fsum(abs(v) for v in values)
        self.assertAlmostEqual(histogram.sum, math.fsum(values), delta=1e-13 * size)
        squares = math.fsum(v * v for v in values)
        self.assertAlmostEqual(histogram.squares, squares, delta=1e-13 * squares)
        counts = {}
        for v in values:
            limit = limits[bisect.bisect_right(limits, v)]
            counts[limit] = counts.get(limit, 0) + 1
        written = {l: c for l, c in zip(histogram.limits, histogram.counts) if c > 0}
        self.assertEqual(written, counts)
        self.assertEqual(histogram.limits, sorted(set(histogram.limits)))

    def test_a_log_changes_no_bit(self):
        flags = ["--steps", 20, "--optimizer", "adam", "--accumulate", 2, "--replicas", 2]
        plain = self.train(*flags)
        logged = self.train(*flags, "--log-dir", self.log, "--log-histograms", 2)
        for key in ("digest", "loss", "planned_bytes"):
            self.assertEqual(logged[key], plain[key])

    def test_each_run_has_a_folder_of_its_own(self):
        said = [self.expect_code(0, "train", *RUN, "--steps", steps, "--log-dir", self.log).stderr
                for steps in (5, 2, 3)]
        folder = self.log
        for text, own, steps in zip(said, ("", "run-2", "run-3"), (5, 2, 3)):
            self.log = folder / own
            self.assertEqual(len(self.rows()), steps)
            self.assertEqual(len(self.events().numbers["loss"]), steps)
            self.assertEqual(f"log: {self.log}; {folder} has the log of another run\n" in text,
                             own != "")

    def test_a_run_that_ends_early_has_the_lines_before(self):
        self.expect_code(6, "train", *RUN, "--steps", 300, "--lr", 1e30, "--log-dir", self.log)
        rows = self.rows()
        self.assertGreater(len(rows), 0)
        self.assertTrue(all(math.isfinite(float(r["loss"])) for r in rows))
        self.assertEqual(len(self.events().numbers["loss"]), len(rows))

    def test_weights_that_are_not_finite_are_counted(self):
        # Weights overflow in the first step, whose loss is finite. They are not saved.
        self.csv.write_text("".join(f"{k % 7},{k % 5},{1000 * (k % 3)}\n" for k in range(101)))
        run = ["train", "mlp", "--loss", "mse", "--dataset", f"csv:{self.csv}", "--layers", 2,
               "--width", 8]
        self.expect_code(0, *run, "--steps", 0, "--save", self.weights)
        self.expect_code(6, *run, "--lr", 3e38, "--steps", 1, "--log-dir", self.log,
                         "--log-histograms", 1)
        events, overflowed = self.events(), 0
        for name, values in read_safetensors(self.weights).items():
            ((step, histogram),) = events.histograms[f"weights/{name}"]
            ((_, lost),) = events.numbers.get(f"non_finite/{name}", [(1, 0)])
            self.assertEqual((step, sum(histogram.counts)), (1, histogram.num))
            self.assertEqual(histogram.num + lost, len(values))
            self.assertTrue(math.isfinite(histogram.min) and math.isfinite(histogram.max))
            overflowed += lost
        self.assertGreater(overflowed, 0)

    def test_refusals(self):
        self.expect_error(2, "usage", "--log-histograms requires --log-dir (it is absent)", "train",
                          *RUN, "--log-histograms", 3)
        for number in (0, -1, "x", 2.5):
            self.expect_error(2, "usage", "--log-histograms: must be an integer from 1", "train",
                              *RUN, "--log-dir", self.log, "--log-histograms", number)
        self.expect_error(2, "usage", "--log-dir", "train", *RUN, "--log-dir", "")
        self.expect_error(2, "usage", "--log-dir", "eval", *RUN, "--log-dir", self.log)
        self.assertFalse(self.log.exists())
        file = self.folder / "file"
        file.write_text("")
        for path in (file, file / "below", "/proc/none/log"):
            self.expect_error(5, "input/output",
                              f"log folder {path}: must be a folder that can be written; ", "train",
                              *RUN, "--steps", 1, "--log-dir", path)
        (self.log / "metrics.csv").mkdir(parents=True)
        self.expect_error(5, "input/output", "metrics.csv", "train", *RUN, "--log-dir", self.log)

    def full_disk(self, limit, *flags):
        return subprocess.run(
            [PROGRAM, "train", *RUN, "--log-dir", self.log, *map(str, flags)], capture_output=True,
            text=True, timeout=HANG,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))

    def test_a_full_disk_is_one_warning(self):
        plain = self.expect_code(0, "train", *RUN, "--steps", 200, "--digest").stdout
        result = self.full_disk(4096, "--steps", 200, "--digest", "--log-histograms", 5)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr.count("log: cannot write "), 1, result.stderr)
        self.assertIn("File too large; the rest of the training is not logged\n", result.stderr)
        digest = [line for line in plain.splitlines() if line.startswith("digest")]
        self.assertEqual(len(digest), 1)
        self.assertIn(digest[0], result.stdout)
        self.events()  # Whole records.

    def test_a_disk_that_is_full_at_first_refuses_the_run(self):
        result = self.full_disk(0, "--steps", 200)
        self.assertEqual(result.returncode, 5, result.stderr)
        self.assertEqual(result.stderr.count("error (input/output): "), 1, result.stderr)
        self.assertIn("cannot write ", result.stderr)
        self.assertNotIn("loss", result.stdout)

    def test_errors_of_the_system_are_one_warning(self):
        for number in (4, 5):
            self.log = self.folder / f"{number}"
            result = self.expect_code(0, "train", *RUN, "--steps", 5, "--log-dir", self.log,
                                      env={"SLUICE_FAILPOINT": f"pwrite@{number}=EIO"})
            self.assertEqual(result.stderr.count("log: cannot write "), 1, result.stderr)
        for number in (1, 2):
            self.log = self.folder / f"{number}"
            result = self.expect_code(0, "train", *RUN, "--steps", 5, "--log-dir", self.log,
                                      env={"SLUICE_FAILPOINT": f"pwrite@{number}=EINTR"})
            self.assertNotIn("log: ", result.stderr)
            self.assertEqual(len(self.rows()), 5)


class Watch(LogCase):
    """Gradients and values of --watch-gradients and --watch-values, as files and histograms."""

    SGD = ["--optimizer", "sgd", "--lr", 0.0625, "--lr-schedule", "constant",
           "--digest"]
    WATCH = ["--watch-gradients", "fc.*", "--watch-values", "fc.0", "--watch-every", 4]

    def files(self, log=None):
        folder = (log or self.log) / "watched"
        return {int(f.stem): read_safetensors(f) for f in folder.glob("*.safetensors")}

    def test_gradients_are_those_of_the_update(self):
        digest = self.train(*self.SGD, "--steps", 8)["digest"]
        self.assertEqual(self.train(*self.SGD, *self.WATCH, "--steps", 8, "--log-dir",
                                    self.log)["digest"], digest)
        files = self.files()
        self.assertEqual(sorted(files), [4, 8])
        weights = {}
        for steps in (7, 8):
            self.train(*self.SGD, "--steps", steps, "--save", self.weights)
            weights[steps] = read_safetensors(self.weights)
        gradients = {n: g for n, g in files[8].items() if n.startswith("gradient/")}
        self.assertEqual(sorted(gradients), sorted("gradient/" + n for n in weights[8]))
        for name, gradient in gradients.items():
            path = name.removeprefix("gradient/")
            self.assertTrue(any(gradient), name)
            for g, before, after in zip(gradient, weights[7][path], weights[8][path], strict=True):
                self.assertAlmostEqual(g, (before - after) / 0.0625, delta=1e-5)
        events = self.events()
        self.assertIn("value/fc.0", files[8])
        for name, values in files[8].items():
            step, histogram = events.histograms[name][1]
            self.assertEqual((step, histogram.num), (8, len(values)))
            self.assertEqual((histogram.min, histogram.max), (min(values), max(values)))

    def test_layouts_and_resumed_runs_watch_the_same(self):
        flags = [*self.SGD, *self.WATCH, "--accumulate", 2, "--layers", 4]
        want = self.train(*flags, "--steps", 12, "--log-dir", self.log)
        files = self.files()
        self.assertEqual(sorted(files), [4, 8, 12])
        phased = self.folder / "phased"
        layout = ["--strategy", "phased", "--offload", "weights,optimizer,activations"]
        self.train(*flags, *layout, "--steps", 10, "--log-dir", phased, "--checkpoint",
                   self.folder / "checkpoints", "--save-every", 7)
        self.assertEqual(sorted(self.files(phased)), [4, 8])
        for later in (12, 16):  # As a run that was killed may leave them.
            (phased / "watched" / f"{later}.safetensors").write_bytes(b"")
        other = phased / "watched" / "99.npz"
        other.write_bytes(b"")
        got = self.train(*flags, *layout, "--steps", 12, "--log-dir", phased, "--resume",
                         self.folder / "checkpoints")
        self.assertEqual(got["digest"], want["digest"])
        self.assertEqual(self.files(phased), files)
        self.assertTrue(other.exists())
        again = self.train(*self.SGD, "--accumulate", 2, "--layers", 4, "--steps", 12, "--resume",
                           self.folder / "checkpoints")  # Without a watch.
        self.assertEqual(again["digest"], want["digest"])

    def test_a_call_that_diverges_is_watched(self):
        self.expect_error(6, "diverged", "loss", "train", *RUN, "--steps", 9, "--lr", 1e30,
                          "--watch-gradients", "*", "--log-dir", self.log)
        last = max(self.files())
        self.assertTrue(any(v != v for values in self.files()[last].values() for v in values))

    def test_files_that_cannot_be_written_stop_no_log(self):
        self.log.mkdir(parents=True)
        (self.log / "watched").write_text("a file")
        result = self.expect_code(0, "train", *RUN, *self.WATCH, "--steps", 12, "--log-dir",
                                  self.log)
        self.assertEqual(result.stderr.count("watched tensors are not written any more"), 1)
        self.assertEqual(len(self.rows()), 12)

    def test_a_plan_and_its_refusal_name_the_program(self):
        plain = self.record("plan", *RUN[:1])["memories"][0]["total_bytes"]
        flags = ["--watch-gradients", "*"]
        more = self.record("plan", *RUN[:1], *flags)["memories"][0]["total_bytes"]
        self.assertGreater(more, plain)
        refused = self.expect_code(4, "plan", *RUN[:1], *flags, "--memory", plain, "--offload",
                                   "none")
        self.assertIn("planning a program for watched tensors", refused.stderr)

    def test_refusals(self):
        for flags, text in [
                (["--watch-gradients", "fc.*"], "--watch-gradients requires --log-dir"),
                (["--watch-values", "fc.0"], "--watch-values requires --log-dir"),
                (["--watch-every", 2], "--watch-every requires --watch-gradients or values"),
                (["--watch-values", "fc.9", "--log-dir", self.log],
                 "watch.values: 'fc.9' must match a value of the network"),
                (["--watch-gradients", "fc.0", "--log-dir", self.log],
                 "watch.gradients: 'fc.0' must match the path of a trained weight")]:
            self.expect_error(2, "usage", text, "train", *RUN, "--steps", 1, *flags)


@unittest.skipUnless(EventAccumulator, "requires a Python with tensorboard")
class TensorBoard(LogCase):
    """TensorBoard's own reader finds what the reader of the documented format finds."""

    def accumulator(self):
        whole = {"scalars": 0, "histograms": 0}  # 0: all events.
        return EventAccumulator(os.fspath(self.log), size_guidance=whole).Reload()

    def test_scalars_and_histograms(self):
        self.train("--steps", 40, "--optimizer", "adam", "--lr-schedule", "cosine", "--log-dir",
                   self.log, "--log-histograms", 4, "--save", self.weights)
        ours, theirs = self.events(), self.accumulator()
        self.assertEqual(sorted(theirs.Tags()["scalars"]), sorted(ours.numbers))
        self.assertEqual(sorted(theirs.Tags()["histograms"]), sorted(ours.histograms))
        for tag, values in ours.numbers.items():
            self.assertEqual([(e.step, e.value) for e in theirs.Scalars(tag)], values)
        rows = self.rows()
        self.assertEqual([(e.step, e.value) for e in theirs.Scalars("loss")],
                         [(int(r["step"]), float32(float(r["loss"]))) for r in rows])
        count = 0
        for tag, values in ours.histograms.items():
            read = theirs.Histograms(tag)
            self.assertEqual([e.step for e in read], list(range(4, 41, 4)))
            for event, (_, h) in zip(read, values):
                v = event.histogram_value
                self.assertEqual((v.min, v.max, v.num, v.sum, v.sum_squares),
                                 (h.min, h.max, h.num, h.sum, h.squares))
                self.assertEqual((v.bucket_limit, v.bucket), (h.limits, h.counts))
                count += 1
        self.expect_pages(ours)
        for name, values in read_safetensors(self.weights).items():
            if f"weights/{name}" in ours.histograms:
                self.expect_values(theirs.Histograms(f"weights/{name}")[-1].histogram_value,
                                   numpy.array(values))
        print(f"TensorBoard read {len(rows)} losses, {len(ours.numbers)} scalars and "
              f"{count} histograms of {len(ours.histograms)} weights")

    def expect_values(self, histogram, values):
        """NumPy's figures of the saved weight."""
        self.assertEqual((histogram.min, histogram.max, histogram.num),
                         (values.min(), values.max(), values.size))
        self.assertAlmostEqual(histogram.sum, values.sum(), delta=1e-13 * abs(values).sum())
        edges = [-sys.float_info.max, *histogram.bucket_limit]
        counts, _ = numpy.histogram(values, edges)
        self.assertEqual(list(counts), list(histogram.bucket))

    def expect_pages(self, ours):
        """The data of the pages: the reader of the server converts events of this kind."""
        whole = {plugin_event_accumulator.TENSORS: 0}
        server = plugin_event_accumulator.EventAccumulator(os.fspath(self.log), whole).Reload()
        self.assertEqual(set(server.PluginTagToContent("scalars")), set(ours.numbers))
        self.assertEqual(set(server.PluginTagToContent("histograms")), set(ours.histograms))
        for tag, values in [*ours.numbers.items(), *ours.histograms.items()]:
            for event, (step, value) in zip(server.Tensors(tag), values):
                array = tensor_util.make_ndarray(event.tensor_proto)
                self.assertEqual(event.step, step)
                if tag in ours.numbers:
                    self.assertEqual(array, value)
                else:  # Rows of left and right edge and count.
                    self.assertEqual(array[:, 2].sum(), value.num)
                    self.assertEqual((array[0, 0], array[-1, 1]), (value.min, value.max))


if __name__ == "__main__":
    unittest.main(verbosity=2)
