#!/usr/bin/env python3
"""Checks what rots unseen: files that grew too long, marks for unfinished work, paths of one machine.

check_tree.py [ROOT]   prints a line for each fault, exits with 1 if there is one.
"""

import re
import sys
from pathlib import Path

from project_files import project_files, read_lines

MAX_LINES = 600
SOURCES = (".cc", ".h", ".cu", ".py", ".sh", ".cmake", ".cmake.in", "CMakeLists.txt")

# (what, pattern, endings of the files it is looked for in; None: all). Letters in brackets keep this file clean.
PATTERNS = [
    ("an unfinished mark", re.compile(r"\b(T[O]DO|F[I]XME|X[X]X|H[A]CK)\b"), (*SOURCES, ".md", ".txt")),
    ("a path of one machine", re.compile(r"(^|[^\w./$}-])/(work|farm|root|home|Users)/\w"), None),
    ("a path to standard error beside sys::write_stderr",
     re.compile(r"\b(print|fputs|fwrite|f?printf)\(.*\bstd[e]rr\b|std::c[e]rr\b"), (".cc", ".h")),
    ("a test that never runs", re.compile(r"\bDISABLED_\w"), (".cc",)),
]


def check(root):
    """Faults as "file:line: text"."""
    faults = []
    for path in project_files(root):
        name = path.as_posix()
        lines = read_lines(root, path)
        if name.endswith(SOURCES) and len(lines) > MAX_LINES:
            faults.append(f"{name}:{len(lines)}: longer than {MAX_LINES} lines")
        for what, pattern, endings in PATTERNS:
            if endings is not None and not name.endswith(endings):
                continue
            for number, line in enumerate(lines, 1):
                match = pattern.search(line)
                if match:
                    faults.append(f"{name}:{number}: {what}: {match[0].strip()}")
    return faults


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    faults = check(root)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
