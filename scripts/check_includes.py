#!/usr/bin/env python3
"""Checks every #include of the project: a layer may use only the layers below it, vendor headers stay in
the files that wrap them, and no file or folder includes itself through others.

check_includes.py [ROOT]   prints a line for each fault, exits with 1 if there is one.
"""

import fnmatch
import re
import sys
from pathlib import Path

from project_files import project_files, read_lines

# Folder of src/sluice -> layers that it may include, and with each the layers that one may include.
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
    "cuda": ["runtime", "target", "ops"],
    "data": ["base"],
    "session": ["compiler", "check", "report", "runtime"],
    "devices": ["session", "cpu"],
    "train": ["nn", "data", "session"],
}

# Files of one layer that lie in the folder of another: kernels of an operator beside the operator.
GUESTS = [("src/sluice/ops/*.cpu.cc", "cpu"), ("src/sluice/ops/*.cuda.cu", "cuda")]

# Layers that tests may use besides: the interpreter judges, a session needs a device, reports count.
FOR_TESTS = ["interp", "devices", "report"]
TEST_FILE = re.compile(r"(^|_)test(s|_[a-z_]+)?\.(isa\.)?(cc|h)$|^test_|^gradient_check\.h$")

# Header of others -> files that may include it. What is not listed here is free (std, fmt).
VENDORS = [
    (r"xxhash\.h", ["src/sluice/base/hash.cc"]),
    (r"nlohmann/.*", ["src/sluice/base/safetensors.cc", "tools/json_record.cc", "bench/table.cc"]),
    (r"CLI/.*|CLI11\.hpp", ["tools/main.cc"]),
    (r"zlib\.h", ["src/sluice/data/mnist.cc", "src/sluice/data/*_test.cc"]),
    (r"(oneapi/dnnl/)?dnnl.*", ["src/sluice/cpu/dnnl*"]),
    (r"mpi\.h", ["src/sluice/comm/mpi*", "bench/mpi_reduce.cc"]),
    (r"(cuda|cublas|cudnn|nccl|cub/|thrust/).*", ["src/sluice/cuda/*", "src/sluice/ops/*.cuda.cu"]),
    (r"[a-z]*intrin\.h", ["src/sluice/cpu/*", "src/sluice/base/simd*.h", "src/sluice/base/flush_to_zero.h", "bench/machine.cc"]),
    (r"g(test|mock)/.*", ["src/sluice/*test*", "src/sluice/*gradient_check.h", "tests/*"]),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
SOURCES = (".h", ".cc", ".cu", ".h.in", ".cc.in")


def closure(layers):
    """Layer -> itself and every layer that it may include, directly or through others."""
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
    """The layer of a file or an include below src/sluice; None for the umbrella header and for files elsewhere."""
    for pattern, layer in GUESTS:
        if fnmatch.fnmatch(path, pattern):
            return layer
    parts = path.split("/")
    if parts[:2] != ["src", "sluice"]:
        return None
    return parts[2] if len(parts) > 3 else None


def find_cycle(edges):
    """A list of nodes that lead from one to itself, or None. `edges`: node -> nodes."""
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


def check(root):
    """Faults as "file:line: text"."""
    reach = closure(LAYERS)
    faults, file_edges, layer_edges = [], {}, {}
    for path in project_files(root, SOURCES):
        name = path.as_posix()
        layer = layer_of(name)
        is_test = TEST_FILE.search(path.name) is not None
        if layer is not None and layer not in LAYERS:
            faults.append(f"{name}:1: folder '{layer}' is no layer of scripts/check_includes.py")
            continue
        for number, line in enumerate(read_lines(root, path), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            header, place = match[1], f"{name}:{number}"
            if header.startswith("sluice/"):
                faults += check_edge(layer, is_test, header, place, reach)
                target = "src/" + header
                file_edges.setdefault(name, set()).add(target)
                used = layer_of(target)
                if layer and used and used != layer and not is_test:
                    layer_edges.setdefault(layer, set()).add(used)
            elif name.startswith("src/") and not Path(header).suffix == "" and f'"{header}"' in line:
                faults.append(f'{place}: "{header}" is not included from the root ("sluice/...")')
            for pattern, allowed in VENDORS:
                if re.fullmatch(pattern, header) and not any(fnmatch.fnmatch(name, a) for a in allowed):
                    faults.append(f"{place}: <{header}> belongs in {', '.join(allowed)} only")
    for kind, edges in (("files", file_edges), ("folders", layer_edges)):
        cycle = find_cycle(edges)
        if cycle:
            faults.append(f"{cycle[0]}:1: {kind} include each other: {' -> '.join(cycle)}")
    return faults


def check_edge(layer, is_test, header, place, reach):
    """Faults of one include of a header of ours."""
    if layer is None:
        return []  # tools, examples, tests, bench and the umbrella header use everything.
    used = layer_of("src/" + header)
    if used is None:
        return [f"{place}: only users include <{header}>"]
    if used not in LAYERS:
        return [f"{place}: '{used}' is no layer"]
    if used in reach[layer] or is_test and used in FOR_TESTS:
        return []
    return [f"{place}: '{layer}' may not include '{used}' ({header}); it may include: "
            f"{' '.join(sorted(reach[layer] - {layer})) or 'nothing'}"]


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    faults = check(root)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
