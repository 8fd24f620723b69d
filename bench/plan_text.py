"""The canonical text of a plan: the text of `sluice plan --full` without its provenance.

The provenance of a plan is: its table of provenances and the rows of it that steps, stages and
values have, `where`, origin, memo, the fingerprint, roles and owners of variables, names of rows of
blocks, values of buffers, and the names of functions, parameters, values, constants, buffers of
frames and channels. Functions, values, channels, exits
and tokens are numbered by first use, functions in the order of a depth-first traversal of calls
from the programs. All other words stay, for example the names of variables, streams and remote
buffers.
"""

import re

STRING = r'"(?:[^"\\]|\\.)*"'
WORD = re.compile(rf'{STRING}|[^\s"]+')
VALUE = re.compile(r"%\d+")
CALLS = ("call", "loop", "then", "else", "function")
# Position of the name in a line that begins with this word.
NAMES = {"constant": 2, "function": 2, "channel": 2, "param": 2, "buffer": 1}


def without_provenance(line):
    """Returns a line without its comment, source location and name."""
    words = list(WORD.finditer(line))
    for at, word in enumerate(words):
        if word[0] == "#":
            line, words = line[:word.start()].rstrip(), words[:at]
            break
    labels = {"variable": ("of", "role"), "buffer": ("value",), "stage": ("provenance",)}
    if words[0][0].isdigit():  # A step.
        labels[words[0][0]] = ("provenance", "where", "origin")
    for label in labels.get(words[0][0], ()):
        if words[-2:-1] and words[-2][0] == label:
            line, words = line[:words[-2].start()].rstrip(), words[:-2]
    at = NAMES.get(words[0][0])
    if at is not None:
        line = line[:words[at].start()] + "_" + line[words[at].end():]
    return re.sub(rf" memo {STRING}", "", line) if words[0][0] == "function" else line


def read(text):
    """Returns the lines of the tables and of the programs, and of channels and functions by number.

    The lines are without provenance.
    """
    tables, channels, functions, programs = [], {}, {}, []
    part = tables
    for line in map(without_provenance, text.splitlines()):
        word, _, rest = line.partition(" ")
        number = rest.partition(" ")[0]
        if word == "channel":
            channels[number] = line
            continue
        if word == "function":
            part = functions[number] = []
        elif word == "program":
            part = programs
        if word not in ("value", "computes", "provenance", "rows_of_block"):
            part.append(line)
    return tables, programs, channels, functions


def references(line):
    """Returns the numbers in a line with the word before each."""
    words = WORD.findall(line)
    return [(before, word) for before, word in zip(words, words[1:]) if word.isdigit()]


def call_order(programs, functions):
    """Returns the numbers of functions by first use. Functions without a use come last."""
    order = {}

    def visit(lines):
        for line in lines:
            for before, number in references(line):
                if before in CALLS and number not in order:
                    order[number] = None
                    visit(functions[number][1:])

    visit(programs)
    return list(dict.fromkeys([*order, *functions]))


class Numbers:
    """Replaces numbers of one kind by small ones in the order of first use."""

    def __init__(self, known=()):
        self.known = {number: i for i, number in enumerate(known)}

    def __call__(self, old):
        return str(self.known.setdefault(old, len(self.known)))


class Renumbered:
    """Replaces the numbers of functions, values, channels, exits and tokens."""

    def __init__(self, order):
        self.values, channels = Numbers(), Numbers()
        self.numbers = {"send": channels, "receive": channels, "channel": channels,
                        "exit": Numbers(), **dict.fromkeys(CALLS, Numbers(order))}

    def lines(self, lines):
        """Returns the lines of one part of a plan. Numbers of tokens belong to the part."""
        return [self.line(line, {**self.numbers, "token": tokens})
                for tokens in [Numbers()] for line in lines]

    def line(self, line, numbers):
        before = ""

        def renumber(match):
            nonlocal before
            last, before = before, match[0]
            if match[0].isdigit() and last in numbers:
                return numbers[last](match[0])
            if match[0].startswith('"'):
                return match[0]
            return VALUE.sub(lambda value: "%" + self.values(value[0]), match[0])

        return WORD.sub(renumber, line)


def canonical(text):
    """Returns the canonical text of a plan."""
    tables, programs, channels, functions = read(text)
    order = call_order(programs, functions)
    renumbered = Renumbered(order)
    result = renumbered.lines(tables)
    for function in order:
        result += renumbered.lines(functions[function])
    result += renumbered.lines(programs)
    result += sorted(renumbered.lines(channels.values()), key=lambda line: int(line.split()[1]))
    return "\n".join(result)
