#!/usr/bin/env python3
"""Tests sluice plan --sweep."""

import json
import unittest

from cli_case import FolderTest


class Sweep(FolderTest):
    FIGURES = ["device_bytes", "tier_bytes", "remote_bytes", "collective_bytes", "message_bytes",
               "state_bytes", "seconds"]

    def sweep(self, *flags):
        return self.record("plan", *flags)["plans"]

    def test_a_row_has_the_figures_of_its_plan(self):
        machine = ["--machine", self.machine()]
        plans = self.sweep("mnist-rts", "--replicas", 2, *machine, "--sweep",
                           "shard-threshold=inf;512", "--sweep", "--io-mode=compute;io")
        self.assertEqual([(p["shard-threshold"], p["io-mode"]) for p in plans],
                         [(t, m) for t in ("inf", "512") for m in ("compute", "io")])
        for p in plans:
            with self.subTest(plan=p):
                one = self.record("plan", "mnist-rts", "--replicas", 2, *machine,
                                  "--shard-threshold", p["shard-threshold"], "--io-mode",
                                  p["io-mode"])
                self.assertEqual(set(p), {"shard-threshold", "io-mode", "pareto", *self.FIGURES})
                self.assertEqual(p["device_bytes"], one["peak_bytes.device"])
                self.assertEqual(p["tier_bytes"], one["peak_bytes.host"])
                self.assertEqual(p["state_bytes"], one["state_bytes_per_update"])
                self.assertEqual(p["seconds"], one["predicted_seconds"])
                self.assertGreaterEqual(p["remote_bytes"], 2 * p["state_bytes"])
                self.assertGreater(p["collective_bytes"], 0)
        # A shard moves half the bytes. A scatter and a gather send the bytes of an all-reduce.
        self.assertLess(plans[2]["remote_bytes"], plans[0]["remote_bytes"])
        self.assertEqual(plans[2]["collective_bytes"], plans[0]["collective_bytes"])
        staged = self.sweep("mnist", "--strategy", "pipelined", "--sweep", "stages=2;4")
        bytes_of = [p["message_bytes"] for p in staged]
        self.assertEqual(bytes_of[1], 3 * bytes_of[0])  # All layers are 512 wide.

    def machine(self):
        path = self.folder / "machine.json"
        path.write_text(json.dumps({
            "schema": "sluice machine", "version": 1, "threads": 1, "flops": 1e9, "copies": 1e9,
            "remote": 1e8, "messages": 1e9, "latency": 0, "kernel_begin": 0, "together": 1,
            "kernels": {}, "caches": []}))
        return path

    def test_the_front_has_the_plans_that_no_other_beats(self):
        plans = self.sweep("mnist", "--machine", self.machine(), "--sweep",
                           "strategy=resident;phased", "--sweep", "micro-batch=8;64;256",
                           "--sweep", "recompute=on;off")
        self.assertEqual(len(plans), 12)
        for p in plans:
            beaten = any(q["device_bytes"] <= p["device_bytes"] and q["seconds"] <= p["seconds"] and
                         (q["device_bytes"], q["seconds"]) != (p["device_bytes"], p["seconds"])
                         for q in plans)
            self.assertEqual(p["pareto"], not beaten, p)
        self.assertEqual({p["pareto"] for p in plans}, {True, False})
        text = self.expect_code(0, "plan", "mnist", "--machine", self.machine(), "--sweep",
                                "strategy=resident;phased").stdout.splitlines()
        self.assertRegex(text[0], r"^strategy +device_bytes +.* seconds$")
        self.assertRegex(text[1], r"^resident +4193348 +.* \*$")
        self.assertEqual(len(text), 4)

    def test_rows_are_sorted_by_any_column(self):
        flags = ["mnist", "--machine", self.machine(), "--memory", "5000K", "--offload", "none",
                 "--sweep", "micro-batch=64;8;4000;16"]
        for column in [*self.FIGURES, "micro-batch", "--micro-batch"]:
            with self.subTest(column=column):
                rows = self.sweep(*flags, "--sort", column)
                self.assertEqual(len(rows), 4)
                self.assertIn("needs", rows[-1]["refusal"])  # Rows without a plan come last.
                if column in self.FIGURES:
                    values = [r[column] for r in rows[:-1]]
                    self.assertEqual(values, sorted(values))
                else:
                    self.assertEqual([r["micro-batch"] for r in rows], ["64", "8", "16", "4000"])
        self.assertEqual([r["micro-batch"] for r in self.sweep(*flags, "--sort", "seconds")],
                         ["8", "16", "64", "4000"])

    def test_refused_combinations_are_rows(self):
        rows = self.sweep("mnist", "--stages", 2, "--sweep", "strategy=resident;pipelined")
        self.assertIn("--stages requires --strategy phased, pipelined", rows[0]["refusal"])
        self.assertGreater(rows[1]["device_bytes"], 0)
        none = self.expect_code(4, "plan", "mnist", "--offload", "none", "--sweep", "memory=1K;2K")
        self.assertIn("its budget is 2048", none.stdout)
        self.expect_code(2, "plan", "mnist", "--sweep", "micro-batch=0;-1")
        self.expect_code(4, "plan", "mnist", "--offload", "none", "--memory", "1K", "--sweep",
                         "micro-batch=0;8", "--sort", "micro-batch")

    def test_bad_input(self):
        for part, *flags in (
            ("did you mean --micro-batch?", "--sweep", "micro-bach=8"),
            ("must be 'flag=value;value'", "--sweep", "micro-batch"),
            ("must be 'flag=value;value'", "--sweep", "=8"),
            ("a value on each side of ';', got '8;'", "--sweep", "micro-batch=8;"),
            ("got '8' twice", "--sweep", "micro-batch=8;8"),
            ("changes the plan, got '--json'", "--sweep", "json=on"),
            ("must be of on and off", "--sweep", "recompute=yes"),
            ("must be given once", "--sweep", "micro-batch=8", "--sweep", "micro-batch=9"),
            ("cannot be combined with --sweep of it", "--sweep", "micro-batch=8", "--micro-batch",
             16),
            ("at most 1000 combinations", "--sweep",
             "test-batch=" + ";".join(map(str, range(1, 41))), "--sweep",
             "micro-batch=" + ";".join(map(str, range(1, 41)))),
            ("--sort: must be one of device_bytes,", "--sort", "second", "--sweep",
             "micro-batch=8"),
            ("--sort requires --sweep", "--sort", "seconds"),
            ("--full cannot be combined with --sweep", "--full", "--sweep", "micro-batch=8"),
        ):
            with self.subTest(flags=flags):
                self.expect_error(2, "usage", part, "plan", "mnist", *flags)


if __name__ == "__main__":
    unittest.main()
