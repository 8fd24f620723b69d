#!/usr/bin/env python3
"""Tests the reports of --profile. A reader that knows docs/report_schema.md alone checks them."""

import itertools
import json
import re
import resource
import statistics
import subprocess
import tempfile
import unittest
from pathlib import Path

from cli_case import DIGITS, HANG, PROGRAM, CliTest
from machine_test import FLAT
from readers.report_reader import Report

STEP = ["--optimizer", "adam", "--micro-batch", 4, "--accumulate", 3, "--threads", 1]
MODELS = {
    "gelu": ["mnist", "--layers", 4, "--width", 32],
    "skips and a tied weight": ["mlp-skip", "--layers", 8, "--width", 24, "--dropout", 0.2],
    "convolutions": ["mnist-cnn", "--dropout", 0.2],
    "batch norm": ["resnet8"],
}
STRATEGIES = [
    ["resident"],
    ["resident", "--recompute", "--offload", "optimizer,accumulators"],
    ["phased", "--io-mode", "io_overlapped", "--io-queues", 3],
    ["phased", "--offload", "optimizer,weights,activations,accumulators", "--recompute"],
    ["resident", "--replicas", 2, "--shard-threshold", 64],
    ["sharded", "--stages", 2],
    ["pipelined", "--stages", 2, "--replicas", 2],
    ["pipelined", "--stages", 2, "--schedule", "interleaved", "--offload", "weights,optimizer"],
]
FOUR = ["mnist-cnn", "--strategy", "pipelined", "--micro-batch", 40, "--device-iterations", 1]


def share_of_several(events):
    """The share of the time in which several devices work."""
    changes = sorted((e[end], 1 if end == "begin_ns" else -1, e["device"]) for e in events
                     for end in ("begin_ns", "end_ns"))
    busy, several, last = {}, 0, 0
    for at, change, device in changes:
        several += (at - last) * (sum(map(bool, busy.values())) > 1)
        busy[device] = busy.get(device, 0) + change
        last = at
    return several / last


class ReportCase(CliTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "profile"

    def machine(self):
        """A machine whose products and copies take longer than beginning a kernel."""
        path = self.folder.parent / "machine.json"
        path.write_text(json.dumps(FLAT | {"flops": 1e11, "copies": 1e10, "messages": 5e9}))
        return path

    def report(self, command, *flags, code=0, part="training"):
        result = self.expect_code(code, command, *flags, f"--profile={self.folder}")
        return Report(self.folder / part / "report.json"), result


class Reports(ReportCase):
    def test_a_report_of_a_plan_has_the_figures_of_its_record(self):
        for model, strategy in zip(itertools.cycle(MODELS.values()), STRATEGIES):
            with self.subTest(model=model[0], strategy=strategy):
                report, result = self.report("plan", *model, *STEP, "--strategy", *strategy,
                                             "--json")
                report.check()
                plan = json.loads(result.stdout)
                self.assertEqual([m["total_bytes"] for m in plan["memories"]],
                                 [m["planned_bytes"] for m in report.data["memories"]])
                self.assertEqual(plan["predicted_seconds"] > 0,
                                 report.program("train")["seconds"] > 0)

    def test_sums_agree_and_runs_do_what_their_report_says(self):
        for name, model in MODELS.items():
            for strategy in STRATEGIES:
                with self.subTest(model=name, strategy=strategy):
                    flags = [*model, *STEP, "--strategy", *strategy, "--steps", 2, "--json"]
                    report, result = self.report("bench", *flags)
                    report.check()
                    self.expect_run(report, json.loads(result.stdout))

    def expect_run(self, report, bench):
        """Expects that a benchmark did the work in the report of its plan."""
        step, replicas = report.program("train"), report.data["replicas"]
        self.assertEqual([m["replica"] for m in report.data["measured"]], list(range(replicas)))
        planned = report.planned_moves("train")
        self.assertGreater(sum(count for count, _ in planned.values()), 0)
        self.assertEqual(bench["planned_bytes"], sum(
            m["planned_bytes"] for m in report.data["memories"] if m["device"] == 0))
        flops = bench["gflops_per_second"] * bench["microseconds_per_step"] * 1e3
        self.assertGreater(flops, 0)
        self.assertAlmostEqual(flops, step["flops"] * replicas, delta=flops * 1e-6 + 1)
        moved = step["operand_bytes"] + sum(
            t["bytes"] for t in step["transfers"] + step["collectives"])
        self.assertEqual(bench["operand_bytes_per_step"], moved * replicas)

    def test_planned_bytes_are_measured_bytes(self):
        flags = ["mlp", "--width", 32, *STEP, *DIGITS, "--steps", 3, "--strategy",
                 "pipelined", "--stages", 2, "--json"]
        report, result = self.report("train", *flags)
        self.assertEqual([m["planned_bytes"] for m in report.data["memories"]][:2],
                         [d["measured_bytes"] for d in json.loads(result.stdout)["devices"]])

    def test_stages_of_document_002(self):
        report, _ = self.report("plan", *FOUR, "--accumulate", 8)
        report.check()
        pipeline, = report.data["pipeline"]
        stages = pipeline["stages"]
        self.assertEqual([s["in_flight"] for s in stages], [7, 5, 3, 1])
        self.assertEqual([s["parameters"] for s in stages], [260, 5020, 82176, 2570])
        self.assertEqual((pipeline["slots"], pipeline["ramp_slots"]), (15, 7))
        times = [s["forward_seconds"] + s["backward_seconds"] for s in stages]
        self.assertEqual(pipeline["slowest_stage"], times.index(max(times)))
        # Every stage runs each micro-batch forward and backward, in ascending order.
        trace = report.program("train")["trace"]
        parts = {}
        for e in trace["events"]:
            if e["kind"] == "part":
                parts.setdefault(report.data["parts"][e["part"]], []).append(e)
        self.assertEqual(set(parts), {f"B{b} {way}" for b in range(1, 5) for way in ("fwd", "bwd")})
        for part, events in parts.items():
            self.assertEqual([e["step"] for e in events], list(range(8)), part)
        # A micro-batch goes forward through the stages, and backward.
        for i in range(8):
            way = [f"B{b} fwd" for b in (1, 2, 3, 4)] + [f"B{b} bwd" for b in (4, 3, 2, 1)]
            for before, after in zip(way, way[1:]):
                self.assertLessEqual(parts[before][i]["end_ns"], parts[after][i]["begin_ns"] + 1)

    def test_parts_have_the_numbers_of_their_micro_batches(self):
        pipelined = ["--strategy", "pipelined", "--accumulate", 4, "--stages", 2]
        for count, flags in (
                (1, ["mlp", "--width", 32]), (3, ["mlp", "--recompute", "--accumulate", 3]),
                (4, ["mnist-phased", "--width", 64]), (4, ["mlp", "--width", 32, *pipelined]),
                (4, ["mlp", "--strategy", "phased", "--accumulate", 4]),
                (4, ["mlp", "--width", 32, *pipelined, "--recompute", "--optimizer", "adam"]),
                (8, ["mlp", "--width", 32, *pipelined, "--device-iterations", 2]),
                (4, ["resnet8", "--micro-batch", 4, *pipelined, "--recompute"]),
                (4, ["mlp-skip", "--layers", 8, "--width", 32, *pipelined]),
                (6, ["mlp-skip", "--layers", 8, "--strategy", "pipelined", "--stages", 3,
                     "--accumulate", 6]),
                (10, ["mnist-cnn", "--strategy", "phased", "--recompute"]),
                (10, ["mnist-cnn", "--strategy", "resident", "--recompute-blocks", "B2",
                      "--accumulate", 5, "--device-iterations", 2])):
            with self.subTest(flags=flags):
                report, _ = self.report("plan", *flags)
                report.check()
                runs = {}
                for e in report.program("train")["trace"]["events"]:
                    if e["kind"] == "part":
                        name = report.data["parts"][e["part"]]
                        runs.setdefault((e["device"], name), set()).add(e["step"])
                blocks = {name.rsplit(" ", 1)[0] for _, name in runs}
                self.assertEqual({name for _, name in runs},
                                 {f"{b} {way}" for b in blocks for way in ("fwd", "bwd")})
                for part, steps in runs.items():
                    self.assertEqual(steps, set(range(count)), part)

    def test_a_step_of_a_pipeline_takes_as_long_as_its_slowest_stage(self):
        report, _ = self.report("plan", *FOUR, "--accumulate", 32, "--machine", self.machine())
        pipeline, = report.data["pipeline"]
        trace = report.program("train")["trace"]
        self.assertTrue(trace["complete"])
        work = {}
        for e in trace["events"]:
            if e["kind"] == "step" and e["queue"] == 0:
                work[e["device"]] = work.get(e["device"], 0) + e["end_ns"] - e["begin_ns"]
        slowest = max(work, key=work.get)
        self.assertEqual(slowest, pipeline["stages"][pipeline["slowest_stage"]]["device"])
        for device in work:
            begins = [e["begin_ns"] for e in trace["events"]
                      if (e["kind"], e["device"]) == ("part", device) and
                      report.data["parts"][e["part"]].endswith(" fwd")]
            self.assertEqual(len(begins), 32)
            period = statistics.median(b - a for a, b in zip(begins, begins[1:]))
            self.assertAlmostEqual(period, work[slowest] / 32, delta=period / 10)

    def test_devices_of_a_pipeline_compute_beside_each_other(self):
        flags = ["mnist-cnn", "--micro-batch", 40, "--accumulate", 8, "--device-iterations", 1,
                 "--machine", self.machine()]
        shares, seconds = [], []
        for strategy in ("sharded", "pipelined"):
            report, _ = self.report("plan", *flags, "--strategy", strategy)
            trace = report.program("train")["trace"]
            steps = [e for e in trace["events"] if e["kind"] == "step"]
            shares.append(share_of_several(steps))
            seconds.append(trace["seconds"])
        # A sharded stage still computes its weight's gradient while the stage before it continues.
        self.assertLess(shares[0], 0.3)
        self.assertGreater(shares[1], 1.5 * shares[0])
        self.assertGreater(seconds[0], 1.2 * seconds[1])

    def test_the_trace_of_other_tools_has_the_same_events(self):
        report, _ = self.report("plan", *FOUR, "--accumulate", 8)
        trace = json.loads((self.folder / "training/trace.json").read_text())["traceEvents"]
        events = [e for p in report.data["programs"] for e in p["trace"]["events"]]
        spans = [e for e in trace if e["ph"] == "X"]
        self.assertEqual(len(spans), len(events))
        self.assertEqual(sum(e["cat"] == "wait" for e in spans if "cat" in e),
                         sum(e["kind"] == "wait" for e in events))
        names = {(e["pid"], e["tid"]) for e in trace if e["name"] == "thread_name"}
        self.assertLessEqual({(e["pid"], e["tid"]) for e in spans}, names)

    def test_a_run_adds_what_it_measured(self):
        flags = ["mlp", *DIGITS, "--steps", 3, "--micro-batch", 8, "--accumulate", 2]
        for threads, extra in ((1, []), (2, ["--replicas", 2]),
                               (2, ["--strategy", "phased", "--io-mode", "io_overlapped"])):
            with self.subTest(extra=extra):
                report, _ = self.report("train", *flags, "--threads", threads, *extra)
                planned = report.program("train")
                replicas = planned and report.data["replicas"]
                self.assertEqual([m["replica"] for m in report.data["measured"]],
                                 list(range(replicas)))
                for m in report.data["measured"]:
                    self.assertEqual((m["program"], m["lost"]), ("train", 0))
                    steps = [e for e in m["trace"]["events"] if e["kind"] == "step"]
                    kinds = [report.functions[e["function"]]["steps"][e["step"]]["kind"]
                             for e in steps]
                    # Each transfer of the plan, once.
                    for kind in ("stream_in", "stream_out", "remote_load", "remote_store"):
                        on_io = {e["queue"] for e, k in zip(steps, kinds) if k == kind}
                        planned_queues = {t["queue"] for t in planned["transfers"]
                                          if t["kind"] == kind}
                        queues = on_io - {0} or on_io
                        self.assertLessEqual(queues, planned_queues | {0})
                        count = sum(k == kind and e["queue"] in queues
                                    for e, k in zip(steps, kinds))
                        self.assertEqual(count, sum(t["transfers"] for t in planned["transfers"]
                                                    if t["kind"] == kind), kind)
                    self.assertGreater(kinds.count("kernel"), 10)

    def test_times_are_the_minimum_of_several_runs(self):
        flags = ["mlp", *DIGITS, "--width", 32, "--dropout", 0.2, "--threads", 1]
        for steps, runs in ((1, 1), (2, 1), (4, 3), (9, 5)):
            with self.subTest(steps=steps):
                report, _ = self.report("train", *flags, "--steps", steps)
                report.check()
                train, (run,) = report.program("train"), report.data["measured"]
                self.assertEqual((train["measured_runs"], run["runs"]), (runs, runs))
                self.assertEqual(train["measured_ns"], run["min_ns"])
                self.assertEqual(report.program("eval")["measured_runs"], 0)
        # Each step has the minimum of its mean times, at most that of the last run.
        last = {}
        for e in run["trace"]["events"]:
            if e["kind"] == "step":
                last.setdefault((e["function"], e["step"]), []).append(e["end_ns"] - e["begin_ns"])
        self.assertGreater(len(run["steps"]), 10)
        smaller = 0
        for s in run["steps"]:
            mean = statistics.mean(last[s["function"], s["step"]])
            self.assertLessEqual(s["ns"], mean + 1)
            smaller += s["ns"] < mean - 1
        self.assertGreater(smaller, 0)
        kernels = train["kernels"]
        self.assertEqual([k["name"] for k in kernels if k["reference"]], [])
        self.assertIn("ModifyRandomSeed", {k["name"] for k in kernels})
        self.assertTrue(all(k["measured_ns"] > 0 for k in kernels))
        gemm = next(k for k in kernels if k["name"].startswith("MatMul"))
        self.assertRegex(gemm["layer"], r"^fc/\d")
        self.assertRegex(gemm["source"], r"^\w+\.(cc|h):\d+$")
        (device,) = train["device_times"]
        self.assertEqual(device["reference_ns"], 0)
        self.assertGreaterEqual(device["waits_ns"], 0)
        text = self.expect_code(0, "inspect", self.folder / "training/report.json").stdout
        self.assertRegex(text, rf"measured, ns +{train['measured_ns']:,}\n")
        sums = {}
        for k in kernels:
            name = (f"{k['name']} {k['layer']} {k['source']}" +
                    ", reference" * k["reference"])
            sums[name] = sums.get(name, 0) + k["measured_ns"]
        slowest = max(sums, key=sums.get)
        self.assertRegex(text, rf"a run of 'train', measured ns by kernel\n  {re.escape(slowest)} +"
                         rf"{sums[slowest]:,}\n")

    def test_every_command_measures_several_runs(self):
        weights = self.folder.parent / "w.safetensors"
        model = ["mlp", "--width", 16]
        self.expect_code(0, "train", *model, *DIGITS, "--steps", 1, "--save", weights)
        for command, flags, part, program in (
            ("eval", [*DIGITS, "--weights", weights, "--test-batch", 40], "inference", "eval"),
            ("bench", ["--steps", 1], "training", "train"),
            ("bench", ["--steps", 1, "--synthetic"], "training", "eval"),
        ):
            with self.subTest(command=command, flags=flags):
                report, _ = self.report(command, *model, *flags, part=part)
                report.check()
                self.assertEqual(report.program(program)["measured_runs"], 5)

    def test_evaluation_has_a_folder_of_its_own(self):
        weights = self.folder.parent / "w.safetensors"
        self.expect_code(0, "train", "mlp", *DIGITS, "--steps", 1, "--save", weights)
        report, result = self.report("eval", "mlp", *DIGITS, "--weights", weights,
                                     part="inference")
        self.assertIn(f"report: {self.folder}/inference/report.html", result.stderr)
        self.assertIn("eval", [p["name"] for p in report.data["programs"]])
        self.assertFalse((self.folder / "training").exists())

    def test_a_report_has_the_options_that_were_given(self):
        report, _ = self.report("plan", "mnist", "--width", 32, "--recompute")
        self.assertEqual(report.data["options"]["--width"], "32")
        self.assertEqual(report.data["defaults"],
                         {"model": "mnist", "--width": "512", "--recompute": "off",
                          "--profile": "off"})
        self.assertIn("--recompute", report.data["options"])
        self.assertNotIn("--layers", report.data["options"])
        self.assertGreater(len(report.data["suggestions"]), 0)

    def test_a_report_has_the_defaults_of_the_model(self):
        report, _ = self.report("plan", "mnist-cnn", "--micro-batch", 4, "--accumulate", 1,
                                "--device-iterations", 1, "--replicas", 1, "--strategy", "phased")
        self.assertEqual(report.data["defaults"],
                         {"model": "mnist", "--micro-batch": "40", "--accumulate": "10",
                          "--device-iterations": "1", "--replicas": "1",
                          "--strategy": "pipelined", "--profile": "off"})

    def test_a_plan_that_does_not_fit_writes_its_report(self):
        for command in ("plan", "train", "bench"):
            report, result = self.report(command, "mnist", "--memory", "64K", "--remote", "none",
                                         code=4)
            self.assertIn(report.data["refusal"].split("\n")[0], result.stderr)
            device = report.data["memories"][0]
            self.assertEqual(device["budget_bytes"], 64 << 10)
            self.assertGreater(device["planned_bytes"], 64 << 10)
            self.assertFalse(any(s["fits"] for s in report.data["suggestions"]))
            report.check()

    def test_the_report_of_a_refused_plan_has_the_remedy(self):
        model = ["mnist", "--layers", 6, "--width", 128, "--optimizer", "adam", "--offload", "none"]
        whole = self.record("plan", *model)["planned_bytes"]
        report, _ = self.report("plan", *model, "--memory", whole - 1, code=4)
        fits = {s["option"]: s["device_bytes"] for s in report.data["suggestions"] if s["fits"]}
        self.assertIn("--strategy phased --offload auto", fits)
        self.assertTrue(all(0 < size < whole for size in fits.values()), fits)
        # Each remedy keeps its promise.
        for option in fits:
            rest = model[:-2] if "--offload" in option else model
            self.expect_code(0, "plan", *rest, "--memory", whole - 1, *option.split())

    def test_inspect_describes_and_compares_reports(self):
        device, offload = self.folder.parent / "device", self.folder.parent / "offload"
        flags = ["plan", "mnist-rts"]  # Document 003: four replicas, eight micro-batches.
        self.expect_code(0, *flags, "--offload", "none", f"--profile={device}")
        self.expect_code(0, *flags, "--offload", "optimizer", f"--profile={offload}")
        a, b = device / "training/report.json", offload / "training/report.json"
        planned = [Report(f).data["memories"][0]["planned_bytes"] for f in (a, b)]
        text = self.expect_code(0, "inspect", a).stdout
        self.assertRegex(text, rf"planned +{planned[0]:,}\n")
        text = self.expect_code(0, "inspect", a, b).stdout
        change = f"{planned[1] - planned[0]:+,}"
        self.assertRegex(text, rf"planned +{planned[0]:,} +{planned[1]:,} +{re.escape(change)}\n")
        self.assertRegex(text, r"fc.0.weight, first_order in \w+ +[\d,]+ +0 +-")
        self.assertIn("tier host, bytes\n", text)
        # A run loads and stores the state that the device no longer holds.
        state = re.search(r"at the peak: optimizer state +([\d,]+) +0 +-\1\n", text)[1]
        state = int(state.replace(",", ""))
        self.assertRegex(text, rf"transfers, bytes +[\d,]+ +[\d,]+ +\+{2 * state:,}\n")
        self.assertNotIn("MatMul ", text)  # It computes the same.
        self.assertIn("have equal numbers", self.expect_code(0, "inspect", a, a).stdout)
        other = self.folder.parent / "other"
        self.expect_code(0, "plan", "mlp", "--width", 32, f"--profile={other}")
        self.expect_error(2, "usage", "must compare reports of one model, got mnist-rts and mlp",
                          "inspect", a, other / "training/report.json")

    def test_inspect_refuses_other_files(self):
        self.expect_code(0, "plan", "mnist", "--width", 32, f"--profile={self.folder}")
        good = (self.folder / "training/report.json").read_text()
        file = self.folder.parent / "report.json"
        looped = json.loads(good)
        steps = looped["functions"][0]["steps"]
        for row in steps["rows"]:
            row[steps["columns"].index("calls")] = [0]
        for text, part in ((good.replace('"version":1', '"version":2', 1),
                            "version must be 1, got 2; write the report again"),
                           ("[]", "must be a report.json"), ("{", "must be a report.json"),
                           (good.replace('"flops"', '"fops"'), "a column is missing"),
                           (good[:len(good) // 2], "must be a report.json"),
                           (json.dumps(looped), "function 0 calls itself")):
            file.write_text(text)
            self.expect_error(3, "bad file", part, "inspect", file)
        self.expect_error(2, "usage", "must have two reports", "inspect", "w.plan", file)

    def test_a_page_is_one_file_below_2_mb(self):
        self.report("plan", "resnet18", "--micro-batch", 8)
        page = (self.folder / "training/report.html").read_text()
        self.assertLess(len(page), 2_000_000)
        for word in ("src=", "href=", "@import", "url(", "fetch(", "XMLHttpRequest"):
            self.assertNotIn(word, page)

    def test_two_names_of_one_option(self):
        self.expect_code(0, "plan", "mnist", "--width", 32, "--profile-dir", self.folder)
        self.assertTrue((self.folder / "training/report.json").exists())
        other = self.folder.parent / "other"
        for flags in (["--profile"], [f"--profile={other}"]):
            report = other / "training/report.json"
            self.expect_code(0, "plan", "mnist", "--width", 32, *flags, "--profile-dir", other)
            self.assertTrue(report.exists())
            report.unlink()
        self.expect_error(2, "usage", f"--profile-dir: must be the folder of --profile={other}, "
                          f"got {self.folder}", "plan", "mnist", f"--profile={other}",
                          "--profile-dir", self.folder)

    def test_refusals(self):
        file = self.folder.parent / "file"
        file.write_text("")
        self.expect_error(5, "input/output", f"{file}/training", "train", "mnist",
                          f"--profile={file}")
        self.expect_error(5, "input/output", "none/profile", "plan", "mnist",
                          f"--profile={self.folder.parent}/none/profile")
        self.expect_error(2, "usage", "--profile cannot be combined with --sweep", "plan", "mnist",
                          f"--profile={self.folder}", "--sweep", "replicas=1;2")

    def test_a_disk_without_space_refuses_the_run_or_is_one_warning(self):
        # The report is written before the run and after it.
        run = ["train", "mlp", "--width", 32, *DIGITS, "--steps", 2]
        for failpoint in ("pwrite@1", "fdatasync@2", "fdatasync@3"):
            with self.subTest(failpoint=failpoint):
                self.expect_error(5, "input/output", "No space left on device; the report is not "
                                  "complete", *run, f"--profile={self.folder}",
                                  env={"SLUICE_FAILPOINT": f"{failpoint}=ENOSPC"})
        for failpoint in ("pwrite@4", "fdatasync@6"):
            with self.subTest(failpoint=failpoint):
                result = self.expect_code(0, *run, f"--profile={self.folder}",
                                          env={"SLUICE_FAILPOINT": f"{failpoint}=ENOSPC"})
                self.assertEqual(result.stderr.count("--profile: "), 1, result.stderr)
                self.assertIn("No space left on device; the report is not complete", result.stderr)
                self.assertIn("2 steps, loss", result.stdout)
        # A file system of its own, where the system allows one.
        script = f"mount -t tmpfs -o size=32k tmpfs {self.folder} && exec \"$@\""
        command = ["unshare", "-rm", "sh", "-c", script, "sh", PROGRAM, *map(str, run),
                   f"--profile={self.folder}"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=HANG)
        if "unshare" not in result.stderr and "mount" not in result.stderr:
            self.assertEqual(result.returncode, 5, result.stderr)
            self.assertEqual(result.stderr.count("--profile: "), 1, result.stderr)
            self.assertIn("No space left on device", result.stderr)

    def test_a_full_disk_refuses_the_run(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        for command, more in (("train", [*DIGITS, "--steps", "2"]), ("plan", [])):
            result = subprocess.run(
                [PROGRAM, command, "mlp", "--width", "32", *more, f"--profile={self.folder}"],
                capture_output=True, text=True, preexec_fn=limit, timeout=HANG)
            self.assertEqual(result.returncode, 5, result.stderr)
            self.assertEqual(result.stderr.count("error (input/output): --profile: "), 1,
                             result.stderr)
            self.assertEqual(result.stdout, "")
            self.assertEqual(list((self.folder / "training").iterdir()), [])
        # A plan that does not fit is refused as such.
        result = subprocess.run(
            [PROGRAM, "plan", "mlp", "--memory", "4K", "--remote", "none",
             f"--profile={self.folder}"], capture_output=True, text=True, preexec_fn=limit,
            timeout=HANG)
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertEqual(result.stderr.count("--profile: "), 1, result.stderr)


if __name__ == "__main__":
    unittest.main()
