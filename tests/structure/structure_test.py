"""Runs the checks of scripts/ on this project, and on small trees with one fault each."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

import check_includes  # noqa: E402
import check_tree  # noqa: E402
import draw_lines  # noqa: E402


def faults(check, files):
    """Returns the faults that `check` finds in a tree. `files`: path -> text."""
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
        self.expect_none("src/sluice/cpu/a/b.cc", '"sluice/exe/executable.h"')

    def test_a_forbidden_edge(self):
        self.expect_fault("src/sluice/ir/a.h", '"sluice/ops/op.h"', "'ir' may not include 'ops'")
        self.expect_fault("src/sluice/exe/a.h", "<sluice/compiler/compile.h>",
                          "'exe' may not include 'compiler'")
        self.expect_fault("src/sluice/compiler/a.h", '"sluice/cpu/device/cpu.h"',
                          "'compiler' may not include 'cpu'")
        self.expect_fault("src/sluice/nn/a.h", '"sluice/session/session.h"',
                          "'nn' may not include 'session'")
        self.expect_fault("src/sluice/session/a.cc", '"sluice/cpu/device/cpu.h"',
                          "'session' may not include 'cpu'")

    def test_the_checker_shares_nothing_with_the_compiler(self):
        self.expect_fault("src/sluice/check/a.cc", '"sluice/compiler/compile.h"',
                          "'check' may not include 'compiler'")
        self.expect_fault("src/sluice/compiler/a.cc", '"sluice/check/checker.h"',
                          "'compiler' may not include 'check'")
        self.expect_fault("src/sluice/compiler/a.cc", '"sluice/report/traffic.h"',
                          "'compiler' may not include 'report'")

    def test_what_tests_may_include_besides(self):
        self.expect_none("src/sluice/nn/layers_test.cc", '"sluice/interp/interpreter.h"')
        self.expect_fault("src/sluice/nn/layers.cc", '"sluice/interp/interpreter.h"',
                          "'nn' may not include 'interp'")
        self.expect_none("src/sluice/train/a_test.cc", '"sluice/devices/cpu_device.h"')
        self.expect_fault("src/sluice/train/a.cc", '"sluice/devices/cpu_device.h"',
                          "'train' may not include 'devices'")

    def test_headers_of_tests_are_for_tests(self):
        for name in ("src/sluice/nn/a_test.cc", "src/sluice/nn/test_util.h"):
            self.expect_none(name, '"tests/support/gradient_check.h"')
            self.expect_fault(name, '"tests/ops/edge_values.h"', "must be included from the root")
        for name in ("src/sluice/nn/a.cc", "src/sluice/nn/gradient_check.h"):
            self.expect_fault(name, '"tests/support/gradient_check.h"',
                              "must be included from the root")
        self.expect_fault("src/sluice/nn/gradient_check.h", "<gtest/gtest.h>",
                          "<gtest/gtest.h> belongs in")

    def test_every_layer_is_open_to_users(self):
        for folder in ("bench", "tools", "tests/a", "examples"):
            self.expect_none(f"{folder}/a.cc", '"sluice/cpu/simd/isa.h"')
            self.expect_none(f"{folder}/a.cc", "<sluice/sluice.h>")

    def test_users_of_users(self):
        headers = {"bench/b.h": "", "tools/t.h": "", "tests/a/x.h": "", "examples/e.h": ""}

        def includes(name, header):
            return faults(check_includes.check, {**headers, name: f'#include "{header}"\n'})

        for name, header in (("tools/a.cc", "bench/b.h"), ("tests/a/a.cc", "x.h"),
                             ("tests/b/a.cc", "../a/x.h"), ("tests/b/a.cc", "tests/a/x.h"),
                             ("bench/a.cc", "b.h")):
            self.assertEqual(includes(name, header), [])
        for name, header in (("bench/a.cc", "tools/t.h"), ("tools/a.cc", "tests/a/x.h"),
                             ("tests/a/a.cc", "tools/t.h"), ("examples/a.cc", "bench/b.h"),
                             ("bench/a.cc", "../tests/a/x.h")):
            user, used = name.split("/")[0], header.removeprefix("../").split("/")[0]
            self.assertEqual(len(includes(name, header)), 1)
            self.assertIn(f"{name}:1: '{user}' may not include '{used}'", includes(name, header)[0])
        self.assertEqual(includes("tests/b/a.cc", "x.h"),
                         ['tests/b/a.cc:1: file "x.h" does not exist'])
        self.assertIn("folder 'more' must be one of", includes("more/a.cc", "more/a.cc")[0])

    def test_installed_headers(self):
        files = {"src/sluice/sluice.h": '#include "sluice/ir/ir.h"\n#include "sluice/ops/ops.h"\n',
                 "src/sluice/ir/ir.h": "", "src/sluice/ir/more.h": "",
                 "examples/a.cc": "#include <sluice/sluice.h>\n"}
        table = "cmake/installed_headers.txt"
        whole = "sluice/ir/ir.h\nsluice/ops/ops.h\nsluice/sluice.h\n"

        def found(headers, **more):
            return faults(check_includes.check, {**files, table: headers, **more})

        self.assertEqual(found(whole), [])
        self.assertEqual(found("sluice/ops/ops.h\nsluice/sluice.h\n"),
                         ["src/sluice/sluice.h:1: an installed header includes sluice/ir/ir.h, "
                          "which is not in " + table])
        self.assertEqual(found(whole, **{"examples/b.cc": "#include <sluice/ir/more.h>\n"}),
                         [f"examples/b.cc:1: sluice/ir/more.h is not installed ({table})"])
        self.assertEqual(found("sluice/ir/gone.h\n" + whole),
                         [f"{table}:1: header sluice/ir/gone.h does not exist"])
        self.assertEqual(found(whole + whole)[0],
                         f"{table}:1: the headers must be sorted and different")
        many = {f"src/sluice/ir/h{i}.h": "" for i in range(100, 212)}
        listed = "\n".join(sorted(f[4:] for f in many))
        self.assertEqual(faults(check_includes.check, {**many, table: listed}), [])
        more = {**many, "src/sluice/ir/h212.h": "", table: listed + "\nsluice/ir/h212.h"}
        self.assertEqual(faults(check_includes.check, more),
                         [f"{table}:1: at most 112 headers may be installed, got 113"])

    def test_the_umbrella_is_for_users(self):
        self.expect_fault("src/sluice/nn/a.cc", '"sluice/sluice.h"', "only for programs of users")

    def test_an_unknown_folder(self):
        self.expect_fault("src/sluice/ir/a.h", '"sluice/misc/a.h"', "'misc' must be a layer")
        found = faults(check_includes.check, {"src/sluice/misc/a.h": "\n"})
        self.assertIn("folder 'misc' must be a layer", found[0])

    def test_one_include_root(self):
        self.expect_fault("src/sluice/ir/a.cc", '"op.h"', "must be included from the root")

    def test_vendor_headers(self):
        for name, include in [
            ("src/sluice/ir/a.cc", "<xxhash.h>"),
            ("tools/a.cc", "<nlohmann/json.hpp>"),
            ("tools/a.cc", "<CLI/CLI.hpp>"),
            ("src/sluice/cpu/gemm/a.cc", "<immintrin.h>"),
            ("src/sluice/ops/a.cc", "<immintrin.h>"),
            ("src/sluice/runtime/a.cc", "<mpi.h>"),
            ("src/sluice/ir/a.cc", "<gtest/gtest.h>"),
        ]:
            self.expect_fault(name, include, "only")

    def test_cycles(self):
        found = faults(check_includes.check, {"src/sluice/ir/a.h": '#include "sluice/ir/b.h"\n',
                                              "src/sluice/ir/b.h": '#include "sluice/ir/a.h"\n'})
        self.assertEqual(len(found), 1, found)
        self.assertIn(
            "files include each other: src/sluice/ir/a.h -> src/sluice/ir/b.h -> src/sluice/ir/a.h",
            found[0])
        for above in ("tests", "src/sluice/cpu"):
            prefix = above.removeprefix("src/") + "/"
            trees = {f"{above}/a/x.h": f'#include "{prefix}b/y.h"\n', f"{above}/b/y.h": "",
                     f"{above}/a/z.h": "", f"{above}/b/w.h": f'#include "{prefix}a/z.h"\n'}
            cycle = f"{above}/a -> {above}/b -> {above}/a"
            self.assertEqual(faults(check_includes.check, trees),
                             [f"{above}/a:1: folders include each other: {cycle}"])
            del trees[f"{above}/b/w.h"]
            self.assertEqual(faults(check_includes.check, trees), [])
        # A test in the folder of the code cannot be part of a cycle, because no file includes it.
        trees = {"src/sluice/interp/i.h": '#include "sluice/ops/op.h"\n', "src/sluice/ops/op.h": "",
                 "src/sluice/ops/a_test.cc": '#include "sluice/interp/i.h"\n'}
        self.assertEqual(faults(check_includes.check, trees), [])
        self.assertEqual(check_includes.find_cycle({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}}), None)
        self.assertEqual(check_includes.find_cycle({
            "a": {"b"},
            "b": {"c"},
            "c": {"b"}
        }), ["b", "c", "b"])
        with self.assertRaises(ValueError):
            check_includes.closure({"a": ["b"], "b": ["a"]})


class Closures(unittest.TestCase):
    """The headers that a user's file compiles: they decide how long it compiles."""

    def closure(self, header):
        """Returns the project's headers that `header` includes, and the other ones by name."""
        own, others, waiting = set(), set(), [header]
        while waiting:
            name = waiting.pop()
            if name in own:
                continue
            own.add(name)
            if name in check_includes.GENERATED:
                text = (ROOT / "src/sluice/ops/CMakeLists.txt").read_text()
                families = re.search(r"set\(OPERATOR_FAMILIES\s([^)]*)\)", text)[1].split()
                headers = [f"sluice/ops/{family}.h" for family in families]
                waiting += [header for header in headers if (ROOT / "src" / header).exists()]
                continue
            for line in (ROOT / "src" / name).read_text().splitlines():
                found = re.match(r'#include [<"]([^>"]+)[>"]', line)
                if found and found[1].startswith("sluice/"):
                    waiting.append(found[1])
                elif found:
                    others.add(found[1])
        return own, others

    def lines(self, headers):
        return sum(len((ROOT / "src" / h).read_text().splitlines())
                   for h in headers if h not in check_includes.GENERATED)

    def test_core_is_free_of_training(self):
        own, _ = self.closure("sluice/core.h")
        layers = {h.split("/")[1] for h in own if h.count("/") == 2}
        self.assertEqual(layers, {"base", "devices", "ir", "ops", "report", "session"})
        self.assertLess(self.lines(own), 4850)

    def test_the_umbrella_stays_slim(self):
        own, others = self.closure("sluice/sluice.h")
        layers = {h.split("/")[1] for h in own if h.count("/") == 2}
        self.assertEqual(layers & {"check", "compiler", "cpu", "exe", "planner", "runtime"}, set())
        self.assertLess(self.lines(own), 9950)
        # Each of these adds a tenth or more to the time of a file that includes sluice.h.
        self.assertEqual(others & {"algorithm", "chrono", "fmt/format.h", "iostream", "ranges",
                                   "regex", "sstream", "thread", "mutex"}, set())

    def test_fields_of_options_cost_nothing_until_used(self):
        own, _ = self.closure("sluice/core.h")
        for header in own - set(check_includes.GENERATED):
            self.assertNotIn("constexpr auto fields", (ROOT / "src" / header).read_text(), header)


    def test_public_headers_stay_slim(self):
        # Lines of the project that a source compiles for a header, where they exceed the usual
        # limit. A commit that raises a limit explains why.
        usual = 3200
        limits = {"sluice/sluice.h": 9950, "sluice/train/fit.h": 7650, "sluice/train/model.h": 7250,
                  "sluice/train/pipeline.h": 6300, "sluice/train/training_step.h": 6100,
                  "sluice/train/checkpoints/checkpoints.h": 7400,
                  "sluice/train/checkpoints/run.h": 3700,
                  "sluice/core.h": 4850, "sluice/train/network.h": 4450,
                  "sluice/train/options.h": 3500, "sluice/train/devices.h": 6150,
                  "sluice/train/plan/offload.h": 3700,
                  "sluice/nn/layers.h": 4150, "sluice/nn/sequences.h": 4250,
                  "sluice/ops/ops.h": 4250,
                  "sluice/nn/update/optimizers.h": 3700}
        for header in check_includes.installed_headers(ROOT):
            own, _ = self.closure(header)
            self.assertLess(self.lines(own), limits.get(header, usual), header)


@unittest.skipUnless("SLUICE_INCLUDES" in os.environ,
                     "requires SLUICE_INCLUDES; run it with ctest")
class Preprocessed(unittest.TestCase):
    """Preprocessed lines, of the system's headers too, decide how long a source compiles."""

    LIMITS = {
        "src/sluice/core.h": 70_500,
        "src/sluice/sluice.h": 73_500,
        # The ten largest sources (scripts/measure_build.py headers).
        "bench/table.cc": 104_000,
        "src/sluice/base/safetensors.cc": 104_500,
        "src/sluice/report/compare.cc": 106_500,
        "src/sluice/report/forecast/rates.cc": 103_000,
        "src/sluice/report/report_json.cc": 103_000,
        "src/sluice/session/profile.cc": 107_500,
        "src/sluice/train/options/option_table.cc": 84_000,
        "tools/command_line.cc": 100_500,
        "tools/plan/profile.cc": 100_500,
        "tools/plan/sweep.cc": 100_500,
    }

    def test_the_largest_sources_do_not_grow(self):
        folders = [f"-I{folder}" for folder in os.environ["SLUICE_INCLUDES"].split(":")]
        for name, limit in self.LIMITS.items():
            text = subprocess.run(
                [os.environ["SLUICE_CXX"], "-std=c++20", "-E", *folders, "-xc++", ROOT / name],
                capture_output=True, text=True, check=True).stdout
            lines = sum(1 for line in text.splitlines() if line.strip() and line[0] != "#")
            self.assertLess(lines, limit, f"preprocessed lines of {name}")
            self.assertGreater(lines, limit * 0.9, f"lower the limit of {name}")


class Tree(unittest.TestCase):
    def test_this_project(self):
        self.assertEqual(check_tree.check(ROOT), [])

    def test_length(self):
        self.assertEqual(faults(check_tree.check, {"a.cc": "\n" * 600}), [])
        self.assertEqual(faults(check_tree.check, {"a.cc": "\n" * 601}),
                         ["a.cc:601: longer than 600 lines"])

    def test_files_side_by_side(self):
        def folder(name, count):
            return faults(check_tree.check, {f"{name}/f{i}.cc": "" for i in range(count)})

        self.assertEqual(folder("src/sluice/planner", 30), [])
        self.assertEqual(folder("src/sluice/planner", 31),
                         ["src/sluice/planner:1: 31 files side by side, more than 30"])
        self.assertEqual(folder("tests/a/b", 31),
                         ["tests/a/b:1: 31 files side by side, more than 30"])
        self.assertEqual(folder("src/sluice/ops", 100), [])
        for layer in ("base", "ir", "nn", "transforms"):
            limit = check_tree.FOLDER_LIMITS[f"src/sluice/{layer}"]
            self.assertEqual(folder(f"src/sluice/{layer}", limit), [])
            self.assertEqual(folder(f"src/sluice/{layer}", limit + 1),
                             [f"src/sluice/{layer}:1: {limit + 1} files side by side, more than "
                              f"{limit}"])

    def test_length_of_functions(self):
        def body(lines):
            return "  f();\n" * lines

        # Text before the body, and how many of its lines belong to the function.
        heads = [("void f() {\n", 1),
                 ("template <class T>\nint A<T>::f(std::vector<int> x = {1, 2}) const {\n", 2),
                 ("A::A(int x)\n    : a_{x},\n      b_(B{x, {}}) {\n", 3),
                 ("bool operator==(A a, A b) {\n", 1), ("const int x = [] {\n", 1),
                 ("struct A {\n  int x = 1;\n\n public:\n  void f() {\n", 1),
                 ("#if X\nvoid f() {\n#else\nint f() {\n#endif\n", 4),
                 ("namespace a {\nTEST(A, B) {\n  const char* s = R\"({)\" \"{\\\"\";  // {\n", 2)]
        for head, own in heads:
            tail = "}\n" * (1 + head.startswith(("struct", "namespace")))
            short, long = head + body(79 - own) + tail, head + body(80 - own) + tail
            self.assertEqual(faults(check_tree.check, {"src/a.cc": short}), [])
            found = faults(check_tree.check, {"src/a.cc": long})
            self.assertEqual(len(found), 1, found)
            self.assertIn("a function of 81 lines, more than 80", found[0])

    def test_only_functions_are_measured(self):
        entries = "    {1, [](int x) { return x; }},\n" * 90
        for text in (f"constexpr Row kRows[] = {{\n{entries}}};\n",
                     f"namespace a {{\n{'int f();' * 3}\n{'int x;' * 3}\n" + "\n" * 90 + "}\n",
                     "class A : B<C()> {\n" + "  int f() { return 1; }\n" * 90 + "};\n",
                     "enum class E : int {\n" + "  a,\n" * 90 + "};\n"):
            self.assertEqual(faults(check_tree.check, {"a.cc": text}), [])

    def test_a_file_that_cannot_be_measured(self):
        for text in ("void f() {\n", "}\n"):
            found = faults(check_tree.check, {"a.cc": text})
            self.assertEqual(len(found), 1, found)
            self.assertIn("functions cannot be measured", found[0])

    def test_columns(self):
        line = "x" * 100
        names = ["CMakeLists.txt", "a.cc", "a.cmake", "a.h", "a.py", "a.sh", "run"]
        files = {name: f"#!/bin/sh\n{line}\n" for name in names}
        self.assertEqual(faults(check_tree.check, files), [])
        files = {name: f"#!/bin/sh\n{line}x\n" for name in names}
        self.assertEqual(faults(check_tree.check, {**files, "a.csv": f"{line}x\n"}),
                         [f"{name}:2: a line of 101 columns, more than 100" for name in names])
        self.assertEqual(faults(check_tree.check, {"a.py": f"# {'ä' * 98}\n"}), [])

    def test_columns_of_expected_text(self):
        text = 'const char* s = R"(\n' + "x" * 101 + '\n)";\n'
        for name in ("a_test.cc", "test_plans.cc"):
            self.assertEqual(faults(check_tree.check, {name: text}), [])
            self.assertEqual(faults(check_tree.check, {name: f"{text}// {'x' * 98}\n"}),
                             [f"{name}:4: a line of 101 columns, more than 100"])
        self.assertEqual(faults(check_tree.check, {"a.cc": text}),
                         ["a.cc:2: a line of 101 columns, more than 100"])

    def test_columns_of_markdown(self):
        line = "x" * 101
        text = (f"# A\n```cpp\n{line}\n```\n| {line} |\nsee https://{line}\n  ```\n{line}\n  ```\n"
                f"~~~\n```\n{line}\n~~~\n")
        enabled = check_tree.CHECK_MARKDOWN
        check_tree.CHECK_MARKDOWN = True
        try:
            self.assertEqual(faults(check_tree.check, {"a.md": text}), [])
            self.assertEqual(faults(check_tree.check, {"a.md": f"{text}* {line}\n"}),
                             ["a.md:14: a line of 103 columns, more than 100"])
        finally:
            check_tree.CHECK_MARKDOWN = enabled

    def test_first_words_of_comments(self):
        def first_words(files):
            found = faults(check_tree.check, files)
            return [f.split(": ")[0] for f in found if "a comment must not begin with" in f]

        for word in ("Of", "What", "Who", "Those", "Nobody", "None", "The same", "Such", "That of",
                     "By key: a"):
            texts = {"a.cc": f"// {word} a.\n", "b.cc": f"  /// {word} a.\n",
                     "c.cc": f"int a;  ///< {word} a.\n", "d.cc": f'f("//");  // {word} a.\n',
                     "e.py": f"# {word} a.\n", "f.py": f'class A:  # a\n    """{word} a."""\n',
                     "g.sh": f"echo '#'  # {word} a.\n", "h.cmake": f"set(A b)  # {word} a.\n",
                     "i.cc": f"int a;  // A part.\n// {word} a.\n"}
            lines = {"f.py": 2, "i.cc": 2}
            self.assertEqual(first_words(texts), [f"{name}:{lines.get(name, 1)}" for name in texts])
        # The word may begin a later line of a comment, another word, or text that is not a comment.
        self.assertEqual(first_words({
            "a.cc": "// A part\n// Of a.\n", "b.cc": "// Office hours.\n",
            "c.cc": 'f("// Of a");\n', "d.cc": 'f(R"(\n// Of a\n)");\n',
            "e.cc": "int a;  // A part\n        // Of a.\n", "f.py": '"""A part\nOf a."""\n',
            "g.py": 'a = "# Of a"\n', "h.sh": "echo '# Of a' $# Of a\n"}), [])

    def test_names_of_types_and_bounds(self):
        found = faults(check_tree.check, {
            "src/a.cc": "struct Place {\n  enum class Kind : uint8_t { kA };\n};\n"
            "struct PlaceHolder;\n// A class Row of a table.\n",
            "src/b.h": "constexpr int kMost = 1;\nconstexpr int kLeastRows = 1, kMostly = 2;\n"})
        self.assertEqual([f.split(": ")[0] for f in found],
                         ["src/a.cc:1", "src/a.cc:2", "src/b.h:1", "src/b.h:2"])

    def test_promises(self):
        row = "| " + "a " * 25 + "| `b_test` (" + "c " * 30 + ") |\n"
        found = faults(check_tree.check, {"docs/status.md": f"# Status\n\n{row}| a {row[2:]}"})
        self.assertEqual(found, ["docs/status.md:4: a promise of 26 words, more than 25"])
        self.assertEqual(faults(check_tree.check, {"docs/other.md": f"| a {row[2:]}"}), [])

    def test_comments_that_cannot_be_read(self):
        self.assertIn("comments cannot be read", faults(check_tree.check, {"a.py": "def\n"})[0])

    def test_marks(self):
        found = faults(check_tree.check, {
            "src/a.cc": "\n// TO"
            "DO: later\n",
            "docs/a.md": "FIX"
            "ME\n"
        })
        self.assertEqual([f.split(": ")[0] for f in found], ["docs/a.md:1", "src/a.cc:2"])

    def test_machine_paths(self):
        found = faults(check_tree.check, {"a.txt": "see /ho" "me/me/file\n"})
        self.assertEqual(found, ["a.txt:1: a path of one machine: /ho" "me/m"])
        self.assertEqual(faults(check_tree.check, {"a.txt": "see ../home/me and $HOME/work/x\n"}),
                         [])

    def test_standard_error(self):
        found = faults(check_tree.check, {
            "a.cc": 'fmt::print(std'
            'err, "{}", 1);\nstd::ce'
            'rr << 1;\nsys::write_stderr("1");\n'
        })
        self.assertEqual([f.split(": ")[0] for f in found], ["a.cc:1", "a.cc:2"])

    def test_builds_are_not_looked_at(self):
        self.assertEqual(
            faults(check_tree.check, {
                "build/a.cc": "TO"
                "DO\n",
                "build-x/a.cc": "TO"
                "DO\n"
            }), [])

    def test_the_file_that_marks_a_worktree_is_not_looked_at(self):
        self.assertEqual(faults(check_tree.check, {".git": "gitdir: /wo" "rk/a\n"}), [])


class DrawLines(unittest.TestCase):
    def test_prints_whole_comments_and_options(self):
        files = {"a.cc": "// Two lines\n// here.\nint a;  // Of code.\n}  // namespace a\n",
                 "b.sh": "# " + "Long words. " * 30 + "\n# The end.\n",
                 "docs/cli.md": f"{'  --flag N':26}Does it\n{'':26}(default: 1)\n"
                                f"  --strategy resident|phased\n{'':26}Cut it\n"}
        drawn = faults(lambda root: draw_lines.draw(root, 1, 9), files)
        self.assertEqual(sorted(line for line in drawn if not line.startswith("b.sh:1")),
                         ["a.cc:1: Two lines here.", "a.cc:3: [int a;] Of code.",
                          "b.sh:2: The end.", "docs/cli.md:1: --flag N Does it (default: 1)",
                          "docs/cli.md:3: --strategy resident|phased Cut it"])
        self.assertEqual(faults(lambda root: draw_lines.draw(root, 1, 9), files), drawn)
        self.assertEqual(faults(lambda root: draw_lines.draw(root, 1, 2), files), drawn[:2])


if __name__ == "__main__":
    unittest.main()
