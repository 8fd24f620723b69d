#!/usr/bin/env python3
"""Tests tables: columns by name, classes and categories in text, formats and missing cells."""

import csv
import gzip
import json
import random
import struct
import unittest
from pathlib import Path

from cli_case import FolderTest

FIELD = Path(__file__).resolve().parents[3] / "shared" / "data" / "field"
MODEL = ["mlp", "--layers", 2, "--width", 8, "--optimizer", "adam"]
NAMES = ["a", "b", "c", "d", "label"]


def rows(count=120):
    """Returns rows of four numbers and a class: each class has a centre of its own."""
    draw = random.Random(7)
    return [[*(round(2 * (i == k % 3) + draw.gauss(0, 0.3), 4) for i in range(4)), k % 3]
            for k in range(count)]


class Table(FolderTest):
    def write(self, name, lines, names=NAMES, separator=","):
        """Writes a table and returns its option."""
        table = [names, *lines] if names else lines
        path = self.folder / name
        path.write_text("".join(separator.join(map(str, line)) + "\n" for line in table))
        return ["--dataset", f"csv:{path}"]

    def train(self, data, *flags):
        return self.expect_code(0, "train", *MODEL, *data, "--epochs", 10, "--lr", 0.02, "--save",
                                self.weights, "--digest", *flags)

    def predict(self, data, *flags):
        """Returns the lines of the predictions and the messages."""
        path = self.folder / "p.csv"
        path.unlink(missing_ok=True)
        said = self.expect_code(0, "predict", "mlp", "--weights", self.weights, *data, "--to", path,
                                *flags).stderr
        return list(csv.reader(path.read_text().splitlines(keepends=True))), said

    def refused(self, part, command, *flags, code=2, kind="usage"):
        extra = {"predict": ["--weights", self.weights, "--to", self.folder / "p.csv"],
                 "eval": ["--weights", self.weights]}.get(command, [])
        model = MODEL if command == "train" else ["mlp"]
        self.expect_error(code, kind, part, command, *model, *extra, *flags)

    def metadata(self):
        data = self.weights.read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        return json.loads(data[8:8 + size]).get("__metadata__", {})

    def test_columns_are_matched_by_name(self):
        lines = rows()
        plain = self.write("plain.csv", lines)
        said = self.train(plain).stderr
        self.assertIn("inputs 4: a, b, c, d; target label, 3 classes\n", said)
        self.assertIn("table: inputs 4: a, b, c, d; target label, 3 classes\n",
                      self.expect_code(0, "inspect", self.weights).stdout)
        whole, said = self.predict(plain)
        self.assertNotIn("left out", said)
        self.assertEqual(whole[0], ["logits.0", "logits.1", "logits.2", "class"])
        order = [4, 3, 1, 0, 2]
        other = self.write("other.csv", [[line[k] for k in order] + ["x"] for line in lines],
                           [NAMES[k] for k in order] + ["more"])
        found, said = self.predict(other)
        self.assertEqual(found, whole)
        self.assertIn("1 column left out, which the model does not read: more\n", said)
        tests = ["eval", "mlp", "--weights", self.weights, "--all"]
        self.assertEqual(self.expect_code(0, *tests, *other).stdout,
                         self.expect_code(0, *tests, *plain).stdout)
        renamed = self.write("renamed.csv", lines, ["p", "q", "r", "s", "t"])
        self.assertEqual(self.predict(renamed, "--input", "p,q,r,s")[0], whole)
        # A training that begins with these weights reads the table in the same way.
        again = ["train", *MODEL, "--weights", self.weights, "--steps", 2, "--digest"]
        self.assertEqual(self.expect_code(0, *again, *other).stdout.split("digest")[1],
                         self.expect_code(0, *again, *plain).stdout.split("digest")[1])
        for command in ("predict", "eval"):
            with self.subTest(command=command):
                self.refused("got 'd', which is missing; wanted are a, b, c, d; the file has a, b, "
                             "c, label", command,
                             *self.write("few.csv", [l[:3] + l[4:] for l in lines],
                                         ["a", "b", "c", "label"]))
                self.refused("must have column 'b' once", command,
                             *self.write("twice.csv", [l + [1] for l in lines], [*NAMES, "b"]))
        self.refused("its line 1 is no header", "predict",
                     *self.write("none.csv", lines, names=None))
        self.refused("--loss: must be cross_entropy, as the weights were trained, got mse", "eval",
                     *plain, "--loss", "mse")

    def test_the_first_column_may_be_the_target(self):
        lines = [[line[4], *line[:4]] for line in rows()]
        data = self.write("first.csv", lines, ["label", "a", "b", "c", "d"])
        said = self.train(data, "--target", "label").stderr
        self.assertIn("inputs 4: a, b, c, d; target label, 3 classes", said)
        found, _ = self.predict(data)
        right = sum(line[0] == int(p[3]) for line, p in zip(lines, found[1:]))
        self.assertGreater(right, 100)
        accuracy = self.record("eval", "mlp", "--weights", self.weights, *data, "--all")["accuracy"]
        self.assertAlmostEqual(accuracy, 100 * right / len(lines), delta=0.01)

    def test_text_becomes_classes_and_categories(self):
        kinds = ["low", "mid", "the \"high\", or not"]
        lines = [[*line[:3], ["red", "blue"][k % 2], '"' + kinds[line[4]].replace('"', '""') + '"']
                 for k, line in enumerate(rows())]
        data = self.write("text.csv", lines, ["a", "b", "c", "colour", "size"])
        said = self.train(data).stderr
        self.assertIn("inputs 4: a, b, c, colour (2 categories); target size, 3 classes (low, mid, "
                      "the \"high\", or not)\n", said)
        found, _ = self.predict(data)
        self.assertEqual(found[0], ["logits.low", "logits.mid", "logits." + kinds[2], "class"])
        for line in found[1:]:
            scores = [float(x) for x in line[:3]]
            self.assertEqual(line[3], kinds[scores.index(max(scores))])
        self.assertGreater(sum(kinds[r[4]] == p[3] for r, p in zip(rows(), found[1:])), 100)
        record = self.record("predict", "mlp", "--weights", self.weights, *data, "--to",
                             self.folder / "p.npz")
        self.assertEqual(record["classes"], [{"label": kind} for kind in kinds])
        self.assertIn(kinds[2].encode("utf-32-le"), (self.folder / "p.npz").read_bytes())
        lines[3][3] = "green"
        self.refused("line 5: column 4 (colour): must be one of blue, red, got 'green'", "predict",
                     *self.write("new.csv", lines, ["a", "b", "c", "colour", "size"]), code=3,
                     kind="bad file")

    def test_classes_of_torch_weights_are_known_too(self):
        data = self.write("t.csv", [[*line[:4], "xyz"[line[4]]] for line in rows()])
        torch = self.folder / "torch.safetensors"
        self.train(data, "--torch-save", torch)
        whole, _ = self.predict(data)
        path = self.folder / "q.csv"
        self.expect_code(0, "predict", "mlp", "--torch-weights", torch, *data, "--to", path)
        self.assertEqual(list(csv.reader(path.read_text().splitlines())), whole)

    def test_missing_cells(self):
        lines = rows()
        lines[5][1] = ""
        lines[7][0] = "NA"
        data = self.write("missing.csv", lines)
        self.refused("line 7: column 2 (b): must have a value, got ''; see --missing mean and "
                     "--missing drop-row", "train", *data, code=3, kind="bad file")
        self.assertIn("2 of 120 rows dropped for missing cells", self.train(
            data, "--missing", "drop-row").stderr)
        self.refused("line 7: column 2 (b)", "predict", *data, code=3, kind="bad file")
        self.refused("--missing: must be refuse or mean in sluice predict", "predict", *data,
                     "--missing", "drop-row")
        self.assertIn("2 missing cells replaced by means", self.train(
            data, "--missing", "mean").stderr)
        found, _ = self.predict(data)  # The weights keep the choice "mean".
        self.assertEqual(len(found), 121)
        lines[5][4] = ""
        self.refused("must have a value, as it is a target", "train", *self.write("m.csv", lines),
                     "--missing", "mean", code=3, kind="bad file")

    def test_standardised_columns(self):
        lines = [[1000 + 500 * line[0], *line[1:]] for line in rows()]
        data = self.write("wide.csv", lines)
        self.assertNotEqual(self.train(data).stdout, self.train(data, "--standardize").stdout)
        whole, _ = self.predict(data)
        right = sum(line[4] == int(p[3]) for line, p in zip(lines, whole[1:]))
        self.assertGreater(right, 100)
        schema = json.loads(self.metadata()["sluice.table"])
        self.assertGreater(schema["columns"][0]["deviation"], 100)
        one = self.write("one.csv", lines[:1])  # One row has the scaling of the training.
        self.assertEqual(self.predict(one)[0][1], whole[1])
        self.train(data)
        self.refused("--standardize: the weights were trained on a table that was not", "train",
                     *data, "--standardize", "--weights", self.weights)

    def test_separators_and_decimal_marks(self):
        plain = self.train(self.write("plain.csv", rows())).stdout.split("digest")[1]
        self.assertEqual(self.metadata().keys(), {"sluice.table"})
        lines = [[str(x).replace(".", ",") for x in line] for line in rows()]
        data = self.write("local.csv", lines, separator=";")
        self.refused("give --separator ';'", "train", *data, code=3, kind="bad file")
        found = self.train(data, "--separator", ";", "--decimal", ",").stdout.split("digest")[1]
        self.assertEqual(found, plain)
        whole, _ = self.predict(data)  # With the marks of the training.
        self.assertEqual(self.predict(self.write("tabs.csv", rows(), separator="\t"), "--separator",
                                      "tab", "--decimal", ".")[0], whole)
        packed = self.folder / "packed"
        packed.write_bytes(gzip.compress((self.folder / "local.csv").read_bytes()[:500]) +
                           gzip.compress((self.folder / "local.csv").read_bytes()[500:]))
        self.assertEqual(self.predict(["--dataset", f"csv:{packed}"])[0], whole)
        self.refused("the decimal mark and the separator must differ", "train", *data, "--decimal",
                     ",")
        self.refused("--separator: must be one of ,;|:/&# or tab, got '.'", "train", *data,
                     "--separator", ".")

    def test_a_header_is_known_or_stated(self):
        numbers = self.write("numbers.csv", rows(), ["0", "1", "2", "3", "4"])
        self.refused("line 1: may be a header or a row, got '0', '1', '2', '3', '4'; give --header "
                     "yes or --header no", "train", *numbers, code=3, kind="bad file")
        plain = self.train(self.write("plain.csv", rows())).stdout.split("digest")[1]
        self.assertEqual(self.train(numbers, "--header", "yes").stdout.split("digest")[1], plain)
        self.assertEqual(len(self.predict(numbers)[0]), 121)  # The weights know the names.
        said = self.train(numbers, "--header", "no").stderr
        self.assertIn("no header, line 1 is a row", said)
        self.assertIn("109 samples to train on, 12 to test on", said)

    def test_weights_without_a_table_leave_nothing_out_without_a_word(self):
        data = self.write("t.csv", rows(), names=None)
        images = [bytes(random.Random(k).randbytes(4)) for k in range(20)]
        (self.folder / "train-images.idx3-ubyte").write_bytes(
            struct.pack(">4I", 0x803, 20, 2, 2) + b"".join(images))
        (self.folder / "train-labels.idx1-ubyte").write_bytes(
            struct.pack(">2I", 0x801, 20) + bytes(k % 3 for k in range(20)))
        self.train(["--dataset", f"idx:{self.folder}"])
        self.assertEqual(self.metadata(), {})
        self.assertIn("the weights name no columns: the last one, 4, is left out",
                      self.predict(data)[1])
        self.refused("--missing mean requires weights that were trained on a table", "predict",
                     *data, "--missing", "mean")

    def test_every_row_is_tested(self):
        data = self.write("t.csv", rows()[:50])
        self.train(data)
        tests = ["eval", "mlp", "--weights", self.weights, *data]
        self.assertIn("45 samples to train on, 5 to test on", self.expect_code(0, *tests).stderr)
        self.assertIn(": 50 samples to test on", self.expect_code(0, *tests, "--all").stderr)
        self.refused("--all requires --dataset (it is absent)", "eval", "--all")
        self.refused("--all cannot be combined with --validation", "eval", *data, "--all",
                     "--validation", 0.5)

    def test_one_class_is_refused_before_training(self):
        for name, labels in (("number", [1] * 40), ("text", ["yes"] * 40)):
            data = self.write(f"{name}.csv", [[k, k % 7, label] for k, label in enumerate(labels)],
                              ["a", "b", "label"])
            self.refused("--target: must have at least 2 classes to train on, got class", "train",
                         *data)
            self.refused("at least 2 classes", "plan", *data)

    def test_options_of_tables_require_a_table(self):
        for option in (["--header", "no"], ["--separator", ";"], ["--decimal", ","],
                       ["--missing", "mean"], ["--standardize"]):
            self.refused(f"{option[0]} requires --dataset csv:FILE (it is absent)", "train",
                         *option)
            self.refused(f"{option[0]} requires --dataset csv:FILE (it is npz:a)", "train",
                         "--dataset", "npz:a", *option)


@unittest.skipUnless(FIELD.is_dir(), f"requires the inputs in {FIELD}; the project ships none")
class Field(FolderTest):
    """Inputs that users of other tools stumbled over."""

    def data(self, name):
        return ["--dataset", f"csv:{FIELD / name}"]

    def train(self, *flags):
        return self.expect_code(0, "train", *MODEL, "--epochs", 2, "--save", self.weights,
                                "--digest", *flags)

    def predict(self, *flags):
        path = self.folder / "p.csv"
        self.expect_code(0, "predict", "mlp", "--weights", self.weights, *flags, "--to", path)
        return path.read_text()

    def test_tables(self):
        digest = self.train(*self.data("plain.csv")).stdout.split("digest")[1]
        plain = self.predict(*self.data("plain.csv"))
        for name in ("reordered.csv", "label_first.csv", "text_line_break.csv"):
            self.assertEqual(self.predict(*self.data(name)), plain, name)
        for name, flags in (("label_first.csv", ["--target", "label"]),
                            ("text_line_break.csv", ["--input", "a,b,c,d"]),
                            ("numeric_header.csv", ["--header", "yes"]),
                            ("mixed_header.csv", ["--header", "yes"]),
                            ("semicolons.csv", ["--separator", ";"])):
            found = self.train(*self.data(name), *flags)
            self.assertEqual(found.stdout.split("digest")[1], digest, name)
            self.assertEqual(self.predict(*self.data(name)), plain, name)
        self.assertIn("name (2 categories)", self.train(*self.data("text_line_break.csv")).stderr)
        for code, name, part in ((3, "numeric_header.csv", "--header yes or --header no"),
                                 (3, "mixed_header.csv", "--header yes or --header no"),
                                 (3, "semicolons.csv", "--separator ';'"),
                                 (2, "one_class.csv", "at least 2 classes")):
            result = self.expect_code(code, "train", *MODEL, *self.data(name))
            self.assertIn(part, result.stderr)

    def test_arrays(self):
        self.expect_error(2, "usage", "got nan in row 9 of the file", "train", *MODEL, "--dataset",
                          f"npz:{FIELD}/npz/nan_inside.npz")
        said = self.train("--dataset", f"safetensors:{FIELD}/st/unused_i8.safetensors").stderr
        self.assertIn("108 samples to train on, 12 to test on", said)
        self.assertIn("to train on", self.train("--dataset", f"idx:{FIELD}/idx_two_members").stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
