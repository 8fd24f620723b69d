"""The checks of scripts/ on this project, and on small trees with one fault each that they must see."""

import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

import check_includes  # noqa: E402
import check_tree  # noqa: E402


def faults(check, files):
    """What `check` says of a tree with `files`, a dictionary from path to text."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return check(folder)


class Includes(unittest.TestCase):
    def expect_fault(self, name, include, part):
        found = faults(check_includes.check, {name: f"#pragma once\n#include {include}\n"})
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(f"{name}:2: "), found)
        self.assertIn(part, found[0])

    def expect_none(self, name, include):
        self.assertEqual(faults(check_includes.check, {name: f"#include {include}\n"}), [])

    def test_this_project(self):
        self.assertEqual(check_includes.check(ROOT), [])

    def test_a_lower_layer(self):
        self.expect_none("src/sluice/nn/a.cc", '"sluice/base/shape.h"')
        self.expect_none("src/sluice/cpu/a.cc", '"sluice/exe/executable.h"')

    def test_a_forbidden_edge(self):
        self.expect_fault("src/sluice/ir/a.h", '"sluice/ops/op.h"', "'ir' may not include 'ops'")
        self.expect_fault("src/sluice/exe/a.h", "<sluice/compiler/compile.h>", "'exe' may not include 'compiler'")
        self.expect_fault("src/sluice/compiler/a.h", '"sluice/cpu/device/cpu.h"', "'compiler' may not include 'cpu'")
        self.expect_fault("src/sluice/nn/a.h", '"sluice/session/session.h"', "'nn' may not include 'session'")

    def test_the_checker_shares_nothing_with_the_compiler(self):
        self.expect_fault("src/sluice/check/a.cc", '"sluice/compiler/compile.h"', "'check' may not include 'compiler'")
        self.expect_fault("src/sluice/compiler/a.cc", '"sluice/check/checker.h"', "'compiler' may not include 'check'")
        self.expect_fault("src/sluice/compiler/a.cc", '"sluice/report/traffic.h"', "'compiler' may not include 'report'")

    def test_kernels_beside_their_operator(self):
        self.expect_none("src/sluice/ops/a.cpu.cc", '"sluice/cpu/kernels/kernel_list.h"')
        self.expect_fault("src/sluice/ops/a.cc", '"sluice/cpu/kernels/kernel_list.h"', "'ops' may not include 'cpu'")

    def test_the_interpreter_judges_tests_only(self):
        self.expect_none("src/sluice/nn/layers_test.cc", '"sluice/interp/interpreter.h"')
        self.expect_fault("src/sluice/nn/layers.cc", '"sluice/interp/interpreter.h"', "'nn' may not include 'interp'")

    def test_users_are_free(self):
        self.expect_none("tools/a.cc", '"sluice/cpu/simd/isa.h"')
        self.expect_none("examples/a.cc", "<sluice/sluice.h>")

    def test_the_umbrella_is_for_users(self):
        self.expect_fault("src/sluice/nn/a.cc", '"sluice/sluice.h"', "only users")

    def test_an_unknown_folder(self):
        self.expect_fault("src/sluice/ir/a.h", '"sluice/misc/a.h"', "'misc' is no layer")
        found = faults(check_includes.check, {"src/sluice/misc/a.h": "\n"})
        self.assertIn("folder 'misc' is no layer", found[0])

    def test_one_include_root(self):
        self.expect_fault("src/sluice/ir/a.cc", '"op.h"', "not included from the root")

    def test_vendor_headers(self):
        for name, include in [("src/sluice/ir/a.cc", "<xxhash.h>"), ("tools/a.cc", "<nlohmann/json.hpp>"),
                              ("tools/a.cc", "<CLI/CLI.hpp>"), ("src/sluice/cpu/a.cc", "<oneapi/dnnl/dnnl.hpp>"),
                              ("src/sluice/ops/a.cc", "<immintrin.h>"), ("src/sluice/runtime/a.cc", "<mpi.h>"),
                              ("src/sluice/cpu/a.cc", "<cuda_runtime.h>"), ("src/sluice/ir/a.cc", "<gtest/gtest.h>")]:
            self.expect_fault(name, include, "only")

    def test_cycles(self):
        found = faults(check_includes.check, {"src/sluice/ir/a.h": '#include "sluice/ir/b.h"\n',
                                              "src/sluice/ir/b.h": '#include "sluice/ir/a.h"\n'})
        self.assertEqual(len(found), 1, found)
        self.assertIn("files include each other: src/sluice/ir/a.h -> src/sluice/ir/b.h -> src/sluice/ir/a.h", found[0])
        self.assertEqual(check_includes.find_cycle({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}}), None)
        self.assertEqual(check_includes.find_cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}), ["b", "c", "b"])
        with self.assertRaises(ValueError):
            check_includes.closure({"a": ["b"], "b": ["a"]})


class Tree(unittest.TestCase):
    def test_this_project(self):
        self.assertEqual(check_tree.check(ROOT), [])

    def test_length(self):
        self.assertEqual(faults(check_tree.check, {"a.cc": "\n" * 600}), [])
        self.assertEqual(faults(check_tree.check, {"a.cc": "\n" * 601}), ["a.cc:601: longer than 600 lines"])

    def test_marks(self):
        found = faults(check_tree.check, {"src/a.cc": "\n// TO" "DO: later\n", "docs/a.md": "FIX" "ME\n"})
        self.assertEqual([f.split(": ")[0] for f in found], ["docs/a.md:1", "src/a.cc:2"])

    def test_machine_paths(self):
        found = faults(check_tree.check, {"a.txt": "see /ho" "me/me/file\n"})
        self.assertEqual(found, ["a.txt:1: a path of one machine: /ho" "me/m"])
        self.assertEqual(faults(check_tree.check, {"a.txt": "see ../home/me and $HOME/work/x\n"}), [])

    def test_standard_error(self):
        found = faults(check_tree.check, {"a.cc": 'fmt::print(std' 'err, "{}", 1);\nstd::ce' 'rr << 1;\nsys::write_stderr("1");\n'})
        self.assertEqual([f.split(": ")[0] for f in found], ["a.cc:1", "a.cc:2"])

    def test_builds_are_not_looked_at(self):
        self.assertEqual(faults(check_tree.check, {"build/a.cc": "TO" "DO\n", "build-x/a.cc": "TO" "DO\n"}), [])

    def test_the_file_that_marks_a_worktree_is_not_looked_at(self):
        self.assertEqual(faults(check_tree.check, {".git": "gitdir: /wo" "rk/a\n"}), [])


if __name__ == "__main__":
    unittest.main()
