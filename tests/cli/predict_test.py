#!/usr/bin/env python3
"""Tests predictions and regressions on samples of the user's own."""

import csv
import random
import re
import struct
import unittest
import zipfile

from cli_case import DIGITS, FolderTest, write_idx
from dataset_test import COLUMNS, rows, write_csv

try:
    import numpy
except ImportError:
    numpy = None

MODEL = ["mlp", "--layers", 3, "--width", 32]
ROWS = 203  # Two batches of 80 and a part.


def read_npz(path):
    """Returns {name: (shape, values)} of an archive of float32 and int32 arrays."""
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        for name in archive.namelist():
            data = archive.read(name)
            assert data[:8] == b"\x93NUMPY\x01\x00"
            (length,) = struct.unpack("<H", data[8:10])
            assert (10 + length) % 64 == 0
            header = data[10:10 + length].decode()
            shape = tuple(int(n) for n in re.search(r"'shape': \((.*?),?\)", header)[1].split(","))
            kind = {"<f4": "f", "<i4": "i"}[re.search(r"'descr': '(.*?)'", header)[1]]
            values = [v for (v,) in struct.iter_unpack(f"<{kind}", data[10 + length:])]
            arrays[name.removesuffix(".npy")] = (shape, values)
    if numpy:
        with numpy.load(path) as loaded:
            for name, (shape, values) in arrays.items():
                assert loaded[name].shape == shape and loaded[name].ravel().tolist() == values
    return arrays


def float32(text):
    return struct.unpack("<f", struct.pack("<f", float(text)))[0]


class Predict(FolderTest):
    def train(self, *flags):
        self.samples = rows()[:ROWS]
        write_csv(self.csv, self.samples)
        return self.record("train", *MODEL, "--optimizer", "adam", "--epochs", 20, "--dataset",
                           f"csv:{self.csv}", "--save", self.weights, *flags)

    def predict(self, *flags, data=None, to="p.npz", weights="--weights", model="mlp"):
        """Returns the bytes of the predictions."""
        path = self.folder / to
        file = self.folder / "torch.safetensors" if "torch" in weights else self.weights
        result = self.expect_code(0, "predict", model, weights, file, "--dataset",
                                  data or f"csv:{self.csv}", "--to", path, *flags)
        self.assertNotIn("is not part of this model", result.stderr)
        return path.read_bytes()

    def test_every_sample_has_its_prediction_in_order(self):
        torch = self.folder / "torch.safetensors"
        self.train("--torch-save", torch)
        whole = self.predict()
        arrays = read_npz(self.folder / "p.npz")
        self.assertEqual(list(arrays), ["logits", "class"])
        shape, logits = arrays["logits"]
        self.assertEqual(shape, (ROWS, 3))
        self.assertEqual(arrays["class"][0], (ROWS,))
        classes = arrays["class"][1]
        scores = [logits[3 * i:3 * i + 3] for i in range(ROWS)]
        self.assertEqual(classes, [row.index(max(row)) for row in scores])
        right = sum(label == found for (_, label), found in zip(self.samples, classes))
        self.assertGreater(right / ROWS, 0.9)
        # A table has the same numbers.
        self.predict(to="p.csv")
        lines = list(csv.reader((self.folder / "p.csv").read_text().splitlines()))
        self.assertEqual(lines[0], ["logits.0", "logits.1", "logits.2", "class"])
        self.assertEqual([[float32(cell) for cell in line[:3]] for line in lines[1:]], scores)
        self.assertEqual([int(line[3]) for line in lines[1:]], classes)
        # Batches, replicas and strategies do not change a bit.
        for flags in (["--test-batch", 7], ["--test-batch", ROWS], ["--replicas", 3],
                      ["--test-batch", 7, "--test-iterations", 5],
                      ["--strategy", "phased"], ["--strategy", "pipelined", "--stages", 2],
                      ["--memory", "200K"], ["--layers", 3, "--width", 32]):
            with self.subTest(flags=flags):
                self.assertEqual(self.predict(*flags), whole)
        self.assertEqual(self.predict(weights="--torch-weights"), whole)
        # Labels are optional, and are ignored.
        inputs = self.folder / "inputs.csv"
        inputs.write_text("".join(line.rpartition(",")[0] + "\n"
                                  for line in self.csv.read_text().splitlines()))
        self.assertEqual(self.predict(data=f"csv:{inputs}"), whole)
        columns = ",".join(f"x{i}" for i in range(COLUMNS))
        self.assertEqual(self.predict("--input", columns), whole)
        first = self.folder / "first.csv"
        write_csv(first, self.samples, label_first=True)
        self.assertEqual(self.predict("--target", "class", data=f"csv:{first}"), whole)
        self.assertEqual(self.predict(data=f"csv:{first}"), whole)

    def test_the_record_counts(self):
        self.train()
        path = self.folder / "p.npz"
        record = self.record("predict", "mlp", "--weights", self.weights, "--dataset",
                             f"csv:{self.csv}", "--to", path)
        self.assertEqual(record["samples"], ROWS)
        self.assertEqual(record["predictions"],
                         [{"name": "logits", "dtype": "float32", "numbers": 3},
                          {"name": "class", "dtype": "int32", "numbers": 1}])
        self.assertEqual(record["bytes"], path.stat().st_size)
        self.assertEqual(record["file"], str(path))
        self.assertEqual(record["planned_bytes"], record["measured_bytes"])

    def test_the_plan_has_neither_gradients_nor_state(self):
        self.train()
        wide = ["mlp", "--layers", 6, "--width", 256]
        weights = 4 * (21 * 256 + 4 * 257 * 256 + 257 * 3)
        data = ["--dataset", f"csv:{self.csv}", "--weights", self.weights, "--test-batch", 1]
        self.record("train", *wide, "--optimizer", "adam", "--epochs", 1, *data[:2], "--save",
                    self.weights)

        def record(command, *flags):
            extra = ["--to", self.folder / "p.npz"] if command == "predict" else []
            return self.record(command, *wide, *data, *extra, *flags)

        # Training holds the weights and two values of state.
        self.assertGreater(record("eval", "--optimizer", "adam")["planned_bytes"], 3 * weights)
        whole = record("predict")["planned_bytes"]
        self.assertTrue(weights < whole < 1.1 * weights, (whole, weights))
        # In phases, one block's weights are on the device at a time.
        bits = (self.folder / "p.npz").read_bytes()
        self.assertLess(record("predict", "--strategy", "phased")["planned_bytes"], weights * 0.6)
        self.assertEqual((self.folder / "p.npz").read_bytes(), bits)
        path = ["--to", self.folder / "p.npz"]
        said = self.expect_code(0, "predict", *wide, *data, *path, "--memory", weights // 2).stderr
        self.assertRegex(said, r"(?m)^offload: weights; .* weights saves \d+ bytes for .* a call$")
        self.assertEqual((self.folder / "p.npz").read_bytes(), bits)
        self.expect_error(2, "usage", "--offload: must be auto, none or weights for a program that "
                          "infers, got 'weights,optimizer'", "predict", *wide, *data, *path,
                          "--offload", "weights,optimizer")

    def test_classes_come_from_the_weights(self):
        self.train()
        few = self.folder / "few.csv"
        write_csv(few, [(values, label) for values, label in self.samples if label < 2])
        self.predict(data=f"csv:{few}")
        self.assertEqual(read_npz(self.folder / "p.npz")["logits"][0][1], 3)
        data = ["--weights", self.weights, "--dataset", f"csv:{few}"]
        self.assertGreater(self.record("eval", "mlp", *data)["accuracy"], 80)
        more = self.folder / "more.csv"
        write_csv(more, [(values, label + 1) for values, label in self.samples])
        self.expect_error(2, "usage", "labels of mlp must be below its 3 classes, got 3", "eval",
                          "mlp", "--weights", self.weights, "--dataset", f"csv:{more}")
        self.expect_error(3, "bad file", "'fc.0.bias' must be (16,) float32, got (32,) float32",
                          "eval", "mlp", "--width", 16, *data)

    def test_models_with_fixed_sizes_predict_too(self):
        draw = random.Random(1)
        images = [bytes(draw.randrange(256) for _ in range(784)) for _ in range(9)]
        write_idx(self.folder, "train", images, [k % 10 for k in range(9)], side=28)
        file = self.folder / "train-images-idx3-ubyte"
        for model in ("mnist-cnn", "mnist-rts", "mnist-phased", "mlp-skip"):
            with self.subTest(model=model):
                self.record("train", model, *DIGITS, "--steps", 1, "--save", self.weights)
                found = self.predict(model=model, data=f"idx:{file}")
                self.assertEqual(read_npz(self.folder / "p.npz")["logits"][0], (9, 10))
                self.assertEqual(self.predict(model=model, data=f"idx:{self.folder}"), found)
                # A table of normalised pixels produces the same numbers.
                logits = read_npz(self.folder / "p.npz")["logits"][1]
                self.csv.write_text("".join(
                    ",".join(repr((p / 255 - 0.1307) / 0.3081) for p in image) + "\n"
                    for image in images))
                self.predict(model=model)
                for one, other in zip(read_npz(self.folder / "p.npz")["logits"][1], logits):
                    self.assertAlmostEqual(one, other, delta=1e-4)

    def test_what_cannot_be_predicted_is_refused(self):
        self.train()
        weights, data = ["--weights", self.weights], ["--dataset", f"csv:{self.csv}"]
        path = self.folder / "p.csv"
        path.write_text("an older file")
        to = ["--to", path]

        def file(name, text):
            (self.folder / name).write_text(text)
            return ["--dataset", f"csv:{self.folder / name}"]

        narrow = file("narrow.csv", "x0,x1\n4,5\n")
        names = ",".join(f"x{i}" for i in range(COLUMNS)) + "\n"
        for code, kind, part, flags in (
            (2, "usage", "sluice predict requires --weights FILE or --torch-weights FILE (both are "
             "absent)", [*data, *to]),
            (2, "usage", "sluice predict requires --dataset", [*weights, *to]),
            (2, "usage", "sluice predict requires --to FILE.npz or FILE.csv (it is absent)",
             [*weights, *data]),
            (2, "usage", "--to: must end with .npz or .csv, got 'p.txt'",
             [*weights, *data, "--to", "p.txt"]),
            (5, "input/output", "/nosuch/p.npz", [*weights, *data, "--to", "/nosuch/p.npz"]),
            (5, "input/output", "must be a regular file, got a folder",
             [*weights, *data, "--to", self.folder / "folder.npz"]),
            (2, "usage", "got 'x2', which is missing; wanted are x0, x1, x2",
             [*weights, *narrow, *to]),
            (2, "usage", "--target: must be one of the columns x0, x1",
             [*weights, *data, *to, "--target", "y"]),
            (3, "bad file", "line 2: must have 20 columns like line 1, got 19",
             [*weights, *file("ragged.csv", names + "1," * 18 + "1\n"), *to]),
            (3, "bad file", "must have at least one row of numbers, got none",
             [*weights, *file("head.csv", "a,b\n"), *to]),
            (3, "bad file", "the header must have at most 100000000 bytes",
             ["--weights", self.csv, *data, *to]),
            (2, "usage", "gpt and bert read text",
             [*weights, "--dataset", f"text:{self.csv}", *to]),
            (2, "usage", "--weights cannot be combined with --torch-weights",
             [*weights, "--torch-weights", self.weights, *data, *to]),
        ):
            (self.folder / "folder.npz").mkdir(exist_ok=True)
            with self.subTest(flags=flags):
                self.expect_error(code, kind, part, "predict", "mlp", *flags)
        self.expect_error(3, "bad file", "fc.0.weight: must be there", "predict", "mlp",
                          "--weights", self.other_weights(), *data, *to)
        self.expect_error(2, "usage", "--validation: must be an option of sluice predict",
                          "predict", "mlp", "--validation", 0.1)
        self.assertEqual(path.read_text(), "an older file")

    def other_weights(self):
        path = self.folder / "cnn.safetensors"
        self.record("train", "mnist-cnn", *DIGITS, "--steps", 1, "--save", path)
        return path


class Regression(FolderTest):
    def write(self, count):
        """Writes two targets, linear in three inputs, and returns them."""
        draw = random.Random(2)
        lines, targets = ["a,b,c,u,v"], []
        for _ in range(count):
            a, b, c = (draw.gauss(0, 1) for _ in range(3))
            targets.append((float32(2 * a - b + 0.5), float32(c)))
            lines.append(f"{a},{b},{c},{targets[-1][0]},{targets[-1][1]}")
        self.csv.write_text("\n".join(lines) + "\n")
        return targets

    def test_targets_are_learned(self):
        self.write(1000)
        run = ["mlp", "--loss", "mse", "--layers", 2, "--width", 32, "--optimizer", "adam",
               "--dataset", f"csv:{self.csv}", "--target", "u,v"]
        record = self.record("train", *run, "--epochs", 20)
        self.assertNotIn("accuracy", record)
        self.assertLess(record["mean_squared_error"], 0.02)
        self.assertLess(record["mean_squared_error"], record["mean_absolute_error"])
        self.assertAlmostEqual(record["mean_squared_error"], record["test_loss"], 6)
        result = self.expect_code(0, "train", *run, "--epochs", 20)
        self.assertIn("900 samples to train on, 100 to test on, targets of 2 numbers",
                      result.stderr)
        self.assertRegex(result.stdout, r"(?m), mean squared error 0\.0\d+$")
        self.assertNotIn("accuracy", result.stdout)
        staged = self.record("train", *run, "--epochs", 20, "--strategy", "pipelined")
        for key in ("digest", "mean_squared_error"):
            self.assertEqual(staged[key], record[key])
        self.assertEqual(self.record("plan", *run)["model"], "mlp")

    # All samples but one are for tests. Their mean is that of the predictions of all without one.
    def test_the_error_is_the_mean_over_all_numbers_of_all_test_samples(self):
        count = 41
        targets = self.write(count)
        model = ["mlp", "--loss", "mse", "--dataset", f"csv:{self.csv}", "--target", "u,v"]
        self.record("train", *model, "--layers", 2, "--width", 16, "--micro-batch", 4, "--epochs",
                    3, "--save", self.weights)
        weights = ["--weights", self.weights]
        found = self.record("eval", *model, *weights, "--test-batch", 7, "--validation",
                            (count - 1) / count)["mean_squared_error"]
        self.expect_code(0, "predict", *model, *weights, "--to", self.folder / "p.npz")
        arrays = read_npz(self.folder / "p.npz")
        self.assertEqual(list(arrays), ["prediction"])
        shape, values = arrays["prediction"]
        self.assertEqual(shape, (count, 2))
        errors = [(values[2 * i] - u)**2 + (values[2 * i + 1] - v)**2
                  for i, (u, v) in enumerate(targets)]
        without_one = [(sum(errors) - e) / (2 * (count - 1)) for e in errors]
        self.assertTrue(any(abs(found - mean) <= 1e-6 * mean for mean in without_one),
                        (found, without_one))
        self.assertGreater(max(without_one) - min(without_one), 1e-4 * found)
        # One target: the column has the name of the prediction.
        one = ["mlp", "--loss", "mse", "--dataset", f"csv:{self.csv}", "--input", "a,b,c",
               "--target", "u"]
        self.record("train", *one, "--layers", 1, "--micro-batch", 4, "--save", self.weights)
        self.expect_code(0, "predict", *one, *weights, "--to", self.folder / "p.csv")
        lines = (self.folder / "p.csv").read_text().splitlines()
        self.assertEqual(lines[0], "prediction")
        self.assertEqual(len(lines), count + 1)
        self.expect_error(2, "usage", "must have at least 2 classes in its last layer, got 1; a "
                          "regression is --loss mse", "predict", "mlp", *one[3:], *weights, "--to",
                          self.folder / "p.csv")

    def test_what_cannot_be_a_target_is_refused(self):
        self.write(40)
        data = ["--dataset", f"csv:{self.csv}"]
        self.record("train", "mlp", "--loss", "mse", *data, "--target", "u,v", "--save",
                    self.weights, "--optimizer", "adam")
        for part, flags in (
            ("--loss: must be one of mse, cross_entropy, got 'l1'", ["mlp", "--loss", "l1"]),
            ("--loss: mnist has a loss of its own; leave it out, or use mlp",
             ["mnist", "--loss", "cross_entropy"]),
            ("--loss mse requires --dataset (it is absent)", ["mlp", "--loss", "mse"]),
            ("--target: must be one column of classes, got 2; --loss mse takes several",
             ["mlp", *data, "--target", "u,v"]),
            ("--target: must name 2 columns, one for each of the model's u, v, got 1",
             ["mlp", "--loss", "mse", *data, "--target", "u", "--weights", self.weights]),
        ):
            with self.subTest(flags=flags):
                self.expect_error(2, "usage", part, "train", *flags)
        self.expect_error(3, "bad file", "column 5", "train", "mlp", *data)
        self.expect_error(2, "usage", "--loss: must be an option of sluice bench", "bench", "mlp",
                          "--loss", "mse")


if __name__ == "__main__":
    unittest.main(verbosity=2)
