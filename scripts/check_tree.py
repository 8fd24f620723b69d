#!/usr/bin/env python3
"""Checks the tree: the lengths of files, functions, folders, lines and promises, the first words of
comments, names of types and bounds, marks of unfinished work, and paths of one machine.

check_tree.py [ROOT]   prints a line for each fault and exits with 1 if there is one.
"""

import collections
import re
import sys
from pathlib import Path

from comments import comments, language_of
from cpp_functions import TOKEN, functions
from project_files import project_files, read_lines

MAX_LINES = 600  # Lines of a file.
MAX_FUNCTION_LINES = 80  # Lines from the begin of the signature to the closing brace.
MAX_FILES = 30  # Files in a folder, without its subfolders.
MAX_COLUMNS = 100  # Characters of a line.
MAX_PROMISE_WORDS = 25  # Words of a promise.
PROMISES = "docs/status.md"  # Its tables list promises in their first column.
CHECK_MARKDOWN = True  # Whether the lines of Markdown files are checked too.
# Folders with other limits. `ops` has no limit, because each operator is a set of files. The other
# folders must not grow.
FOLDER_LIMITS = {
    "src/sluice/ops": None,
    "src/sluice/base": 39,
    "src/sluice/ir": 33,
    "src/sluice/runtime": 32,
    "src/sluice/nn": 36,
    "src/sluice/transforms": 32,
}
SOURCES = (".cc", ".h", ".cu", ".py", ".sh", ".cmake", ".cmake.in", "CMakeLists.txt")

# A comment begins with its subject or verb, not with one of these words.
FIRST_WORDS = re.compile(
    r"(Of|What|Who|Those|Nobody|None|The same|Such|That of|By(?= [^.:]*: ))\b")
# Lines of these files may be long inside raw string literals: they are texts that a test expects.
EXPECTED_TEXT = re.compile(r"_test\.cc$|(^|/)test_\w+\.cc$")
# A program writes the lines of these files: tools/op_reference.cc.
WRITTEN = ("docs/operators.md",)

# (fault, pattern, suffixes of the files to search; None for all files). The brackets in a pattern
# keep it from matching itself.
PATTERNS = [
    ("an unfinished mark", re.compile(r"\b(T[O]DO|F[I]XME|X[X]X|H[A]CK)\b"),
     (*SOURCES, ".md", ".txt")),
    ("a path of one machine", re.compile(r"(^|[^\w./$}-])/(work|farm|root|home|Users)/\w"), None),
    ("a path to standard error beside sys::write_stderr",
     re.compile(r"\b(print|fputs|fwrite|f?printf)\(.*\bstd[e]rr\b|std::c[e]rr\b"), (".cc", ".h")),
    ("a type whose name does not say which, such as",
     re.compile(r"\b(struct|class|enum class) (Place|Part|Row|Kind|Form|Content)\b(?! [a-z])"),
     (".cc", ".h")),
    ("a bound that is not called max or min", re.compile(r"\bk(Most|Least)([A-Z]|\b)"),
     (".cc", ".h")),
    ("a test that never runs", re.compile(r"\bDISABLED_\w"), (".cc",)),
]

# The number of a device address, and the folders of the devices that know what it means.
DEVICE_NUMBER = re.compile(r"\b(of|in)_device\(")
DEVICE_FOLDERS = ("src/sluice/cpu/", "tests/opaque/")
DEVICE_ADDRESS = "src/sluice/runtime/device_address.h"


def check(root):
    """Returns the faults of the tree as "file:line: text"."""
    faults = []
    files = collections.Counter()
    for path in project_files(root):
        name = path.as_posix()
        files[path.parent.as_posix()] += 1
        lines = read_lines(root, path)
        if name.endswith(SOURCES) and len(lines) > MAX_LINES:
            faults.append(f"{name}:{len(lines)}: longer than {MAX_LINES} lines")
        if name.endswith((".cc", ".h")):
            faults += check_functions(name, lines)
        if language_of(name, lines) and not name.startswith(WRITTEN):
            faults += check_columns(name, lines)
            faults += check_first_words(name, lines)
        if CHECK_MARKDOWN and name.endswith(".md") and not name.startswith(WRITTEN):
            faults += check_columns(name, prose_lines(lines))
        if name == PROMISES:
            faults += check_promises(name, lines)
        patterns = list(PATTERNS)
        if not name.startswith(DEVICE_FOLDERS) and name != DEVICE_ADDRESS:
            patterns.append(("a device address outside its device", DEVICE_NUMBER, (".h", ".cc")))
        for what, pattern, endings in patterns:
            if endings is not None and not name.endswith(endings):
                continue
            for number, line in enumerate(lines, 1):
                match = pattern.search(line)
                if match:
                    faults.append(f"{name}:{number}: {what}: {match[0].strip()}")
    for folder, count in sorted(files.items()):
        limit = FOLDER_LIMITS.get(folder, MAX_FILES)
        if limit is not None and count > limit:
            faults.append(f"{folder}:1: {count} files side by side, more than {limit}")
    return faults


def check_functions(name, lines):
    """Returns the faults of the functions of one C++ file."""
    try:
        found = list(functions("\n".join(lines)))
    except ValueError as error:
        return [f"{name}:1: functions cannot be measured: {error}"]
    return [f"{name}:{first}: a function of {last - first + 1} lines, more than "
            f"{MAX_FUNCTION_LINES}: {head}"
            for first, last, head in found if last - first + 1 > MAX_FUNCTION_LINES]


def check_columns(name, lines):
    """Returns the faults of lines that are too long."""
    long = [number for number, line in enumerate(lines, 1) if len(line) > MAX_COLUMNS]
    if long and EXPECTED_TEXT.search(name):
        expected = raw_string_lines("\n".join(lines))
        long = [number for number in long if number not in expected]
    return [f"{name}:{number}: a line of {len(lines[number - 1])} columns, more than {MAX_COLUMNS}"
            for number in long]


def check_promises(name, lines):
    """Returns the faults of promises that are too long to be one sentence."""
    counts = [(number, len(line[2:].split(" | ")[0].split()))
              for number, line in enumerate(lines, 1) if line.startswith("| ")]
    return [f"{name}:{number}: a promise of {count} words, more than {MAX_PROMISE_WORDS}"
            for number, count in counts if count > MAX_PROMISE_WORDS]


def prose_lines(lines):
    """Returns a Markdown file's lines with empty lines for tables, code blocks and lines with a
    URL, which cannot be wrapped."""
    prose, fence = [], None
    for line in lines:
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark and fence in (None, mark[1]):
            fence = mark[1] if fence is None else None
        is_fixed = fence or mark or line.lstrip().startswith("|") or "://" in line
        prose.append("" if is_fixed else line)
    return prose


def raw_string_lines(text):
    """Returns the numbers of the lines with a part of a raw string literal."""
    numbers, line = set(), 1
    for match in TOKEN.finditer(text):
        last = line + match[0].count("\n")
        if match[0].startswith('R"'):
            numbers |= set(range(line, last + 1))
        line = last
    return numbers


def check_first_words(name, lines):
    """Returns the faults of comments that begin with a word of FIRST_WORDS."""
    try:
        return [f"{name}:{number}: a comment must not begin with '{match[0]}': {text[0]}"
                for number, text in comments(name, lines) if (match := FIRST_WORDS.match(text[0]))]
    except (SyntaxError, ValueError) as error:
        return [f"{name}:1: comments cannot be read: {error}"]


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    faults = check(root)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
