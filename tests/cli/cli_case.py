"""Runs the command line for tests. SLUICE_CLI is the path of the program."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

PROGRAM = os.environ["SLUICE_CLI"]
COMMANDS = ["train", "eval", "predict", "plan", "bench", "inspect", "doctor"]
SHORT = ["--synthetic", "--steps", "30", "--width", "64"]  # A short run.
MOST = 2 ** 63 - 1  # Upper limit of most integer options.


def sluice(*arguments, env=None):
    return subprocess.run([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, env={
                              **os.environ,
                              **(env or {})
                          }, timeout=240)


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
