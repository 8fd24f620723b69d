#!/usr/bin/env python3
"""Computes layers and losses in PyTorch and writes them as a safetensors file.

The file has the state_dict of Net, an input and Net's output in evaluation. It also has cases of
CrossEntropyLoss with their gradients; the metadata has the options of each. Then it has single
layers with their gradients, rotary embeddings, and a training of a model with a tied weight.
torch_layers_test.cc and torch_layer_cases_test.cc read torch_layers.safetensors, which was made
with PyTorch 2.15:

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


class SwiGLU(nn.Module):
    """The perceptron of Llama."""

    def __init__(self, width, hidden, bias):
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=bias)
        self.up_proj = nn.Linear(width, hidden, bias=bias)
        self.down_proj = nn.Linear(hidden, width, bias=bias)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


def angles(first, length, size, base):
    """The angles (length, size / 2) of positions from `first` on."""
    frequencies = base ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
    return torch.outer(torch.arange(first, first + length, dtype=torch.float32), frequencies)


class HalvesRotary(nn.Module):
    """The rotation of Llama: x·cos + rotated·sin, with one angle for both halves of a head."""

    def __init__(self, *table):
        super().__init__()
        self.angles = angles(*table)

    def forward(self, x):
        cosine, sine = (torch.cat([t, t], dim=-1) for t in (self.angles.cos(), self.angles.sin()))
        first, second = x.chunk(2, dim=-1)
        return x * cosine + torch.cat([-second, first], dim=-1) * sine


class PairsRotary(nn.Module):
    """The rotation of RoFormer and GPT-J: pairs of neighbours are complex numbers."""

    def __init__(self, *table):
        super().__init__()
        self.angles = angles(*table)

    def forward(self, x):
        rotated = 2 * self.angles.shape[-1]
        pairs = x[..., :rotated].reshape(*x.shape[:-1], rotated // 2, 2).contiguous()
        turns = torch.polar(torch.ones_like(self.angles), self.angles)
        pairs = torch.view_as_complex(pairs) * turns
        return torch.cat([torch.view_as_real(pairs).flatten(-2), x[..., rotated:]], dim=-1)


def hidden(rows, keys):
    """The mask of causal attention: True where a query must not see a key."""
    return torch.triu(torch.ones(rows, keys, dtype=torch.bool), diagonal=1)


class SelfAttention(nn.MultiheadAttention):
    def __init__(self, *options, causal=False, **others):
        super().__init__(*options, batch_first=True, **others)
        self.causal = causal

    def forward(self, x):
        mask = hidden(x.shape[1], x.shape[1]) if self.causal else None
        return super().forward(x, x, x, attn_mask=mask, need_weights=False)[0]


class CrossAttention(nn.MultiheadAttention):
    """The last two rows of the input, doubled, are keys and values."""

    def forward(self, x):
        memory = 2 * x[:, -2:]
        return super().forward(x, memory, memory, need_weights=False)[0]


class GroupedAttention(nn.Module):
    """The attention of Llama: rotary embeddings, grouped heads, no biases."""

    def __init__(self, width, heads, kv_heads, base):
        super().__init__()
        self.heads, self.kv_heads, self.size, self.base = heads, kv_heads, width // heads, base
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, kv_heads * self.size, bias=False)
        self.v_proj = nn.Linear(width, kv_heads * self.size, bias=False)
        self.out_proj = nn.Linear(width, width, bias=False)

    def forward(self, x):
        def split(t, heads):
            return t.unflatten(2, (heads, self.size)).transpose(1, 2)

        rotate = HalvesRotary(0, x.shape[1], self.size, self.base)
        q = rotate(split(self.q_proj(x), self.heads))
        k = rotate(split(self.k_proj(x), self.kv_heads))
        v = split(self.v_proj(x), self.kv_heads)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out_proj(y.transpose(1, 2).flatten(2))


class CausalEncoder(nn.TransformerEncoderLayer):
    def forward(self, x):
        return super().forward(x, src_mask=hidden(x.shape[1], x.shape[1]))


class Decoder(nn.TransformerDecoderLayer):
    def forward(self, x):
        return super().forward(x, 2 * x[:, -2:])


# Name -> module and shape of its input, or its indices.
LAYERS = {
    "rms_norm": lambda: (nn.RMSNorm(6), (2, 3, 6)),
    "rms_norm.axes": lambda: (nn.RMSNorm([3, 4], eps=0.25), (2, 3, 4)),
    "gelu": lambda: (nn.GELU(), (17,)),
    "gelu.tanh": lambda: (nn.GELU(approximate="tanh"), (17,)),
    "silu": lambda: (nn.SiLU(), (17,)),
    "softplus": lambda: (nn.Softplus(), (17,)),
    "hard_sigmoid": lambda: (nn.Hardsigmoid(), (17,)),
    "hard_swish": lambda: (nn.Hardswish(), (17,)),
    "mish": lambda: (nn.Mish(), (17,)),
    "leaky_relu": lambda: (nn.LeakyReLU(0.2), (17,)),
    "elu": lambda: (nn.ELU(0.5), (17,)),
    "softmax": lambda: (nn.Softmax(dim=1), (2, 5, 3)),
    "log_softmax": lambda: (nn.LogSoftmax(dim=-1), (2, 5)),
    "embedding": lambda: (nn.Embedding(7, 4), [[0, 6, 2], [2, 2, 5]]),
    "embedding.padding": lambda: (nn.Embedding(7, 4, padding_idx=-5), [[0, 6, 2], [2, 2, 5]]),
    "swiglu": lambda: (SwiGLU(4, 6, False), (2, 3, 4)),
    "swiglu.bias": lambda: (SwiGLU(4, 6, True), (3, 4)),
    "upsample.nearest": lambda: (nn.Upsample(scale_factor=2), (1, 2, 3, 4)),
    "upsample.fraction": lambda: (nn.Upsample(scale_factor=(1.7, 0.6)), (1, 2, 3, 5)),
    "upsample.size": lambda: (nn.Upsample(size=(5, 4), mode="bilinear"), (1, 2, 3, 6)),
    "upsample.bilinear": lambda: (nn.Upsample(scale_factor=1.7, mode="bilinear"), (1, 2, 3, 4)),
    "upsample.corners": lambda: (nn.Upsample(scale_factor=2.5, mode="bilinear",
                                             align_corners=True), (1, 2, 3, 4)),
    "upsample.linear": lambda: (nn.Upsample(size=7, mode="linear"), (1, 2, 4)),
    "upsample.cubic": lambda: (nn.Upsample(scale_factor=2, mode="bicubic"), (1, 1, 3, 4)),
    "attention": lambda: (SelfAttention(6, 3), (2, 4, 6)),
    "attention.causal": lambda: (SelfAttention(4, 2, bias=False, causal=True), (1, 5, 4)),
    "attention.cross": lambda: (CrossAttention(4, 2, batch_first=True), (2, 3, 4)),
    "attention.grouped": lambda: (GroupedAttention(16, 4, 2, 100.0), (2, 5, 16)),
    "encoder": lambda: (nn.TransformerEncoderLayer(4, 2, 6, 0.0, batch_first=True), (2, 3, 4)),
    "encoder.first": lambda: (CausalEncoder(4, 2, 6, 0.0, "gelu", norm_first=True,
                                            batch_first=True), (2, 3, 4)),
    "decoder": lambda: (Decoder(4, 2, 6, 0.0, batch_first=True), (2, 3, 4)),
    "rotary": lambda: (HalvesRotary(0, 3, 6, 10000.0), (1, 2, 3, 6)),
    "rotary.offset": lambda: (HalvesRotary(5, 3, 4, 500.0), (2, 3, 4)),
    "rotary.pairs": lambda: (PairsRotary(0, 3, 6, 10000.0), (1, 2, 3, 6)),
    "rotary.partial": lambda: (PairsRotary(5, 3, 4, 500.0), (2, 3, 7)),
}


def add_layers(tensors):
    """Adds x, weights, y and the gradients of Σ y·scale of each layer."""
    for name, make in LAYERS.items():
        layer, shape = make()
        key = f"layer.{name}"
        with torch.no_grad():
            for parameter in layer.parameters():  # Also weights whose first values are all equal.
                parameter.add_(torch.randn(parameter.shape) / 2)
        if isinstance(shape, list):
            x = torch.tensor(shape)
        else:
            x = (2 * torch.randn(shape)).requires_grad_()
        y = layer(x)
        scale = torch.randn(y.shape)
        (y * scale).sum().backward()
        tensors |= {f"{key}:x": x if x.is_floating_point() else x.to(torch.int32),
                    f"{key}:y": y, f"{key}:scale": scale}
        if x.grad is not None:
            tensors[f"{key}:grad"] = x.grad
        for part, parameter in layer.named_parameters():
            tensors |= {f"{key}:weight:{part}": parameter.clone(),
                        f"{key}:grad:{part}": parameter.grad}


class Tied(nn.Module):
    """Its table of tokens is the weight of its output too."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(9, 6, padding_idx=0)
        self.mlp = SwiGLU(6, 8, False)
        self.norm = nn.RMSNorm(6)
        self.head = nn.Linear(6, 9, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens).mean(dim=1)
        return self.head(self.norm(x + self.mlp(x)))


def add_tied(tensors):
    """Adds the first and the last weights of 20 steps of SGD, and their losses."""
    model = Tied()
    tokens = torch.tensor([[1, 5, 0, 0], [2, 3, 8, 0], [7, 7, 1, 4]])
    labels = torch.tensor([3, 0, 8])
    for name, weight in model.state_dict().items():
        tensors[f"tied.first.{name}"] = weight.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(model(tokens), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    for name, weight in model.state_dict().items():
        tensors[f"tied.last.{name}"] = weight
    tensors |= {"tied.losses": torch.stack(losses), "tied.tokens": tokens.to(torch.int32),
                "tied.labels": labels.to(torch.int32)}


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
    add_layers(tensors)
    add_tied(tensors)
    write(sys.argv[1], tensors, metadata)


if __name__ == "__main__":
    main()
