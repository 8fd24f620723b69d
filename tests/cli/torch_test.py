#!/usr/bin/env python3
"""Tests files that PyTorch's modules and the command line exchange."""

import json
import struct
import unittest

from cli_case import DIGITS, FolderTest

try:
    import torch
except ImportError:
    torch = None

RUN = [
    "mnist-cnn", *DIGITS, "--micro-batch", "8", "--accumulate", "2", "--test-batch", "80",
    "--test-iterations", "1", "--strategy", "resident"
]
SHAPES = {
    "layer1.conv.weight": [10, 1, 5, 5],
    "layer1.conv.bias": [10],
    "layer2.conv.weight": [20, 10, 5, 5],
    "layer2.conv.bias": [20],
    "layer3.weight": [256, 320],
    "layer3.bias": [256],
    "layer4.weight": [10, 256],
    "layer4.bias": [10],
}


def read(path):
    """Returns {name: (shape, bytes)} of a safetensors file of float32 tensors."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length:]
    return {name: (t["shape"], body[slice(*t["data_offsets"])]) for name, t in header.items()}


def write(path, tensors):
    header, body = {}, b""
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


class Torch(FolderTest):
    def setUp(self):
        super().setUp()
        self.file = self.folder / "torch.safetensors"
        self.ours = self.folder / "ours.safetensors"
        self.trained = self.record("train", *RUN, "--steps", 3, "--torch-save", self.file, "--save",
                                   self.ours)

    def test_the_file_has_the_names_and_shapes_of_the_document(self):
        saved = read(self.file)
        self.assertEqual({name: shape for name, (shape, _) in saved.items()}, SHAPES)
        ours = read(self.ours)
        self.assertEqual(ours["layer4.weight"][0], [256, 10])
        self.assertEqual(ours["layer2.conv.weight"], saved["layer2.conv.weight"])
        theirs = struct.unpack("<2560f", saved["layer4.weight"][1])
        mine = struct.unpack("<2560f", ours["layer4.weight"][1])
        self.assertEqual([mine[i * 10 + o] for o in range(10) for i in range(256)], list(theirs))

    def test_a_saved_state_dict_loads(self):
        evaluated = self.record("eval", *RUN, "--torch-weights", self.file)
        self.assertEqual(evaluated["accuracy"], self.trained["accuracy"])
        again = self.file.with_name("again.safetensors")
        self.expect_code(0, "train", *RUN, "--steps", 0, "--torch-weights", self.file,
                         "--torch-save", again)
        self.assertEqual(again.read_bytes(), self.file.read_bytes())

    def test_refusals(self):
        tensors = read(self.file)
        shape, data = tensors["layer4.weight"]
        write(self.file, {**tensors, "layer4.weight": (shape[::-1], data)})
        self.expect_error(3, "bad file", "'layer4.weight' must be (10, 256) of floating point, got "
                          "(256, 10) float32", "eval", *RUN, "--torch-weights", self.file)
        del tensors["layer1.conv.bias"]
        write(self.file, tensors)
        self.expect_error(3, "bad file", "weight 'layer1.conv.bias' is missing", "eval", *RUN,
                          "--torch-weights", self.file)
        self.expect_error(2, "usage", "--weights cannot be combined with --torch-weights", "eval",
                          *RUN, "--torch-weights", self.file, "--weights", self.ours)

    @unittest.skipIf(torch is None, "requires PyTorch (pip install torch)")
    def test_pytorchs_module_takes_the_file(self):
        net = torch.nn.Module()
        net.layer1, net.layer2 = torch.nn.Module(), torch.nn.Module()
        net.layer1.conv, net.layer2.conv = torch.nn.Conv2d(1, 10, 5), torch.nn.Conv2d(10, 20, 5)
        net.layer3, net.layer4 = torch.nn.Linear(320, 256), torch.nn.Linear(256, 10)
        state = {name: torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(shape)
                 for name, (shape, data) in read(self.file).items()}
        net.load_state_dict(state, strict=True)
        # The module's own state_dict goes back to the same weights.
        write(self.file, {name: (list(t.shape), t.detach().numpy().tobytes())
                          for name, t in net.state_dict().items()})
        evaluated = self.record("eval", *RUN, "--torch-weights", self.file)
        self.assertEqual(evaluated["accuracy"], self.trained["accuracy"])


if __name__ == "__main__":
    unittest.main()
