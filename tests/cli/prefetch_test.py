"""Tests trainings whose samples a thread reads ahead (--prefetch)."""

import re
import unittest

from cli_case import DIGITS, FolderTest
from readers.report_reader import Report

RUN = ["train", "mlp", "--width", "32", "--dropout", "0.1", *DIGITS, "--accumulate", "2",
       "--digest"]
STEPS = ["--steps", "40"]
LAYOUTS = [["--prefetch", "1"],
           ["--prefetch", "8", "--threads", "1"],
           ["--prefetch", "2", "--strategy", "phased"],
           ["--prefetch", "3", "--strategy", "pipelined", "--stages", "2"]]


class Prefetch(FolderTest):
    def digest(self, *arguments):
        result = self.expect_code(0, *RUN, *arguments)
        return re.search(r"digest (\S+)", result.stdout)[1]

    def test_the_digest_is_that_of_arrays(self):
        for replicas in (1, 2):
            expected = self.digest(*STEPS, "--replicas", replicas)
            for layout in [*LAYOUTS, ["--prefetch", "8", "--device-iterations", "4"]]:
                self.assertEqual(self.digest(*STEPS, "--replicas", replicas, *layout), expected)

    def test_a_checkpoint_has_the_position_of_trained_samples(self):
        expected = self.digest(*STEPS)
        run = self.folder / "run"
        self.digest("--steps", 24, "--checkpoint", run, "--prefetch", 50)
        for layout in ([], *LAYOUTS):
            self.assertEqual(self.digest(*STEPS, "--resume", run, *layout), expected)

    def test_the_report_has_the_feed(self):
        self.expect_code(0, *RUN, "--steps", 8, "--prefetch", 3,
                         f"--profile={self.folder}/p")
        report = Report(next((self.folder / "p").rglob("report.json")))
        report.check()
        feed, = report.data["feeds"]
        self.assertEqual((feed["name"], feed["input"], feed["depth"]), ("samples", True, 3))
        self.assertEqual(feed["used_elements"], 16)

    def test_refusals(self):
        self.expect_error(2, "usage", "--prefetch", *RUN, *STEPS, "--prefetch", 256)
        self.expect_code(2, "bench", "mlp", "--prefetch", 2)


if __name__ == "__main__":
    unittest.main()
