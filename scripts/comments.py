"""Finds the comments of source files: C++, Python, shell and CMake."""

import ast
import io
import re
import tokenize

from cpp_functions import TOKEN

CPP = (".cc", ".h", ".cu", ".cc.in", ".h.in")
HASH = (".sh", ".bash", ".cmake", ".cmake.in", "CMakeLists.txt")
MARK = re.compile(r"///<|///|//|#+ ?")


def language_of(name, lines):
    """Returns "c++", "python", "hash" (shell, CMake) or None for other files."""
    if name.endswith(CPP):
        return "c++"
    if name.endswith(".py"):
        return "python"
    if name.endswith(HASH):
        return "hash"
    is_script = "." not in name.rsplit("/", 1)[-1] and lines and lines[0].startswith("#!")
    return "hash" if is_script and "python" not in lines[0] else None


def comments(name, lines):
    """Yields (line, text) of each comment and docstring of a file, from line 1.

    Comment lines that follow each other in one column are one comment. Its text is a list of lines
    without their marks. Yields nothing for files of other languages.
    """
    language = language_of(name, lines)
    found = {"c++": cpp_comments, "python": python_comments, "hash": hash_comments, None: none}
    block = []  # (line, column, text) of the comment so far.
    for line, column, text, is_alone in found[language]("\n".join(lines) + "\n", lines):
        if block and is_alone and (line, column) == (block[-1][0] + 1, block[-1][1]):
            block.append((line, column, text))
            continue
        if block:
            yield block[0][0], [part[2] for part in block]
        block = [(line, column, text)]
    if block:
        yield block[0][0], [part[2] for part in block]
    if language == "python":
        yield from docstrings("\n".join(lines))


def none(text, lines):
    """Yields nothing."""
    return iter(())


def cpp_comments(text, lines):
    """Yields (line, column, text, whether it is alone on its line) of each `//` comment."""
    line, start = 1, 0
    for match in TOKEN.finditer(text):
        token = match[0]
        if token.startswith("//"):
            column = match.start() - start
            alone = not lines[line - 1][:column].strip()
            yield line, column, MARK.sub("", token, count=1).strip(), alone
        line += token.count("\n")
        if "\n" in token:
            start = match.start() + token.rindex("\n") + 1


def python_comments(text, lines):
    """Like cpp_comments() for the comments of a Python file."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            line, column = token.start
            alone = not lines[line - 1][:column].strip()
            yield line, column, MARK.sub("", token.string, count=1).strip(), alone


def hash_comments(text, lines):
    """Like cpp_comments() for the comments of a shell script or a CMake file.

    A `#` begins a comment at the begin of a line or after a space, outside of quotes.
    """
    for line, code in enumerate(lines, 1):
        quote, before = None, " "
        for column, c in enumerate(code):
            if quote:
                quote = None if c == quote and before != "\\" else quote
            elif c in "\"'":
                quote = c
            elif c == "#" and before.isspace() and not code.startswith("#!"):
                yield line, column, code[column:].lstrip("#").strip(), not code[:column].strip()
                break
            before = c


def docstrings(text):
    """Yields (line, text) of each docstring of a Python file, like comments()."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            doc = ast.get_docstring(node)
            if doc:
                yield node.body[0].lineno, doc.split("\n")
