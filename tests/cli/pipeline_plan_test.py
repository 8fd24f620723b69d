#!/usr/bin/env python3
"""Tests what `sluice plan` shows of a model in stages."""

import re
import unittest

from cli_case import CliTest

# Numbers of a plan that must not depend on its number of micro-batches.
SIZES = ["pipeline_simulated_tasks", "functions", "planned_bytes"]
FOUR = [
    "plan", "mnist-cnn", "--strategy", "pipelined", "--micro-batch", 40, "--device-iterations", 1
]


class PipelinePlan(CliTest):
    def stages(self, *flags):
        record = self.record(*FOUR, *flags)
        return record, [s["in_flight"] for s in record["stages"]]

    def test_json_has_stages_messages_and_slots(self):
        record, in_flight = self.stages("--accumulate", 8)
        self.assertEqual(in_flight, [7, 5, 3, 1])
        self.assertEqual((record["pipeline_slots"], record["pipeline_ramp_slots"]), (15, 7))
        self.assertEqual([s["blocks"] for s in record["stages"]], ["B1", "B2", "B3", "B4"])
        self.assertEqual([s["device"] for s in record["stages"]], [0, 1, 2, 3])
        self.assertEqual(len([m for m in record["memories"] if m["name"].startswith("device")]), 4)
        border = {(0, 1): 230400, (1, 2): 51200, (2, 3): 40960}
        sent = {(m["from"], m["to"]): m for m in record["messages"]}
        self.assertEqual(set(sent), {*border, *[(b, a) for a, b in border]})
        for (a, b), size in border.items():
            self.assertEqual((sent[a, b]["forward_bytes"], sent[a, b]["backward_bytes"]), (size, 0))
            self.assertEqual((sent[b, a]["forward_bytes"], sent[b, a]["backward_bytes"]), (0, size))
        self.assertEqual({m["update_bytes"] for m in record["messages"]}, {0})
        # The slowest stage bounds the pipeline: N micro-batches of it, and no stage is idle longer.
        times = [s["forward_seconds"] + s["backward_seconds"] for s in record["stages"]]
        self.assertEqual(record["pipeline_slowest_stage"], times.index(max(times)))
        self.assertAlmostEqual(record["pipeline_imbalance"], 4 * max(times) / sum(times))
        self.assertGreaterEqual(record["pipeline_seconds"], 8 * max(times))
        self.assertLess(record["pipeline_seconds"], 8 * sum(times))
        busy = 8 * sum(times) / 4 / record["pipeline_seconds"]
        self.assertAlmostEqual(record["pipeline_bubble"], 1 - busy)

    def test_schedules_have_their_depths(self):
        record, in_flight = self.stages("--accumulate", 8, "--schedule", "interleaved")
        self.assertEqual((in_flight, record["pipeline_slots"]), ([4, 3, 2, 1], 22))
        record, in_flight = self.stages("--accumulate", 8, "--schedule", "sequential")
        self.assertEqual((in_flight, record["pipeline_slots"]), ([1, 1, 1, 1], 64))
        record, in_flight = self.stages("--accumulate", 8, "--schedule", "auto")
        for s, depth in enumerate(in_flight):
            self.assertIn(depth, range(4 - s, 2 * (4 - s)))
        sharded = self.record("plan", "mnist-cnn", "--strategy", "sharded", "--stages", 2)
        self.assertEqual([s["in_flight"] for s in sharded["stages"]], [1, 1])

    def test_auto_keeps_within_the_memory_of_devices(self):
        auto = ["--accumulate", 16, "--schedule", "auto", "--stages", "B1+B2,B3+B4"]
        free, _ = self.stages("--accumulate", 16, "--stages", "B1+B2,B3+B4")
        least, _ = self.stages(*auto[:2], "--schedule", "interleaved", *auto[4:])
        needs = [[m["total_bytes"] for m in r["memories"]][:2] for r in (free, least)]
        self.assertGreater(needs[0][0], needs[1][0])
        tight, in_flight = self.stages(*auto, "--memory", f"{needs[1][0]},{needs[0][1]}")
        self.assertLessEqual(tight["memories"][0]["total_bytes"], needs[1][0])
        self.assertEqual(in_flight, [2, 1])

    def test_an_update_sends_tied_weights_and_their_gradients(self):
        record = self.record("plan", "mlp-skip", "--width", 64, "--strategy", "pipelined",
                             "--accumulate", 3)
        weight = 64 * 10 * 4  # Blocks aside and out read it, on devices 2 and 4.
        sizes = {(m["from"], m["to"]): m["update_bytes"] for m in record["messages"]}
        self.assertEqual({pair: size for pair, size in sizes.items() if size},
                         {(2, 4): weight, (4, 2): weight})

    def test_text_fits_a_screen(self):
        text = self.expect_code(0, *FOUR, "--accumulate", 10).stdout
        lines = text.splitlines()
        self.assertLessEqual(len(lines), 25 + 4 * 4)
        self.assertLessEqual(max(map(len, lines)), 100)
        self.assertRegex(text, r"(?m)^4 stages, grouped: bubble \d+\.\d % in \d+\.\d+ ms at fixed ")
        self.assertRegex(text, r"(?m)^  device 1: stage 1 \(B2\) .* ms, 5 in flight of [\d,]+ byte")
        self.assertIn("sends a micro-batch + an update: 230,400 + 0 bytes to device 1\n", text)
        self.assertIn("\n  rates: 100 GF/s, copies 10 GB/s, messages 5 GB/s and 2 us\n", text)
        several = self.expect_code(0, *FOUR[:-1], 5, "--accumulate", 10).stdout
        self.assertIn("sends a micro-batch + an update: 230,400 + 0 bytes to device 1\n", several)

    def test_json_has_the_rates_and_devices(self):
        record, _ = self.stages("--accumulate", 8)
        self.assertEqual(record["pipeline_rates.flops"], 1e11)
        self.assertEqual(record["pipeline_rates.latency"], 2e-6)
        self.assertEqual(record["peak_bytes.device"], record["memories"][0]["total_bytes"])
        busy = [d["busy_seconds"] for d in record["pipeline_devices"]]
        for stage, seconds in zip(record["stages"], busy):
            own = 8 * (stage["forward_seconds"] + stage["backward_seconds"])
            self.assertAlmostEqual(seconds, own)
        self.assertIn("ramp-up: slots 1 to 7;", record["pipeline_table"])
        self.assertIn("With the last forward and backward task as one, 6 slots ramp up.",
                      record["pipeline_table"])

    def test_the_size_of_a_plan_does_not_grow_with_the_micro_batches(self):
        """instructions_test counts the instructions of these plans."""
        def size(count):
            record = self.record("plan", "mlp", "--width", 16, "--strategy", "pipelined",
                                 "--accumulate", count)
            self.assertEqual(record["pipeline_micro_batches"], count)
            return {key: record[key] for key in SIZES}

        few = size(10_000)
        # Four stages have eight tasks. The simulation runs 4096 + 2048 micro-batches.
        self.assertEqual(few["pipeline_simulated_tasks"], 8 * 6144)
        for count in (1_000_000, 2_147_483_647):
            self.assertEqual(size(count), few)
        self.expect_error(2, "usage", "from 1 to 2147483647, got '2147483648'",
                          "plan", "mlp", "--strategy", "pipelined", "--accumulate", 2_147_483_648)

    def test_the_table_has_each_task_in_its_slot(self):
        table = self.expect_code(0, *FOUR, "--accumulate", 8, "--schedule-table").stdout
        rows = [line.split() for line in table.splitlines()]
        self.assertEqual(rows[0], ["slot", *map(str, range(1, 16))])
        for s in range(4):
            want = ["."] * 15
            for i in range(8):
                want[i + s] = f"F{i + 1}"
            for i in range(8):
                cell = i + 7 - s
                want[cell] = f"B{i + 1}" if want[cell] == "." else f"B{i + 1}+{want[cell]}"
            self.assertEqual(rows[1 + s], [f"D{s}", *want])
        self.assertEqual(rows[5], "ramp-up: slots 1 to 7; steady state: 8; ramp-down: 9 to 15; "
                                  "then the update".split())
        long = self.expect_code(0, *FOUR, "--accumulate", 1000, "--schedule-table").stdout
        self.assertIn("The table has 18 of 1000 micro-batches.\n", long)
        self.assertIn("steady state: 8 to 1000; ramp-down: 1001 to 1007;", long)

    def test_refusals_name_the_stages(self):
        flags = [*FOUR, "--accumulate", 8, "--memory", "100M,100M,1K,100M"]
        result = self.expect_code(4, *flags)
        self.assertIn("device 2 (cpu) needs", result.stderr)
        self.assertIn("while planning stage 0 (B1) on device 0, stage 1 (B2) on device 1, stage 2 "
                      "(B3) on device 2", result.stderr)
        self.assertIn("fits: no (device 2 ", result.stdout)
        trained = self.expect_code(4, "train", *flags[1:], "--synthetic", "--steps", 1)
        self.assertIn("stage 2 (B3) on device 2", trained.stderr)
        self.expect_error(2, "usage", "--schedule-table requires --strategy pipelined or sharded "
                          "(it is resident)", "plan", "mnist", "--schedule-table")
        self.expect_error(2, "usage", "at most the 4 blocks of the model, got 9", *FOUR, "--stages",
                          9)


if __name__ == "__main__":
    unittest.main(verbosity=2)
