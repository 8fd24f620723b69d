"""Runs the command line for tests.

SLUICE_CLI is the path of the program, SLUICE_MPIRUN that of the launcher of processes.
"""

import atexit
import json
import os
import random
import re
import signal
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = os.environ["SLUICE_CLI"]
MPIRUN = os.environ.get("SLUICE_MPIRUN", "")  # The launcher; empty: there is none.
# Open MPI must accept root, more processes than cores, and systems where a process may not read
# another process's memory.
MPI_ENVIRONMENT = {
    **os.environ,
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none"
}
COMMANDS = ["train", "eval", "predict", "generate", "plan", "bench", "inspect", "doctor"]
MOST = 2 ** 63 - 1  # Upper limit of most integer options.
# Seconds after which a test ends a command that hangs. It is no assertion about speed.
HANG = 240


def write_idx(folder, part, images, labels, side):
    """Writes square images of bytes and their labels to the files of "train" or "t10k"."""
    (folder / f"{part}-images-idx3-ubyte").write_bytes(
        struct.pack(">4I", 0x803, len(images), side, side) + b"".join(images))
    (folder / f"{part}-labels-idx1-ubyte").write_bytes(
        struct.pack(">2I", 0x801, len(labels)) + bytes(labels))


def few_digits():
    """Returns a folder of noise in the format of MNIST, which this process removes at its exit."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    draw = random.Random(1)
    for part, count in (("train", 1024), ("t10k", 400)):
        write_idx(Path(folder.name), part, [draw.randbytes(28 * 28) for _ in range(count)],
                  [draw.randrange(10) for _ in range(count)], side=28)
    return folder.name


# To load few digits takes a tenth of the time of drawing the 24,000 of --synthetic.
DIGITS = ["--data", few_digits()]
SHORT = [*DIGITS, "--steps", "30", "--width", "64"]  # A short run.


def wait_until(holds, pause=0.005):
    """Returns once `holds` returns a true value. Raises TimeoutError after HANG seconds."""
    end = time.monotonic() + HANG
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"the condition does not hold after {HANG} s")
        time.sleep(pause)


def has_signal(pid, number, kind):
    """Whether a process catches ("SigCgt") or ignores ("SigIgn") a signal."""
    mask = re.search(rf"(?m)^{kind}:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return int(mask[1], 16) >> (number - 1) & 1 == 1


def mpi(processes, *arguments):
    """Returns the command line of a run in several processes."""
    return [MPIRUN, "-n", str(processes), PROGRAM, *map(str, arguments)]


def programs_under(pid):
    """Returns the program's processes below a launcher, by rank; none of a process that ends."""
    try:
        with open(f"/proc/{pid}/cmdline") as f:
            if f.read().startswith(PROGRAM):
                return [int(pid)]
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            children = f.read().split()
    except OSError:
        return []
    return sorted(p for child in children for p in programs_under(child))


def runs(pid):
    """Whether a process runs. A zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def kill(pids):
    for pid in pids:
        if runs(pid):
            os.kill(pid, signal.SIGKILL)


def sluice(*arguments, env=None):
    return subprocess.run([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, env={
                              **os.environ,
                              **(env or {})
                          }, timeout=HANG)


class CliTest(unittest.TestCase):
    def expect_code(self, code, *arguments, env=None):
        result = sluice(*arguments, env=env)
        self.assertEqual(result.returncode, code, f"{arguments}\n{result.stdout}\n{result.stderr}")
        return result

    def expect_error(self, code, kind, part, *arguments, env=None):
        """Expects exit code `code`, "error (kind): ... part ..." on stderr, and an empty stdout."""
        result = self.expect_code(code, *arguments, env=env)
        self.assertIn(f"error ({kind}): ", result.stderr)
        self.assertIn(part, result.stderr)
        self.assertEqual(result.stdout, "")

    def record(self, *arguments, env=None):
        return json.loads(self.expect_code(0, *arguments, "--json", env=env).stdout)


class FolderTest(CliTest):
    """Tests with a folder of their own, which may have samples and weights."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.csv = self.folder / "samples.csv"
        self.weights = self.folder / "weights.safetensors"


class MpiTest(CliTest):
    """Tests that start several processes."""

    launches = crashes = 0
    MAX_CRASHES = 3

    def finish(self, command):
        """Runs a command to its end. Repeats it if the launcher crashes at its own end.

        Open MPI's launcher may crash after it has aborted all processes. All tests together repeat
        at most MAX_CRASHES runs.
        """
        while True:
            MpiTest.launches += 1
            result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True,
                                    text=True, env=MPI_ENVIRONMENT, timeout=HANG)
            if result.returncode != -signal.SIGSEGV or "PMIx_server_final" not in result.stderr:
                return result
            MpiTest.crashes += 1
            self.assertLessEqual(self.crashes, self.MAX_CRASHES,
                                 f"the launcher crashes too often:\n{result.stderr}")
