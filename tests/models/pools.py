#!/usr/bin/env python3
"""Computes pools and their gradients with PyTorch, for pools_test.cc.

Prints one pool a line: "operator;values;shape;options;y;dx". The options have the text form of
Sluice's. pools.csv has the output with PyTorch 2.15; another number computes more pools:

    python3 tests/models/pools.py > tests/models/pools.csv
    python3 tests/models/pools.py 1000 > more.csv
    SLUICE_POOLS=more.csv build/release/tests/models/pools_test

x and the gradient of y are formulas of the element's index, with ties between elements of x.
"""
import random
import sys

import torch
import torch.nn.functional as F

POOLS = int(sys.argv[1]) if len(sys.argv) > 1 else 120
MAX = (F.max_pool1d, F.max_pool2d, F.max_pool3d)
AVERAGE = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)


def operand(shape, values):
    x = [((37 * i * i + 11 * i) % 64 - 30) / 8 for i in range(torch.Size(shape).numel())]
    if values == "nan":
        x = [float("nan") if i % 11 == 3 else v for i, v in enumerate(x)]
    if values == "inf":
        x = [float("-inf") if i % 8 else v for i, v in enumerate(x)]
    return torch.tensor(x, dtype=torch.float32).reshape(shape).requires_grad_()


def gradient(y):
    g = [((29 * i + 5) % 31 - 15) / 4 for i in range(y.numel())]
    return torch.tensor(g, dtype=torch.float32).reshape(y.shape)


def text(options):
    def value(v):
        return str(v).replace(" ", "").lower()

    return " ".join(f"{name}={value(v)}" for name, v in options.items())


def numbers(t):
    return ",".join(f"{v:.8g}" for v in t.detach().flatten().tolist())


def draw(axes, is_max):
    """Draws a shape and options that PyTorch accepts."""
    sizes = [random.randint(1, (24, 8, 5)[axes - 1]) for _ in range(axes)]
    shape = [random.choice((1, 1, 2, 0) if random.random() < 0.1 else (1, 2)), random.randint(1, 2),
             *sizes]
    kernel = [random.choice((1, 2, 2, 3, 3, 4, 5, n)) for n in sizes]
    options = {
        "kernel": kernel,
        "stride": random.choice(([], [random.randint(1, 4) for _ in kernel])),
        "padding": random.choice(([], [random.randint(0, k // 2) for k in kernel])),
        "dilation": [random.choice((1, 1, 2, 3)) for _ in kernel] if is_max else [],
        "ceil_mode": random.random() < 0.4,
        "pad_type": 0,
    }
    if not is_max:
        options["count_padding"] = random.random() < 0.5
        options["divisor"] = random.choice((0, 0, 0, 7)) if axes > 1 else 0
    return shape, options


def has_empty_window(n, kernel, stride, padding, dilation):
    """Whether a window has only padding. PyTorch then writes the gradient outside its array."""
    starts = range(-padding, n + padding, stride)
    return any(all(not 0 <= s + dilation * k < n for k in range(kernel)) for s in starts if s < n)


def pool(x, axes, o):
    padding, dilation = o["padding"] or 0, o["dilation"] or 1
    stride = o["stride"] or o["kernel"]
    if "divisor" not in o:
        return MAX[axes - 1](x, o["kernel"], stride, padding, dilation, o["ceil_mode"])
    divisor = {"divisor_override": o["divisor"]} if o["divisor"] else {}
    return AVERAGE[axes - 1](x, o["kernel"], stride, padding, o["ceil_mode"], o["count_padding"],
                             **divisor)


def main():
    random.seed(17)
    print("operator;values;shape;options;y;dx")
    done = 0
    while done < POOLS:
        axes, is_max = random.randint(1, 3), random.random() < 0.6
        shape, options = draw(axes, is_max)
        windows = zip(shape[2:], options["kernel"], options["stride"] or options["kernel"],
                      options["padding"] or [0] * axes, options["dilation"] or [1] * axes)
        if any(has_empty_window(*w) for w in windows):
            continue
        values = random.choice(("ties", "ties", "nan", "inf")) if is_max else "ties"
        x = operand(shape, values)
        try:
            y = pool(x, axes, options)
        except RuntimeError:
            continue  # The window does not fit into the input.
        y.backward(gradient(y))
        name = "MaxPool" if is_max else "AveragePool"
        print(f"{name};{values};{','.join(map(str, shape))};{text(options)};{numbers(y)};"
              f"{numbers(x.grad)}")
        done += 1


if __name__ == "__main__":
    main()
