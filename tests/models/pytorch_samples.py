#!/usr/bin/env python3
"""Computes the samples of PyTorch's operator database, for pytorch_samples_test.cc.

The samples are those of op_db of PyTorch 2.15 that Sluice's operators compute: of convolutions,
pools, norms, losses, relu, reductions, cumulative sums and products, padding and other movement,
and resampling, then those of pytorch_operators.py.
The script requires `pip install torch==2.15 expecttest` and prints one line for each sample:

    operator;samples;inputs;options;labels;results

    python3 tests/models/pytorch_samples.py > tests/models/pytorch_samples.csv
    python3 tests/models/pytorch_samples.py --check tests/models/pytorch_samples.csv

With `halves.csv` as its argument, it prints the outputs for float16 and bfloat16 (half_results()):

    python3 tests/models/pytorch_samples.py halves.csv > tests/models/pytorch/halves.csv
    python3 tests/models/pytorch_samples.py --check tests/models/pytorch/halves.csv

The database gives operators, shapes, options and labels. Values of floating-point inputs are hashes
(see hashed()). Samples that differ only in values, memory formats or returned indices are thus one
line; `samples` is their number. It is 0 for a sample that this script adds. Options have the text
form of Sluice's. The lines of pytorch_operators.py have PyTorch's options, and "name:domain=shape"
for inputs whose values are not 4·hash. The labels are the values of the inputs of domain i32.
`results` has "name:shape:projection:magnitudes" for each output and for the gradient of each input.
A projection is the sum of hash·element, and magnitudes the sum of |element|. The gradients are
those of the projection of all floating-point outputs. Norms return only y, and training also the
running statistics, which are not projected.
"""
import random
import sys
import warnings

SKIPPED = 77  # Exit code of a check that cannot run here.
NOT_NEGATIVE = ("running_var", "class_weights", "target")
NO_GRADIENT = ("running_mean", "running_var", "class_weights")

try:
    import torch
    import torch.nn.functional as F
    from torch.testing._internal.common_methods_invocations import op_db

    from pytorch_operators import (WEIGHTS, half_results, hashed, operator_lines, projected,
                                   text)
except ImportError as error:
    print(f"requires PyTorch 2.15 and expecttest: {error}", file=sys.stderr)
    sys.exit(SKIPPED)
if not torch.__version__.startswith("2.15."):
    print(f"requires PyTorch 2.15, got {torch.__version__}", file=sys.stderr)
    sys.exit(SKIPPED)

# Names of the positional arguments after the first, by operator.
PARAMETERS = {
    "conv": ("weight", "bias"),
    "max_pool": (),
    "avg_pool": ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad",
                 "divisor_override"),
    "adaptive_avg_pool": ("output_size",),
    "adaptive_max_pool": ("output_size", "return_indices"),
    "batch_norm": ("running_mean", "running_var", "weight", "bias"),
    "native_batch_norm": ("weight", "bias", "running_mean", "running_var", "training", "momentum",
                          "eps"),
    "group_norm": ("num_groups", "weight", "bias", "eps"),
    "instance_norm": ("running_mean", "running_var", "weight", "bias"),
    "layer_norm": ("normalized_shape", "weight", "bias", "eps"),
    "rms_norm": ("normalized_shape", "weight", "eps"),
    "native_layer_norm": ("normalized_shape", "weight", "bias", "eps"),
    "nll_loss": ("target", "weight"),
    "cross_entropy": ("target", "weight"),
    "relu": (),
    "amax": ("dim", "keepdim"),
    "amin": ("dim", "keepdim"),
    "sum": ("dim", "keepdim"),
    "mean": ("dim", "keepdim"),
    "prod": ("dim", "keepdim"),
    "logsumexp": ("dim", "keepdim"),
    "std": ("dim", "unbiased", "keepdim"),
    "var": ("dim", "unbiased", "keepdim"),
    "linalg.vector_norm": ("ord", "dim", "keepdim"),
    "cumsum": ("dim",),
    "cumprod": ("dim",),
    "flip": ("dims",),
    "roll": ("shifts", "dims"),
    "repeat": ("counts",),
    "tile": ("counts",),
    "unfold": ("dimension", "size", "step"),
    "pad": ("pad", "mode", "value"),
    "interpolate": ("size",),
    "grid_sample": ("grid",),
}
# Operators whose lines are the last: values depend on the number of the line.
LATER = ("nn.functional.rms_norm",)
# Arguments that have no keyword, or none that all calls have.
POSITIONAL = {"repeat": ("counts",), "tile": ("counts",), "unfold": ("dimension", "size", "step"),
              "std": ("dim",), "var": ("dim",)}
REDUCTIONS = {"mean": 0, "sum": 1, "none": 2}


def input_values(line, number, name, shape):
    t = hashed(line, number, shape)
    return t.abs() if name in NOT_NEGATIVE else 4 * t


# --- Options of Sluice.


def numbers(value, axes):
    if value is None or value == ():
        return []
    return [value] * axes if isinstance(value, int) else list(value) * (axes // len(value))


def conv_options(axes, o):
    pad = o.get("padding", 0)
    options = {"stride": numbers(o.get("stride"), axes)}
    options["padding"] = [] if isinstance(pad, str) else numbers(pad, axes)
    options["dilation"] = numbers(o.get("dilation"), axes)
    options["groups"] = o.get("groups", 1)
    options["pad_type"] = {"same": 1, "valid": 3}.get(pad, 0)
    return options


def conv_transpose_options(axes, o):
    options = {name: numbers(o.get(name), axes) for name in ("stride", "padding", "dilation")}
    return {**options, "groups": o.get("groups", 1),
            "output_padding": numbers(o.get("output_padding"), axes)}


def pool_options(axes, o):
    options = {"kernel": numbers(o["kernel_size"], axes)}
    options |= {name: numbers(o.get(name), axes) for name in ("stride", "padding", "dilation")}
    return {**options, "ceil_mode": o.get("ceil_mode", False), "pad_type": 0}


def average_options(axes, o):
    return {**pool_options(axes, o), "count_padding": o.get("count_include_pad", True),
            "divisor": o.get("divisor_override") or 0}


def adaptive_kernel(axes, shape, size):
    """The kernel of a pool with windows of one size side by side; None if there is not one."""
    wanted = size if isinstance(size, (tuple, list)) else [size] * axes
    spatial = shape[len(shape) - axes:]
    pairs = [(n, n if w is None else w) for n, w in zip(spatial, wanted)]
    return None if any(n % w for n, w in pairs) else [n // w for n, w in pairs]


def norm_options(_, o):
    return {"epsilon": float(o.get("eps", 1e-5))}


def batch_norm_options(_, o):
    return {**norm_options(_, o), "training": o.get("training", False),
            "momentum": float(o.get("momentum", 0.1))}


def loss_options(_, o):
    return {"reduction": REDUCTIONS[o.get("reduction", "mean")],
            "ignore_index": o.get("ignore_index", -100),
            "label_smoothing": float(o.get("label_smoothing", 0))}


def listed(value):
    return [value] if isinstance(value, int) else list(value or ())


def reduce_options(_, o):
    dim = o.get("dim")
    options = {"axes": listed(dim), "keepdims": o.get("keepdim", False)}
    if isinstance(dim, bool):  # std(x, True)
        options["axes"] = []
        return {**options, "correction": float(dim)}
    return {**options, "correction": float(o.get("correction", o.get("unbiased", True)))}


def norm_of_axes_options(axes, o):
    options = reduce_options(axes, o)
    del options["correction"]
    return {**options, "ord": float(o.get("ord", 2))}


def interpolate_options(_, o):
    size, scale = o.get("size"), o.get("scale_factor")
    given = scale is not None and not o.get("recompute_scale_factor")
    return {"size": listed(size), "scale": float(scale or 0), "given": given, "mode": o["mode"],
            "align_corners": bool(o.get("align_corners"))}


def pad_options(_, o):
    return {"pad": listed(o["pad"]), "mode": o.get("mode", "constant"),
            "value": float(o.get("value", 0))}


OPTIONS = {
    **{name: reduce_options for name in ("amax", "amin", "sum", "mean", "prod", "logsumexp", "std",
                                         "var")},
    "linalg.vector_norm": norm_of_axes_options,
    "cumsum": lambda _, o: {"axis": o["dim"]},
    "cumprod": lambda _, o: {"axis": o["dim"]},
    "flip": lambda _, o: {"axes": listed(o["dims"])},
    "roll": lambda _, o: {"shifts": listed(o["shifts"]), "axes": listed(o.get("dims"))},
    "repeat": lambda _, o: {"counts": listed(o["counts"])},
    "tile": lambda _, o: {"counts": listed(o["counts"])},
    "unfold": lambda _, o: {"axis": o["dimension"], "size": o["size"], "step": o["step"]},
    "pad": pad_options,
    "interpolate": interpolate_options,
    "grid_sample": lambda _, o: {"mode": o["mode"], "padding": o["padding_mode"],
                                 "align_corners": o["align_corners"]},
    "conv": conv_options,
    "conv_transpose": conv_transpose_options,
    "max_pool": pool_options,
    "avg_pool": average_options,
    "batch_norm": batch_norm_options,
    "native_batch_norm": batch_norm_options,
    "group_norm": lambda axes, o: {"groups": o["num_groups"], **norm_options(axes, o)},
    "instance_norm": norm_options,
    "layer_norm": lambda axes, o: {"axes": len(o["normalized_shape"]), **norm_options(axes, o)},
    "rms_norm": lambda axes, o: {"axes": len(o["normalized_shape"]), **norm_options(axes, o)},
    "nll_loss": loss_options,
    "cross_entropy": loss_options,
}


# --- Samples.


def kind_of(name):
    """The name without the number of axes."""
    return name[:-2] if name[-2:] in ("1d", "2d", "3d") else name


class Line:
    """A sample, or several that differ only in values."""

    def __init__(self, name, x, arguments):
        self.name = name.removeprefix("nn.functional.")
        self.kind = kind_of(self.name)
        self.axes = int(self.name[-2]) if self.name != self.kind else 0
        self.arguments = dict(arguments)
        self.arguments.pop("return_indices", None)
        self.samples = 0
        self.labels = []
        self.inputs = {"x": tuple(x.shape)}
        for key, value in list(self.arguments.items()):
            if not isinstance(value, torch.Tensor):
                continue
            del self.arguments[key]
            if not value.is_floating_point():
                self.labels = value.flatten().tolist()
                self.label_shape = value.shape
            else:
                self.inputs[self.input_name(key)] = tuple(value.shape)
        self.options = self.sluice_options()

    def input_name(self, key):
        is_loss = self.kind in ("nll_loss", "cross_entropy")
        return "class_weights" if is_loss and key == "weight" else key

    def call(self):
        if self.name.startswith("linalg"):
            return torch.linalg.vector_norm
        if self.name in ("repeat", "unfold"):
            return getattr(torch.Tensor, self.name)
        if self.name == "tile":
            return torch.tile
        return getattr(F, self.name, None) or getattr(torch, self.name)

    def sluice_options(self):
        if not self.kind.startswith("adaptive"):
            kind = self.kind.removeprefix("native_") if "layer" in self.kind else self.kind
            return OPTIONS.get(kind, lambda *_: {})(self.axes, self.arguments)
        size = self.arguments["output_size"]
        kernel = adaptive_kernel(self.axes, self.inputs["x"], size)
        if kernel is None:
            sides = self.inputs["x"][-self.axes:]
            wanted = numbers(size, self.axes)
            return {"output": [n if w is None else w for n, w in zip(sides, wanted)]}
        options = average_options if "avg" in self.kind else pool_options
        return options(self.axes, {"kernel_size": kernel})

    def key(self):
        inputs = " ".join(f"{k}={','.join(map(str, s))}" for k, s in self.inputs.items())
        options = " ".join(f"{k}={text(v)}" for k, v in self.options.items())
        return f"{inputs};{options};{','.join(map(str, self.labels))}"

    def tensors(self, number, dtype, rounding=torch.float64):
        """The inputs of line `number`, rounded to a dtype and cast to the other."""
        given = {}
        for i, (name, shape) in enumerate(self.inputs.items()):
            t = input_values(number, i, name, shape).to(rounding).to(dtype)
            given[name] = t.requires_grad_(name not in NO_GRADIENT)
        return given

    def outputs(self, given):
        named = {"weight" if k == "class_weights" else k: v for k, v in given.items() if k != "x"}
        if self.labels:
            named["target"] = torch.tensor(self.labels).reshape(self.label_shape)
        if self.name.startswith("native"):
            named = {k: named.get(k) for k in ("weight", "bias")} | named
        if "batch_norm" in self.kind:
            named = {k: named.get(k) for k in ("running_mean", "running_var")} | named
        positional = []
        for key in POSITIONAL.get(self.name, ()):
            if key in self.arguments:
                positional.append(self.arguments[key])
        more = {} if positional else self.arguments
        if positional:
            more = {k: v for k, v in self.arguments.items() if k not in POSITIONAL[self.name]}
        y = self.call()(given["x"], *positional, **named, **more)
        return [y[0] if isinstance(y, tuple) else y]

    def compute(self, number, dtype):
        """Returns (name, shape, projection, magnitudes) of outputs and gradients."""
        given = self.tensors(number, dtype)
        y = self.outputs(given)[0]
        weights = hashed(number, WEIGHTS, y.shape).to(dtype)
        if y.requires_grad:
            y.backward(weights)
        tensors = {"y": y}
        if "batch_norm" in self.kind and self.options["training"]:
            tensors |= {k: given[k] for k in ("running_mean", "running_var") if k in given}
        tensors |= {f"d{k}": torch.zeros_like(t) if t.grad is None else t.grad
                    for k, t in given.items() if t.requires_grad}
        results = []
        for i, (name, t) in enumerate(tensors.items()):
            results.append((name, tuple(t.shape), *projected(number, i, t)))
        return results


def bind(op_name, sample):
    name = op_name.removeprefix("nn.functional.")
    kind = kind_of(name)
    if kind == "conv_transpose":
        kind = "conv"
    assert len(sample.args) <= len(PARAMETERS[kind]), name
    bound = {**dict(zip(PARAMETERS[kind], sample.args)), **sample.kwargs}
    if kind == "rms_norm" and bound.get("eps") is None:
        bound["eps"] = 2.0**-23  # The default for float32; that of float64 is smaller.
    return {k: v for k, v in bound.items() if v is not None}


def added_samples():
    """Negative ignored labels and label smoothing, which the database lacks."""
    x, labels = torch.zeros(4, 3), torch.tensor([2, -1, 0, -1])
    weight = torch.ones(3)
    images, pixels = torch.zeros(2, 3, 2, 2), torch.tensor([[[0, -7], [2, 1]], [[-7, 1], [2, 2]]])
    hundred = torch.tensor([1, -100, 2, 0])
    for reduction in REDUCTIONS:
        for name in ("cross_entropy", "nll_loss"):
            more = {"reduction": reduction}
            yield name, x, {"target": labels, "ignore_index": -1, **more}
            yield name, x, {"target": labels, "ignore_index": -1, "weight": weight, **more}
            yield name, x, {"target": hundred, **more}
            yield name, images, {"target": pixels, "ignore_index": -7, "weight": weight, **more}
        more = {"reduction": reduction, "label_smoothing": 0.25}
        yield "cross_entropy", x, {"target": labels, "ignore_index": -1, **more}
        yield "cross_entropy", x, {"target": labels, "ignore_index": -1, "weight": weight, **more}
        yield "cross_entropy", images, {"target": pixels, "ignore_index": -7, **more}
        yield "cross_entropy", x, {"target": torch.zeros(4, 3), "weight": weight, **more}


def wanted(name):
    if name == "nn.functional.unfold":  # Windows of images; `unfold` is the method of tensors.
        return False
    short = name.removeprefix("nn.functional.")
    return kind_of(short) in PARAMETERS or kind_of(short) == "conv_transpose"


def database_lines(is_wanted):
    """Returns the lines of the database's operators by their text."""
    lines = {}
    for op in op_db:
        if not is_wanted(op.name):
            continue
        random.seed(17)
        torch.manual_seed(17)
        for sample in op.sample_inputs("cpu", torch.float32, requires_grad=True):
            arguments = bind(op.name, sample)
            if "dtype" in arguments or sample.input.dim() > 0 and arguments.get("dim", 0) == ():
                continue  # A cast, and a reduction over no axes.
            line = Line(op.name, sample.input, arguments)
            lines.setdefault(f"{line.name};{line.key()}", line).samples += 1
    return lines


def all_lines():
    lines = database_lines(lambda name: wanted(name) and name not in LATER)
    for name, x, arguments in added_samples():
        line = Line(name, x, arguments)
        lines.setdefault(f"{line.name};{line.key()}", line)
    later = database_lines(lambda name: name in LATER)
    return [*lines.values(), *operator_lines(op_db), *later.values()]


def results_text(line, number):
    single, double = (line.compute(number, d) for d in (torch.float32, torch.float64))
    for (name, shape, a, size), (_, _, b, _) in zip(single, double):
        limit = 1e-5 * size + 1e-5 * torch.Size(shape).numel()
        if abs(a - b) > limit:
            print(f"line {number} {line.name}: {name} is {a} in float32, {b} in float64",
                  file=sys.stderr)
    return " ".join(f"{name}:{','.join(map(str, shape))}:{dot:.7g}:{size:.7g}"
                    for name, shape, dot, size in double)


def generated():
    yield "operator;samples;inputs;options;labels;results"
    for number, line in enumerate(all_lines(), 1):
        yield f"{line.name};{line.samples};{line.key()};{results_text(line, number)}"


def generated_halves():
    """Lines without class weights, which are constants of float32."""
    yield "line;operator;float16;bfloat16"
    for number, line in enumerate(all_lines(), 1):
        if "class_weights" in line.inputs:
            continue
        halves = [half_results(line, number, torch.float16, 1e-3),
                  half_results(line, number, torch.bfloat16, 1.6e-2)]
        if any(halves):
            yield f"{number};{line.name};{halves[0]};{halves[1]}"


def without_excess(line):
    """A line of the halves without the excesses, which depend on the CPU."""
    *head, first, second = line.split(";")
    words = (" ".join(w.rpartition(":")[0] for w in part.split()) for part in (first, second))
    return ";".join((*head, *words))


def is_same(a, b):
    """Whether two lines differ only in the last digits of results."""
    *head, results = a.split(";")
    *other_head, other_results = b.split(";")
    if head != other_head:
        return False
    words, others = results.replace(":", " ").split(), other_results.replace(":", " ").split()

    def near(v, w):
        try:
            v, w = float(v), float(w)
        except ValueError:
            return v == w
        return v == w or abs(v - w) <= 1e-5 * max(1, abs(v)) or (v != v and w != w)

    return len(words) == len(others) and all(map(near, words, others))


def differences(lines, path):
    """Prints how lines differ from those of a file; returns whether they do."""
    with open(path, encoding="utf-8") as file:
        stored = file.read().splitlines()
    pairs = enumerate(zip(lines, stored), 1)
    if path.endswith("halves.csv"):
        pairs = ((n, tuple(map(without_excess, pair))) for n, pair in pairs)
    wrong = [n for n, (a, b) in pairs if not is_same(a, b)]
    for n in wrong[:10]:
        print(f"line {n}: stored\n  {stored[n - 1]}\nPyTorch here\n  {lines[n - 1]}")
    print(f"{path}: {len(lines)} lines, {len(stored)} stored, {len(wrong)} differ")
    return bool(wrong) or len(lines) != len(stored)


def main():
    warnings.filterwarnings("ignore")
    *option, path = sys.argv[1:] or [""]
    lines = list(generated_halves() if path.endswith("halves.csv") else generated())
    if option == ["--check"]:
        return int(differences(lines, path))
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
