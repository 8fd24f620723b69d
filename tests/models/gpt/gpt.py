#!/usr/bin/env python3
"""Trains small language models in PyTorch and writes their first weights and losses.

gpt_test.cc reads gpt.safetensors, which was made with PyTorch 2.15:

    python3 tests/models/gpt/gpt.py tests/models/gpt/gpt.safetensors
"""
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from torch_layers import HalvesRotary, write  # noqa: E402

BLOCKS, HEADS, KV_HEADS, WIDTH, HIDDEN, CONTEXT, VOCABULARY, BATCH = 2, 4, 2, 16, 40, 12, 11, 3
STEPS, RATE = 200, 0.05


class Conv1D(nn.Module):
    """A linear layer whose weight is stored as (in, out), as in GPT-2."""

    def __init__(self, rows, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns) / 8)
        self.bias = nn.Parameter(torch.randn(columns) / 8)

    def forward(self, x):
        return x @ self.weight + self.bias


def heads(t, count):
    return t.unflatten(2, (count, WIDTH // HEADS)).transpose(1, 2)


class Gpt2Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = Conv1D(WIDTH, 3 * WIDTH)
        self.c_proj = Conv1D(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (heads(t, HEADS) for t in self.c_attn(x).split(WIDTH, dim=2))
        scores = q @ k.transpose(2, 3) / (WIDTH // HEADS) ** 0.5
        mask = torch.tril(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool))
        probabilities = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
        return self.c_proj((probabilities @ v).transpose(1, 2).flatten(2))


class Gpt2Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc = Conv1D(WIDTH, HIDDEN)
        self.c_proj = Conv1D(HIDDEN, WIDTH)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Gpt2Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(WIDTH), Gpt2Attention()
        self.ln_2, self.mlp = nn.LayerNorm(WIDTH), Gpt2Mlp()

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList(Gpt2Block() for _ in range(BLOCKS))
        self.ln_f = nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


class LlamaAttention(nn.Module):
    def __init__(self):
        super().__init__()
        size = WIDTH // HEADS * KV_HEADS
        self.q_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k_proj = nn.Linear(WIDTH, size, bias=False)
        self.v_proj = nn.Linear(WIDTH, size, bias=False)
        self.o_proj = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        rotate = HalvesRotary(0, x.shape[1], WIDTH // HEADS, 10000.0)
        q = rotate(heads(self.q_proj(x), HEADS))
        k = rotate(heads(self.k_proj(x), KV_HEADS)).repeat_interleave(HEADS // KV_HEADS, dim=1)
        v = heads(self.v_proj(x), KV_HEADS).repeat_interleave(HEADS // KV_HEADS, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class LlamaMlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up_proj = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down_proj = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.self_attn = nn.RMSNorm(WIDTH, eps=1e-5), LlamaAttention()
        self.post_attention_layernorm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.mlp = LlamaMlp()

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(LlamaBlock() for _ in range(BLOCKS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        for block in self.layers:
            x = block(x)
        return self.lm_head(self.norm(x))


def train(name, model, fields, loss_of, rate=RATE):
    """Trains a model and returns its arrays by their names in the file.

    `fields` has the samples of each step, and loss_of(model) returns the losses by name.
    """
    tensors = {f"{name}.first.{weight}": value.clone()
               for weight, value in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    steps = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        losses = loss_of(model)
        sum(losses.values()).backward()
        optimizer.step()
        steps.append({key: loss.detach() for key, loss in losses.items()})
    tensors |= {f"{name}.{key}": torch.stack([step[key] for step in steps]) for key in steps[0]}
    return tensors | {f"{name}.{key}": value for key, value in fields.items()}


def main():
    torch.set_num_threads(1)
    tensors = {}
    for name, make in (("gpt2", Gpt2), ("llama", Llama)):
        torch.manual_seed(1)
        model = make()
        tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1))

        def loss_of(model):
            logits = model(tokens[:, :-1])
            return {"losses": F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())}

        tensors |= train(name, model, {"tokens": tokens[:, :-1].to(torch.int32),
                                       "labels": tokens[:, 1:].to(torch.int32)}, loss_of)
    write(sys.argv[1], tensors, {})


if __name__ == "__main__":
    main()
