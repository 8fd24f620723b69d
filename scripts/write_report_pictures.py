#!/usr/bin/env python3
"""Writes the pictures of docs/howto/read_a_report.md with headless Chromium.

usage: write_report_pictures.py SLUICE

SLUICE is the program. It trains on the digits of SLUICE_DATA. Each picture has less than 150 KB.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs/howto/pictures"
MOST = 150_000
STAGES = ["train", "mnist-cnn", "--strategy", "pipelined", "--micro-batch", "40", "--accumulate",
          "8", "--device-iterations", "1", "--steps", "2"]
PHASES = ["train", "mnist", "--width", "32", "--layers", "4", "--micro-batch", "8", "--accumulate",
          "4", "--device-iterations", "1", "--optimizer", "adam", "--steps", "2"]
OFFLOAD = ["--strategy", "phased", "--offload", "activations,optimizer"]
# Name, options of the run, view and height of the picture.
PICTURES = [
    ("summary", STAGES, "Summary", 640),
    ("memory", [*PHASES, *OFFLOAD], "Memory", 640),
    ("variables", [*PHASES, *OFFLOAD], "Variables", 330),
    ("remote", [*PHASES, *OFFLOAD], "Remote", 380),
    ("trace", STAGES, "Trace", 420),
    ("schedule", STAGES, "Schedule", 360),
    ("traffic", STAGES, "Traffic", 420),
    ("kernels", [*PHASES, *OFFLOAD], "Kernels", 640),
]
# Chooses the report of a resident run as the second one.
SECOND = """<script>addEventListener("load", () => {
  const files = new DataTransfer();
  files.items.add(new File([JSON.stringify(SECOND)], "resident.json"));
  const input = document.querySelector("input[type=file]");
  input.files = files.files;
  input.dispatchEvent(new Event("change"));
});</script></body>"""


def profile(sluice, flags, folder):
    """Runs a command and returns the folder of its report."""
    if not folder.exists():
        subprocess.run([sluice, *flags, f"--profile={folder}"], check=True,
                       stdout=subprocess.DEVNULL)
    return folder / "training"


def main():
    if len(sys.argv) != 2:
        sys.exit(f"write_report_pictures.py: must have one argument, got {len(sys.argv) - 1}; "
                 "usage: write_report_pictures.py SLUICE")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("write_report_pictures.py: chromium: not found; install the package chromium")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for picture, flags, view, height in PICTURES:
            kind = "stages" if flags is STAGES else "phases"
            page = (profile(sys.argv[1], flags, folder / kind) / "report.html").read_text()
            if view == "Memory":
                resident = profile(sys.argv[1], PHASES, folder / "resident")
                second = json.dumps(json.loads((resident / "report.json").read_text()))
                script = SECOND.replace("SECOND", second.replace("<", "\\u003c"))
                page = script.join(page.rsplit("</body>", 1))
            driven = folder / "page.html"
            driven.write_text(page)
            file = FOLDER / f"{picture}.png"
            subprocess.run([
                chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                f"--window-size=1000,{height}", f"--user-data-dir={folder}/user",
                "--blink-settings=preferredColorScheme=1", "--virtual-time-budget=5000",
                f"--screenshot={file}", f"{driven.as_uri()}#{view}"
            ], check=True, capture_output=True)
            if file.stat().st_size >= MOST:
                sys.exit(f"{file}: must have less than {MOST} bytes, got {file.stat().st_size}")
            print(f"{file}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
