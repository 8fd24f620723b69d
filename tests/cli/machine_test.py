#!/usr/bin/env python3
"""Tests the description of a machine: sluice doctor --measure, and --machine."""

import json
import os
import unittest

from cli_case import DIGITS, FolderTest

# A machine on which time is easy to compute: convolutions are slow, the rest takes no time.
FLAT = {"schema": "sluice machine", "version": 1, "threads": 1, "flops": 1e15, "copies": 1e15,
        "remote": 1e15, "messages": 1e15, "latency": 0, "kernel_begin": 0, "together": 1,
        "kernels": {}, "caches": []}


class Machine(FolderTest):
    def write(self, **changes):
        path = os.path.join(self.folder, "machine.json")
        with open(path, "w") as file:
            json.dump(FLAT | changes, file)
        return path

    def forecast(self, *flags, **changes):
        record = self.record("plan", *flags, "--machine", self.write(**changes))
        return {p["program"]: p["seconds"] for p in record["forecasts"]}["train"]

    def test_a_measured_machine_can_be_used(self):
        path = os.path.join(self.folder, "measured.json")
        text = self.expect_code(0, "doctor", "--measure", path).stdout
        self.assertIn("MatMul rhs transposed", text)
        self.assertIn("ConvTranspose narrow", text)
        with open(path) as file:
            machine = json.load(file)
        self.assertEqual(set(machine), set(FLAT))
        self.assertEqual(
            set(machine["kernels"]),
            {"MatMul", "MatMul lhs transposed", "MatMul rhs transposed"} |
            {op + narrow for op in ("Conv", "ConvTranspose", "ConvWeightGrad")
             for narrow in ("", " narrow")})
        for name, rows in machine["kernels"].items():
            for row in rows:
                self.assertTrue(1e7 < row["flops"] < 1e13, (name, row))
        text = self.expect_code(0, "plan", "mnist-cnn", "--machine", path, "--transfers").stdout
        self.assertIn(f"9 ops and {len(machine['caches'])} caches by {path}", text)

    def test_each_rate_changes_the_forecast(self):
        mnist = ["mnist", "--threads", 1, "--micro-batch", 8]
        self.assertLess(self.forecast(*mnist), 1e-6)
        for rate in ({"flops": 1e6}, {"copies": 1e6}, {"kernel_begin": 1e-3},
                     {"kernels": {"MatMul rhs transposed": [{"intensity": 1, "flops": 1e6}]}}):
            with self.subTest(rate=rate):
                self.assertGreater(self.forecast(*mnist, **rate), 1e-3)
        slow = self.forecast(*mnist, copies=1e6)
        cached = self.forecast(*mnist, copies=1e6, caches=[{"bytes": 1 << 40, "copies": 1e9}])
        self.assertGreater(slow / cached, 100)  # Streams are not in a cache.
        away = [*mnist, "--offload", "weights"]
        self.assertGreater(self.forecast(*away, remote=1e6), 1)
        self.assertLess(self.forecast(*away, "--remote-bandwidth", int(1e12), remote=1e6), 1e-3)
        cluster = {"order": "replicas", "links": []}
        self.assertGreater(self.forecast(*mnist, "--replicas", 2, cluster=cluster, messages=1e6), 1)
        link = {"devices": 2, "messages": 1e6, "latency": 0}
        four = [*mnist, "--replicas", 4]
        far = self.forecast(*four, cluster={"order": "replicas", "links": [link]})
        self.assertGreater(far, 1)
        link["devices"] = 4  # All replicas are in one host.
        self.assertLess(self.forecast(*four, cluster={"order": "replicas", "links": [link]}), 1e-3)
        link |= {"messages": 1e15, "devices": 2, "latency": 1}
        self.assertGreater(self.forecast(*four, cluster={"order": "replicas", "links": [link]}), 1)
        # Two replicas of two devices: the order decides whether a host has a replica.
        staged = [*mnist, "--replicas", 2, "--strategy", "pipelined", "--stages", 2]
        link |= {"latency": 0, "messages": 1e3}
        first, second = (self.forecast(*staged, cluster={"order": order, "links": [link]})
                         for order in ("replicas", "devices"))
        self.assertGreater(first / second, 10)  # Gradients are larger than activations.
        # A pair of devices or of hosts is slow, or faster than its level.
        pair = {"devices": 1, "between": [0, 1], "messages": 1e6, "latency": 0}
        cluster = {"order": "replicas", "links": [], "devices": 4, "pairs": [pair]}
        self.assertGreater(self.forecast(*four, cluster=cluster), 1)
        pair["between"] = [0, 2]  # No neighbours in the ring of replicas.
        self.assertLess(self.forecast(*four, cluster=cluster), 1e-3)
        link |= {"messages": 1e6}
        pair |= {"devices": 2, "between": [1, 0], "messages": 1e15}
        cluster["links"] = [link]
        self.assertLess(self.forecast(*four, cluster=cluster), 1e-3)
        # A message between two stages.
        pair |= {"devices": 1, "between": [2, 3], "messages": 1e3}
        self.assertGreater(self.forecast(*staged, cluster=cluster | {"links": []}), 1)
        two = ["mnist", "--threads", 2]
        self.assertAlmostEqual(self.forecast(*two, flops=1e6, together=0.5) /
                               self.forecast(*two, flops=1e6), 2, delta=0.2)

    def test_a_cluster_has_links_and_a_bubble(self):
        link = {"devices": 2, "messages": 1e6, "latency": 0.01}
        machine = self.write(cluster={"order": "replicas", "links": [link]})
        flags = ["plan", "mnist", "--strategy", "pipelined", "--stages", 3, "--accumulate", 4,
                 "--replicas", 2, "--machine", machine]
        record = self.record(*flags)
        train = next(p for p in record["forecasts"] if p["program"] == "train")
        self.assertEqual([d["device"] for d in train["devices"]], [0, 1, 2])
        self.assertEqual(max(d["seconds"] for d in train["devices"]), train["seconds"])
        busy = [d["seconds"] - d["message_wait_seconds"] for d in train["devices"]]
        self.assertAlmostEqual(train["bubble"], 1 - sum(busy) / 3 / train["seconds"])
        self.assertGreater(min(d["collective_seconds"] for d in train["devices"]), 0)
        # Replica 1 has devices 3 to 5: its stages 0 and 1 are in different hosts, too.
        self.assertGreaterEqual(min(s["message_seconds"] for s in record["stages"][:2]), 0.01)
        sent = next(s for s in record["sent_list"] if s["program"] == "train")
        self.assertEqual(sent["message_bytes"],
                         4 * sum(m["forward_bytes"] + m["backward_bytes"]
                                 for m in record["messages"]))
        text = self.expect_code(0, *flags).stdout
        self.assertRegex(text, r"(?m)^a run of 'train' sends, each replica: [\d,]+ in messages, "
                               r"[\d,]+ in collectives$")
        self.assertRegex(text, r"(?m)^  bubble \d+\.\d %; busy: device \d ")

    def test_stages_are_balanced_by_the_machine(self):
        flags = ["mnist", "--strategy", "pipelined", "--stages", 2]
        rates = {"flops": 1e9}, {"copies": 1e6}
        plans = [self.expect_code(0, "plan", *flags, "--machine", self.write(**r)).stdout
                 for r in rates]
        self.assertIn("stage 1 (fc.1 … fc.3)", plans[0])
        self.assertIn("stage 1 (fc.2 … fc.3)", plans[1])
        # A model's own strategy has stages too.
        text = self.expect_code(0, "plan", "mnist-cnn", "--machine", self.write(flops=2e9)).stdout
        self.assertIn("rates: 2 GF/s", text)
        # Bits do not change with the plan.
        train = ["train", *flags, *DIGITS, "--steps", 10, "--digest"]
        digests = {self.record(*train, "--machine", self.write(**r))["digest"] for r in rates}
        self.assertEqual(digests, {self.record(*train)["digest"]})

    def test_bad_input(self):
        for change, part in (({"version": 2}, "its version must be 1"),
                             ({"flops": 0}, "'flops' must be from"),
                             ({"speed": 1}, "unknown field 'speed'"),
                             ({"schema": ""}, "not the description of a machine")):
            with self.subTest(change=change):
                self.expect_error(3, "bad file", part, "plan", "mnist", "--machine",
                                  self.write(**change))
        for cluster, part in ((1, "'cluster' must have objects"),
                              ({"order": "replicas"}, "cluster has no field 'links'"),
                              ({"order": "both", "links": []}, "'order' must be")):
            self.expect_error(3, "bad file", part, "plan", "mnist", "--machine",
                              self.write(cluster=cluster))
        few = self.write(cluster={"order": "replicas", "links": [], "devices": 3})
        self.expect_error(2, "usage", "devices of all replicas: must be at most 3", "plan", "mnist",
                          "--replicas", 4, "--machine", few)
        self.expect_error(5, "input/output", "missing.json", "plan", "mnist", "--machine",
                          os.path.join(self.folder, "missing.json"))
        self.expect_error(2, "usage", "--machine requires --profile, or --strategy", "train",
                          "mnist", "--synthetic", "--machine", self.write())
        self.expect_error(5, "input/output", "no/such", "doctor", "--measure",
                          os.path.join(self.folder, "no/such/file"))


if __name__ == "__main__":
    unittest.main()
