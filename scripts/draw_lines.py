#!/usr/bin/env python3
"""Draws random comment and help lines, to judge how well they read.

usage: draw_lines.py SEED [N]

Prints N lines (default 60) as "file:line: text". The text is the whole comment, or, of a comment
with more than 60 words, the sentences that the drawn line has a part of. A trailing comment
follows its code in brackets. Help lines are the options in docs/cli.md. Equal seeds draw equal
lines from equal trees.
"""

import random
import re
import sys
from pathlib import Path

from comments import comments
from project_files import project_files, read_lines

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_LINES = 60
MAX_WORDS = 60  # Words of a comment that is printed as a whole.
# Comments for tools, not for readers.
SKIPPED = re.compile(r"namespace\b|NOLINT|noqa|pylint|shellcheck|clang-format|IWYU|-{2,}")
TABLE = re.compile(r"\S {2,}\S")  # Finds a line of a table.
LIST = re.compile(r"[-*|] ")  # Begins an item of a list.
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[\"'`(A-Z0-9])")
OPTION = re.compile(r"^  --\S+")
HELP_INDENT = " " * 26  # Begins the other lines of an option.


def is_sentence(line):
    """Whether a line of a comment is not empty and not part of a table."""
    return line and not TABLE.search(line)


def sentences_of(text, index):
    """Returns the sentences of a comment that line `index` has a part of.

    Empty lines, tables and lists also end a sentence.
    """
    if TABLE.search(text[index]):
        return " ".join(text[index].split())
    first = last = index
    while first > 0 and not LIST.match(text[first]) and is_sentence(text[first - 1]):
        first -= 1
    while last + 1 < len(text) and not LIST.match(text[last + 1]) and is_sentence(text[last + 1]):
        last += 1
    parts = [" ".join(line.split()) for line in text[first:last + 1]]
    if sum(len(part.split()) for part in parts) <= MAX_WORDS:
        return " ".join(parts)
    begin = len(" ".join(parts[:index - first])) + (index > first)
    end = begin + len(parts[index - first])
    joined, at, chosen = " ".join(parts), 0, []
    for sentence in SENTENCE_END.split(joined):
        at = joined.index(sentence, at)
        if at < end and at + len(sentence) > begin:
            chosen.append(sentence)
        at += len(sentence)
    return " ".join(chosen)


def code_before(line):
    """Returns the code before a trailing comment, or an empty text."""
    code = re.split(r"\s+(?://|#)", line, maxsplit=1)[0].strip()
    return f"[{code}] " if code and not code.startswith(("//", "#", '"""')) else ""


def comment_lines(root):
    """Yields (file, line, text) of each comment line of the tree."""
    for path in project_files(root):
        lines = read_lines(root, path)
        for first, text in comments(path.as_posix(), lines):
            for index, line in enumerate(text):
                if not re.search(r"\w\w", line) or SKIPPED.match(line):
                    continue
                code = code_before(lines[first - 1]) if index == 0 else ""
                yield path.as_posix(), first + index, code + sentences_of(text, index)


def help_lines(root):
    """Yields (file, line, text) of each option in docs/cli.md."""
    path = Path("docs/cli.md")
    lines = read_lines(root, path) if (Path(root) / path).is_file() else []
    for number, line in enumerate(lines, 1):
        if not OPTION.match(line):
            continue
        words = line.split()
        for more in lines[number:]:
            if not more.startswith(HELP_INDENT):
                break
            words += more.split()
        yield path.as_posix(), number, " ".join(words)


def draw(root, seed, count):
    """Returns `count` different texts as "file:line: text", drawn by `seed`."""
    found = [*comment_lines(root), *help_lines(root)]
    random.Random(seed).shuffle(found)
    drawn = {}
    for name, line, text in found:
        if len(drawn) < count:
            drawn.setdefault(text, f"{name}:{line}: {text}")
    return list(drawn.values())


def main():
    arguments = sys.argv[1:]
    if not 1 <= len(arguments) <= 2 or not all(a.isdigit() for a in arguments):
        print("usage: draw_lines.py SEED [N]", file=sys.stderr)
        return 2
    count = int(arguments[1]) if len(arguments) > 1 else DEFAULT_LINES
    for line in draw(ROOT, int(arguments[0]), count):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
