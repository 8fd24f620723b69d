#!/usr/bin/env python3
"""Drives report.html in headless Chromium by mouse and keyboard. Skips where Chromium is not."""

import html
import json
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from cli_case import CliTest

CHROMIUM = next(filter(None, map(shutil.which, ["chromium", "chromium-browser"])), None)
FOUR = ["plan", "mnist-cnn", "--strategy", "pipelined", "--micro-batch", 40, "--accumulate", 8]
TOOLS = """
const found = {errors: []};
addEventListener("error", (e) => found.errors.push(String(e.message)));
addEventListener("securitypolicyviolation", (e) => found.errors.push(e.violatedDirective));
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const key = (target, name) => target.dispatchEvent(
  new KeyboardEvent("keydown", {key: name, bubbles: true, cancelable: true}));
const view = (name) => all("section").find((s) => s.getAttribute("aria-label") === name);
const open = (name) => all("nav button").find((b) => b.textContent === name).click();
const change = (input, value) => {
  input.value = value;
  input.dispatchEvent(new Event("change"));
};
"""


def luminance(colour):
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), parts))


def contrast(a, b):
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


@unittest.skipIf(CHROMIUM is None, "needs Chromium")
class Viewer(CliTest):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls("setUp").expect_code(0, *FOUR, f"--profile={cls.folder}")
        cls.page = (cls.folder / "training/report.html").read_text()
        cls.report = json.loads((cls.folder / "training/report.json").read_text())

    def drive(self, script):
        """Returns what the script stores in `found`, after it ran in the page without an error."""
        text = f"{TOOLS}{script}\ndocument.body.appendChild(document.createElement('pre'))" \
            ".id = 'found';\ndocument.getElementById('found').textContent = JSON.stringify(found);"
        page = self.folder / "driven.html"
        before, after = self.page.rsplit("</body>", 1)
        page.write_text(f"{before}<script>{text}</script></body>{after}")
        dom = subprocess.run([
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom",
            "--virtual-time-budget=5000", f"--user-data-dir={self.folder}/user", page.as_uri()
        ], capture_output=True, text=True, timeout=120).stdout
        result = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
        self.assertIsNotNone(result, dom[-2000:])
        found = json.loads(html.unescape(result[1]))
        self.assertEqual(found.pop("errors"), [])
        return found

    def test_every_view_draws(self):
        found = self.drive("""
            found.views = all("nav button").map((b) => b.textContent);
            found.views.forEach(open);
            found.size = found.views.map((name) => all("*", view(name)).length);
            found.shown = all("section").filter((s) => !s.hidden).length;
            found.labels = all("svg").every((s) => s.getAttribute("aria-label"));""")
        self.assertEqual(found["views"],
                         ["Summary", "Memory", "Trace", "Schedule", "Traffic", "Functions"])
        self.assertGreater(min(found["size"]), 10)
        self.assertEqual((found["shown"], found["labels"]), (1, True))

    def test_memory_by_mouse_and_keyboard(self):
        found = self.drive("""
            open("Memory");
            const chart = document.querySelector("svg.memory");
            const text = () => document.querySelector("[aria-live=polite]").textContent;
            found.bands = all(".band", chart).map((b) => b.dataset.kind);
            found.peak = text();
            key(chart, "Home"); found.first = text();
            key(chart, "ArrowRight"); found.second = text();
            key(chart, "End"); found.last = text();
            const box = chart.getBoundingClientRect();
            chart.dispatchEvent(new MouseEvent("click", {clientX: box.left + 1, clientY: box.top}));
            found.clicked = text();
            const row = all("tbody tr", view("Memory"))[0];
            found.name = row.lastChild.textContent;
            key(row, "Enter");
            found.details = view("Memory").querySelector(".details").textContent;""")
        device = self.report["memories"][0]
        self.assertLessEqual({"activations", "gradients", "variables"}, set(found["bands"]))
        self.assertIn(f"{device['planned_bytes']:,} bytes", found["peak"])
        self.assertTrue(found["first"].startswith("Step 1 of "), found["first"])
        self.assertTrue(found["second"].startswith("Step 2 of "), found["second"])
        self.assertEqual(found["clicked"], found["first"])
        self.assertIn(found["name"], found["details"])
        self.assertRegex(found["details"], r"[\d,]+ bytes at offset")
        self.assertIn("live", found["details"])

    def test_trace_zooms_and_shows_a_micro_batch(self):
        found = self.drive("""
            open("Trace");
            const chart = document.querySelector("svg.trace");
            const count = () => all(".event", chart).length;
            change(document.querySelector("input[type=number]"), 3);
            found.green = all(".event.fwd", chart).length;
            found.red = all(".event.bwd", chart).length;
            found.all = count();
            for (let i = 0; i < 5; ++i) key(chart, "+");
            found.zoomed = count();
            key(chart, "ArrowRight"); found.moved = chart.lastChild.textContent;
            key(chart, "0"); found.again = count();
            all(".event", chart)[0].dispatchEvent(new MouseEvent("click"));
            found.details = view("Trace").querySelector(".details").textContent;""")
        self.assertEqual((found["green"], found["red"]), (3, 3))
        self.assertLess(found["zoomed"], found["all"])
        self.assertEqual(found["again"], found["all"])
        self.assertRegex(found["details"], r"(µs|ms) from ")

    def test_the_schedule_is_that_of_the_terminal(self):
        found = self.drive("""
            open("Schedule");
            found.rows = all("table.schedule tbody tr").map(
              (row) => all("td", row).map((cell) => cell.textContent));""")
        text = self.expect_code(0, *FOUR, "--schedule-table").stdout
        rows = [line.split()[1:] for line in text.splitlines() if re.match(r"D\d", line)]
        self.assertEqual(found["rows"], rows)

    def test_colours_are_legible(self):
        schemes = re.findall(r":root \{(.*?)\}", self.page, re.DOTALL)
        self.assertEqual(len(schemes), 2)
        for scheme in schemes:
            colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", scheme))
            for name in ("text", "faint", "accent", "bad", "good"):
                for back in ("back", "panel"):
                    self.assertGreaterEqual(contrast(colours[name], colours[back]), 4.5,
                                            (name, back))


if __name__ == "__main__":
    unittest.main()
