#!/usr/bin/env python3
"""Tests training on samples of the user's own."""

import random
import struct
import tempfile
import unittest
from pathlib import Path

from cli_case import CliTest

COLUMNS, CLASSES, ROWS = 20, 3, 3000
RUN = ["mlp", "--layers", 3, "--width", 32, "--optimizer", "adam", "--epochs", 8]


def rows(seed=1):
    """Returns labelled samples: each class has a centre of its own, with much noise around it."""
    draw = random.Random(seed)
    centres = [[draw.gauss(0, 1) for _ in range(COLUMNS)] for _ in range(CLASSES)]
    labels = [draw.randrange(CLASSES) for _ in range(ROWS)]
    return [([x + draw.gauss(0, 1) for x in centres[label]], label) for label in labels]


def write_csv(path, samples, header=True, label_first=False):
    names = [f"x{i}" for i in range(COLUMNS)]
    lines = [",".join(["class", *names] if label_first else [*names, "class"])] if header else []
    for values, label in samples:
        cells = [f"{v:.6f}" for v in values]
        lines.append(",".join([str(label), *cells] if label_first else [*cells, str(label)]))
    path.write_text("\n".join(lines) + "\n")


def write_safetensors(path, samples):
    inputs = b"".join(struct.pack(f"<{COLUMNS}f", *values) for values, _ in samples)
    targets = struct.pack(f"<{len(samples)}i", *(label for _, label in samples))
    header = (f'{{"input":{{"dtype":"F32","shape":[{len(samples)},{COLUMNS}],'
              f'"data_offsets":[0,{len(inputs)}]}},"target":{{"dtype":"I32",'
              f'"shape":[{len(samples)}],"data_offsets":[{len(inputs)},'
              f'{len(inputs) + len(targets)}]}}}}').encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(struct.pack("<Q", len(header)) + header + inputs + targets)


class Dataset(CliTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.csv = self.folder / "samples.csv"

    def test_a_table_is_learned_by_one_command(self):
        write_csv(self.csv, rows())
        run = [*RUN, "--dataset", f"csv:{self.csv}"]
        result = self.expect_code(0, "train", *run, "--digest")
        self.assertIn("2700 samples to train on, 300 to test on, 3 classes", result.stderr)
        record = self.record("train", *run)
        self.assertGreaterEqual(record["accuracy"], 95)
        # Other columns and stages give the same samples and bits.
        first = self.folder / "first.csv"
        write_csv(first, rows(), header=False, label_first=True)
        staged = [*run, "--strategy", "pipelined", "--stages", 2]
        named = [*RUN, "--dataset", f"csv:{first}", "--target", 0]
        self.assertEqual(self.record("train", *staged)["digest"], record["digest"])
        self.assertEqual(self.record("train", *named)["digest"], record["digest"])
        fewer = self.record("train", *run, "--input", "x0,x1,x2", "--validation", 0.5)
        self.assertLess(fewer["accuracy"], record["accuracy"])
        model = RUN[:-2]  # Without --epochs.
        plan = self.record("plan", *model, "--dataset", f"csv:{self.csv}")
        self.assertLess(plan["planned_bytes"], self.record("plan", *model)["planned_bytes"])

    def test_other_files_give_the_same_samples(self):
        samples = [([round(v * 64) / 64 for v in values], label) for values, label in rows()[:400]]
        write_csv(self.csv, samples)
        tensors = self.folder / "samples.safetensors"
        write_safetensors(tensors, samples)
        digests = {self.record("train", *RUN, "--dataset", d)["digest"]
                   for d in (f"csv:{self.csv}", f"safetensors:{tensors}")}
        self.assertEqual(len(digests), 1)

    def test_the_host_is_measured(self):
        write_csv(self.csv, rows()[:50])
        record = self.record("bench", "--dataset", f"csv:{self.csv}", "--epochs", 10, "--elements",
                             512)
        self.assertEqual(len(record["epochs"]), 10)
        for epoch in record["epochs"]:
            self.assertEqual(epoch["elements_processed"], 512)
            self.assertEqual(epoch["total_bytes_processed"], 512 * 21 * 4)
            self.assertGreater(epoch["time_elapsed"], 0)
            self.assertGreater(epoch["elements_per_second"], 0)
            self.assertGreater(epoch["bandwidth"], 0)

    def test_wrong_samples_are_refused(self):
        write_csv(self.csv, rows()[:20])
        good = ["--dataset", f"csv:{self.csv}"]

        def file(name, text):
            path = self.folder / name
            path.write_text(text)
            return ["--dataset", f"csv:{path}"]

        for code, kind, part, flags in (
            (2, "usage", "--dataset: must be csv:FILE, npz:FILE, safetensors:FILE or idx:DIR, got "
             "'samples.csv'", ["mlp", "--dataset", "samples.csv"]),
            (5, "input/output", "no.csv", ["mlp", "--dataset", f"csv:{self.folder}/no.csv"]),
            (3, "bad file", "line 1", ["mlp", *file("empty.csv", "")]),
            (3, "bad file", "line 3: must have 3 columns like line 1, got 2",
             ["mlp", *file("ragged.csv", "1,2,0\n1,2,1\n1,2\n")]),
            (2, "usage", "--target: must be one of the columns x0, x1", ["mlp", *good, "--target",
                                                                         "y"]),
            (2, "usage", "--target: labels must be classes from 0, got -1 in sample",
             ["mlp", *file("negative.csv", "1,2,-1\n" * 20)]),
            (3, "bad file", "column 3", ["mlp", *file("real.csv", "1,2,0.5\n" * 20)]),
            (2, "usage", "--dataset: samples of mnist-cnn must have 784 numbers, got shape (20,)",
             ["mnist-cnn", *good]),
            (2, "usage", "--target requires --dataset (it is absent)", ["mlp", "--target", "y"]),
            (2, "usage", "--validation: must be above 0 and below 1, got '1'",
             ["mlp", *good, "--validation", 1]),
            (2, "usage", "--validation: must leave samples to train and to test on, got 0 of 20",
             ["mlp", *good, "--validation", 0.01]),
            (2, "usage", "--dataset cannot be combined with --synthetic",
             ["mlp", *good, "--synthetic"]),
        ):
            with self.subTest(flags=flags):
                self.expect_error(code, kind, part, "train", *flags)
        self.expect_error(2, "usage", "--epochs requires --dataset", "bench", "--epochs", 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
