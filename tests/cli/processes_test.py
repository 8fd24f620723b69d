#!/usr/bin/env python3
"""Tests what a process does with the ranks, quotas and limits of its environment."""

import re
import unittest

from cli_case import DIGITS, CliTest, FolderTest

TRAIN = ["train", "mnist", *DIGITS, "--steps", "2", "--width", "16"]


class Processes(CliTest):
    def test_several_ranks_without_a_common_mpi_are_refused(self):
        for name, value, processes in (("SLURM_STEP_NUM_TASKS", "4", 4), ("PMIX_RANK", "2", 3),
                                       ("PMIX_SIZE", "2", 2), ("OMPI_COMM_WORLD_SIZE", "2", 2),
                                       ("PMI_SIZE", "3", 3)):
            with self.subTest(name=name):
                result = self.expect_code(2, *TRAIN, env={name: value})
                self.assertIn(f"the launcher started {processes} processes but ", result.stderr)
                self.assertIn(f"--single-process ({name}={value})", result.stderr)
                self.assertEqual(result.stderr.count("error ("), 1)
                self.assertEqual(result.stdout, "")

    def test_a_single_process_runs_by_itself(self):
        digest = self.record(*TRAIN, "--digest")["digest"]
        for env in ({"SLURM_STEP_NUM_TASKS": "4"}, {"PMI_SIZE": "3", "PMIX_RANK": "1"}):
            record = self.record(*TRAIN, "--digest", "--single-process", env=env)
            self.assertEqual(record["digest"], digest)
        self.expect_code(0, "plan", "mnist", "--single-process", env={"PMI_SIZE": "3"})

    def test_one_rank_needs_no_flag(self):
        for env in ({"SLURM_STEP_NUM_TASKS": "1"}, {"PMIX_RANK": "0"}, {"SLURM_NTASKS": "8"}):
            self.expect_code(0, *TRAIN, env=env)


class Cgroups(FolderTest):
    def setUp(self):
        super().setUp()
        self.env = {"SLUICE_SYSTEM_ROOT": str(self.folder)}

    def write(self, path, text):
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def version_2(self):
        self.write("proc/self/cgroup", "0::/job/task")
        self.write("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")

    def version_1(self):
        self.write("proc/self/cgroup", "4:memory:/job/task\n2:cpu:/job/task")
        self.write("proc/self/mountinfo",
                   "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                   "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory")

    def threads(self):
        plan = self.expect_code(0, "plan", "mnist", "--full", env=self.env).stdout
        return int(re.search(r"(?m)^device 0 .* workers (\d+)", plan)[1])

    def test_a_quota_bounds_the_default_number_of_threads(self):
        self.version_2()
        self.write("sys/fs/cgroup/job/cpu.max", "100000 100000")
        self.assertEqual(self.threads(), 1)
        self.version_1()
        self.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000")
        self.write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000")
        self.assertEqual(self.threads(), 1)

    def test_a_run_beyond_the_memory_limit_is_refused(self):
        self.version_2()
        self.write("sys/fs/cgroup/job/task/memory.max", "1000000000")
        self.expect_code(0, *TRAIN, env=self.env)
        self.write("sys/fs/cgroup/job/memory.max", "20000")
        text = "memory: must be at most 20000 bytes, which the control group leaves"
        self.expect_error(4, "does not fit", text, *TRAIN, env=self.env)
        self.expect_error(4, "does not fit", text, *TRAIN, "--offload", "optimizer,weights",
                          "--optimizer", "adam", env=self.env)
        self.expect_code(0, "plan", "mnist", env=self.env)
        self.write("proc/meminfo", "MemAvailable: 12 kB\nSwapFree: 2 kB")
        self.expect_error(4, "does not fit",
                          "memory: must be at most 14336 bytes, which the machine has available, "
                          "got ", *TRAIN, env=self.env)
        (self.folder / "proc/meminfo").unlink()
        self.version_1()
        self.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "20000")
        self.expect_error(4, "does not fit", text, *TRAIN, env=self.env)


if __name__ == "__main__":
    unittest.main()
