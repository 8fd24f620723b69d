"""Reads report.json as docs/report_schema.md describes version 1, and nothing else."""

import json
from bisect import bisect_right
from pathlib import Path

TOP = {
    "schema": str, "version": int, "model": str, "options": dict, "machine": str, "refusal": str,
    "replicas": int, "devices": list, "memories": list, "arenas": list, "objects": dict,
    "streams": list, "remote_buffers": list, "functions": list, "programs": list, "pipeline": list,
    "suggestions": list, "measured": list, "defaults": dict, "rates": dict, "remote_entries": list,
    "event_bytes": int, "host_buffers": list, "parts": list, "feeds": list
}
FEED = {
    "name": str, "input": bool, "depth": int, "slots": int, "moved_elements": int,
    "used_elements": int, "moved_bytes": int, "host_seconds": (int, float),
    "run_seconds": (int, float), "waits_for_host": dict, "waits_for_program": dict,
    "waits_at_end": dict, "occupancy": list
}
RATES = {"threads", "flops_per_second", "copy_bytes_per_second", "remote_bytes_per_second"}
KINDS = {
    "variables", "optimizer state", "accumulators", "gradients", "activations",
    "inputs and outputs", "constants", "workspace", "channel slots", "rings of feeds",
    "staging of transfers", "checksums", "others", "padding and gaps"
}
STEPS = {
    "kernel", "call", "loop", "branch", "stream_in", "stream_out", "remote_load", "remote_store",
    "wait", "send", "receive", "collective"
}
EVENT = ("kind", "device", "queue", "worker", "function", "step", "part", "begin_ns", "end_ns")
TRANSFERS = {"stream_in", "stream_out", "remote_load", "remote_store"}


def rows(table, *columns):
    """The rows of a table as dictionaries. It must have these columns."""
    missing = set(columns) - set(table["columns"])
    assert not missing, f"columns {missing} are missing"
    assert all(len(row) == len(table["columns"]) for row in table["rows"])
    return [dict(zip(table["columns"], row)) for row in table["rows"]]


class Report:
    def __init__(self, path):
        self.data = json.loads(Path(path).read_text())
        assert self.data["schema"] == "sluice-report" and self.data["version"] == 1
        for key, kind in TOP.items():
            assert isinstance(self.data[key], kind), (key, self.data[key])
        self.objects = rows(self.data["objects"], "name", "place", "kind", "arena", "offset",
                            "bytes")
        self.functions = self.data["functions"]
        for f in self.functions:
            f["buffers"] = rows(f["buffers"], "name", "place", "kind", "offset", "bytes", "begin",
                                "end")
            f["steps"] = rows(f["steps"], "kind", "name", "where", "live_bytes", "flops", "bytes",
                              "queue", "calls", "trips", "forecast_ns", "parts", "kernel")
            assert all((s["kind"] == "kernel") == (s["kernel"] != "") for s in f["steps"])
            for s in f["steps"]:
                assert all(0 <= part < len(self.data["parts"]) for part in s["parts"]), s
                assert len(s["parts"]) in (0, 1, s["trips"]), s
            assert {s["kind"] for s in f["steps"]} <= STEPS
            assert {b["kind"] for b in f["buffers"]} <= KINDS
        for p in self.data["programs"]:
            p["trace"]["events"] = rows(p["trace"]["events"], *EVENT)
            p["kernels"] = rows(p["kernels"], "function", "step", "name", "layer", "source",
                                "reference", "runs", "forecast_ns", "measured_ns")
            p["remote"]["accesses"] = rows(p["remote"]["accesses"], "buffer", "entry", "function",
                                           "step", "turn", "trips", "count")
        for m in self.data["measured"]:
            m["trace"]["events"] = rows(m["trace"]["events"], *EVENT)
            m["moves"] = rows(m["moves"], "function", "step", "runs")
            m["steps"] = rows(m["steps"], "function", "step", "ns")
        assert all(self.data["rates"][key] > 0 for key in RATES)
        assert len(self.data["remote_entries"]) == len(self.data["remote_buffers"])
        assert set(self.data["defaults"]) <= set(self.data["options"])
        self.branches = any(s["kind"] == "branch" for f in self.functions for s in f["steps"])
        self.peaks, self.sums = {}, {}

    def program(self, name):
        return next(p for p in self.data["programs"] if p["name"] == name)

    def holds(self, memory, arena):
        if memory["device"] >= 0:
            return (arena["space"], arena["device"]) == ("device", memory["device"])
        space = memory["name"].removeprefix("tier ")
        return arena["space"] == space or (space, arena["space"]) == ("host", "pinned")

    def peak(self, number):
        """Maximum number of live bytes of a function, from its buffers."""
        if number not in self.peaks:
            f, most = self.functions[number], 0
            for s, step in enumerate(f["steps"]):
                live = sum(b["bytes"] for b in f["buffers"] if b["begin"] <= s < b["end"])
                assert live == step["live_bytes"], (f["name"], s)
                most = max(most, live + max(map(self.peak, step["calls"]), default=0))
            assert most == f["peak_bytes"], f["name"]
            self.peaks[number] = most
        return self.peaks[number]

    def moved(self, number):
        """Counts and bytes by (kind, name, device, queue) of one activation of a function."""
        if number in self.sums:
            return self.sums[number]
        sums = {}

        def add(key, count, size):
            old = sums.get(key, (0, 0))
            sums[key] = (old[0] + count, old[1] + size)

        for step in self.functions[number]["steps"]:
            if step["kind"] in TRANSFERS | {"send", "collective"}:
                key = step["kind"], step["name"], self.functions[number]["device"], step["queue"]
                add(key, 1, step["bytes"])
            arms = list(map(self.moved, step["calls"]))
            if arms:
                arm = max(arms, key=lambda a: sum(size for _, size in a.values()))
                for key, (count, size) in arm.items():
                    add(key, step["trips"] * count, step["trips"] * size)
        self.sums[number] = sums
        return sums

    def check(self):
        """Checks that all sums agree."""
        for m in self.data["memories"]:
            times = 1 if m["device"] >= 0 else self.data["replicas"]
            arenas = [self.holds(m, a) for a in self.data["arenas"]]
            planned = sum(a["bytes"] for a, held in zip(self.data["arenas"], arenas) if held)
            always = sum(o["bytes"] for o in self.objects if arenas[o["arena"]])
            assert planned * times == m["planned_bytes"], m
            assert always * times == m["always_live_bytes"], m
            starts = [s["function"] for p in self.data["programs"] for s in p["starts"]
                      if s["device"] == m["device"]]
            assert max(map(self.peak, starts), default=0) == m["peak_live_bytes"], m
            parts = m["always_live_bytes"], m["peak_live_bytes"], m["gap_bytes"]
            assert sum(parts) == m["planned_bytes"] and min(parts) >= 0, m
            assert sum(k["bytes"] for k in m["kinds"]) == m["planned_bytes"], m
            assert {k["kind"] for k in m["kinds"]} <= KINDS, m
        for p in self.data["programs"]:
            self.check_traffic(p)
            self.check_trace(p)
            self.check_accesses(p)
            self.check_overlaps(p)
            self.check_kernels(p)
        for m in self.data["measured"]:
            self.program(m["program"])
            assert m["trace"]["complete"] == (m["lost"] == 0), m["lost"]
            self.check_trace(m)
            assert self.data["event_bytes"] > 0
            if not self.branches:
                assert self.planned_moves(m["program"]) == self.measured_moves(m)
        for f in self.data["feeds"]:
            self.check_feed(f)

    def planned_moves(self, name):
        """Counts and bytes of a run by kind, object, device and queue; messages by receivers."""
        p, found = self.program(name), {}
        for t in p["transfers"]:
            names = self.data["streams" if t["kind"].startswith("stream") else "remote_buffers"]
            key = t["kind"], names[t["object"]], t["device"], t["queue"]
            found[key] = t["transfers"], t["bytes"]
        for m in p["messages"]:
            found["send", m["from"]] = found["receive", m["to"]] = (0, 0)
        for m in p["messages"]:
            for key in (("send", m["from"]), ("receive", m["to"])):
                found[key] = found[key][0] + m["messages"], found[key][1] + m["bytes"]
        for c in p["collectives"]:
            key = "collective", c["op"], c["device"]
            old = found.get(key, (0, 0))
            found[key] = old[0] + c["collectives"], old[1] + c["bytes"]
        return found

    def measured_moves(self, run):
        found = {}
        for m in run["moves"]:
            f = self.functions[m["function"]]
            step = f["steps"][m["step"]]
            key = {
                "collective": ("collective", step["name"], f["device"]),
                "send": ("send", f["device"]),
                "receive": ("receive", f["device"])
            }.get(step["kind"], (step["kind"], step["name"], f["device"], step["queue"]))
            old = found.get(key, (0, 0))
            found[key] = old[0] + m["runs"], old[1] + m["runs"] * step["bytes"]
        return found

    def check_traffic(self, program):
        found = {}
        for start in program["starts"]:
            for key, (count, size) in self.moved(start["function"]).items():
                found[key] = tuple(map(sum, zip(found.get(key, (0, 0)), (count, size))))
        expected = {}
        for t in program["transfers"]:
            names = self.data["streams" if t["kind"].startswith("stream") else "remote_buffers"]
            key = t["kind"], names[t["object"]], t["device"], t["queue"]
            expected[key] = t["transfers"], t["bytes"]
        assert expected == {k: v for k, v in found.items() if k[0] in TRANSFERS}
        for kind, entry in (("send", "messages"), ("collective", "collectives")):
            here = [v for k, v in found.items() if k[0] == kind]
            assert sum(v[0] for v in here) == sum(m[entry] for m in program[entry]), entry
            assert sum(v[1] for v in here) == sum(m["bytes"] for m in program[entry])

    def check_accesses(self, program):
        counts = {}
        for a in program["remote"]["accesses"]:
            step = self.functions[a["function"]]["steps"][a["step"]]
            assert step["name"] == self.data["remote_buffers"][a["buffer"]], a
            assert -1 <= a["entry"] < self.data["remote_entries"][a["buffer"]], a
            assert 0 <= a["turn"] < a["trips"] and a["count"] > 0, a
            key = step["kind"], a["buffer"]
            counts[key] = counts.get(key, 0) + a["count"]
        planned = {}
        for t in program["transfers"]:
            if t["kind"].startswith("remote"):
                key = t["kind"], t["object"]
                planned[key] = planned.get(key, 0) + t["transfers"]
        if program["remote"]["complete"] and not self.branches:
            assert counts == planned, (counts, planned)

    def check_kernels(self, program):
        runs = [0] * len(self.functions)
        for start in program["starts"]:
            self.count_runs(start["function"], 1, runs)
        kernels, devices, measured = program["kernels"], {}, program["measured_runs"] > 0
        assert program["kernel_count"] >= len(kernels)
        whole = program["kernel_count"] == len(kernels)
        for k in kernels:
            f = self.functions[k["function"]]
            step = f["steps"][k["step"]]
            assert (step["kind"], step["name"], k["runs"]) == ("kernel", k["name"],
                                                               runs[k["function"]]), k
            assert abs(k["forecast_ns"] - k["runs"] * step["forecast_ns"]) <= k["runs"] + 1, k
            assert k["reference"] == step["kernel"].endswith(".reference"), k
            assert k["layer"] and f"{k['layer']} {k['source']}".strip().endswith(step["where"]), k
            assert measured or k["measured_ns"] == -1, k
            sums = devices.setdefault(f["device"], [0, 0, 0, 0])
            sums[0] += k["runs"]
            sums[1] += k["forecast_ns"]
            sums[2] += max(0, k["measured_ns"])
            sums[3] += (max(0, k["measured_ns"]) if measured else k["forecast_ns"]) * k["reference"]
        order = [(-k["measured_ns"], -k["forecast_ns"]) for k in kernels]
        assert [m for m, _ in order] == sorted(m for m, _ in order), "not sorted by time"
        for d in program["device_times"]:
            found = devices.get(d["device"], [0, 0, 0, 0])
            if not whole:
                continue
            assert d["kernels"] == found[0], d
            expected = [d["forecast_ns"], max(0, d["measured_ns"]), d["reference_ns"]]
            for a, b in zip(expected, found[1:]):
                assert abs(a - b) <= len(kernels), (d, found)
            assert (d["measured_ns"] >= 0) == measured, d
            assert (d["exposed_ns"] <= d["transfers_ns"]), d
        of = [m for m in self.data["measured"] if m["program"] == program["name"]]
        assert program["measured_runs"] == max((m["runs"] for m in of), default=0)
        for m in of:
            if m["trace"]["complete"]:
                assert 0 <= m["min_ns"] <= m["trace"]["seconds"] * 1e9 + 1, m["min_ns"]

    def count_runs(self, function, count, runs):
        runs[function] += count
        for step in self.functions[function]["steps"]:
            for callee in step["calls"]:
                self.count_runs(callee, count * step["trips"], runs)

    def check_feed(self, feed):
        for key, kind in FEED.items():
            assert isinstance(feed[key], kind), (key, feed)
        waits = [feed[f"waits_{cause}"] for cause in ("for_host", "for_program", "at_end")]
        for w in waits:
            assert set(w) == {"count", "seconds"} and w["count"] >= 0, feed
            assert w["seconds"] >= 0 and (w["count"] > 0 or w["seconds"] == 0), feed
        moved, used = feed["moved_elements"], feed["used_elements"]
        # An element is made before it is read, and stored before it is taken.
        assert moved >= used if feed["input"] else moved <= used, feed
        assert 1 <= feed["depth"] and min(feed["occupancy"], default=0) >= 0, feed
        assert len(feed["occupancy"]) == (feed["slots"] + 1 if feed["slots"] else 0), feed
        assert feed["host_seconds"] > 0 or moved == 0, feed
        assert feed["moved_bytes"] % max(moved, 1) == 0, feed
        # The host waits in one thread, and a run ends once.
        assert max(waits[1]["seconds"], waits[2]["seconds"]) <= feed["run_seconds"], feed
        assert not feed["input"] or waits[2]["count"] == 0, feed
        # Every ring belongs to a stream of the plan.
        prefix = feed["name"] + "."
        assert any(s == feed["name"] or s.startswith(prefix) for s in self.data["streams"]), feed

    def check_overlaps(self, program):
        busy, expected = {}, {}
        steps = [(e, self.functions[e["function"]]["steps"][e["step"]])
                 for e in program["trace"]["events"] if e["kind"] == "step"]
        for e, step in steps:
            if step["kind"] in ("kernel", "collective"):
                busy.setdefault(e["device"], []).append((e["begin_ns"], e["end_ns"]))
        for e, step in steps:
            if step["kind"] not in TRANSFERS:
                continue
            spans = busy.get(e["device"], [])
            first = bisect_right(spans, e["begin_ns"], key=lambda s: s[1])
            hidden = 0
            for begin, end in spans[first:]:
                if begin >= e["end_ns"]:
                    break
                hidden += min(end, e["end_ns"]) - max(begin, e["begin_ns"])
            key = step["kind"], step["name"], e["device"]
            old = expected.get(key, (0, 0, 0))
            expected[key] = (old[0] + 1, old[1] + hidden,
                             old[2] + e["end_ns"] - e["begin_ns"] - hidden)
        found = {}
        for o in program["overlaps"]:
            names = self.data["streams" if o["kind"].startswith("stream") else "remote_buffers"]
            found[o["kind"], names[o["object"]], o["device"]] = o
        assert set(found) == set(expected), (set(found) ^ set(expected))
        for key, (count, hidden, exposed) in expected.items():
            o = found[key]
            assert o["transfers"] == count, key
            assert abs(o["hidden_seconds"] * 1e9 - hidden) <= 2 * len(steps), key
            assert abs(o["exposed_seconds"] * 1e9 - exposed) <= 2 * len(steps), key

    def check_trace(self, program):
        trace, ends = program["trace"], {}
        for e in trace["events"]:
            assert e["begin_ns"] <= e["end_ns"], e
            if e["kind"] == "part":
                part = self.data["parts"][e["part"]]
                assert self.functions[e["function"]]["part"] in ("", part), e
                continue
            assert e["part"] == -1, e
            key = e["device"], e["queue"], e["worker"]
            assert ends.get(key, 0) <= e["begin_ns"], e  # A queue does one thing at a time.
            ends[key] = e["end_ns"]
        if trace["events"]:
            last = max(e["end_ns"] for e in trace["events"])
            assert abs(last - trace["seconds"] * 1e9) <= 1, (last, trace["seconds"])
