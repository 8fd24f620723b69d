"""Writes sluice/ops/_operators.py: a function for each operator of the library.

write_operators.py PACKAGE   PACKAGE is the folder of the built package `sluice`. Names, operands,
options with their types and defaults, and docstrings come from the definitions in _core. Functions
without a definition, or with other arguments than their definition, are those of _core.composites.
"""

import ast
import importlib.util
import keyword
import math
import re
import sys
import textwrap
from pathlib import Path

HEADER = '''"""Written by python/generate/write_operators.py from the library's definitions."""

from typing import Any, List, Literal, Optional, Sequence, Tuple, Union

from sluice._core import Tensor, composites, dtype, emit

Ints = Union[int, Sequence[int]]
Bounds = Union[None, int, Sequence[Optional[int]]]
Hyper = Union[Tensor, float]
Operand = Union[Tensor, float, Sequence[Any], Any]
'''

TYPES = {bool: "bool", int: "int", float: "float", str: "str", list: "Ints"}


def load_core(package):
    """Imports the extension module alone: the package is not complete yet."""
    path = next(Path(package).glob("_core.*.so"))
    spec = importlib.util.spec_from_file_location("sluice._core", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def option_text(option, dtype):
    """Returns "axis: int = 0"."""
    name, default = option["name"], option["default"]
    if option["words"]:
        words = ", ".join(repr(word) for word in option["words"].split(","))
        kind, text = f"Literal[{words}]", repr(default)
    elif isinstance(default, dtype):
        kind, text = "Any", f"dtype.{default.name}"
    elif isinstance(default, list):
        kind, text = "Ints", repr(tuple(default))
    elif isinstance(default, float) and not math.isfinite(default):
        kind, text = "float", f'float("{default}")'
    else:
        kind, text = TYPES[type(default)], repr(default)
    return f"{name}: {kind}" if option["required"] else f"{name}: {kind} = {text}"


def wrap(text, indent):
    """Returns the lines of a paragraph of a docstring; all but the first have the indent."""
    return textwrap.wrap(text, 92, subsequent_indent=indent, break_on_hyphens=False)


def docstring(doc, parameters=()):
    """Returns a docstring: a description, a line for each constraint and for each parameter."""
    text, *constraints = re.split(r"(?=\(C\d+\))", doc)
    lines = []
    for paragraph in text.strip().split("\n"):
        # "axis: Axis to sort along." has a hanging indent.
        indent = "    " if re.match(r"\w+: ", paragraph) else ""
        lines += wrap(paragraph, indent) or [""]
    for constraint in constraints:
        lines += wrap(constraint.strip(), "     ")
    if parameters:
        lines.append("")
    for name, text in parameters:
        lines += wrap(f"{name}: {text}", "    ")
    body = "\n".join("    " + line if line else "" for line in lines).lstrip()
    body = body.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    if body.endswith('"'):
        body += " "
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
    names = [option["name"] for option in op["options"]]
    taken = {"name", *keyword.kwlist, *names}
    inputs = [i + "_" if i in taken else i for i in op["inputs"]]
    operands = [f"{i}: Operand" for i in inputs]
    values = ", ".join(inputs)
    if op["variadic"]:
        operands[-1] = f"*{inputs[-1]}: Operand"
        values = ", ".join([*inputs[:-1], "*" + inputs[-1]])
    # Parameters without a default come first.
    options = [option_text(option, dtype)
               for option in sorted(op["options"], key=lambda option: not option["required"])]
    last = ["name: str = ''"] if op["variadic"] else ["*", "name: str = ''"]
    result = "Tensor" if len(op["outputs"]) == 1 else "Tuple[Tensor, ...]"
    given = "".join(f"{name}, " for name in names).strip()
    head = signature(f"def {op['name']}(", [*operands, *options, *last], f") -> {result}:")
    docs = [(option["name"], option["doc"]) for option in op["options"] if option["doc"]]
    call = signature("    return emit(",
                     [str(index), f"({values},)", *f"({given})".split(", "), "name"], ")")
    return "\n".join([head, docstring(op["doc"], docs), call])


def composite(name, bound):
    """Returns the source of a function that calls one of _core.composites."""
    text, doc, *_ = bound.__nb_signature__[0]
    parsed = ast.parse(text + ": pass").body[0]
    defaults = [None] * (len(parsed.args.args) - len(parsed.args.defaults)) + parsed.args.defaults
    parameters = []
    for argument, default in zip(parsed.args.args, defaults):
        parameter = f"{argument.arg}: {ast.unparse(argument.annotation)}"
        parameters.append(parameter if default is None else
                          f"{parameter} = {ast.unparse(default)}")
    head = signature(f"def {name}(", parameters, f") -> {ast.unparse(parsed.returns)}:")
    call = signature(f"    return composites.{name}(",
                     [argument.arg for argument in parsed.args.args] or [""], ")")
    return "\n".join([head, docstring(doc), call])


def main(package):
    """Writes the file into the package."""
    core = load_core(package)
    composites = {name: bound for name, bound in vars(core.composites).items()
                  if hasattr(bound, "__nb_signature__")}
    functions = {op["name"]: function(i, op, core.dtype)
                 for i, op in enumerate(core.operators())
                 if op["public"] and op["name"] not in composites}
    functions.update((name, composite(name, bound)) for name, bound in composites.items())
    names = "__all__ = [\n" + "".join(f'    "{name}",\n' for name in sorted(functions)) + "]"
    text = HEADER + "\n\n" + "\n\n\n".join([*functions.values(), names]) + "\n"
    path = Path(package) / "ops" / "_operators.py"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
