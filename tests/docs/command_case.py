"""Helpers of commands_test.py: the commands of the documents, and how they run."""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "cli"))
from cli_case import DIGITS

PROGRAM = os.environ["SLUICE_CLI"]
MPIRUN = os.environ["SLUICE_MPIRUN"]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ENVIRONMENT = {
    **os.environ, "SLUICE_DATA": "",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none"
}
FEW_DIGITS = {"SLUICE_DATA": DIGITS[1]}
ONE_THREAD = ["--threads", 1]


def is_command(text):
    return re.match(r"(sluice( |$)|mpirun |\./\w|(cmake|ctest) -|bench/\S+ \S|\.ci/run)",
                    text) is not None


def commands(document):
    """Returns a document's commands: lines of sh blocks or after a prompt, and inline code."""
    text = document.read_text()
    for language, block in FENCE.findall(text):
        for line in block.splitlines():
            if language == "sh":
                yield re.sub(r"\s+# .*", "", line)
            elif line.startswith("$ "):
                yield line[2:]
    for code in re.findall(r"`([^`]+)`", FENCE.sub("", text)):
        code = " ".join(code.split())
        if is_command(code):
            yield code


CHECKED = {}  # Command -> name of the test that runs it.


def runs(*texts):
    def register(test):
        CHECKED.update({text: test.__name__ for text in texts})
        return lambda self: test(self, *texts)

    return register


class CommandCase(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_words(self, words, code=0, env=None):
        result = subprocess.run(list(map(str, words)),
                                stdin=subprocess.DEVNULL,
                                capture_output=True,
                                text=True,
                                cwd=self.folder,
                                env={
                                    **ENVIRONMENT,
                                    **(env or {})
                                },
                                timeout=600)
        self.assertEqual(result.returncode, code,
                         f"{words}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}")
        return result

    def sluice(self, command, *more, code=0, env=None):
        words = shlex.split(command)
        self.assertEqual(words[0], "sluice")
        return self.run_words([PROGRAM, *words[1:], *more], code, env)

    def record(self, command, *more, env=None):
        return json.loads(self.sluice(command, *more, "--json", env=env).stdout)
