#!/usr/bin/env python3
"""Computes the weights of three tensors under PyTorch's optimizers, for optimizer_paths_test.cc.

Prints "optimizer,tensor,step,w0,w1,…" lines in float64. With Keras installed, prints those of its
RMSprop too. optimizer_paths.csv has the output with PyTorch 2.15 and Keras 3.15:

    python3 tests/models/optimizer_paths.py > tests/models/optimizer_paths.csv

All optimizers get the same gradients and rates. Float32 holds their values exactly.
"""
import os

import torch

STEPS, PRINTED, RATE = 50, (0, 1, 9, 49), 0.0625
TENSORS = {"fc.weight": 12, "fc.bias": 4, "norm.weight": 4}

SGD = {
    "sgd": {},
    "sgd-decay": {"weight_decay": 0.125},
    "momentum": {"momentum": 0.9},
    "momentum-decay": {"momentum": 0.9, "weight_decay": 0.125},
    "dampened": {"momentum": 0.9, "dampening": 0.3},
    "dampened-decay": {"momentum": 0.9, "dampening": 0.9, "weight_decay": 0.125},
    "dampened-wholly": {"momentum": 0.9, "dampening": 1.0},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "nesterov-decay": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.125},
}  # yapf: disable
RMSPROP = {
    "rmsprop": {},
    "rmsprop-decay": {"weight_decay": 0.125},
    "rmsprop-momentum": {"alpha": 0.9, "eps": 1e-3, "momentum": 0.8},
    "rmsprop-centered": {"alpha": 0.9, "centered": True},
    "rmsprop-all": {"alpha": 0.9, "eps": 1e-3, "momentum": 0.8, "centered": True,
                    "weight_decay": 0.125},
}  # yapf: disable
KERAS_RMSPROP = {
    "rmsprop-tf": {"rho": 0.9, "epsilon": 1e-7},
    "rmsprop-tf-momentum": {"rho": 0.9, "epsilon": 0.25, "momentum": 0.8},
    "rmsprop-tf-centered": {"rho": 0.9, "epsilon": 1e-3, "momentum": 0.8, "centered": True},
}  # yapf: disable


def plain(make, **options):
    return lambda w: make(w.values(), lr=RATE, **options)


OPTIMIZERS = {
    **{name: plain(torch.optim.SGD, **options) for name, options in SGD.items()},
    "clipped": plain(torch.optim.SGD, momentum=0.9),
    "adam": plain(torch.optim.Adam),
    "adam-decay": plain(torch.optim.Adam, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.125),
    "adamw": plain(torch.optim.AdamW),
    "adamw-decay": plain(torch.optim.AdamW, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.125),
    "adamax": plain(torch.optim.Adamax, betas=(0.8, 0.9)),
    "adamax-decay": plain(torch.optim.Adamax, betas=(0.8, 0.9), weight_decay=0.125),
    **{name: plain(torch.optim.RMSprop, **options) for name, options in RMSPROP.items()},
    # Groups with options of their own. A tensor in no group stays as it is.
    "groups-adamw": lambda w: torch.optim.AdamW(
        [{"params": [w["fc.weight"]]},
         {"params": [w["fc.bias"], w["norm.weight"]], "weight_decay": 0.0}],
        lr=RATE, weight_decay=0.125),
    "groups-sgd": lambda w: torch.optim.SGD(
        [{"params": [w["fc.weight"]], "weight_decay": 0.125},
         {"params": [w["norm.weight"]], "lr": RATE / 4, "nesterov": True}],
        lr=RATE, momentum=0.9),
    "groups-rmsprop": lambda w: torch.optim.RMSprop(
        [{"params": [w["fc.weight"]], "weight_decay": 0.125, "centered": True},
         {"params": [w["fc.bias"]], "lr": RATE * 2, "alpha": 0.9}], lr=RATE),
}  # yapf: disable
LARGEST_NORM = {"clipped": 0.75}


def first(tensor, k):
    return ((11 * k + 5 * tensor) % 17 - 8) / 8


def gradient(tensor, k, t):
    return ((37 * t + 101 * k + 13 * t * t * (k + 1) + 59 * tensor) % 257 - 120) / 128


def factor_of_rate(t):
    return (1, 0.5, 0.75, 0.25)[t % 4]


def path(make, largest_norm):
    weights = {
        name: torch.tensor([first(i, k) for k in range(count)], dtype=torch.float64,
                           requires_grad=True)
        for i, (name, count) in enumerate(TENSORS.items())
    }
    optimizer = make(weights)
    rates = [group["lr"] for group in optimizer.param_groups]
    for t in range(STEPS):
        for i, w in enumerate(weights.values()):
            w.grad = torch.tensor([gradient(i, k, t) for k in range(len(w))], dtype=torch.float64)
        if largest_norm:
            torch.nn.utils.clip_grad_norm_(weights.values(), largest_norm)
        for group, rate in zip(optimizer.param_groups, rates):
            group["lr"] = rate * factor_of_rate(t)
        optimizer.step()
        yield t, {name: w.detach().tolist() for name, w in weights.items()}


def keras_paths():
    os.environ["KERAS_BACKEND"] = "torch"
    try:
        import keras
    except ImportError:
        return
    keras.config.set_floatx("float64")
    for name, options in KERAS_RMSPROP.items():
        weights = {
            tensor: keras.Variable([first(i, k) for k in range(count)], dtype="float64")
            for i, (tensor, count) in enumerate(TENSORS.items())
        }
        optimizer = keras.optimizers.RMSprop(learning_rate=RATE, **options)
        optimizer.build(list(weights.values()))
        for t in range(STEPS):
            optimizer.learning_rate = RATE * factor_of_rate(t)
            optimizer.apply([
                keras.ops.convert_to_tensor(
                    [gradient(i, k, t) for k in range(count)], dtype="float64")
                for i, count in enumerate(TENSORS.values())
            ])
            yield name, t, {tensor: w.numpy().tolist() for tensor, w in weights.items()}


def show(name, step, weights):
    if step in PRINTED:
        for tensor, values in weights.items():
            print(f"{name},{tensor},{step}," + ",".join(f"{x:.12g}" for x in values))


def main():
    print("optimizer,tensor,step,weights")
    for name, make in OPTIMIZERS.items():
        for step, weights in path(make, LARGEST_NORM.get(name)):
            show(name, step, weights)
    for name, step, weights in keras_paths():
        show(name, step, weights)


if __name__ == "__main__":
    main()
