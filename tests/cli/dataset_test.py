#!/usr/bin/env python3
"""Tests training on samples of the user's own."""

import gzip
import os
import random
import struct
import subprocess
import unittest

from cli_case import PROGRAM, FolderTest, write_idx

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


def write_safetensors(path, samples, names=("input", "target")):
    inputs = b"".join(struct.pack(f"<{COLUMNS}f", *values) for values, _ in samples)
    targets = struct.pack(f"<{len(samples)}i", *(label for _, label in samples))
    header = (f'{{"{names[0]}":{{"dtype":"F32","shape":[{len(samples)},{COLUMNS}],'
              f'"data_offsets":[0,{len(inputs)}]}},"{names[1]}":{{"dtype":"I32",'
              f'"shape":[{len(samples)}],"data_offsets":[{len(inputs)},'
              f'{len(inputs) + len(targets)}]}}}}').encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(struct.pack("<Q", len(header)) + header + inputs + targets)


class Dataset(FolderTest):
    def test_a_table_is_learned_by_one_command(self):
        write_csv(self.csv, rows())
        run = [*RUN, "--dataset", f"csv:{self.csv}"]
        result = self.expect_code(0, "train", *run, "--digest")
        self.assertIn("2700 samples to train on, 300 to test on, 3 classes", result.stderr)
        record = self.record("train", *run)
        self.assertGreaterEqual(record["accuracy"], 95)
        # Other columns and stages produce the same samples and bits.
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
        tensors, images = (self.folder / f"{name}.safetensors" for name in ("tensors", "images"))
        write_safetensors(tensors, samples)
        write_safetensors(images, samples, ("image", "label"))
        digests = {self.record("train", *RUN, "--dataset", d)["digest"]
                   for d in (f"csv:{self.csv}", f"safetensors:{tensors}", f"safetensors:{images}")}
        self.assertEqual(len(digests), 1)

    def test_a_folder_of_images_has_its_own_test_files(self):
        draw = random.Random(3)

        def write(part, count):
            images = [bytes(draw.randrange(256) for _ in range(16)) for _ in range(count)]
            write_idx(self.folder, part, images, [k % 4 for k in range(count)], side=4)

        run = ["train", "mlp", "--layers", 2, "--width", 8, "--dataset", f"idx:{self.folder}"]
        self.expect_error(5, "input/output", "must contain train-images-idx3-ubyte and "
                          "train-labels-idx1-ubyte", *run)
        write("train", 40)
        self.assertIn("36 samples to train on, 4 to test on, 4 classes",
                      self.expect_code(0, *run).stderr)
        write("t10k", 12)
        self.assertIn("40 samples to train on, 12 to test on, 4 classes",
                      self.expect_code(0, *run).stderr)
        self.assertIn("30 samples to train on, 10 to test on",
                      self.expect_code(0, *run, "--validation", 0.25).stderr)
        record = self.record("bench", "--dataset", f"idx:{self.folder}")
        self.assertEqual(record["produced"], 40)
        write_idx(self.folder, "t10k", [b"123456789"], [0], side=3)
        self.expect_error(2, "usage", "training and test images must have one shape, got "
                          "(4, 4) and (3, 3)", *run)

    def test_a_large_file_trains_in_bounded_memory(self):
        rows, columns = 131072, 1024  # 512 MiB of zeros.
        labels = bytes(b for k in range(rows) for b in (k % 10, 0, 0, 0))
        size = rows * columns * 4
        header = (f'{{"target":{{"dtype":"I32","shape":[{rows}],"data_offsets":[0,{len(labels)}]}},'
                  f'"input":{{"dtype":"F32","shape":[{rows},{columns}],'
                  f'"data_offsets":[{len(labels)},{len(labels) + size}]}}}}').encode()
        header += b" " * (-len(header) % 8)
        path = self.folder / "large.safetensors"
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + labels)
            file.truncate(file.tell() + size)
        process = subprocess.Popen(
            [PROGRAM, "train", "mlp", "--layers", "2", "--width", "16", "--steps", "100",
             "--validation", "0.001", "--dataset", f"safetensors:{path}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        self.assertLess(usage.ru_maxrss, 64 << 10)

    def test_samples_that_stay_in_their_file_have_the_same_bits(self):
        count, columns = 2200, 2000  # 17 MB of float32: more than is held in memory.
        lines = [[(k * 31 + j * 7 + j * k % 13) % 64 / 64 for j in range(columns)]
                 for k in range(count)]
        table = self.folder / "wide.csv"
        table.write_text("".join(
            ",".join(map(str, line)) + f",{k % 3}\n" for k, line in enumerate(lines)))
        inputs = b"".join(struct.pack(f"<{columns}f", *line) for line in lines)
        targets = struct.pack(f"<{count}i", *(k % 3 for k in range(count)))
        header = (f'{{"input":{{"dtype":"F32","shape":[{count},{columns}],"data_offsets":[0,'
                  f'{len(inputs)}]}},"target":{{"dtype":"I32","shape":[{count}],"data_offsets":['
                  f'{len(inputs)},{len(inputs) + len(targets)}]}}}}').encode()
        tensors = self.folder / "wide.safetensors"
        tensors.write_bytes(struct.pack("<Q", len(header)) + header + inputs + targets)
        packed = self.folder / "packed.safetensors"
        packed.write_bytes(gzip.compress(tensors.read_bytes(), 1))
        run = ["mlp", "--layers", 2, "--width", 8, "--epochs", 1]
        digests = {self.record("train", *run, "--dataset", d)["digest"]
                   for d in (f"csv:{table}", f"safetensors:{tensors}", f"safetensors:{packed}")}
        self.assertEqual(len(digests), 1)

    def test_text_is_measured_and_not_trained_on(self):
        path = self.folder / "text.txt"
        path.write_text("to be or not to be " * 20)  # 380 characters: 5 windows of 64 and one more.
        record = self.record("bench", "--dataset", f"text:{path}")
        self.assertEqual(record["produced"], 5)
        self.assertEqual(record["epochs"][0]["total_bytes_processed"], 5 * 2 * 64 * 4)
        for command in ("train", "eval", "plan"):
            self.expect_error(
                2, "usage", "--dataset: must be csv:FILE, npz:FILE, safetensors:FILE or idx:DIR, "
                f"got 'text:{path}'; gpt and bert read text", command, "mlp", "--dataset",
                f"text:{path}", *(["--weights", "w"] if command == "eval" else []))

    def test_the_host_is_measured(self):
        write_csv(self.csv, rows()[:50])
        bench = ["bench", "--dataset", f"csv:{self.csv}", "--elements", 30]
        record = self.record(*bench, "--epochs", 3)
        self.assertEqual([e["elements_processed"] for e in record["epochs"]], [30, 20, 0])
        self.assertEqual((record["requested"], record["produced"]), (90, 50))
        self.assertIn("requested 30 elements, produced 30\n", self.expect_code(0, *bench).stdout)
        self.assertIn("requested 60 elements, produced 50: the dataset has ended; --repeat",
                      self.expect_code(0, *bench, "--epochs", 2).stdout)
        record = self.record("bench", "--dataset", f"csv:{self.csv}", "--epochs", 10, "--elements",
                             512, "--repeat")
        self.assertEqual((record["requested"], record["produced"]), (5120, 5120))
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

        def tensors(name, dtype, first=0.0, names=("input", "target")):
            path = self.folder / name
            samples = [([first if k == 0 else 1.0] * COLUMNS, k % 2) for k in range(20)]
            write_safetensors(path, samples, names)
            path.write_bytes(path.read_bytes().replace(b'"dtype":"I32"', f'"dtype":"{dtype}"'
                                                       .encode()))
            return ["--dataset", f"safetensors:{path}"]

        for code, kind, part, flags in (
            (2, "usage", "--dataset: must be csv:FILE, npz:FILE, safetensors:FILE or idx:DIR, got "
             "'samples.csv'", ["mlp", "--dataset", "samples.csv"]),
            (5, "input/output", "no.csv", ["mlp", "--dataset", f"csv:{self.folder}/no.csv"]),
            (3, "bad file", "line 1", ["mlp", *file("empty.csv", "")]),
            (3, "bad file", "line 3: must have 3 columns like line 1, got 2",
             ["mlp", *file("ragged.csv", "1,2,0\n1,2,1\n1,2\n")]),
            (2, "usage", "--target: must be one of the columns x0, x1", ["mlp", *good, "--target",
                                                                         "y"]),
            (2, "usage", "--target: labels must be classes from 0, or text, got -1 in line 1 of",
             ["mlp", *file("negative.csv", "1,2,-1\n" * 20)]),
            (3, "bad file", "column 3", ["mlp", *file("real.csv", "1,2,0.5\n" * 20)]),
            (3, "bad file", "must have at least one row of numbers, got none",
             ["mlp", *file("header.csv", "a,b,c\n")]),
            (2, "usage", "--target: labels must be below the number of samples, 20, got 20",
             ["mlp", *file("large.csv", "2,1,20\n" * 20)]),
            (2, "usage", "--dataset: labels of mnist must be below its 10 classes, got 10",
             ["mnist", *file("ten.csv", "1," * 784 + "10\n" + ("1," * 784 + "0\n") * 19)]),
            (2, "usage", "the field must be one of [input, target], got 'labels'",
             ["mlp", *tensors("fields.safetensors", "I32"), "--target", "labels"]),
            (2, "usage", "the field must be one of [input, target], got 'x'",
             ["mlp", *tensors("fields.safetensors", "I32"), "--input", "x"]),
            (2, "usage", "--target: must name one of the fields [input, y] of",
             ["mlp", *tensors("y.safetensors", "I32", names=("input", "y"))]),
            (2, "usage", "--input: must name one of the fields [x, target] of",
             ["mlp", *tensors("x.safetensors", "I32", names=("x", "target"))]),
            (2, "usage", "--dataset: csv must be one file, got the folder",
             ["mlp", "--dataset", f"csv:{self.folder}"]),
            (2, "usage", "--target: must be one integer for each sample, got () float32; mlp takes "
             "real numbers with --loss mse", ["mlp", *tensors("reals.safetensors", "F32")]),
            (2, "usage", "--input: must be finite float32 numbers, got nan in row 0 of the file",
             ["mlp", *tensors("nan.safetensors", "I32", first=float("nan"))]),
            (3, "bad file", "byte 0", ["mlp", "--dataset", f"npz:{self.csv}"]),
            (2, "usage", "--dataset: samples of mnist-cnn must have 784 numbers, got shape (20,)",
             ["mnist-cnn", *good]),
            (2, "usage", "--target requires --dataset (it is absent)", ["mlp", "--target", "y"]),
            (2, "usage", "must be a finite float32 number above 0 to below 1, got '1'",
             ["mlp", *good, "--validation", 1]),
            (2, "usage", "--validation: must leave samples to train and to test on, got 0 of 20",
             ["mlp", *good, "--validation", 0.01]),
            (2, "usage", "--dataset cannot be combined with --synthetic",
             ["mlp", *good, "--synthetic"]),
        ):
            with self.subTest(flags=flags):
                self.expect_error(code, kind, part, "train", *flags)
        for option in (["--epochs", 2], ["--elements", 2], ["--repeat"]):
            self.expect_error(2, "usage", f"{option[0]} requires --dataset", "bench", *option)
        self.expect_error(2, "usage", "--dataset: must be csv:FILE, npz:FILE, safetensors:FILE, "
                          "text:FILE or idx:DIR, got 'cvs:a'", "bench", "--dataset", "cvs:a")


if __name__ == "__main__":
    unittest.main(verbosity=2)
