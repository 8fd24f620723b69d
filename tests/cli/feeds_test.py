"""Checks the feeds of a report: in report.json against the counts of the program's own source and
sink, and on the page in headless Chromium. SLUICE_FEED_REPORT is the program that runs with feeds.
"""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import viewer_test
from cli_case import HANG
from readers.report_reader import Report


class Feeds(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        printed = subprocess.run([os.environ["SLUICE_FEED_REPORT"], folder.name], check=True,
                                 capture_output=True, text=True, timeout=HANG).stdout
        cls.made, cls.taken = map(int, printed.split())
        cls.report = Report(cls.folder / "report.json")
        cls.feeds = {f["name"]: f for f in cls.report.data["feeds"]}

    def test_sums_agree(self):
        self.report.check()

    def test_counts_are_those_of_the_source_and_the_sink(self):
        samples, results = self.feeds["samples"], self.feeds["results"]
        self.assertEqual(list(self.feeds), ["samples", "results"])
        self.assertEqual((samples["input"], results["input"]), (True, False))
        self.assertEqual(samples["moved_elements"], self.made)
        self.assertEqual(results["moved_elements"], self.taken)
        # Two runs of 50 elements, and two more in the ring.
        self.assertEqual((samples["used_elements"], self.made), (100, 102))
        self.assertEqual((results["used_elements"], self.taken), (100, 100))
        self.assertEqual((samples["depth"], samples["slots"]), (2, 2))
        self.assertEqual((results["depth"], results["slots"]), (4, 4))
        for feed in self.feeds.values():
            self.assertEqual(sum(feed["occupancy"]), 100)
            self.assertEqual(feed["moved_bytes"], 12 * feed["moved_elements"])

    def test_a_slow_source_is_waited_for(self):
        samples = self.feeds["samples"]
        self.assertGreaterEqual(samples["host_seconds"], self.made * 0.002)
        self.assertGreater(samples["waits_for_host"]["count"], 0)
        self.assertEqual(samples["waits_for_host"]["count"], samples["occupancy"][0])
        self.assertLessEqual(samples["waits_for_host"]["seconds"], samples["run_seconds"])

    @unittest.skipIf(viewer_test.CHROMIUM is None, "requires Chromium (apt install chromium)")
    def test_the_page_has_a_table_of_feeds(self):
        found = self.drive("""
            found.insights = all(".insights li").map((li) => li.textContent);
            open("Traffic");
            const cells = (row) => all("th, td", row).map((c) => c.textContent);
            found.rows = all("tr", document.querySelector("table.feeds")).map(cells);""",
                           (self.folder / "report.html").read_text())
        head, *rows = found["rows"]
        self.assertEqual(head[:4], ["feed", "direction", "elements moved", "elements used"])
        self.assertEqual([row[:4] for row in rows],
                         [["samples", "in", "102", "100"], ["results", "out", "100", "100"]])
        samples = self.feeds["samples"]
        mean = sum(k * n for k, n in enumerate(samples["occupancy"])) / 100
        shown = dict(zip(head, rows[0]))
        self.assertEqual(shown["a second"], f"{102 / samples['host_seconds']:.1f}")
        self.assertEqual(shown["in the ring"], f"{mean:.2f}")
        self.assertEqual(shown["program waits"].split(" in ")[1],
                         str(samples["waits_for_host"]["count"]))
        self.assertEqual(shown["runs wait at their end"], "never")
        self.assertTrue(any(text.startswith("Feed samples: the program waited ")
                            for text in found["insights"]), found["insights"])

    drive = viewer_test.Viewer.drive
    chromium = viewer_test.Viewer.chromium


if __name__ == "__main__":
    unittest.main()
