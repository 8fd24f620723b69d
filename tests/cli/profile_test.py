#!/usr/bin/env python3
"""Tests the reports that SLUICE_PROFILE and SLUICE_OPTIONS ask for."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from cli_case import DIGITS, HANG, PROGRAM, CliTest
from readers.report_reader import Report

RUN = ["mlp", "--width", "32", *DIGITS, "--steps", "2"]
FILES = {"report.json", "report.html", "trace.json"}


class Profile(CliTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = Path(folder.name)
        self.folder = self.here / "asked"

    def run_in(self, code, arguments, **environment):
        """Runs the program in a folder of its own. Returns stderr."""
        result = subprocess.run([Path(PROGRAM).resolve(), *map(str, arguments)], cwd=self.here,
                                capture_output=True, text=True, timeout=HANG,
                                env={**os.environ, **environment})
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stderr

    def train_for_predict(self):
        """Trains on a table. Returns a command that predicts with the weights."""
        lines = [f"{i % 5},{i % 3},{i % 2}" for i in range(200)]
        (self.here / "samples.csv").write_text("\n".join(["a,b,class", *lines, ""]))
        model = ["mlp", "--width", 32, "--dataset", "csv:samples.csv"]
        self.run_in(0, ["train", *model, "--save", "w.safetensors", "--steps", 2])
        return ["predict", *model, "--weights", "w.safetensors", "--to", "p.npz"]

    def expect_report(self, folder, measured):
        self.assertEqual({f.name for f in folder.iterdir()}, FILES)
        report = Report(folder / "report.json")
        report.check()
        self.assertEqual([m["program"] for m in report.data["measured"]], measured)
        return report

    def test_commands_write_the_report_of_their_flag(self):
        weights = self.here / "w.safetensors"
        self.run_in(0, ["train", *RUN, "--save", weights], SLUICE_PROFILE=str(self.folder))
        report = self.expect_report(self.folder / "training", ["train"])
        self.assertEqual(report.data["options"]["--width"], "32")  # As with --profile.
        self.assertNotIn("--profile", report.data["options"])
        self.run_in(0, ["eval", *RUN[:5], "--weights", weights], SLUICE_PROFILE=str(self.folder))
        self.expect_report(self.folder / "inference", ["eval"])
        self.run_in(0, self.train_for_predict(), SLUICE_PROFILE=str(self.here / "predict"))
        self.expect_report(self.here / "predict/inference", ["eval"])
        self.run_in(0, ["bench", *RUN[:3], "--steps", 2], SLUICE_PROFILE=str(self.here / "bench"))
        self.expect_report(self.here / "bench/training", ["train"])

    def test_options_as_json(self):
        self.run_in(0, ["train", *RUN], SLUICE_OPTIONS='{"profile":"all"}')
        self.expect_report(self.here / "profile/training", ["train"])
        options = '{"profile":"none","autoReport":1,"b":2}'
        text = self.run_in(0, ["train", *RUN], SLUICE_OPTIONS=options)
        self.assertEqual(text.count("SLUICE_OPTIONS: ignored 'autoReport', 'b'; its key is"), 1,
                         text)
        self.run_in(0, ["train", *RUN], SLUICE_OPTIONS='{"profile":"all"}',
                    SLUICE_PROFILE=str(self.folder))
        self.expect_report(self.folder / "training", ["train"])  # SLUICE_PROFILE wins.
        for text, part in (("all", "SLUICE_OPTIONS: must be JSON such as"), ("[]", "got '[]'"),
                           ('{"profile":"some"}', 'must be "all" or "none", got "some"'),
                           ('{"profile":1}', "got 1")):
            self.assertIn(part, self.run_in(2, ["train", *RUN], SLUICE_OPTIONS=text))
        # A plan opens no session, and empty variables are no request.
        self.run_in(0, ["plan", "mlp", "--width", 32], SLUICE_PROFILE=str(self.here / "plan"))
        self.assertFalse((self.here / "plan").exists())
        text = self.run_in(0, ["train", *RUN], SLUICE_PROFILE="", SLUICE_OPTIONS="")
        self.assertNotIn("report", text)

    def test_a_flag_wins_with_one_warning(self):
        text = self.run_in(0, ["train", *RUN, "--profile=flag"], SLUICE_PROFILE=str(self.folder))
        self.assertEqual(text.count("SLUICE_PROFILE is ignored: the report goes to flag"), 1, text)
        self.expect_report(self.here / "flag/training", ["train"])
        self.assertFalse(self.folder.exists())
        text = self.run_in(0, ["train", *RUN, "--profile=flag"], SLUICE_PROFILE="flag")
        self.assertNotIn("ignored", text)
        text = self.run_in(0, ["train", *RUN, "--profile=./flag/../flag/"], SLUICE_PROFILE="flag")
        self.assertNotIn("ignored", text)
        self.run_in(0, ["train", *RUN, "--profile=flag"], SLUICE_OPTIONS="all")
        text = self.run_in(0, ["train", *RUN, "--profile=flag"],
                           SLUICE_OPTIONS='{"profile":"all"}')
        self.assertIn("SLUICE_OPTIONS is ignored: the report goes to flag", text)

    def test_what_does_not_fit_or_cannot_be_written(self):
        text = self.run_in(4, ["train", *RUN, "--memory", "4K", "--remote", "none"],
                           SLUICE_PROFILE=str(self.folder))
        report = Report(self.folder / "training/report.json")
        self.assertIn(report.data["refusal"].split("\n")[0], text)
        predict = self.train_for_predict()
        self.run_in(4, [*predict, "--memory", "4K"], SLUICE_PROFILE=str(self.folder))
        report = Report(self.folder / "inference/report.json")
        device = report.data["memories"][0]
        self.assertGreater(device["planned_bytes"], device["budget_bytes"])
        self.assertEqual(device["budget_bytes"], 4 << 10)
        self.assertIn("its budget is 4096", report.data["refusal"])
        file = self.here / "file"
        file.write_text("")
        for command in (["train", *RUN], predict):
            text = self.run_in(5, command, SLUICE_PROFILE=str(file))
            self.assertIn("error (input/output)", text)


if __name__ == "__main__":
    unittest.main()
