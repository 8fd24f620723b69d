"""Standard streams that are closed, full or limited. A lost message is not an error, but a result
that cannot be written is one."""

import os
import signal
import subprocess
import unittest

from cli_case import DIGITS, HANG, PROGRAM, SHORT, FolderTest, has_signal, wait_until


class Streams(FolderTest):
    def setUp(self):
        super().setUp()
        reader, self.without_reader = os.pipe()
        os.close(reader)
        self.addCleanup(os.close, self.without_reader)

    def shell(self, redirections, *arguments, before=""):
        """Runs the program with a shell's redirections. Other output goes to pipes."""
        return subprocess.run([
            "bash", "-c", f'{before} exec "$0" "$@" {redirections}', PROGRAM, *map(str, arguments)
        ], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG,
            pass_fds=[self.without_reader])

    def test_stderr_that_cannot_be_written_changes_nothing(self):
        weights = self.folder / "w.safetensors"
        for redirection in ("2>&-", "2>/dev/full", f"2>&{self.without_reader}"):
            for code, arguments in (
                (0, ["train", "mnist", *SHORT, "--save", weights]),
                (2, ["train", "nosuch"]),
                (0, ["plan", "mnist", "--width", 16, "--print-after", "all"]),
                (2, []),
                (4, ["train", "mnist", "--memory", 1]),
                (2, ["train", "mnist", "--lr", 0]),
                (6, ["train", "mnist", *SHORT, "--lr", "1e30"]),
                (5, ["inspect", self.folder / "missing.safetensors"]),
            ):
                with self.subTest(redirection=redirection, arguments=arguments):
                    result = self.shell(redirection, *arguments)
                    self.assertEqual(result.returncode, code, result.stdout + result.stderr)
            self.expect_code(0, "inspect", weights)
            weights.unlink()

    def test_a_signal_still_saves(self):
        weights = self.folder / "w.safetensors"
        run = [
            "train", "mnist", *DIGITS, "--width", 16, "--steps", 100000000, "--save", weights
        ]
        for redirection in ("2>&-", "2>/dev/full"):
            process = subprocess.Popen(
                ["bash", "-c", f'exec "$0" "$@" {redirection}', PROGRAM, *map(str, run)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            self.addCleanup(process.kill)

            def catches():
                self.assertIsNone(process.poll())
                return has_signal(process.pid, signal.SIGHUP, "SigCgt")

            wait_until(catches)
            process.send_signal(signal.SIGHUP)
            self.assertEqual(process.wait(timeout=HANG), 75)
            self.expect_code(0, "inspect", weights)
            weights.unlink()

    def test_files_never_take_the_numbers_of_closed_streams(self):
        weights, plain = self.folder / "w.safetensors", self.folder / "plain.safetensors"
        run = [
            "train", "mnist", *SHORT, "--optimizer", "adam", "--offload", "optimizer", "--remote",
            f"file:{self.folder}"
        ]
        self.expect_code(0, *run, "--save", plain)
        self.assertEqual(self.shell("<&- >&- 2>&-", *run, "--save", weights).returncode, 0)
        self.assertEqual(weights.read_bytes(), plain.read_bytes())

    def test_results_that_nobody_can_write_are_an_error(self):
        for arguments in (
            ["--version"],
            ["--help"],
            ["--list"],
            ["train", "--help"],
            [],
            ["plan", "mnist", "--json"],
            ["plan", "mnist", "--full"],
            ["doctor"],
        ):
            with self.subTest(arguments=arguments):
                result = self.shell(">/dev/full", *arguments)
                self.assertEqual(result.returncode, 5, result.stderr)
                self.assertRegex(
                    result.stderr,
                    r"^error \(input/output\): cannot write .*: No space left on device\n$")

    def test_files_at_their_size_limit(self):
        limited = self.folder / "limited"
        limited.mkdir()
        result = self.shell("", "train", "mnist", *SHORT, "--save", limited / "w.safetensors",
                            before="ulimit -f 16;")
        self.assertEqual(result.returncode, 5, result.stderr)
        self.assertIn(
            f"error (input/output): cannot write {limited}/w.safetensors: File too large\n",
            result.stderr)
        self.assertEqual(os.listdir(limited), [])
        result = self.shell(f">{self.folder}/text", "plan", "mnist", "--full",
                            before="ulimit -f 16;")
        self.assertEqual(result.returncode, 5, result.stderr)
        self.assertRegex(result.stderr,
                         r"^error \(input/output\): cannot write .*: File too large\n$")
        result = self.shell(f"2>{self.folder}/log", "train", "mnist", *SHORT, before="ulimit -f 0;")
        self.assertEqual(result.returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
