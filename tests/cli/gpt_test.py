#!/usr/bin/env python3
"""Tests language models on the command line."""

import json
import math
import re
import shutil
import struct
import time
import unittest
from pathlib import Path

from cli_case import FolderTest

# Any text that repeats itself.
TEXT = "".join(f"the {size} {animal} sees the {animal}.\n" for size in ("old", "small", "grey")
               for animal in ("cat", "dog", "owl", "hörse")) * 12
RUN = ["gpt", "--blocks", 2, "--width", 32, "--context", 16]


def tensors(path):
    """Returns the number of axes and the bytes of each tensor in a safetensors file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    return {name: (len(t["shape"]), data[slice(*(8 + size + k for k in t["data_offsets"]))])
            for name, t in json.loads(data[8:8 + size]).items() if name != "__metadata__"}


class TextTest(FolderTest):
    def setUp(self):
        super().setUp()
        self.text = self.folder / "text.txt"
        self.text.write_text(TEXT)
        self.data = ["--dataset", f"text:{self.text}"]


class Gpt(TextTest):
    def test_a_text_is_learned_by_one_command(self):
        run = [*RUN, *self.data, "--steps", 150, "--lr", 0.01]
        result = self.expect_code(0, "train", *run)
        size, characters = len(TEXT), len(set(TEXT))
        tests = -(-size // 10)
        self.assertIn(f"{size - tests} tokens to train on, {tests} to test on, "
                      f"vocabulary {characters}", result.stderr)
        record = self.record("train", *run)
        self.assertLess(record["test_loss"], 0.8)
        self.assertGreater(record["accuracy"], 75)
        self.assertAlmostEqual(record["perplexity"], 2.718281828459045 ** record["test_loss"], 9)
        self.assertIn(f"test loss {record['test_loss']:.4f}, perplexity "
                      f"{record['perplexity']:.4f}, accuracy {record['accuracy']:.2f} %",
                      result.stdout)

    def test_strategies_have_one_digest(self):
        run = [*RUN, *self.data, "--steps", 3, "--accumulate", 2, "--dropout", 0.1]
        for arch in ("gpt2", "llama"):
            flags = [*run, "--arch", arch, "--kv-heads", 2]
            digest = self.record("train", *flags)["digest"]
            for strategy in (["phased"], ["pipelined", "--stages", 2], ["sharded", "--stages", 2]):
                other = self.record("train", *flags, "--strategy", *strategy, "--threads", 1)
                self.assertEqual(other["digest"], digest, (arch, strategy))

    def test_an_epoch_has_the_windows_that_do_not_overlap(self):
        tokens = len(TEXT) - -(-len(TEXT) // 10)
        record = self.record("train", *RUN, *self.data, "--epochs", 2, "--micro-batch", 5)
        self.assertEqual(record["steps"], 2 * ((tokens - 1) // 16 // 5))
        # The seed draws other windows for the same weights.
        self.record("train", *RUN, *self.data, "--steps", 1, "--save", self.weights)
        losses = [self.record("train", "gpt", *self.data, "--weights", self.weights, "--steps", 1,
                              "--seed", seed)["loss"] for seed in (1, 2, 1)]
        self.assertNotEqual(losses[0], losses[1])
        self.assertEqual(losses[0], losses[2])

    def test_weights_have_their_sizes_and_their_characters(self):
        self.record("train", *RUN, *self.data, "--arch", "llama", "--steps", 20, "--save",
                    self.weights)
        whole = self.record("eval", "gpt", "--weights", self.weights, *self.data, "--all")
        # A text with fewer characters has the tokens of the first.
        part = self.folder / "part.txt"
        part.write_text(TEXT[:200])
        record = self.record("eval", "gpt", "--weights", self.weights, "--dataset", f"text:{part}",
                             "--all")
        self.assertLess(record["test_loss"], whole["test_loss"] + 1)
        self.expect_error(2, "usage",
                          f"--blocks: must be 2, that of {self.weights}, got 3; leave it out",
                          "eval", "gpt", "--weights", self.weights, "--blocks", 3, *self.data)
        part.write_text("a cat, z\n" * 20)
        self.expect_error(3, "bad file", "','", "eval", "gpt", "--weights", self.weights,
                          "--dataset", f"text:{part}")

    def test_ids_of_16_bits_are_the_tokens_of_bytes(self):
        ids = self.folder / "ids.bin"
        ids.write_bytes(b"".join(struct.pack("<H", byte) for byte in TEXT.encode()))
        run = [*RUN, "--steps", 3]
        text = self.record("train", *run, *self.data, "--tokenizer", "bytes")
        tokens = self.record("train", *run, "--dataset", f"tokens:{ids}", "--vocab", 256)
        self.assertEqual(text["digest"], tokens["digest"])
        more = self.record("train", *run, *self.data, "--tokenizer", "bytes", "--vocab", 300)
        self.assertGreater(more["planned_bytes"], text["planned_bytes"])

    def test_coefficients_of_the_optimizer_change_the_run(self):
        run = ["train", *RUN, *self.data, "--steps", 6, "--lr", 0.01]
        digests = [self.record(*run, *flags)["digest"] for flags in (
            [], ["--beta1", 0.8], ["--beta2", 0.9], ["--weight-decay", 0.5],
            ["--weight-decay", 0], ["--lr-schedule", "cosine"],
            ["--lr-schedule", "cosine", "--min-lr", 0.005], ["--clip-norm", 0.1])]
        self.assertEqual(len(set(digests)), len(digests))
        default = self.record(*run, "--beta1", 0.9, "--beta2", 0.999)
        self.assertEqual(default["digest"], digests[0])

    def test_sizes_change_the_run(self):
        run = ["train", "gpt", "--synthetic", "--steps", 2, "--vocab", 256, "--blocks", 2,
               "--width", 32, "--context", 16, "--heads", 4]
        changes = [("--arch", "llama"), ("--kv-heads", 2), ("--dropout", 0.3)]
        changed = [[*run, *change] for change in changes]
        for flag, value in (("--vocab", 300), ("--blocks", 3), ("--width", 48), ("--context", 8),
                            ("--heads", 2)):
            at = run.index(flag) + 1
            changed.append([*run[:at], value, *run[at + 1:]])
        digests = {self.record(*flags)["digest"] for flags in [run, *changed]}
        self.assertEqual(len(digests), 1 + len(changed))

    def test_matrices_alone_decay(self):
        saved = []
        for rate in (0, 0.5):
            self.record("train", *RUN, *self.data, "--steps", 1, "--weight-decay", rate, "--save",
                        self.weights)
            saved.append(tensors(self.weights))
        weights = [name for name in saved[0] if name.endswith(("weight", "bias"))]
        differ = {name for name in weights if saved[0][name] != saved[1][name]}
        matrices = {name for name in weights if saved[0][name][0] > 1}
        self.assertEqual(differ, matrices)
        self.assertGreater(len(weights), len(matrices))

    def test_wrong_uses_are_one_error(self):
        ids = self.folder / "ids.bin"
        ids.write_bytes(struct.pack("<400H", *[7] * 370, 300, *[7] * 29))
        latin = self.folder / "latin.txt"
        latin.write_bytes(b"a" * 50 + b"\xff" + b"b" * 50)
        short = self.folder / "short.txt"
        short.write_text("short")
        brief = self.folder / "brief.txt"
        brief.write_text("the old cat sees " * 6)
        for code, kind, part, flags in (
            (2, "usage", "gpt: heads must divide the width, 32, got 3", ["--heads", 3]),
            (2, "usage", "gpt: kv_heads must divide the heads, 4, got 3", ["--kv-heads", 3]),
            (2, "usage", "--layers: gpt does not have this size", ["--layers", 2]),
            (2, "usage", "must be text:FILE or tokens:FILE for a language model, got 'csv:x'",
             ["--dataset", "csv:x"]),
            (2, "usage", "requires --vocab N or --tokenizer FILE", ["--dataset", f"tokens:{ids}"]),
            (3, "bad file", "token 370: must be in [0, 256), got 300",
             ["--dataset", f"tokens:{ids}", "--vocab", 256, "--epochs", 1]),
            (3, "bad file", "byte 50", ["--dataset", f"text:{latin}"]),
            (3, "bad file", f"{short}: training part: must have at least 17 tokens, context + 1, "
             "got 4 of the 5 tokens", ["--dataset", f"text:{short}"]),
            (3, "bad file", f"{short}: training part: must have at least 17 tokens",
             ["--dataset", f"text:{short}", "--vocab", 100]),
            (3, "bad file", f"{brief}: test part: must have at least 17 tokens, context + 1, got "
             "10 of the 102 tokens", ["--dataset", f"text:{brief}", "--validation", 0.1]),
            (2, "usage", "0 full batches: micro-batch 1000 = 1000, the training text has",
             [*self.data, "--micro-batch", 1000]),
            (2, "usage", "--tokenizer characters requires --dataset text:FILE",
             ["--dataset", f"tokens:{ids}", "--tokenizer", "characters"]),
            (2, "usage", "--vocab: must be at least", [*self.data, "--vocab", 5]),
            (2, "usage", "has no fields", [*self.data, "--input", "x"]),
            (2, "usage", "--tokenizer requires --dataset", ["--tokenizer", "bytes"]),
            (5, "input/output", "missing.json", [*self.data, "--tokenizer", "missing.json"]),
            (2, "usage", "--beta1 and --beta2 require --optimizer of adam, adamw",
             ["--optimizer", "sgd", "--beta1", 0.5]),
            (2, "usage", "--weight-decay requires --optimizer of",
             ["--optimizer", "adam-f16", "--weight-decay", 0.5]),
            (2, "usage", "--min-lr requires --lr-schedule linear, cosine, restarts,",
             ["--lr-schedule", "constant", "--min-lr", 0.5]),
            (2, "usage", "--min-lr: must be at most the learning rate, 0.001, got 0.5",
             ["--lr-schedule", "linear", "--min-lr", 0.5, *self.data, "--epochs", 1]),
        ):
            with self.subTest(flags=flags):
                self.expect_error(code, kind, part, "train", *RUN, *flags)
        self.expect_error(2, "usage", "width must be from 1 to", "train", "gpt", "--width", 2 ** 62)
        self.expect_error(2, "usage", "--tokenizer: mlp does not read text", "train", "mlp",
                          "--tokenizer", "bytes", "--dataset", "csv:x")
        self.expect_error(2, "usage", "gpt reads tokens and not a table", "predict", "gpt",
                          "--weights", "w", "--dataset", "csv:x", "--to", "x.csv")

    def test_a_trained_model_continues_a_text(self):
        self.record("train", *RUN, *self.data, "--steps", 400, "--lr", 0.01, "--lr-schedule",
                    "linear", "--save", self.weights)
        run = ["generate", "gpt", "--weights", self.weights, "--prompt", "the old"]
        likely = self.record(*run, "--temperature", 0)
        self.assertEqual((likely["prompt_tokens"], likely["tokens"]), (7, 9))
        self.assertEqual(likely["planned_bytes"], likely["measured_bytes"])
        self.assertIn("the old" + likely["text"], TEXT)
        printed = self.expect_code(0, *run, "--temperature", 0).stdout
        self.assertEqual(printed, "the old" + likely["text"] + "\n")
        drawn = {flags: self.record(*run, *flags)["text"] for flags in (
            ("--temperature", 3), ("--temperature", 3, "--seed", 1),
            ("--temperature", 3, "--top-k", 2), ("--temperature", 3, "--top-p", 0.3),
            ("--tokens", 4))}
        self.assertEqual(len(set(drawn.values())), len(drawn), drawn)
        one = self.record(*run, "--temperature", 3, "--threads", 1)
        self.assertEqual(one["text"], drawn["--temperature", 3])
        self.assertEqual(self.record(*run, "--temperature", 3, "--top-k", 1)["text"],
                         likely["text"])
        for code, kind, part, flags in (
            (2, "usage", "context", ["--tokens", 10]),
            (2, "usage", "'Q'", ["--prompt", "Q"]),
            (2, "usage", "prompt", ["--prompt", "the old cat sees the"]),
            (2, "usage", "--top-p: must be", ["--top-p", 1.5]),
            (4, "does not fit", "its budget is 1024", ["--memory", "1K"]),
            (2, "usage", "vocabulary of the model", ["--tokenizer", "bytes"]),
        ):
            with self.subTest(flags=flags):
                rest = run[:-2] if "--prompt" in flags else run
                self.expect_error(code, kind, part, *rest, *flags)
        other = self.folder / "other.safetensors"
        self.record("train", "mnist", "--synthetic", "--steps", 1, "--width", 8, "--save", other)
        self.expect_error(3, "bad file", "must have the sizes of a model", "generate", "gpt",
                          "--weights", other)

    def test_averages_continue_a_text(self):
        texts = {}
        for decay in (None, 0, 0.9999):
            flags = [] if decay is None else ["--ema-decay", decay]
            self.record("train", *RUN, *self.data, "--steps", 60, "--lr", 0.01, *flags, "--save",
                        self.weights)
            run = ["generate", "gpt", "--weights", self.weights, "--prompt", "the old"]
            texts[decay] = self.record(*run, "--temperature", 0)["text"]
        # With decay 0 they are the weights; with 0.9999, they are still near the first weights.
        self.assertEqual(texts[0], texts[None])
        self.assertNotEqual(texts[0.9999], texts[None])

    def test_text_is_whole_whatever_its_tokens_are(self):
        # The tokens of bytes are parts of characters; tokens of this file lose a leading space.
        llama = Path(__file__).resolve().parent.parent / "tokenizers/llama2.json"
        for tokenizer in ("bytes", llama):
            run = [*RUN, "--context", 64, *self.data, "--tokenizer", tokenizer, "--steps", 250,
                   "--lr", 0.01, "--save", self.weights]
            self.record("train", *[flag for k, flag in enumerate(run) if k not in (5, 6)])
            command = ["generate", "gpt", "--weights", self.weights, "--prompt",
                       "the small hörse", "--temperature", 0, "--tokens", 12]
            text = self.record(*command)["text"]
            words = ("the small hörse" + text).split()
            self.assertGreater(len(words), 4)
            self.assertLessEqual(set(words[:-1]), set(TEXT.split()))  # The last one may be cut.
            if tokenizer != "bytes":  # Their text may end in a part of a character.
                printed = self.expect_code(0, *command).stdout
                self.assertEqual(printed, f"the small hörse{text}\n")
            # Bytes that are no text.
            self.record(*command[:-4], "--temperature", 1000)

    def test_weights_keep_the_files_of_their_tokenizer(self):
        files = Path(__file__).resolve().parent.parent / "tokenizers"
        for name in ("vocab.json", "merges.txt"):
            (self.folder / name).write_bytes((files / f"gpt2-{name}").read_bytes())
        prompt = ["--prompt", "the small hörse", "--temperature", 0, "--tokens", 2]
        for tokenizer in (files / "llama2.json", self.folder / "vocab.json"):
            self.record("train", *RUN, *self.data, "--tokenizer", tokenizer, "--steps", 2,
                        "--save", self.weights)
            weights = ["gpt", "--weights", self.weights]
            for command in (["eval", *weights, *self.data], ["generate", *weights, *prompt]):
                same = [self.record(*command, *flags)
                        for flags in ([], ["--tokenizer", tokenizer])]
                keys = [key for key in ("test_loss", "text") if key in same[0]]
                self.assertEqual(*([r[key] for key in keys] for r in same))
            # Training continues with the tokens, and saves the tokenizer again.
            again = self.folder / "again.safetensors"
            self.record("train", *weights, *self.data, "--steps", 1, "--save", again)
            self.record("generate", "gpt", "--weights", again, *prompt)
            header = self.weights.read_bytes()
            key = b"sluice.tokenizer." + (b"json" if tokenizer.stem == "llama2" else b"merges")
            self.weights.write_bytes(header.replace(key, key[:-1] + b"_"))
            self.expect_error(3, "bad file", f"must have the metadata {key.decode()}", "generate",
                              *weights, *prompt)
        damaged = header.replace(b"#version", b"#ver  on")
        self.assertNotEqual(damaged, header)
        self.weights.write_bytes(damaged)
        self.expect_error(3, "bad file", f"{self.weights}: sluice.tokenizer: line 1", "generate",
                          *weights, *prompt)

    def test_weights_name_the_tokenizer_that_they_do_not_keep(self):
        small = Path(__file__).resolve().parent.parent / "tokenizers/llama2.json"
        large = self.folder / "large.json"
        with open(large, "wb") as file:
            file.write(small.read_bytes() + b" " * (16 << 20))
        self.record("train", *RUN, *self.data, "--tokenizer", large, "--steps", 1, "--save",
                    self.weights)
        self.assertLess(self.weights.stat().st_size, 1 << 20)
        weights = ["gpt", "--weights", self.weights]
        wanted = f"--tokenizer: must be {large}, the tokenizer of {self.weights}, got none"
        self.expect_error(2, "usage", wanted, "eval", *weights, *self.data)
        self.expect_error(2, "usage", wanted, "generate", *weights, "--prompt", "the")
        self.record("generate", *weights, "--prompt", "the", "--tokenizer", small, "--tokens", 1)
        ids = self.folder / "ids.bin"
        ids.write_bytes(struct.pack("<400H", *range(400)))
        self.record("train", *RUN, "--dataset", f"tokens:{ids}", "--vocab", 400, "--steps", 1,
                    "--save", self.weights)
        self.expect_error(2, "usage", "--tokenizer: must be the file whose ids", "generate",
                          *weights, "--prompt", "the")

    def test_shapes_are_compared_before_anything_is_compiled(self):
        self.record("train", *RUN, *self.data, "--steps", 1, "--save", self.weights)
        header = self.weights.read_bytes()
        vocabulary = str(len(set(TEXT)))
        for name, old, huge, part in (
                ("width", "32", 1 << 20, "must be ("), ("width", "32", 1 << 31, "exceeds 63 bits"),
                ("context", "16", 1 << 28, "must be ("), ("context", "16", 1 << 40, "the sizes of"),
                ("vocab", vocabulary, 1 << 28, "must be (")):
            size = f'"sluice.{name}":"{old}"'.encode()
            self.assertIn(size, header)
            new = size.replace(old.encode(), str(huge).encode())
            length = struct.unpack("<Q", header[:8])[0] + len(new) - len(size)
            self.weights.write_bytes(struct.pack("<Q", length) + header[8:].replace(size, new))
            begin = time.monotonic()
            error = self.expect_code(3, "generate", "gpt", "--weights", self.weights, "--prompt",
                                     "the").stderr
            self.assertRegex(error, rf"^error \(bad file\): {self.weights}: .*{re.escape(part)}")
            self.assertLess(time.monotonic() - begin, 5)

    def test_weights_of_characters_require_a_text(self):
        self.record("train", *RUN, *self.data, "--steps", 1, "--save", self.weights,
                    "--torch-save", self.folder / "torch.safetensors")
        self.expect_error(2, "usage", "require --dataset text:FILE", "eval", "gpt", "--weights",
                          self.weights, "--synthetic")
        same = ["eval", "gpt", *self.data]
        whole = self.record(*same, "--weights", self.weights)["test_loss"]
        for flags in (["--torch-weights", self.folder / "torch.safetensors"],
                      ["--weights", self.weights, "--tokenizer", "characters"]):
            self.assertEqual(self.record(*same, *flags)["test_loss"], whole)
        header = self.weights.read_bytes()
        for old, new, part in (
            (b'"sluice.blocks":"2"', b'"sluice.blocks":"0"', "sluice.blocks must be an integer"),
            (b'"sluice.blocks":"2"', b'"sluice.blocks":"9"', "'h.2."),
            (b'"sluice.heads":"4"', b'"sluice.heads":"5"', "heads must divide the width"),
            (b'"sluice.tokenizer":"char', b'"sluice.tokenizer":"chat', "sluice.tokenizer must be"),
        ):
            self.assertIn(old, header)
            self.weights.write_bytes(header.replace(old, new))
            self.expect_error(3, "bad file", part, "generate", "gpt", "--weights", self.weights,
                              "--prompt", "the")

    def test_a_checkpoint_of_hugging_face_continues_a_text(self):
        folder = Path(__file__).resolve().parent.parent / "models/gpt/checkpoints/llama"
        self.expect_error(2, "usage", "has no tokenizer", "generate", "gpt", "--weights", folder)
        # Tokens of one letter each.
        size = json.loads((folder / "config.json").read_text())["vocab_size"]
        vocabulary = {chr(ord("a") + i): i for i in range(size)}
        tokenizer = self.folder / "tokenizer.json"
        tokenizer.write_text(json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": None, "pre_tokenizer": None, "post_processor": None,
            "decoder": {"type": "Fuse"},
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}))
        record = self.record("generate", "gpt", "--weights", folder, "--tokenizer", tokenizer,
                             "--prompt", "abc", "--tokens", 3)
        self.assertEqual((record["prompt_tokens"], len(record["text"])), (3, 3))
        # Sizes are compared with the weights before anything is compiled.
        other = self.folder / "other"
        shutil.copytree(folder, other)
        config = json.loads((folder / "config.json").read_text())
        config["intermediate_size"] = 1 << 30
        (other / "config.json").write_text(json.dumps(config))
        begin = time.monotonic()
        self.expect_error(3, "bad file", "must be (1073741824, 16) of floating point", "generate",
                          "gpt", "--weights", other, "--tokenizer", tokenizer, "--prompt", "abc")
        self.assertLess(time.monotonic() - begin, 5)

    def test_a_model_trains_without_data(self):
        record = self.record("train", *RUN, "--synthetic", "--steps", 100)
        self.assertLess(record["test_loss"], 3)
        other = self.folder / "data"
        other.mkdir()
        (other / "input.txt").write_text(TEXT)
        found = self.expect_code(0, "train", *RUN, "--data", other, "--steps", 2)
        self.assertNotIn("generated", found.stderr)
        self.expect_error(3, "bad file", "must be in [0, 100), got", "train", *RUN, "--data", other,
                          "--vocab", 100, "--steps", 2)
        small = self.record("train", *RUN, "--synthetic", "--steps", 30, "--vocab", 30)
        self.assertLess(small["test_loss"], 3.5)
        self.expect_error(5, "input/output", "must contain input.txt", "train", *RUN, "--data",
                          self.folder)


class Bert(TextTest):
    RUN = ["bert", "--blocks", 2, "--width", 32, "--context", 24]

    def test_masked_tokens_of_a_text_are_learned(self):
        run = [*self.RUN, *self.data, "--steps", 1200, "--lr", 0.003, "--lr-schedule", "linear",
               "--warmup-steps", 100, "--save", self.weights]
        record = self.record("train", *run)
        self.assertEqual(record["accuracy/predicted"], record["accuracy"])
        # The most frequent character is a fifth of this text.
        self.assertGreater(record["accuracy"], 45)
        result = self.expect_code(0, "eval", "bert", "--weights", self.weights, *self.data)
        losses = [record[f"test_loss/{name}"] for name in ("token_loss", "next_loss")]
        self.assertAlmostEqual(sum(losses), record["test_loss"], 9)
        self.assertAlmostEqual(record["perplexity"], math.exp(losses[0]), 9)
        self.assertIn(f"test loss {record['test_loss']:.4f} (token_loss {losses[0]:.4f}, next_loss "
                      f"{losses[1]:.4f}), perplexity {record['perplexity']:.4f}, accuracy "
                      f"{record['accuracy']:.2f} % (predicted {record['accuracy']:.2f} %, "
                      f"next_logits {record['accuracy/next_logits']:.2f} %)\n",
                      result.stdout)

    def test_strategies_have_one_digest(self):
        run = ["train", *self.RUN, *self.data, "--steps", 3, "--accumulate", 2, "--dropout", 0.1]
        digests = {self.record(*run, *flags)["digest"] for flags in (
            [], ["--threads", 1], ["--strategy", "phased"],
            ["--strategy", "pipelined", "--stages", 2], ["--strategy", "sharded", "--stages", 2])}
        self.assertEqual(len(digests), 1)

    def test_sizes_and_seeds_change_the_run(self):
        run = ["train", *self.RUN, "--synthetic", "--steps", 2, "--heads", 4, "--vocab", 256]
        digests = [self.record(*run)["digest"]]
        for flag, value in (("--blocks", 3), ("--width", 48), ("--context", 16), ("--heads", 2),
                            ("--vocab", 300)):
            at = run.index(flag) + 1
            digests.append(self.record(*run[:at], value, *run[at + 1:])["digest"])
        digests.append(self.record(*run, "--dropout", 0.3)["digest"])
        self.record("train", *self.RUN, *self.data, "--steps", 1, "--save", self.weights)
        for seed in (1, 2):  # Other samples for equal weights.
            digests.append(self.record("train", "bert", *self.data, "--weights", self.weights,
                                       "--steps", 1, "--seed", seed)["digest"])
        self.assertEqual(len(set(digests)), len(digests))

    def test_wrong_uses_are_one_error(self):
        short = self.folder / "short.txt"
        short.write_text("short text")
        for code, kind, part, flags in (
            (2, "usage", "bert: heads must divide the width, 32, got 3", ["--heads", 3]),
            (2, "usage", "--arch: bert does not have this size", ["--arch", "llama"]),
            (3, "bad file", "must have at least 22 tokens, context - 2, got",
             ["--dataset", f"text:{short}"]),
            (2, "usage", "must be text:FILE or tokens:FILE", ["--dataset", "csv:x"]),
        ):
            with self.subTest(flags=flags):
                self.expect_error(code, kind, part, "train", *self.RUN, *flags)
        self.expect_error(2, "usage", "bert: context must be at least 5, got 4", "plan", "bert",
                          "--context", 4)
        self.expect_error(2, "usage", "bert reads tokens and not a table", "predict", "bert",
                          "--weights", "w", "--dataset", "csv:x", "--to", "x.csv")


if __name__ == "__main__":
    unittest.main()
