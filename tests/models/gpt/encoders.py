#!/usr/bin/env python3
"""Trains BERT and ViT of Hugging Face's transformers and writes their first weights and losses.

encoders_test.cc reads encoders.safetensors, which was made with transformers 5.24 and PyTorch 2.15:

    python3 tests/models/gpt/encoders.py tests/models/gpt/encoders.safetensors

The names of the weights are those of checkpoints, without second names of tied weights.
"""
import os
import sys
import tempfile

import torch
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers import BertConfig, BertForPreTraining, ViTConfig, ViTForImageClassification
from transformers.utils import logging

sys.path.insert(0, os.path.dirname(__file__))
from gpt import train, write  # noqa: E402

logging.set_verbosity_error()
SIZES = {"hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2,
         "intermediate_size": 40, "initializer_range": 0.15, "hidden_dropout_prob": 0.0,
         "attention_probs_dropout_prob": 0.0}
CONTEXT, VOCABULARY, BATCH = 12, 11, 3
# At higher rates, rounding grows: losses in float32 and float64 differ by up to 3e-3.
RATE = 0.001


def prepared(model):
    """Norms and biases begin at 1 and 0, which would hide mistakes."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight += 0.2 * torch.randn_like(weight)
    return model.train()


def train_with_names_of_files(name, model, fields, loss_of):
    """Trains a model, and replaces the names of its first weights by those of a checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        first = load_file(os.path.join(folder, "model.safetensors"))
    tensors = train(name, model, fields, loss_of, RATE)
    kept = {key: value for key, value in tensors.items() if not key.startswith(f"{name}.first.")}
    return kept | {f"{name}.first.{key}": value for key, value in first.items()}


def bert():
    model = prepared(BertForPreTraining(BertConfig(
        **SIZES, vocab_size=VOCABULARY, max_position_embeddings=CONTEXT)))
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT))
    lengths = torch.tensor([CONTEXT, CONTEXT - 3, CONTEXT - 5])
    mask = (torch.arange(CONTEXT) < lengths[:, None]).long()
    tokens = tokens * mask
    segments = (torch.arange(CONTEXT) >= 5).long().expand(BATCH, -1) * mask
    predicted = (torch.rand(BATCH, CONTEXT) < 0.3) & (mask == 1)
    labels = torch.where(predicted, torch.randint(VOCABULARY, (BATCH, CONTEXT)), -100)
    following = torch.tensor([0, 1, 1])
    fields = {"tokens": tokens, "segments": segments, "mask": mask, "labels": labels,
              "next": following}

    def loss_of(model):
        inputs = {"input_ids": tokens, "token_type_ids": segments, "attention_mask": mask}
        out = model(**inputs)
        losses = {"losses.token": F.cross_entropy(out.prediction_logits.flatten(0, 1),
                                                  labels.flatten()),
                  "losses.next": F.cross_entropy(out.seq_relationship_logits, following)}
        both = model(**inputs, labels=labels, next_sentence_label=following).loss
        assert torch.allclose(both, sum(losses.values()), atol=1e-6)
        return losses

    fields = {key: value.to(torch.int32).contiguous() for key, value in fields.items()}
    return train_with_names_of_files("bert", model, fields, loss_of)


def vit():
    model = prepared(ViTForImageClassification(ViTConfig(
        **SIZES, image_size=(8, 12), patch_size=4, num_channels=2, num_labels=5)))
    images, labels = torch.randn(BATCH, 2, 8, 12), torch.tensor([4, 0, 2])

    def loss_of(model):
        return {"losses": F.cross_entropy(model(images).logits, labels)}

    return train_with_names_of_files("vit", model, {"input": images,
                                                    "labels": labels.to(torch.int32)}, loss_of)


def main():
    torch.set_num_threads(1)
    tensors = {}
    for make in (bert, vit):
        torch.manual_seed(1)
        tensors |= make()
    write(sys.argv[1], tensors, {})


if __name__ == "__main__":
    main()
