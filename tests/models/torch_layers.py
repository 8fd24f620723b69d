#!/usr/bin/env python3
"""Computes layers and losses in PyTorch and writes them as a safetensors file.

The file has the state_dict of Net, an input and Net's output in evaluation. It also has cases of
CrossEntropyLoss with their gradients; the metadata has the options of each. torch_layers_test.cc
reads torch_layers.safetensors, which was made with PyTorch 2.15:

    python3 tests/models/torch_layers.py tests/models/torch_layers.safetensors
"""
import json
import struct
import sys

import torch
from torch import nn


class Net(nn.Module):
    """Each kind of layer with weights, once."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 6, 3, stride=2, padding=1, groups=2)
        self.norm = nn.GroupNorm(3, 6)
        self.up = nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1)
        self.pool = nn.MaxPool2d(2)
        self.bn = nn.BatchNorm2d(4)
        self.mean = nn.AvgPool2d(3, stride=1, padding=1)
        self.rows = nn.LayerNorm([4, 4])
        self.fc = nn.Linear(64, 5)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        x = self.bn(self.pool(self.up(x)))
        x = self.rows(self.mean(x))
        return self.fc(torch.flatten(x, 1))


# (shape of the logits, labels or None for probabilities, weights, smoothing, ignored, reduction)
CASES = [
    ((4, 3), [0, 2, 1, 2], None, 0.0, -100, "mean"),
    ((4, 3), [0, 2, 1, 2], [0.5, 2.0, 1.25], 0.0, -100, "mean"),
    ((4, 3), [0, 2, 1, 2], None, 0.1, -100, "mean"),
    ((4, 3), [0, -100, 1, 2], None, 0.25, -100, "mean"),
    ((4, 3), [0, 2, 1, 2], [0.5, 2.0, 1.25], 0.1, 2, "mean"),
    ((4, 3), [0, 2, 1, 2], [0.5, 2.0, 1.25], 0.1, 2, "sum"),
    ((4, 3), [0, 2, 1, 2], [0.5, 2.0, 1.25], 0.1, 2, "none"),
    ((2, 3, 2, 2), [0, 2, 1, 2, 1, 1, 0, 2], None, 0.0, 1, "mean"),
    ((2, 3, 2, 2), [0, 2, 1, 2, 1, 1, 0, 2], [0.5, 2.0, 1.25], 0.2, -100, "none"),
    ((3,), [1], [0.5, 2.0, 1.25], 0.2, -100, "mean"),
    ((4, 3), None, None, 0.0, -100, "mean"),
    ((2, 3, 2), None, [0.5, 2.0, 1.25], 0.2, -100, "mean"),
]


def add_losses(tensors, metadata):
    for i, (shape, labels, weights, smoothing, ignored, reduction) in enumerate(CASES):
        logits = (2 * torch.randn(shape)).requires_grad_()
        if labels is None:
            target = torch.softmax(torch.randn(shape), dim=1)
        else:
            target = torch.tensor(labels).reshape(shape[:1] + shape[2:] if len(shape) > 1 else ())
        factors = None if weights is None else torch.tensor(weights)
        loss = nn.CrossEntropyLoss(weight=factors, ignore_index=ignored, reduction=reduction,
                                   label_smoothing=smoothing)(logits, target)
        # The losses count differently, so that exchanged gradients are detected.
        scale = torch.arange(1, loss.numel() + 1, dtype=torch.float32).reshape(loss.shape)
        (loss * scale).sum().backward()
        tensors[f"loss.{i}.logits"] = logits
        tensors[f"loss.{i}.labels"] = target if labels is None else target.to(torch.int32)
        tensors[f"loss.{i}.loss"] = loss
        tensors[f"loss.{i}.grad"] = logits.grad
        text = ",".join(map(str, weights or []))
        metadata[f"loss.{i}"] = f"{smoothing} {ignored} {reduction} {text}"


def write(path, tensors, metadata):
    """Writes a safetensors file: the length of the header, the header, the tensors."""
    names = {torch.float32: "F32", torch.int32: "I32", torch.int64: "I64"}
    header, data = {"__metadata__": metadata}, b""
    for name in sorted(tensors):
        tensor = tensors[name].detach().contiguous()
        raw = tensor.numpy().tobytes()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    net = Net()
    for _ in range(3):  # Running statistics that are not the first ones.
        net(1 + 2 * torch.randn(8, 2, 8, 8))
    net.eval()
    tensors = dict(net.state_dict())
    tensors["input"] = torch.randn(3, 2, 8, 8)
    tensors["output"] = net(tensors["input"])
    metadata = {}
    add_losses(tensors, metadata)
    write(sys.argv[1], tensors, metadata)


if __name__ == "__main__":
    main()
