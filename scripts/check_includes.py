#!/usr/bin/env python3
"""Checks every #include of the project.

A layer may use only the layers below it. Only the files that wrap a vendor header include it.
Examples include installed headers only. Files, and folders, must not include each other in a
cycle, but a folder and its own subfolders may include each other.

check_includes.py [ROOT]   prints a line for each fault and exits with 1 if there is one.
"""

import fnmatch
import os
import re
import sys
from pathlib import Path

from project_files import project_files, read_lines

# Layer (folder of src/sluice) -> layers that it may include, together with their own layers.
LAYERS = {
    "base": [],
    "ir": ["base"],
    "ops": ["ir"],
    "interp": ["ops"],
    "transforms": ["ops"],
    "nn": ["transforms"],
    "planner": ["base"],
    "exe": ["base"],
    "check": ["exe"],
    "report": ["exe"],
    "target": ["ops"],
    "compiler": ["ops", "planner", "target", "exe"],
    "runtime": ["exe"],
    "comm": ["runtime"],
    "cpu": ["runtime", "target", "ops"],
    "data": ["base"],
    "session": ["compiler", "check", "report", "runtime"],
    "devices": ["session", "cpu"],
    "train": ["nn", "data", "session"],
    "models": ["train"],
}

# Other folder with sources -> folders of this table that it may include. These folders may include
# every layer, except that examples may include only installed headers.
USERS = {
    "bench": [],
    "tools": ["bench"],
    "tests": [],
    "examples": [],
    "python": [],
}

# Layers that tests may use too: they compare with the interpreter, run on devices and count with
# reports.
FOR_TESTS = ["interp", "devices", "report"]
# Headers outside src/ that tests in the folder of the code may include.
SUPPORT = "tests/support/"
TEST_FILE = re.compile(r"(^|_)test(s|_[a-z_]+)?\.(isa\.)?(cc|h)$|^test_")

# (Vendor header, files that may include it). Every file may include headers not listed here.
VENDORS = [
    (r"xxhash\.h", ["src/sluice/base/hash.cc"]),
    (r"nlohmann/.*", ["src/sluice/base/safetensors.cc", "src/sluice/data/table/schema_json.cc",
                       "src/sluice/data/text/tokenizer_files.cc",
                       "src/sluice/base/options/option_file.cc",
                       "src/sluice/models/hugging_face/*",
                       "src/sluice/report/compare.cc", "src/sluice/report/report_json.cc",
                       "src/sluice/report/forecast/rates.cc", "src/sluice/session/profile.cc",
                       "src/sluice/train/checkpoints/manifest.cc", "tools/json_record.cc",
                       "bench/table.cc"]),
    (r"CLI/.*|CLI11\.hpp", ["tools/flags/help.h"]),
    (r"zlib\.h", ["src/sluice/data/files/inflate.cc", "src/sluice/data/*test*"]),
    (r"pcre2\.h", ["src/sluice/data/text/regex.cc"]),
    (r"mpi\.h", ["src/sluice/comm/mpi*", "bench/mpi_reduce.cc"]),
    (r"[a-z]*intrin\.h", ["src/sluice/cpu/simd/*", "src/sluice/base/simd*.h",
                          "src/sluice/base/flush_to_zero.h", "bench/machine.cc"]),
    (r"g(test|mock)/.*", ["src/sluice/*test*", "tests/*"]),
]

# Headers that programs of users may include, and the headers that these include. The build
# generates one of them.
INSTALLED = "cmake/installed_headers.txt"
MAX_INSTALLED = 112
GENERATED = ["sluice/ops/ops.h"]

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")')
SOURCES = (".h", ".cc", ".cu", ".h.in", ".cc.in")


def closure(layers):
    """Returns layer -> the layer and all layers that it may include, directly or indirectly."""
    reach = {}

    def visit(layer, path):
        if layer in path:
            raise ValueError("the table of layers has a cycle: " + " -> ".join([*path, layer]))
        if layer not in reach:
            below = {layer}
            for lower in layers[layer]:
                below |= visit(lower, [*path, layer])
            reach[layer] = below
        return reach[layer]

    for layer in layers:
        visit(layer, [])
    return reach


def layer_of(path):
    """Returns the layer of a file or an include.

    None for the umbrella header and for files outside src/sluice.
    """
    parts = path.split("/")
    return parts[2] if parts[:2] == ["src", "sluice"] and len(parts) > 3 else None


def find_cycle(edges):
    """Returns the nodes of a cycle, or None. `edges`: node -> nodes."""
    done = set()
    for start in sorted(edges):
        path, iterators = [start], [iter(sorted(edges[start]))]
        while path and start not in done:
            following = next(iterators[-1], None)
            if following is None:
                done.add(path.pop())
                iterators.pop()
            elif following in path:
                return [*path[path.index(following):], following]
            elif following not in done:
                path.append(following)
                iterators.append(iter(sorted(edges.get(following, ()))))
    return None


def path_of(root, name, match):
    """Returns the project's file for an include: below src/, or, in quotes, next to the including
    file or below the root. None for a vendor header, "" if the file does not exist."""
    header = match[1] or match[2]
    if header.startswith("sluice/"):
        return "src/" + header
    if match[1] is not None:
        return None
    beside = os.path.normpath(os.path.join(os.path.dirname(name), header))
    for path in (beside, header):
        if (Path(root) / path).is_file():
            return path
    return ""


def check(root):
    """Returns the faults of all includes as "file:line: text"."""
    reach = closure(LAYERS)
    users = closure(USERS)
    installed = installed_headers(root)
    faults = check_installed(root, installed)
    file_edges, folder_edges = {}, {}
    for path in project_files(root, SOURCES):
        name = path.as_posix()
        layer = layer_of(name)
        user = name.split("/")[0]
        if layer is not None and layer not in LAYERS:
            faults.append(f"{name}:1: folder '{layer}' must be a layer of "
                          "scripts/check_includes.py")
            continue
        if user != "src" and user not in USERS:
            faults.append(f"{name}:1: folder '{user}' must be one of "
                          "scripts/check_includes.py")
            continue
        beside_code = user == "src" and TEST_FILE.search(path.name) is not None
        for number, line in enumerate(read_lines(root, path), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            header, place = match[1] or match[2], f"{name}:{number}"
            target = path_of(root, name, match)
            if target is not None and user == "src":
                faults += check_layers(layer, beside_code, header, place, reach)
            elif target is not None:
                faults += check_user(user, target, header, place, users, installed)
            if header in GENERATED or not header.startswith("sluice/"):
                pass
            elif name.removeprefix("src/") in installed and header not in installed:
                faults.append(f"{place}: an installed header includes {header}, which is not in "
                              f"{INSTALLED}")
            if target:
                file_edges.setdefault(name, set()).add(target)
                folder, used = os.path.dirname(name), os.path.dirname(target)
                if not beside_code and not nested(folder, used):
                    folder_edges.setdefault(folder, set()).add(used)
            for pattern, allowed in VENDORS:
                wraps = any(fnmatch.fnmatch(name, a) for a in allowed)
                if re.fullmatch(pattern, header) and not wraps:
                    faults.append(f"{place}: <{header}> belongs in {', '.join(allowed)} only")
    for kind, edges in (("files", file_edges), ("folders", folder_edges)):
        cycle = find_cycle(edges)
        if cycle:
            faults.append(f"{cycle[0]}:1: {kind} include each other: {' -> '.join(cycle)}")
    return faults


def nested(a, b):
    """Whether the folders are equal or one contains the other."""
    return (a + "/").startswith(b + "/") or (b + "/").startswith(a + "/")


def installed_headers(root):
    """Returns the installed headers as programs include them; empty if the list does not exist."""
    path = Path(root) / INSTALLED
    return path.read_text().split() if path.is_file() else []


def check_installed(root, headers):
    """Returns the faults of the list of installed headers."""
    faults = []
    if len(headers) > MAX_INSTALLED:
        faults.append(f"{INSTALLED}:1: at most {MAX_INSTALLED} headers may be installed, got "
                      f"{len(headers)}")
    if headers != sorted(set(headers)):
        faults.append(f"{INSTALLED}:1: the headers must be sorted and different")
    for line, header in enumerate(headers, 1):
        if header not in GENERATED and not (Path(root) / "src" / header).is_file():
            faults.append(f"{INSTALLED}:{line}: header {header} does not exist")
    return faults


def check_layers(layer, is_test, header, place, reach):
    """Returns the faults of one include in a file below src/."""
    if is_test and header.startswith(SUPPORT):
        return []
    if not header.startswith("sluice/"):
        return [f'{place}: "{header}" must be included from the root as "sluice/..."']
    if layer is None:
        return []  # The umbrella header includes everything.
    used = layer_of("src/" + header)
    if used is None:
        return [f"{place}: <{header}> is only for programs of users"]
    if used not in LAYERS:
        return [f"{place}: '{used}' must be a layer"]
    if used in reach[layer] or is_test and used in FOR_TESTS:
        return []
    return [f"{place}: '{layer}' may not include '{used}' ({header}); it may include: "
            f"{' '.join(sorted(reach[layer] - {layer})) or 'nothing'}"]


def check_user(user, target, header, place, users, installed):
    """Returns the faults of one include in a file outside src/."""
    if not target:
        return [f'{place}: file "{header}" does not exist']
    used = target.split("/")[0]
    if user == "examples" and used == "src" and installed and header not in installed:
        return [f"{place}: {header} is not installed ({INSTALLED})"]
    if used == "src" or used in users[user]:
        return []
    return [f"{place}: '{user}' may not include '{used}' ({header}); it may include: "
            f"{' '.join(['the layers', *sorted(users[user] - {user})])}"]


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    faults = check(root)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
