#!/usr/bin/env python3
"""Writes the picture of docs/howto/train_a_transformer.md: device memory by the number of blocks.

usage: write_memory_picture.py SLUICE [--check]

SLUICE is the program, whose plans have the bytes. --check compares the picture instead.
"""

import json
import subprocess
import sys
from pathlib import Path

PICTURE = (Path(__file__).resolve().parent.parent /
           "docs/howto/pictures/transformer_memory.svg")
MODEL = ["gpt", "--width", "384", "--heads", "6", "--context", "256", "--micro-batch", "8",
         "--test-batch", "8", "--vocab", "65"]
BLOCKS = [2, 4, 6, 12, 24, 48]
# Name, colour and flags of a strategy.
STRATEGIES = [("resident", "#c0504d", []), ("phased", "#4f81bd", ["--strategy", "phased"])]
WIDTH, HEIGHT, LEFT, TOP, BAR, GROUP, BASE = 640, 300, 70, 40, 32, 92, 250


def device_bytes(sluice, blocks, flags):
    text = subprocess.run([sluice, "plan", *MODEL, "--blocks", str(blocks), *flags, "--json"],
                          check=True, capture_output=True, text=True).stdout
    return json.loads(text)["peak_bytes.device"]


def shown(count):
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def picture(sluice):
    """Returns the text of the SVG."""
    table = [(blocks, [device_bytes(sluice, blocks, flags) for _, _, flags in STRATEGIES])
             for blocks in BLOCKS]
    most = max(count for _, counts in table for count in counts)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
             f'font-family="sans-serif" font-size="11">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
             f'<text x="{LEFT}" y="20" font-size="14">Device memory of a training step</text>']
    for k, (name, colour, _) in enumerate(STRATEGIES):
        x = LEFT + 300 + 110 * k
        lines.append(f'<rect x="{x}" y="10" width="12" height="12" fill="{colour}"/>'
                     f'<text x="{x + 18}" y="20">{name}</text>')
    for g, (blocks, counts) in enumerate(table):
        x = LEFT + GROUP * g
        for k, count in enumerate(counts):
            height = max(1, round((BASE - TOP - 20) * count / most))
            left = x + (BAR + 4) * k
            lines.append(f'<rect x="{left}" y="{BASE - height}" width="{BAR}" height="{height}" '
                         f'fill="{STRATEGIES[k][1]}"/>'
                         f'<text x="{left + BAR // 2}" y="{BASE - height - 4}" font-size="9" '
                         f'text-anchor="middle">{shown(count)}</text>')
        lines.append(f'<text x="{x + BAR + 2}" y="{BASE + 16}" text-anchor="middle">'
                     f'{blocks} blocks</text>')
    lines.append(f'<line x1="{LEFT - 10}" y1="{BASE}" x2="{WIDTH - 10}" y2="{BASE}" '
                 'stroke="black"/>')
    return "\n".join(lines + ["</svg>", ""])


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--check"]):
        sys.exit("usage: write_memory_picture.py SLUICE [--check]")
    text = picture(sys.argv[1])
    if not sys.argv[2:]:
        PICTURE.write_text(text)
    elif PICTURE.read_text() != text:
        sys.exit(f"{PICTURE}: must have the bytes of the plans; run this script without --check")


if __name__ == "__main__":
    main()
