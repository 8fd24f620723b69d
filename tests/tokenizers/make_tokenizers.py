#!/usr/bin/env python3
"""Trains small tokenizers with Hugging Face's tokenizers, and stores the ids of difficult texts.

Writes the files of this folder, which src/sluice/data/text/tokenizer_files_test.cc reads. They were
made with tokenizers 0.23.3 and the text of tiny Shakespeare:

    pip install tokenizers
    python3 tests/tokenizers/make_tokenizers.py tinyshakespeare/input.txt

A line of cases.tsv has the name of a tokenizer, a text, its ids and their decoded text, separated
by tabs. A byte that is not a printable character of ASCII, and a backslash, is written as \\xNN.
"""
import json
import sys
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer

FOLDER = Path(__file__).resolve().parent
LLAMA3_WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
                r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEXTS = [
    "", " ", "  ", "\n", "a", "Hello world", " Hello  world ",
    "But, soft! what light\n\nbreaks?\n", "it's I'M WE'LL they'Re 'tis ſ'ſ",
    "123 4567 12345678 ½ ² ٣٤ Ⅷ", "tab\t\tand\r\nline\r\r\n\n  \n x",
    "naïve café e\u0301a\u0308 Z\u0351\u036b\u0343", "日本語テキスト 中文，标点。 한국어",
    "мир שלום हिन्दी", "😀👩‍👩‍👧‍👦🏳️‍🌈 𝔘𐍈", "\u00a0nbsp\u2003em\u3000ideo\u200bzero\ufeff",
    "\x00\x01\x7f\x85", "<|endoftext|>", "a<|endoftext|>b <|begin_of_text|><|end_of_text|>\n",
    "<s>x</s> <unk> <0x41>", "▁a ▁▁ b", "   many     spaces     ", "\n\n\n\n", "x" * 40,
    "the the the the the the the the the", "!?!?... ,,; --- ###", "f_(x)=>{y[1]++;}",
    "x <mask> y", "a [right]  b", "a <mask><mask>  [right]",
]


def added(token_id, content, **flags):
    return {"id": token_id, "content": content, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False, "special": True, **flags}


def train(tokenizer, data, special, size, alphabet=()):
    tokenizer.train([data], BpeTrainer(vocab_size=size, special_tokens=special,
                                       initial_alphabet=list(alphabet), show_progress=False))


def gpt2(data):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    train(tokenizer, data, ["<|endoftext|>"], 400, pre_tokenizers.ByteLevel.alphabet())
    tokenizer.model.save(str(FOLDER), "gpt2")
    return tokenizer


def gpt2_added(data):
    """GPT-2's tokens with more added tokens, which cover white space around them."""
    whole = json.loads(gpt2(data).to_str())
    whole["added_tokens"] += [added(400, "<mask>", lstrip=True),
                              added(401, "[right]", rstrip=True, special=False, normalized=True)]
    return Tokenizer.from_str(json.dumps(whole))


def llama3(data):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3_WORDS), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    begin = "<|begin_of_text|>"
    train(tokenizer, data, [begin, "<|end_of_text|>"], 380, pre_tokenizers.ByteLevel.alphabet())
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=f"{begin} $A", pair=f"{begin} $A $B",
                                      special_tokens=[(begin, tokenizer.token_to_id(begin))])])
    return tokenizer


def llama2(data):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"),
                                                 normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                           decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    train(tokenizer, data, ["<unk>", "<s>", "</s>", *bytes_], 500)
    tokenizer.pre_tokenizer = None  # Only the training cuts words.
    whole = json.loads(tokenizer.to_str())
    whole["added_tokens"] = [t for t in whole["added_tokens"] if t["content"] not in bytes_]
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)])
    return tokenizer


def escaped(text):
    return "".join(chr(b) if 32 <= b < 127 and b != 92 else f"\\x{b:02x}" for b in text.encode())


def main():
    lines = []
    for make in (gpt2, gpt2_added, llama3, llama2):
        tokenizer = make(sys.argv[1])
        name = make.__name__
        if name != "gpt2":
            (FOLDER / f"{name}.json").write_text(tokenizer.to_str())
        for text in TEXTS:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            decoded = tokenizer.decode(ids, skip_special_tokens=False)
            lines.append("\t".join([name, escaped(text), " ".join(map(str, ids)),
                                    escaped(decoded)]))
    (FOLDER / "cases.tsv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
