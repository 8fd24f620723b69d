#!/usr/bin/env python3
"""Computes the loss curve of a 784-64-10 perceptron (GELU by tanh, cross entropy, SGD) in PyTorch.

Weights and batches come from the generator that mlp_curve_test.cc also uses. Prints
"step,float32,float64" lines. mlp_curve.csv has the output with PyTorch 1.13.1:

    python3 tests/models/mlp_curve.py > tests/models/mlp_curve.csv
"""
import torch

STEPS, BATCH, INPUTS, HIDDEN, CLASSES, RATE = 200, 16, 784, 64, 10, 0.05


class Lcg:
    """Knuth's 64-bit generator (MMIX): numbers in [0, 1) with 24 bits, exact in float32."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 40) / 2**24

    def array(self, *shape, scale=1.0):
        count = 1
        for d in shape:
            count *= d
        values = [(2 * self.next() - 1) * scale for _ in range(count)]
        return torch.tensor(values, dtype=torch.float64).to(torch.float32).reshape(shape)


def curve(dtype):
    weights = Lcg(1)
    w1 = weights.array(INPUTS, HIDDEN, scale=0.0625)
    b1 = weights.array(HIDDEN, scale=0.0625)
    w2 = weights.array(HIDDEN, CLASSES, scale=0.125)
    b2 = weights.array(CLASSES, scale=0.125)
    parameters = [p.to(dtype).requires_grad_() for p in (w1, b1, w2, b2)]
    prototypes = Lcg(2).array(CLASSES, INPUTS, scale=0.25)
    batches = Lcg(3)
    losses = []
    for _ in range(STEPS):
        labels = torch.tensor([int(batches.next() * CLASSES) for _ in range(BATCH)])
        images = (prototypes[labels] + batches.array(BATCH, INPUTS)).to(dtype)
        w1, b1, w2, b2 = parameters
        hidden = torch.nn.functional.gelu(images @ w1 + b1, approximate="tanh")
        loss = torch.nn.functional.cross_entropy(hidden @ w2 + b2, labels)
        losses.append(loss.item())
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for p, g in zip(parameters, gradients):
                p -= RATE * g
    return losses


def main():
    torch.set_num_threads(1)
    print("step,float32,float64")
    for step, (a, b) in enumerate(zip(curve(torch.float32), curve(torch.float64))):
        print(f"{step},{a:.9g},{b:.17g}")


if __name__ == "__main__":
    main()
