#!/usr/bin/env python3
"""Times steps of multi-layer perceptrons (GELU, cross entropy) against PyTorch and against the machine's arithmetic limit.

usage: bench/steps_vs_pytorch.py BENCH_DIR [--python PYTHON] [--rounds N] [--only TEXT] [--json]

BENCH_DIR is where step_bench and gemm_bench were built. PyTorch runs in a process of its own in its best configuration on
Debian: OPENBLAS_CORETYPE=SkylakeX where the machine has AVX-512, memory kept by malloc, denormals flushed. Rounds alternate
between the two programs; the table shows medians over rounds of the median microseconds a step. The limit is the step's
flops over the peak of fused multiply-adds that gemm_bench measures in the same run. PYTHON needs torch (Debian:
python3-torch with libopenblas0-openmp, without which it is several times slower); without it only Sluice's columns are
filled.
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
dims = [int(d) for d in sys.argv[1].split(",")]
batch, threads, optimizer, steps = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
torch.set_num_threads(threads)
torch.set_flush_denormal(True)
torch.manual_seed(0)
layers = []
for i in range(len(dims) - 1):
    layers.append(torch.nn.Linear(dims[i], dims[i + 1]))
    if i + 2 < len(dims):
        layers.append(torch.nn.GELU())
model = torch.nn.Sequential(*layers)
x, y = torch.randn(batch, dims[0]), torch.randint(0, dims[-1], (batch,))
loss_fn = torch.nn.CrossEntropyLoss()
opt = {"sgd": lambda: torch.optim.SGD(model.parameters(), lr=1e-4),
       "adam": lambda: torch.optim.Adam(model.parameters(), lr=1e-4), "none": lambda: None}[optimizer]()
def train():
    opt.zero_grad()
    loss_fn(model(x), y).backward()
    opt.step()
def infer():
    with torch.no_grad():
        model(x)
step = infer if opt is None else train
for _ in range(min(steps, 20)):
    step()
times = []
for _ in range(steps):
    begin = time.perf_counter()
    step()
    times.append((time.perf_counter() - begin) * 1e6)
print(json.dumps({"microseconds_per_step": statistics.median(times), "version": torch.__version__}))
"""

MLP = "784,512,512,512,10"
WIDE = ",".join(["2048"] * 8 + ["10"])
TINY = ",".join(["8"] * 9)
# Name, layer sizes, batch, optimizer, threads, steps, least ratio to PyTorch, least part of the limit.
CASES = [
    ("batch 8, SGD", MLP, 8, "sgd", 2, 300, 3.0, None),
    ("batch 8, Adam", MLP, 8, "adam", 2, 300, 4.0, None),
    ("batch 8, SGD", MLP, 8, "sgd", 1, 300, 2.5, None),
    ("batch 8, Adam", MLP, 8, "adam", 1, 300, 4.0, None),
    ("batch 64, SGD", MLP, 64, "sgd", 2, 150, 1.4, 0.7),
    ("batch 64, Adam", MLP, 64, "adam", 2, 150, 1.8, None),
    ("batch 256, SGD", MLP, 256, "sgd", 2, 50, None, 0.8),
    ("2048 wide, 8 layers, batch 64, Adam", WIDE, 64, "adam", 2, 8, 1.3, None),
    ("inference, batch 1", MLP, 1, "none", 2, 500, 3.0, None),
    ("inference, batch 8", MLP, 8, "none", 2, 500, 2.0, None),
    ("inference, batch 80", MLP, 80, "none", 2, 300, 1.3, None),
    ("8 layers of 8x8, batch 8, SGD", TINY, 8, "sgd", 2, 2000, None, None),
]


def run(command, env=None):
    out = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    return json.loads(out.stdout) if out.returncode == 0 else None


def measure(args, case, env, peak):
    name, dims, batch, optimizer, threads, steps, least_ratio, least_part = case
    ours, theirs, gflop, version = [], [], 0, None
    for _ in range(args.rounds):
        mine = run([os.path.join(args.bench_dir, "step_bench"), "--dims", dims, "--batch", str(batch), "--threads", str(threads),
                    "--optimizer", optimizer, "--steps", str(steps), "--json"])
        if mine is None:
            sys.exit(f"step_bench failed on {name}")
        ours.append(mine["microseconds_per_step"])
        gflop = mine["gflop"]
        other = run([args.python, "-c", TORCH, dims, str(batch), str(threads), optimizer, str(steps)], env)
        if other is not None:
            theirs.append(other["microseconds_per_step"])
            version = other["version"]
    us = statistics.median(ours)
    row = {"case": name, "threads": threads, "sluice_us": us, "limit_us": gflop / peak[threads] * 1e6, "pytorch": version,
           "least_ratio": least_ratio, "least_part": least_part}
    row["part_of_limit"] = row["limit_us"] / us
    row["pytorch_us"] = statistics.median(theirs) if theirs else None
    row["ratio"] = row["pytorch_us"] / us if theirs else None
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench_dir")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    env = dict(os.environ, MALLOC_MMAP_THRESHOLD_="1073741824", MALLOC_TRIM_THRESHOLD_="1073741824")
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        if "avx512f" in cpuinfo.read():
            env["OPENBLAS_CORETYPE"] = "SkylakeX"
    gemm = run([os.path.join(args.bench_dir, "gemm_bench"), "--json", "--rounds", "10", "--shape", "64,512,512"])
    if gemm is None:
        sys.exit("gemm_bench failed")
    peak = {t: max(r["peak"] for r in gemm["gemm"] if r["threads"] == t) for t in (1, 2)}

    rows = [measure(args, c, env, peak) for c in CASES if args.only in c[0]]
    if args.json:
        print(json.dumps({"peak_gflops": peak, "rows": rows}))
        return
    print(f"peak of fused multiply-adds: {peak[1]:.0f} GF/s with 1 thread, {peak[2]:.0f} with 2")
    print(f"{'case':<37}{'threads':>8}{'sluice us':>11}{'limit us':>10}{'part':>6}{'goal':>6}{'pytorch us':>12}{'ratio':>7}{'goal':>6}")
    for r in rows:
        show = lambda v, digits: "-" if v is None else f"{v:.{digits}f}"
        print(f"{r['case']:<37}{r['threads']:>8}{r['sluice_us']:>11.1f}{r['limit_us']:>10.1f}{r['part_of_limit']:>6.2f}"
              f"{show(r['least_part'], 1):>6}{show(r['pytorch_us'], 0):>12}{show(r['ratio'], 2):>7}{show(r['least_ratio'], 1):>6}")
    if rows and rows[0]["pytorch"]:
        print(f"PyTorch {rows[0]['pytorch']}; a ratio above 1: Sluice is faster")


if __name__ == "__main__":
    main()
