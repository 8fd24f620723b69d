"""Samples of single operators of PyTorch's database, for pytorch_samples.py.

A row of OPERATORS names the positional arguments of an operator; the first is `x`. A word
`name:domain` also has the domain of a tensor's values (see values()), with `!` for a tensor without
a gradient.
"""
import random

import torch

MASK = (1 << 64) - 1
WEIGHTS = 16  # Index of y's weights among the hashed tensors of a line; input 0 has index 0.

UNARY = """abs neg exp expm1 sin cos atan tanh sigmoid erf floor ceil trunc round sign sgn signbit
    reciprocal square logical_not:whole isnan isinf isfinite frac deg2rad rad2deg positive exp2
    log:positive log1p:positive log2:positive log10:positive sqrt:positive rsqrt:positive tan:unit
    erfc:unit nn.functional.gelu nn.functional.silu nn.functional.softplus nn.functional.elu
    nn.functional.celu nn.functional.selu nn.functional.leaky_relu nn.functional.hardswish
    nn.functional.hardsigmoid nn.functional.hardtanh nn.functional.relu6 nn.functional.mish
    nn.functional.softsign nn.functional.tanhshrink nn.functional.softshrink
    nn.functional.hardshrink nn.functional.logsigmoid fill"""
BINARY = """add sub rsub mul div:nonzero true_divide:nonzero maximum minimum
    fmax fmin fmod:nonzero remainder:nonzero atan2 logaddexp clamp_min clamp_max
    __radd__ __rsub__ __rmul__"""
COMPARISONS = "eq ne lt le gt ge logical_and logical_or logical_xor"
INTEGERS = """bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift __rand__
    __ror__ __rxor__"""
LOSSES = "mse_loss l1_loss smooth_l1_loss huber_loss"


def unary_rows():
    for word in UNARY.split():
        name, _, domain = word.partition(":")
        yield name, f"x:{domain}"


def binary_rows():
    for word in BINARY.split():
        name, _, domain = word.partition(":")
        yield name, f"x other:{domain}"
    yield from ((name, "x:whole other:whole") for name in COMPARISONS.split())
    yield from ((name, "x other") for name in INTEGERS.split())
    yield from ((f"nn.functional.{name}", "x target:unit") for name in LOSSES.split())


OPERATORS = {
    **dict(unary_rows()),
    **dict(binary_rows()),
    # Elementwise, with other arguments.
    "bitwise_not": "x",
    "pow": "x:positive exponent",
    "__rpow__": "x other:positive",
    "__rdiv__": "x:nonzero other",
    "__rmod__": "x:nonzero other",
    "floor_divide": "x:! other:nonzero!",
    "xlogy": "x other:positive",
    "ldexp": "x other",
    "lerp": "x end weight",
    "addcmul": "x tensor1 tensor2",
    "addcdiv": "x tensor1 tensor2:nonzero",
    "clamp": "x min max",
    "where": "x condition other",
    "masked_fill": "x mask value",
    "nn.functional.prelu": "x weight",
    "nn.functional.threshold": "x threshold value",
    "nn.functional.glu": "x dim",
    # Products of matrices.
    **{name: "x other" for name in ("matmul", "__rmatmul__", "mm", "bmm", "mv", "dot", "vdot",
                                    "inner", "outer", "linalg.vecdot")},
    **{name: "x a b" for name in ("addmm", "addmv", "addbmm", "baddbmm", "addr")},
    "linalg.multi_dot": "x",
    "nn.functional.linear": "x weight bias",
    # Rows and reductions.
    **{name: "x dim" for name in ("softmax", "log_softmax", "nn.functional.softmin",
                                  "logcumsumexp")},
    "any": "x:whole dim keepdim",
    "all": "x:whole dim keepdim",
    "count_nonzero": "x:whole dim",
    **{name: "x dim keepdim" for name in ("argmax", "argmin", "aminmax", "median", "nansum",
                                          "std_mean", "var_mean")},
    "max": "x dim keepdim",
    "min": "x dim keepdim",
    "norm": "x p dim keepdim",
    "nn.functional.normalize": "x",
    "nn.functional.pairwise_distance": "x other",
    "dist": "x other p",
    "sort": "x:distinct dim descending",
    "argsort": "x:distinct dim descending",
    "msort": "x:distinct",
    "topk": "x k dim largest sorted",
    "kthvalue": "x k dim keepdim",
    "histc": "x bins min max",
    "bincount": "x weights minlength",
    # Movement.
    "transpose": "x dim0 dim1",
    "permute": "x dims",
    "movedim": "x source destination",
    **{name: "x" for name in ("t", "T", "H", "mT", "mH", "ravel", "fliplr", "flipud", "hstack",
                              "vstack", "dstack", "column_stack", "clone", "contiguous",
                              "nn.functional.pixel_shuffle", "nn.functional.pixel_unshuffle")},
    "atleast_1d": "x",
    "atleast_2d": "x",
    "atleast_3d": "x",
    "reshape": "x shape",
    "view": "x shape",
    "view_as": "x other",
    "reshape_as": "x other",
    "flatten": "x",
    "unflatten": "x dim sizes",
    "squeeze": "x dim",
    "unsqueeze": "x dim",
    "expand": "x shape",
    "broadcast_to": "x shape",
    "expand_as": "x other",
    "sum_to_size": "x size",
    "narrow": "x dim start length",
    "select": "x dim index",
    "slice": "x dim start end step",
    "split": "x size dim",
    "chunk": "x chunks dim",
    "tensor_split": "x sections dim",
    "hsplit": "x sections",
    "vsplit": "x sections",
    "dsplit": "x sections",
    "unbind": "x dim",
    "cat": "x dim",
    "stack": "x dim",
    "broadcast_tensors": "x x1 x2 x3",
    "meshgrid": "x x1 x2 x3",
    "rot90": "x k dims",
    "constant_pad_nd": "x pad value",
    "nn.functional.channel_shuffle": "x groups",
    "repeat_interleave": "x",
    # Indices.
    "gather": "x dim index",
    "take_along_dim": "x index dim",
    "index_select": "x dim index",
    "take": "x index",
    "scatter": "x dim index src",
    "scatter_add": "x dim index src",
    "index_add": "x dim index source",
    "nn.functional.embedding": "x index",
    "nn.functional.one_hot": "x",
    # Losses.
    "nn.functional.binary_cross_entropy": "x:probability target:probability weight:positive!",
    "nn.functional.binary_cross_entropy_with_logits":
        "x target:probability weight:positive! pos_weight:positive!",
    "nn.functional.kl_div": "x target:positive",
    "nn.functional.soft_margin_loss": "x target:sign!",
    "nn.functional.margin_ranking_loss": "x other target:sign",
    "nn.functional.hinge_embedding_loss": "x target:sign",
    "nn.functional.poisson_nll_loss": "x:positive target:positive",
}
COPIES = ("permute", "expand", "narrow", "squeeze", "t", "transpose", "unsqueeze", "view", "unbind",
          "split_with_sizes")
# Other names of an operator.
ALIASES = {"split_with_sizes": "split", "split_with_sizes_copy": "split",
           "alias_copy": "clone", "unsafe_split": "split", "unsafe_chunk": "chunk",
           **{f"{name}_copy": name for name in COPIES if name != "split_with_sizes"}}
INTEGER_INPUTS = {"bitwise_not", *INTEGERS.split()}
INDEX_INPUTS = {"nn.functional.one_hot", "bincount"}
BOOL_TOO = {"logical_and", "logical_or", "logical_xor", "logical_not", "any", "all"}
NO_EFFECT = ("memory_format", "inplace", "out_dtype")  # Options that do not change values.
NOT_COMPOSED = ("max_norm", "scale_grad_by_freq", "padding_idx", "sparse")


class Skip(Exception):
    """A sample that Sluice has no dtype or argument for; the message says which."""


def hashed(line, tensor, shape):
    """Elements of the hashed tensor `tensor` of a line: SplitMix64 in [-1, 1), exact in float32."""
    def signed(v):
        return v - (1 << 64) if v >> 63 else v

    def mixed(s, shift, factor):
        return (s ^ ((s >> shift) & ((1 << (64 - shift)) - 1))) * signed(factor)

    s = torch.arange(1, torch.Size(shape).numel() + 1) + ((line << 40) + (tensor << 32))
    s = mixed(s * signed(0x9E3779B97F4A7C15), 30, 0xBF58476D1CE4E5B9)
    s = mixed(s, 27, 0x94D049BB133111EB)
    s = s ^ ((s >> 31) & ((1 << 33) - 1))
    return (((s >> 40) & ((1 << 24) - 1)).double() / 2**23 - 1).reshape(shape)


def distinct(hashes):
    """Different values for up to 2^16 elements."""
    index = torch.arange(hashes.numel()).reshape(hashes.shape)
    return (index * 40503 % 65536).double() / 8192 - 4


def values(hashes, domain):
    """Maps hashes to a domain. The results are exact in float32."""
    return {"": lambda t: 4 * t,
            "unit": lambda t: t,
            "positive": lambda t: 4 * t.abs() + 0.125,
            "nonzero": lambda t: 4 * t + 0.25 * torch.where(t < 0, -1.0, 1.0),
            "probability": lambda t: t.abs() / 2 + 0.25,
            "distinct": distinct,
            "whole": lambda t: (4 * t).floor(),
            "sign": lambda t: torch.where(t < 0, -1.0, 1.0).double(),
            "bool": lambda t: t > 0}[domain](hashes)


def is_list(value):
    return isinstance(value, (tuple, list)) and value and isinstance(value[0], torch.Tensor)


class OperatorLine:
    """A sample, or several that differ only in values."""

    def __init__(self, op, sample):
        self.op = op
        words = OPERATORS[canonical(op.name)].split()
        domains = dict(word.partition(":")[::2] for word in words)
        names = [word.partition(":")[0] for word in words]
        args = sample.args
        if len(args) >= len(names) == 2:  # Numbers instead of one list.
            args = [list(args)]
        assert len(args) < len(names), f"{op.name}: {sample}"
        self.name = canonical(op.name).removeprefix("nn.functional.")
        self.samples = 0
        self.inputs, self.options, self.labels = {}, {}, []
        self.domains, self.given = domains, {}
        x = self.declared("x", sample.input)
        arguments = [self.declared(n, v) for n, v in zip(names[1:], args)]
        more = {k: self.declared(k, v) for k, v in sample.kwargs.items() if k not in NO_EFFECT}
        self.call = (x, arguments, more)

    def declared(self, name, value):
        """Adds an argument to the line; returns it, or a reference to an input to compute."""
        if is_list(value):
            return [self.declared(f"{name}{i}", t) for i, t in enumerate(value)]
        if isinstance(value, torch.Tensor):
            domain = self.domains.get(name, "")
            if name == "repeats":
                raise Skip("repeats is a tensor")
            if value.dtype == torch.bool:
                domain = "bool"
            elif not value.is_floating_point():
                domain = "i32"
                self.labels += value.flatten().tolist()
                self.given[name] = value.detach()
            elif value.dtype != torch.float32:
                raise Skip(f"{value.dtype} input")
            self.inputs[name] = (tuple(value.shape), domain.rstrip("!"))
            return Reference(name)
        if isinstance(value, (torch.dtype, complex, slice)):
            raise Skip(f"{name} is a {type(value).__name__}")
        if name in NOT_COMPOSED or value in ("nuc", "multiply"):
            raise Skip(f"{name}={value}")
        if value is not None:
            self.options[name] = list(value) if isinstance(value, (tuple, list)) else value
        return value

    def key(self):
        inputs = " ".join(f"{k}{':' + d if d else ''}={','.join(map(str, s))}"
                          for k, (s, d) in self.inputs.items())
        options = " ".join(f"{k}={text(v)}" for k, v in self.options.items())
        return f"{inputs};{options};{','.join(map(str, self.labels))}"

    def tensors(self, number, dtype, rounding=torch.float64):
        """The inputs of line `number`, rounded to a dtype and cast to the other."""
        made = {}
        for i, (name, (shape, domain)) in enumerate(self.inputs.items()):
            if name in self.given:
                made[name] = self.given[name]
                continue
            made[name] = values(hashed(number, i, shape), domain)
            if domain != "bool":
                made[name] = made[name].to(rounding).to(dtype)
                made[name].requires_grad_(self.has_gradient(name))
        return made

    def has_gradient(self, name):
        return not self.domains.get(name, "").endswith("!") and "reduce" not in self.options

    def outputs(self, made):
        x, arguments, more = self.call
        y = self.op.op(resolved(x, made), *(resolved(a, made) for a in arguments),
                       **{k: resolved(v, made) for k, v in more.items()})
        return list(y) if isinstance(y, (tuple, list)) else [y]

    def compute(self, number, dtype):
        """Returns (name, shape, projection, magnitudes) of outputs and gradients."""
        made = self.tensors(number, dtype)
        leaves = {k: t for k, t in made.items() if t.requires_grad}
        outputs = self.outputs(made)
        named = {f"y{i}" if i else "y": y for i, y in enumerate(outputs)}
        backward = [(y, hashed(number, WEIGHTS + i, y.shape).to(dtype))
                    for i, y in enumerate(outputs) if y.requires_grad]
        if backward:
            torch.autograd.backward(*zip(*backward))
        if any(y.is_floating_point() for y in outputs):
            named |= {f"d{k}": torch.zeros_like(t) if t.grad is None else t.grad
                      for k, t in leaves.items()}
        return [(name, tuple(t.shape), *projected(number, i, t))
                for i, (name, t) in enumerate(named.items())]


def half_results(line, number, half, rtol):
    """Returns "index:projection:magnitudes:excess" of the floating-point outputs of a line whose
    inputs are rounded to a half type; an empty text if PyTorch does not compute them. The excess is
    the largest distance of an element of PyTorch's result from float64's, beyond its tolerance."""
    try:
        with torch.no_grad():
            have = line.outputs(line.tensors(number, half, half))
            want = line.outputs(line.tensors(number, torch.float64, half))
    except RuntimeError:  # Not implemented for the dtype.
        return ""
    words = []
    for i, (h, w) in enumerate(zip(have, want)):
        if not w.is_floating_point() or h.dtype != half:
            continue
        beyond = ((h.double() - w).abs() - rtol * w.abs() - 1e-5).flatten().tolist()
        excess = max([0.0, *(b for b in beyond if b == b)])
        dot, size = projected(number, i, w)
        words.append(f"{i}:{dot:.7g}:{size:.7g}:{excess:.3g}")
    return " ".join(words)


class Reference:
    def __init__(self, name):
        self.name = name


def resolved(value, made):
    if isinstance(value, list) and value and isinstance(value[0], Reference):
        return [made[v.name] for v in value]
    return made[value.name] if isinstance(value, Reference) else value


def projected(number, index, t):
    """Projection and sum of magnitudes of result `index` of a line."""
    t = t.detach().double()
    dot = (hashed(number, WEIGHTS + index, t.shape) * t).sum().item()
    return 0 if abs(dot) < 1e-12 else dot, t.abs().sum().item()


def text(value):
    if isinstance(value, float):
        return repr(value) + ("." if value in (float("inf"), -float("inf")) else "")
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).replace(" ", "").lower()


def canonical(name):
    return ALIASES.get(name, name)


def operator_lines(op_db, report=lambda *_: None):
    """The lines of all operators of the table, sorted: the database does not keep an order."""
    lines = {}
    for op in op_db:
        if canonical(op.name) not in OPERATORS:
            continue
        dtypes = [torch.float32] + [torch.bool] * (op.name in BOOL_TOO)
        if op.name in INTEGER_INPUTS | INDEX_INPUTS:
            dtypes = [torch.int32 if op.name in INTEGER_INPUTS else torch.int64]
        for dtype in dtypes:
            random.seed(17)
            torch.manual_seed(17)
            for sample in op.sample_inputs("cpu", dtype, requires_grad=False):
                try:
                    line = OperatorLine(op, sample)
                except Skip as reason:
                    report(op.name, reason)
                    continue
                lines.setdefault(f"{line.name};{line.key()}", line).samples += 1
    return [line for _, line in sorted(lines.items(), key=lambda item: item[0])]
