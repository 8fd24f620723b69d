"""Tests equality_matrix.py: the rows that it chooses, and its errors for wrong digests."""

import argparse
import collections
import contextlib
import hashlib
import io
import itertools
import os
import random
import subprocess
import sys
import unittest
from unittest import mock

import equality_matrix
from equality_matrix import Matrix, MatrixRow, wrong_rows


def right(row):
    """Returns the digest that a row should have."""
    return "fma-" + hashlib.sha256(str(row.first()).encode()).hexdigest()


def pairs(row):
    return set(itertools.combinations(enumerate(row), 2))


def sample():
    """Returns the values of all dimensions and the rows of `--sample --opaque`."""
    parser = argparse.ArgumentParser()
    equality_matrix.add_row_options(parser)
    options = parser.parse_args(["--sample", "--opaque"])
    return equality_matrix.dimensions_of(options), equality_matrix.chosen_rows(options)


class Sample(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dimensions, cls.rows = sample()
        # Each possible pair is in more than one of 100 random rows.
        noise = random.Random(1)
        drawn = (MatrixRow(*map(noise.choice, cls.dimensions)) for _ in range(2000))
        cls.possible = set().union(*(pairs(equality_matrix.valid(row)) for row in drawn))

    def test_it_has_every_value_and_every_possible_pair(self):
        for values, used in zip(self.dimensions, zip(*self.rows)):
            self.assertEqual(set(used), set(values))
        self.assertEqual(self.possible - set().union(*map(pairs, self.rows)), set())

    def test_it_reports_a_fault_of_any_pair(self):
        # The dimensions before the strategy decide the digest.
        ways = [i for i, values in enumerate(self.dimensions)
                if i >= MatrixRow._fields.index("strategy") and len(values) > 1]
        digests = {row: right(row) for row in self.rows}
        self.assertEqual(wrong_rows(digests), [])
        for (a, x), (b, y) in self.possible:
            # Without another value, no row differs from the one it is compared with.
            if b in ways and (a in ways or any(r[a] == x and r[b] != y for r in self.rows)):
                wrong = {row: "fma-0" for row in self.rows if (row[a], row[b]) == (x, y)}
                self.assertNotEqual(wrong_rows(digests | wrong), [], (x, y))

    def test_it_runs_little(self):
        self.assertLessEqual(len(self.rows), 180)
        self.assertEqual(len(set(self.rows)), len(self.rows))
        runs = collections.Counter(row.first() for row in self.rows)
        self.assertGreaterEqual(min(runs.values()), 2)
        self.assertTrue(all(equality_matrix.valid(row) == row for row in self.rows))

    def test_it_does_not_depend_on_hashes_of_strings(self):
        done = subprocess.run([sys.executable, __file__, "print"], capture_output=True, text=True,
                              env={**os.environ, "PYTHONHASHSEED": "1"})
        self.assertEqual(done.stdout, f"{self.rows}\n")


class Report(unittest.TestCase):
    def expect(self, code, text, run):
        """Runs twenty rows whose digests or errors `run` returns."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), \
                mock.patch.object(Matrix, "run", lambda matrix, row: run(row)):
            self.assertEqual(equality_matrix.main(["sluice", "--random", "20"]), code)
        self.assertIn(text, said.getvalue())

    def test_right_digests(self):
        self.expect(0, " runs, 0 differ; ", right)

    def test_a_wrong_digest(self):
        def run(row):
            return "fma-0" if row.threads == 2 else right(row)

        self.expect(1, ": fma-0, not fma-", run)

    def test_a_failed_run_without_a_digest(self):
        self.expect(1, ": exit code 1: [], not exit code 1: []", lambda row: "exit code 1: []")

    def test_a_name_that_nothing_has(self):
        for option in ("--model", "--reduction"):
            with self.assertRaisesRegex(SystemExit, f"{option}: no name has 'clipped'; there are"):
                equality_matrix.main(["sluice", "--sample", option, "clipped"])

    def test_one_digest_for_all_models(self):
        self.expect(1, " runs, 0 differ; 1 digests of ", lambda row: "fma-0")


if __name__ == "__main__":
    if sys.argv[1:] == ["print"]:
        print(sample()[1])
    else:
        unittest.main()
