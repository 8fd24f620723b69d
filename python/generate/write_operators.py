"""Writes sluice/ops/_operators.py: a function for each operator of the library.

write_operators.py PACKAGE   PACKAGE is the folder of the built package `sluice`. Names, operands,
options with their types and defaults, and docstrings come from the definitions in _core.
"""

import importlib.util
import keyword
import math
import re
import sys
import textwrap
from pathlib import Path

HEADER = '''"""Written by python/generate/write_operators.py from the library's definitions."""

from typing import Sequence, Tuple, Union

from sluice._core import Tensor, dtype, emit

Operand = Union[Tensor, float]
'''

TYPES = {bool: "bool", int: "int", float: "float", str: "str", list: "Sequence[int]"}


def load_core(package):
    """Imports the extension module alone: the package is not complete yet."""
    path = next(Path(package).glob("_core.*.so"))
    spec = importlib.util.spec_from_file_location("sluice._core", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def option_text(name, default, dtype):
    """Returns "axis: int = 0"."""
    if isinstance(default, dtype):
        return f"{name}: dtype = dtype.{default.name}"
    if isinstance(default, list):
        return f"{name}: Sequence[int] = {tuple(default)!r}"
    if isinstance(default, float) and not math.isfinite(default):
        return f'{name}: float = float("{default}")'
    return f"{name}: {TYPES[type(default)]} = {default!r}"


def docstring(doc):
    """Returns the docstring of an operator: its description, then a line for each constraint."""
    text, *constraints = re.split(r"(?=\(C\d+\))", doc)
    lines = textwrap.wrap(text.strip(), 92)
    for constraint in constraints:
        lines += textwrap.wrap(constraint.strip(), 92, subsequent_indent="     ")
    body = "\n    ".join(lines).replace("\\", "\\\\")
    return f'    """{body}\n    """' if len(lines) > 1 else f'    """{body}"""'


def signature(begin, parameters, end):
    """Returns a signature on one or more lines, which break between parameters."""
    lines = [begin]
    for i, parameter in enumerate(parameters):
        text = parameter + (end if i + 1 == len(parameters) else ",")
        if len(lines[-1]) + 1 + len(text) > 99 and lines[-1].strip():
            lines.append(" " * len(begin))
        lines[-1] += text if lines[-1][-1:] in "( " else " " + text
    return "\n".join(lines)


def function(index, op, dtype):
    """Returns the source of the function of one operator."""
    taken = {"name", *keyword.kwlist, *(name for name, _ in op["options"])}
    inputs = [i + "_" if i in taken else i for i in op["inputs"]]
    operands = [f"{i}: Operand" for i in inputs]
    values = ", ".join(inputs)
    if op["variadic"]:
        operands[-1] = f"*{inputs[-1]}: Operand"
        values = ", ".join([*inputs[:-1], "*" + inputs[-1]])
    else:
        operands.append("*")
    options = [option_text(name, default, dtype) for name, default in op["options"]]
    result = "Tensor" if len(op["outputs"]) == 1 else "Tuple[Tensor, ...]"
    names = "".join(f"{name}, " for name, _ in op["options"]).strip()
    head = signature(f"def {op['name']}(", [*operands, *options, 'name: str = ""'],
                     f") -> {result}:")
    return "\n".join([head, docstring(op["doc"]),
                      f"    return emit({index}, ({values},), ({names}), name)"])


def main(package):
    """Writes the file into the package."""
    core = load_core(package)
    operators = core.operators()
    functions = [function(i, op, core.dtype) for i, op in enumerate(operators)]
    names = "__all__ = [\n" + "".join(f'    "{op["name"]}",\n' for op in operators) + "]"
    text = HEADER + "\n\n" + "\n\n\n".join([*functions, names]) + "\n"
    path = Path(package) / "ops" / "_operators.py"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
