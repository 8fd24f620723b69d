#!/usr/bin/env python3
"""Times a training step of the MNIST MLP (784-512-512-512-10, GELU, cross entropy) against PyTorch, in one run.

usage: bench/mlp_vs_pytorch.py SLUICE [--python PYTHON] [--rounds N]

PyTorch runs in a process of its own in its best configuration on Debian: OPENBLAS_CORETYPE=SkylakeX where the machine
has AVX-512, memory kept by malloc, denormals flushed. Rounds alternate between the two programs; the table shows
medians over rounds of the median microseconds a step. PYTHON needs torch (Debian: python3-torch with libopenblas0-openmp,
without which it is several times slower); without it only Sluice's column is filled.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

TORCH = r"""
import sys, time, json, statistics
import torch
batch, threads, optimizer, steps = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
torch.set_num_threads(threads)
torch.set_flush_denormal(True)
torch.manual_seed(0)
dims = [784, 512, 512, 512, 10]
layers = []
for i in range(4):
    layers.append(torch.nn.Linear(dims[i], dims[i + 1]))
    if i < 3:
        layers.append(torch.nn.GELU())
model = torch.nn.Sequential(*layers)
if optimizer == "sgd":
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
else:
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
x, y = torch.randn(batch, 784), torch.randint(0, 10, (batch,))
loss_fn = torch.nn.CrossEntropyLoss()
def step():
    opt.zero_grad()
    loss_fn(model(x), y).backward()
    opt.step()
for _ in range(20):
    step()
times = []
for _ in range(steps):
    begin = time.perf_counter()
    step()
    times.append((time.perf_counter() - begin) * 1e6)
print(json.dumps({"microseconds_per_step": statistics.median(times), "version": torch.__version__}))
"""


def run(command, env=None):
    out = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if out.returncode != 0:
        return None
    return json.loads(out.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    env = dict(os.environ, MALLOC_MMAP_THRESHOLD_="1073741824", MALLOC_TRIM_THRESHOLD_="1073741824")
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        if "avx512f" in cpuinfo.read():
            env["OPENBLAS_CORETYPE"] = "SkylakeX"

    rows = []
    for optimizer in ("sgd", "adam"):
        for batch in (8, 64):
            for threads in (1, 2):
                ours, theirs, version = [], [], None
                steps = 300 if batch == 8 else 150
                for _ in range(args.rounds):
                    mine = run([args.sluice, "bench", "mnist", "--micro-batch", str(batch), "--threads", str(threads),
                                "--optimizer", optimizer, "--steps", str(steps), "--json"])
                    if mine is None:
                        sys.exit(f"{args.sluice} bench failed")
                    ours.append(mine["microseconds_per_step"])
                    other = run([args.python, "-c", TORCH, str(batch), str(threads), optimizer, str(steps)], env)
                    if other is not None:
                        theirs.append(other["microseconds_per_step"])
                        version = other["version"]
                rows.append({"optimizer": optimizer, "batch": batch, "threads": threads, "sluice_us": statistics.median(ours),
                             "pytorch_us": statistics.median(theirs) if theirs else None, "pytorch": version})
    if args.json:
        print(json.dumps(rows))
        return
    print(f"{'optimizer':<10}{'batch':>6}{'threads':>8}{'sluice us':>11}{'pytorch us':>12}{'ratio':>7}")
    for r in rows:
        theirs = "-" if r["pytorch_us"] is None else f"{r['pytorch_us']:.0f}"
        ratio = "-" if r["pytorch_us"] is None else f"{r['pytorch_us'] / r['sluice_us']:.2f}"
        print(f"{r['optimizer']:<10}{r['batch']:>6}{r['threads']:>8}{r['sluice_us']:>11.0f}{theirs:>12}{ratio:>7}")
    if rows[0]["pytorch"]:
        print(f"PyTorch {rows[0]['pytorch']}; ratio above 1: Sluice is faster")


if __name__ == "__main__":
    main()
