#!/usr/bin/env python3
"""Computes recurrent layers in PyTorch and writes them as a safetensors file.

Each case has the state_dict of a layer, its inputs, results, gradients of the results, and the
gradients of inputs and weights; the metadata has the options. recurrent_test.cc reads
recurrent.safetensors, which was made with PyTorch 2.15:

    python3 tests/models/recurrent.py tests/models/recurrent.safetensors
"""
import sys

import torch
from torch import nn

from torch_layers import write

# (layer, hidden, layers, bidirectional, batch_first, bias, whether states are given)
CASES = [
    ("LSTM", 4, 1, False, False, True, False),
    ("LSTM", 3, 2, True, True, True, True),
    ("LSTM", 3, 2, False, False, False, True),
    ("GRU", 4, 1, False, False, True, False),
    ("GRU", 3, 2, True, True, True, True),
    ("GRU", 3, 2, False, False, False, True),
]
STEPS, BATCH, FEATURES = 5, 2, 3


def add_case(tensors, name, case):
    kind, hidden, layers, both, batch_first, bias, given = case
    layer = getattr(nn, kind)(FEATURES, hidden, num_layers=layers, bidirectional=both,
                              batch_first=batch_first, bias=bias)
    shape = (BATCH, STEPS, FEATURES) if batch_first else (STEPS, BATCH, FEATURES)
    count = 2 if kind == "LSTM" else 1
    inputs = {"x": torch.randn(shape)}
    for state in ["h", "c"][:count] if given else []:
        inputs[state] = torch.randn(layers * (1 + both), BATCH, hidden)
    for t in inputs.values():
        t.requires_grad_()
    states = [t for key, t in inputs.items() if key != "x"]
    if not given:
        output, last = layer(inputs["x"])
    else:
        output, last = layer(inputs["x"], tuple(states) if count == 2 else states[0])
    results = [output, *(last if count == 2 else [last])]
    for i, result in enumerate(results):
        factor = torch.randn(result.shape)
        tensors[f"{name}.result.{i}"] = result
        tensors[f"{name}.d_result.{i}"] = factor
    loss = sum((r * tensors[f"{name}.d_result.{i}"]).sum() for i, r in enumerate(results))
    loss.backward()
    for key, t in [*inputs.items(), *layer.named_parameters()]:
        tensors[f"{name}.{key}"] = t
        tensors[f"{name}.grad.{key}"] = t.grad


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    tensors, metadata = {}, {}
    for i, case in enumerate(CASES):
        metadata[str(i)] = " ".join(str(int(v)) if not isinstance(v, str) else v for v in case)
        add_case(tensors, str(i), case)
    write(sys.argv[1], tensors, metadata)


if __name__ == "__main__":
    main()
