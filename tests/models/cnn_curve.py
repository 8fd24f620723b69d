#!/usr/bin/env python3
"""Computes the loss curve of document 002's convolutional network (AdamW) in PyTorch.

Weights and batches come from the generator that cnn_curve_test.cc also uses. Prints
"step,float32,float64" lines, where a step is one of the ten micro-batches of an update.
cnn_curve.csv has the output with PyTorch 2.15:

    python3 tests/models/cnn_curve.py > tests/models/cnn_curve.csv
"""
import torch
from mlp_curve import Lcg

STEPS, ACCUMULATE, BATCH, CLASSES, RATE = 20, 10, 8, 10, 0.001


class ConvLayer(torch.nn.Module):
    def __init__(self, in_channels, channels):
        super().__init__()
        self.conv = torch.nn.Conv2d(in_channels, channels, 5)
        self.pool = torch.nn.MaxPool2d(2)

    def forward(self, x):
        return torch.relu(self.pool(self.conv(x)))


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = ConvLayer(1, 10)
        self.layer2 = ConvLayer(10, 20)
        self.layer3 = torch.nn.Linear(320, 256)
        self.layer4 = torch.nn.Linear(256, CLASSES)

    def forward(self, x):
        x = torch.flatten(self.layer2(self.layer1(x)), 1)
        return self.layer4(torch.relu(self.layer3(x)))


def curve(dtype):
    net = Network()
    weights = Lcg(1)
    fan = 1
    with torch.no_grad():
        for parameter in net.parameters():  # Each weight precedes its bias.
            if parameter.dim() > 1:
                fan = parameter[0].numel()
            parameter.copy_(weights.array(*parameter.shape, scale=fan**-0.5))
    net = net.to(dtype)
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE)
    prototypes = Lcg(2).array(CLASSES, 28, 28)
    batches = Lcg(3)
    losses = []
    for micro_batch in range(STEPS * ACCUMULATE):
        labels = torch.tensor([int(batches.next() * CLASSES) for _ in range(BATCH)])
        images = (prototypes[labels] + batches.array(BATCH, 28, 28)).to(dtype)
        loss = torch.nn.functional.cross_entropy(net(images[:, None]), labels)
        losses.append(loss.item())
        (loss / ACCUMULATE).backward()
        if micro_batch % ACCUMULATE == ACCUMULATE - 1:
            optimizer.step()
            optimizer.zero_grad()
    return losses


def main():
    torch.set_num_threads(1)
    print("step,float32,float64")
    for step, (a, b) in enumerate(zip(curve(torch.float32), curve(torch.float64))):
        print(f"{step},{a:.9g},{b:.17g}")


if __name__ == "__main__":
    main()
