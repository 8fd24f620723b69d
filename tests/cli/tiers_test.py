"""Remote memory from the command line: budgets, bandwidth, predictions, access to files."""

import json
import os
import subprocess
import tempfile
import unittest

from cli_case import DIGITS, PROGRAM, CliTest, sluice


class Tiers(CliTest):
    MODEL = ["mnist", "--width", 64, "--optimizer", "adam", "--offload", "optimizer"]
    PHASED = [
        "mnist", "--width", 64, "--optimizer", "adam", "--accumulate", 4, "--strategy", "phased",
        "--offload", "optimizer,weights,activations"
    ]

    def test_smallest_budgets(self):
        plan = self.record("plan", *self.MODEL)
        for flag, name in (("--memory", "device"), ("--remote-memory", "host")):
            least = plan[f"smallest_budget.{name}"]
            self.assertEqual(
                self.record("plan", *self.MODEL, flag, least)["planned_bytes"],
                plan["planned_bytes"])
            self.expect_code(4, "plan", *self.MODEL, flag, least - 1)
        self.assertIn(f", tier host {least:,} bytes\n",
                      self.expect_code(0, "plan", *self.MODEL).stdout)

    def test_throttled_memory_is_slow_and_says_so(self):
        line = "remote memory throttled to 2097152 B/s\n"
        slow = ["--remote-bandwidth", "2M"]
        for arguments in (
            ["plan", *self.MODEL],
            ["train", *self.MODEL, *DIGITS, "--steps", 2],
            ["bench", *self.MODEL, "--steps", 1],
            ["bench", *self.MODEL, "--steps", 1, "--synthetic"],
        ):
            with self.subTest(command=arguments[0]):
                text = [*arguments, *(["--transfers"] if arguments[0] == "plan" else [])]
                self.assertNotIn("throttled", self.expect_code(0, *text).stdout)
                self.assertIn(line, self.expect_code(0, *text, *slow).stdout)
                self.assertEqual(self.record(*arguments, *slow)["remote_bandwidth"], 2 << 20)
        train = ["train", *self.MODEL, *DIGITS, "--steps", 2]
        plain, throttled = self.record(*train), self.record(*train, *slow)
        self.assertEqual(plain["digest"], throttled["digest"])
        plan = self.record("plan", *self.MODEL, *slow)
        self.assertLessEqual(throttled["samples_per_second"], 8 / plan["transfer_seconds"])

    def test_predictions(self):
        bandwidth = 64 << 20
        flags = ["--remote-bandwidth", bandwidth, "--replicas", 2]
        plan = self.record("plan", *self.MODEL, *flags)
        self.assertAlmostEqual(plan["transfer_seconds"], 2 * plan["tier_bytes"] / bandwidth)
        self.assertAlmostEqual(plan["exposed_transfer_seconds"], plan["transfer_seconds"])
        self.assertGreater(plan["predicted_seconds"], plan["transfer_seconds"])
        seconds = {}
        for mode in ("compute", "io", "io_overlapped"):
            plan = self.record("plan", *self.PHASED, "--io-mode", mode, *flags)
            self.assertAlmostEqual(plan["transfer_seconds"], 2 * plan["tier_bytes"] / bandwidth)
            self.assertLess(plan["exposed_transfer_seconds"], plan["predicted_seconds"])
            seconds[mode] = plan["exposed_transfer_seconds"]
        self.assertAlmostEqual(seconds["compute"], seconds["io"])
        self.assertLess(seconds["io_overlapped"], seconds["io"])
        text = self.expect_code(0, "plan", *self.PHASED, "--io-mode", "io_overlapped", *flags,
                                "--transfers").stdout
        self.assertRegex(
            text,
            r"predicted with [\d.]+ GF/s .*, remote memory 0.0671 GB/s by --remote-bandwidth:\n")
        self.assertRegex(
            text,
            r"a run of 'train' takes [\d.]+ ms\n(  streams: .*\n)?  tier host: [\d,]+ bytes in "
            r"[\d.]+ ms, [\d.]+ ms of it hidden by kernels, [\d.]+ ms exposed\n")

    def test_where_no_file_can_be_made_it_is_not_measured(self):
        text = self.expect_code(0, "plan", *self.MODEL, "--remote", "file:/no/such/folder",
                                "--transfers").stdout
        self.assertIn("as copies in host memory, as it cannot make a file in /no/such/folder", text)

    def test_files_past_the_page_cache_and_checked(self):
        run = ["train", *self.PHASED, *DIGITS, "--steps", 5, "--io-mode", "io_overlapped"]
        plain = self.record(*run)
        with tempfile.TemporaryDirectory() as folder:
            place = ["--remote", f"file:{folder}"]
            for ways in (
                ["--verify-remote"],
                ["--remote-direct"],
                ["--remote-direct", "--verify-remote"],
            ):
                with self.subTest(ways=ways):
                    result = sluice(*run, *place, *ways, "--json")
                    if "takes no O_DIRECT" in result.stderr or "(O_DIRECT)" in result.stderr:
                        self.skipTest(f"requires O_DIRECT in {folder}, which is in memory")
                    self.assertEqual(json.loads(result.stdout)["digest"], plain["digest"])
                    self.assertEqual(os.listdir(folder), [])
                    plan = self.record("plan", *self.PHASED, *place, *ways)
                    self.assertGreater(plan["peak_bytes.host"], 0)
                    self.assertGreater(plan["peak_bytes.file"], plan["peak_bytes.host"])


class BeyondMemory(CliTest):
    """Trains weights and state of 20 times the device's memory from a file."""
    def test_trains_with_the_bits_of_the_resident_run(self):
        layers, width = 128, 256
        model = [
            "mlp", "--layers", layers, "--width", width, "--optimizer", "adam", "--accumulate", 2
        ]
        run = [*DIGITS, "--steps", 5, "--threads", 1, "--log-level", "error"]
        phased = [
            "--strategy", "phased", "--offload", "optimizer,weights,activations", "--io-mode",
            "io_overlapped"
        ]
        parameters = (layers - 2) * (width * width + width) + 784 * width + width + 10 * width + 10
        memory = 12 * parameters // 20
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
            saved = ["--save", f"{other}/w.safetensors"]
            arguments = [
                "train", *model, *run, *phased, "--remote", f"file:{folder}", "--memory", memory,
                *saved, "--json"
            ]
            process = subprocess.Popen([PROGRAM, *map(str, arguments)],
                                       stdout=subprocess.PIPE,
                                       text=True)
            text = process.stdout.read()
            process.stdout.close()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 0)
            self.assertEqual(os.listdir(folder), [])
            self.assertGreater(os.path.getsize(saved[1]), 20 * memory)
            again = ["eval", *model, *DIGITS, "--weights", saved[1]]
            accuracy = {
                self.record(*again, *ways)["accuracy"]
                for ways in ([], [*phased, "--remote", f"file:{folder}"])
            }
        record = json.loads(text)
        self.assertEqual(accuracy, {record["accuracy"]})
        self.assertLessEqual(record["measured_bytes"], memory)
        self.assertLess(usage.ru_maxrss * 1024, memory + (64 << 20))
        resident = self.record("train", *model, *run)
        self.assertGreater(resident["planned_bytes"], 20 * memory)
        for key in ("digest", "loss", "accuracy"):
            self.assertEqual(record[key], resident[key])


if __name__ == "__main__":
    unittest.main(verbosity=2)
