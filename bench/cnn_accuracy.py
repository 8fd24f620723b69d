#!/usr/bin/env python3
"""Compares the test accuracy of mnist-cnn with PyTorch's after three epochs, for several seeds.

    python3 bench/cnn_accuracy.py build/bin/sluice --data DIR

DIR has MNIST's four files. Both train document 002's network: AdamW with rate 0.001, micro-batches
of 40 whose gradients are averaged over 10. It prints the accuracies of each seed and their medians,
and exits with 1 if the median is more than 0.15 points below PyTorch's or outside (97.5, 99.9).
"""
import argparse
import gzip
import json
import statistics
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

MICRO_BATCH, ACCUMULATE, RATE = 40, 10, 0.001


def read_idx(folder, name, header):
    path = Path(folder) / name
    data = path.read_bytes() if path.exists() else gzip.open(str(path) + ".gz").read()
    return torch.frombuffer(bytearray(data[header:]), dtype=torch.uint8)


def load(folder, split):
    images = read_idx(folder, f"{split}-images-idx3-ubyte", 16).float().reshape(-1, 1, 28, 28)
    labels = read_idx(folder, f"{split}-labels-idx1-ubyte", 8).long()
    return (images / 255 - 0.1307) / 0.3081, labels


def network():
    return nn.Sequential(nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(),
                         nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU(),
                         nn.Flatten(), nn.Linear(320, 256), nn.ReLU(), nn.Linear(256, 10))


def pytorch_accuracy(seed, epochs, train, test):
    torch.manual_seed(seed)
    net, loss = network(), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE)
    images, labels = train
    step = MICRO_BATCH * ACCUMULATE
    for _ in range(epochs):
        order = torch.randperm(len(labels))
        for begin in range(0, len(labels) - step + 1, step):
            for part in order[begin:begin + step].split(MICRO_BATCH):
                (loss(net(images[part]), labels[part]) / ACCUMULATE).backward()
            optimizer.step()
            optimizer.zero_grad()
    with torch.no_grad():
        right = sum((net(x).argmax(1) == y).sum().item()
                    for x, y in zip(test[0].split(1000), test[1].split(1000)))
    return 100 * right / len(test[1])


def sluice_accuracy(program, seed, options):
    command = [program, "train", "mnist-cnn", "--seed", str(seed), "--epochs", str(options.epochs),
               "--data", options.data, "--threads", str(options.threads), "--log-level", "error",
               "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["accuracy"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the command line, build/bin/sluice")
    parser.add_argument("--data", required=True, help="folder with MNIST's files")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of each (default: 5)")
    parser.add_argument("--epochs", type=int, default=3, help="epochs of each (default: 3)")
    parser.add_argument("--threads", type=int, default=2, help="threads of each (default: 2)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    train, test = load(options.data, "train"), load(options.data, "t10k")
    ours, theirs = [], []
    for seed in range(options.seeds):
        ours.append(sluice_accuracy(options.program, seed, options))
        theirs.append(pytorch_accuracy(seed, options.epochs, train, test))
        print(f"seed {seed}: sluice {ours[-1]:.2f} %, PyTorch {theirs[-1]:.2f} %", flush=True)
    ours_median, their_median = statistics.median(ours), statistics.median(theirs)
    print(f"median: sluice {ours_median:.2f} %, PyTorch {torch.__version__} {their_median:.2f} %")
    good = ours_median >= their_median - 0.15 and 97.5 < ours_median < 99.9
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
