#!/usr/bin/env python3
"""Writes checkpoints of Hugging Face's transformers with their logits, and checks other ones.

hugging_face_test.cc reads the folder checkpoints/, which was made with transformers 5.24 and
PyTorch 2.15:

    python3 tests/models/gpt/hugging_face.py make tests/models/gpt/checkpoints

Checkpoints of random sizes, and those that the test writes, are checked in the same way:

    python3 tests/models/gpt/hugging_face.py random /tmp/random 20
    SLUICE_CHECKPOINTS=/tmp/random SLUICE_SAVED=/tmp/saved build/tests/models/hugging_face_test
    python3 tests/models/gpt/hugging_face.py check /tmp/saved
"""
import json
import os
import random
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig
from transformers import LlamaForCausalLM
from transformers.utils import logging

logging.set_verbosity_error()
TOLERANCE = 1e-5


def gpt2(**sizes):
    config = GPT2Config(**{"n_embd": 16, "n_head": 4, "n_layer": 2, "n_positions": 12,
                           "vocab_size": 11, "initializer_range": 0.3} | sizes,
                        bos_token_id=None, eos_token_id=None)
    return GPT2LMHeadModel(config)


def llama(**sizes):
    config = LlamaConfig(**{"hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
                            "num_hidden_layers": 2, "intermediate_size": 24, "vocab_size": 11,
                            "max_position_embeddings": 12, "initializer_range": 0.3} | sizes,
                         bos_token_id=None, eos_token_id=None)
    return LlamaForCausalLM(config)


def random_weights(model):
    """Norms and biases begin at 1 and 0, which would hide mistakes."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight += 0.3 * torch.randn_like(weight)
    return model.eval()


def logits_of(model, tokens):
    with torch.no_grad():
        return model(tokens.long()).logits


def add_logits(folder):
    """Writes the logits that transformers computes in float32."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    config = model.config
    tokens = torch.randint(config.vocab_size, (2, config.max_position_embeddings))
    save_file({"tokens": tokens.to(torch.int32), "logits": logits_of(model, tokens)},
              os.path.join(folder, "logits.safetensors"))


def save(model, folder, **options):
    model.save_pretrained(folder, **options)
    os.remove(os.path.join(folder, "generation_config.json"))
    add_logits(folder)


def make(folder):
    torch.manual_seed(1)
    save(random_weights(gpt2()), os.path.join(folder, "gpt2"))
    # The first checkpoints lack the prefix and have buffers.
    model = random_weights(gpt2(n_layer=1, n_inner=24, layer_norm_epsilon=1e-3)).half()
    tensors = {name: value.clone() for name, value in model.transformer.state_dict().items()}
    mask = torch.tril(torch.ones(12, 12)).reshape(1, 1, 12, 12)
    tensors |= {"h.0.attn.bias": mask, "h.0.attn.masked_bias": torch.tensor(-1e4)}
    path = os.path.join(folder, "gpt2_half")
    os.makedirs(path, exist_ok=True)
    model.config.save_pretrained(path)
    save_file(tensors, os.path.join(path, "model.safetensors"), {"format": "pt"})
    add_logits(path)
    rotary = {"rope_type": "default", "rope_theta": 5e5}
    save(random_weights(llama(rope_parameters=rotary)), os.path.join(folder, "llama"),
         max_shard_size="8KB")
    save(random_weights(llama(tie_word_embeddings=True, rms_norm_eps=1e-2, num_hidden_layers=1))
         .bfloat16(), os.path.join(folder, "llama_tied"))


def make_random(folder, count):
    torch.manual_seed(2)
    draw = random.Random(2)
    for i in range(count):
        heads, size = draw.choice([1, 2, 3, 4, 6, 8]), 2 * draw.randint(1, 8)
        layers, vocabulary, context = (draw.randint(1, 4), draw.randint(2, 300),
                                       draw.randint(1, 40))
        if i % 2 == 0:
            model = gpt2(n_embd=heads * size, n_head=heads, n_layer=layers, n_positions=context,
                         vocab_size=vocabulary, n_inner=draw.choice([None, 5, 70]))
        else:
            groups = draw.choice([g for g in range(1, heads + 1) if heads % g == 0])
            model = llama(hidden_size=heads * size, num_attention_heads=heads,
                          num_key_value_heads=groups, num_hidden_layers=layers,
                          intermediate_size=draw.randint(1, 90), vocab_size=vocabulary,
                          max_position_embeddings=context, rms_norm_eps=draw.choice([1e-6, 1e-5]),
                          tie_word_embeddings=draw.random() < 0.5,
                          rope_parameters={"rope_type": "default",
                                           "rope_theta": draw.choice([1e4, 5e5])})
        dtype = draw.choice([torch.float32, torch.float16, torch.bfloat16])
        save(random_weights(model).to(dtype), os.path.join(folder, f"{i}"),
             max_shard_size=draw.choice(["20KB", "5GB"]))


def check(folder):
    """Compares the stored logits of all checkpoints in a folder with those of transformers."""
    worst, faults, count = 0.0, 0, 0
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        stored = load_file(os.path.join(path, "logits.safetensors"))
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        strict = AutoModelForCausalLM.from_config(model.config).eval()
        strict.load_state_dict(load_file(os.path.join(path, "model.safetensors")), strict=True)
        for kind in (model, strict):
            want = logits_of(kind, stored["tokens"])
            difference = ((want - stored["logits"]).abs().max() / want.abs().max()).item()
            worst = max(worst, difference)
            faults += not difference <= TOLERANCE
        count += 1
    print(json.dumps({"checkpoints": count, "largest_difference": worst, "faults": faults}))
    return 1 if faults or not count else 0


def main():
    action, folder = sys.argv[1:3]
    if action == "check":
        return check(folder)
    if action == "random":
        return make_random(folder, int(sys.argv[3]))
    return make(folder)


if __name__ == "__main__":
    sys.exit(main())
