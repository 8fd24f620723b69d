#!/usr/bin/env python3
"""Computes the weights of a quadratic bowl under PyTorch's optimizers, for optimizer_paths_test.cc.

Prints "optimizer,step,w0,w1,…" lines in float64. optimizer_paths.csv has the output with
PyTorch 1.13:

    python3 tests/models/optimizer_paths.py > tests/models/optimizer_paths.csv

The gradient of weight i at step t is (i + 1)/4·(w − (−1)^i) + ((7·t + 3·i) mod 5 − 2)/4.
"""
import torch

STEPS, COUNT, RATE, EVERY = 60, 6, 0.05, 6

OPTIMIZERS = {
    "momentum": lambda w: torch.optim.SGD([w], lr=RATE, momentum=0.9, weight_decay=0.125),
    "adam": lambda w: torch.optim.Adam([w], lr=RATE, weight_decay=0.125),
    "adamw": lambda w: torch.optim.AdamW([w], lr=RATE, weight_decay=0.125),
    "adamax": lambda w: torch.optim.Adamax([w], lr=RATE, betas=(0.8, 0.9)),
    "adamax-decay": lambda w: torch.optim.Adamax(
        [w], lr=RATE, betas=(0.8, 0.9), weight_decay=0.125),
    "clipped": lambda w: torch.optim.SGD([w], lr=RATE, momentum=0.9),
}
LARGEST_NORM = {"clipped": 0.75}


def path(make, largest_norm):
    w = torch.zeros(COUNT, dtype=torch.float64, requires_grad=True)
    i = torch.arange(COUNT, dtype=torch.float64)
    optimizer = make(w)
    for t in range(STEPS):
        noise = torch.tensor(
            [((7 * t + 3 * k) % 5 - 2) / 4 for k in range(COUNT)], dtype=torch.float64)
        with torch.no_grad():
            w.grad = (i + 1) / 4 * (w - (1 - 2 * (i % 2))) + noise
        if largest_norm:
            torch.nn.utils.clip_grad_norm_([w], largest_norm)
        optimizer.step()
        if (t + 1) % EVERY == 0:
            yield t, w.detach().tolist()


def main():
    print("optimizer,step," + ",".join(f"w{k}" for k in range(COUNT)))
    for name, make in OPTIMIZERS.items():
        for step, weights in path(make, LARGEST_NORM.get(name)):
            print(f"{name},{step}," + ",".join(f"{x:.17g}" for x in weights))


if __name__ == "__main__":
    main()
