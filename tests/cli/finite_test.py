#!/usr/bin/env python3
"""Tests that numbers that are not finite are reported and never saved."""

import json
import struct
import unittest

from cli_case import DIGITS, FolderTest

MODEL = ["mlp", "--layers", 2, "--width", 8]


def damage(path, name, number):
    """Replaces the first element of a float32 tensor of a safetensors file."""
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    begin = 8 + length + json.loads(data[8:8 + length])[name]["data_offsets"][0]
    data[begin:begin + 4] = struct.pack("<f", number)
    path.write_bytes(data)


class Finite(FolderTest):
    def train(self, *flags):
        return ["train", *MODEL, *DIGITS, "--steps", 1, "--save", self.weights, *flags]

    def expect_diverged(self, pattern, *arguments):
        result = self.expect_code(6, *arguments)
        self.assertRegex(result.stderr, rf"error \(diverged\): {pattern}")
        self.assertNotIn("-nan", result.stderr)
        self.assertEqual(result.stdout, "")

    def test_a_file_stays_if_the_last_update_diverges(self):
        self.expect_code(0, *self.train())
        before = self.weights.read_bytes()
        torch = self.folder / "torch.safetensors"
        text = r"variable '\S+' must be finite, got -?(inf|nan) in element \d+ after 1 updates"
        self.expect_diverged(text, *self.train("--lr", 3e38, "--micro-batch", 1, "--torch-save",
                                               torch))
        self.assertEqual(self.weights.read_bytes(), before)
        self.assertFalse(torch.exists())
        self.expect_diverged(text, *self.train("--lr", 3e38, "--micro-batch", 1)[:-2])

    def test_weights_that_are_not_finite_are_not_saved_again(self):
        self.expect_code(0, *self.train())
        damage(self.weights, "fc.1.bias", float("nan"))
        copy = self.folder / "copy.safetensors"
        self.expect_diverged("variable 'fc.1.bias' must be finite, got nan in element 0", "train",
                             *MODEL, *DIGITS, "--steps", 0, "--weights", self.weights, "--save",
                             copy)
        self.assertFalse(copy.exists())
        self.expect_diverged(r"the loss of step 0 is nan$", *self.train("--weights", self.weights))

    def test_eval_and_predict_stop_at_a_score_that_is_nan(self):
        data, to = self.folder / "samples.csv", self.folder / "predictions.csv"
        data.write_text("a,b,label\n" + "".join(f"{k % 3},{k},{k % 2}\n" for k in range(40)))
        table = [*MODEL, "--dataset", f"csv:{data}"]
        self.expect_code(0, "train", *table, "--epochs", 1, "--save", self.weights)
        damage(self.weights, "fc.1.weight", float("-nan"))
        text = r"prediction 'logits' in row 0 is nan$"
        self.expect_diverged(text, "eval", *table, "--weights", self.weights)
        self.expect_diverged(text, "predict", *table, "--weights", self.weights, "--to", to)
        self.assertFalse(to.exists())

    def test_rates_must_be_finite(self):
        for rate in ("nan", "inf", "1e39"):
            self.expect_code(2, *self.train("--lr", rate))


if __name__ == "__main__":
    unittest.main(verbosity=2)
