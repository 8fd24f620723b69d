"""Checks that the documents show what the programs print.

docs_test.py SUITE      runs a suite.
docs_test.py --update   rewrites docs/operators.md, the blocks of docs/tour.md and the table of
                        docs/options.md.
SLUICE_TOUR, SLUICE_OP_REFERENCE and SLUICE_OPTION_REFERENCE are the programs that print them.
"""

import os
import re
import subprocess
import sys
import textwrap
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TOUR = ROOT / "docs" / "tour.md"
OPERATORS = ROOT / "docs" / "operators.md"
OPTIONS = ROOT / "docs" / "options.md"
# Matches the table of all options.
TABLE = re.compile(r"(?m)(?:^\| `?option`? \| values .*\n)(?:^\|.*\n)+")
# Matches <!-- output: NAME --> and the block after it.
BLOCK = re.compile(r"(<!-- output: (\w+) -->\n```text\n)(.*?)(```\n)", re.DOTALL)
HINT = "\nIf the change is meant: cmake --build BUILD --target update_docs"


def printed(variable):
    result = subprocess.run([os.environ[variable]],
                            stdin=subprocess.DEVNULL,
                            capture_output=True,
                            text=True)
    if result.returncode != 0:
        raise RuntimeError(f"{variable} ended with {result.returncode}: {result.stderr}")
    return result.stdout


def tour_sections():
    """Returns name -> text of the sections that the program of the tour prints."""
    parts = re.split(r"(?m)^== (\w+)\n", printed("SLUICE_TOUR"))
    return {name: text.rstrip("\n") + "\n" for name, text in zip(parts[1::2], parts[2::2])}


def update():
    sections = tour_sections()
    TOUR.write_text(BLOCK.sub(lambda m: m[1] + sections[m[2]] + m[4], TOUR.read_text()))
    OPERATORS.write_text(printed("SLUICE_OP_REFERENCE"))
    OPTIONS.write_text(TABLE.sub(lambda _: printed("SLUICE_OPTION_REFERENCE"), OPTIONS.read_text()))


class Tour(unittest.TestCase):
    maxDiff = None

    def test_blocks(self):
        sections = tour_sections()
        blocks = {m[2]: m[3] for m in BLOCK.finditer(TOUR.read_text())}
        self.assertEqual(sorted(blocks), sorted(sections))
        for name, text in blocks.items():
            with self.subTest(block=name):
                self.assertEqual(text, sections[name], HINT)


class Operators(unittest.TestCase):
    maxDiff = None

    def test_reference(self):
        self.assertEqual(OPERATORS.read_text(), printed("SLUICE_OP_REFERENCE"), HINT)


class Options(unittest.TestCase):
    maxDiff = None

    def test_table(self):
        tables = TABLE.findall(OPTIONS.read_text())
        self.assertEqual(tables, [printed("SLUICE_OPTION_REFERENCE")], HINT)


class Text(unittest.TestCase):
    def test_the_readme_shows_the_project_that_the_install_test_builds(self):
        readme = (ROOT / "README.md").read_text()
        consumer = ROOT / "tests" / "install" / "consumer"
        project = (consumer /
                   "CMakeLists.txt").read_text().partition("#")[0]  # Without its warnings.
        self.assertIn("```cmake\n" + project + "```", readme)

    def test_the_readme_shows_programs_of_at_most_40_lines_and_what_they_print(self):
        readme = (ROOT / "README.md").read_text()
        examples = ROOT / "examples"
        # The tests readme_* compare what they print.
        for name in ("first", "beyond_memory", "own_data"):
            with self.subTest(program=name):
                program = (examples / f"{name}.cc").read_text()
                self.assertLessEqual(program.count("\n"), 40)
                self.assertIn("```cpp\n" + program + "```", readme)
                printed = (examples / "expected" / f"{name}.txt").read_text()
                self.assertIn("```text\n" + printed + "```", readme)

    def test_the_pages_show_the_files_that_the_howto_test_builds(self):
        shown = {
            "sluice/ops": "add_an_op.md",
            "sluice/cpu/fused": "add_an_op.md",
            "sluice/compiler/passes": "add_a_pass.md"
        }
        for folder, name in shown.items():
            page = (ROOT / "docs" / "howto" / name).read_text()
            for file in (ROOT / "tests" / "docs" / folder).iterdir():
                with self.subTest(file=file.name):
                    self.assertIn(f"`src/{folder}/{file.name}`\n\n```cpp\n{file.read_text()}```",
                                  page)

    def test_the_page_on_the_architecture_has_the_layers_that_are_checked(self):
        sys.path.insert(0, str(ROOT / "scripts"))
        from check_includes import LAYERS
        page = (ROOT / "docs" / "architecture.md").read_text()
        rows = dict(re.findall(r"(?m)^\| `(\w+)` \| (.*) \|$", page))
        self.assertEqual({name: re.findall(r"`(\w+)`", row) for name, row in rows.items()}, LAYERS)
        self.assertEqual(sorted(re.findall(r"(?m)^\*\*`(\w+)`\*\*", page)), sorted(LAYERS))

    def test_the_page_on_models_shows_a_model(self):
        page = (ROOT / "docs" / "howto" / "add_a_model.md").read_text()
        model = "src/sluice/models/mnist_rts.cc"
        self.assertIn(f"`{model}`\n\n```cpp\n{(ROOT / model).read_text()}```", page)

    def test_the_page_on_blocks_shows_the_networks_and_errors_that_its_test_checks(self):
        page = (ROOT / "docs" / "howto" / "split_a_model.md").read_text()
        test = (ROOT / "tests" / "docs" / "split_a_model_test.cc").read_text()
        networks = test.split("// --- The networks of the page.\n\n")[1]
        networks = networks.split("\n// --- End of the networks.")[0]
        self.assertEqual("\n".join(re.findall(r"```cpp\n(.*?)```", page, re.DOTALL)), networks)
        errors = re.findall(r"(?m)^\| `(.*?)` \|", page)
        self.assertEqual(errors, re.findall(r'(?m)^       "(.*)"\},$', test))

    def test_pages_show_the_code_of_their_tests(self):
        for name in ("fast_dataset", "compose_datasets", "long_runs"):
            page = (ROOT / "docs" / "howto" / f"{name}.md").read_text()
            test = (ROOT / "tests" / "docs" / f"{name}_test.cc").read_text()
            parts = re.findall(r" *// --- Code of the page\.\n(.*?) *// --- End", test, re.DOTALL)
            self.assertEqual(re.findall(r"```cpp\n(.*?)```", page, re.DOTALL),
                             [textwrap.dedent(part) for part in parts])

    def test_the_page_about_learning_rates_shows_code_of_a_test(self):
        page = (ROOT / "docs" / "howto" / "learning_rates.md").read_text()
        test = (ROOT / "src" / "sluice" / "train" / "run" / "schedules_test.cc").read_text()
        blocks = re.findall(r"```cpp\n(.*?)```", page, re.DOTALL)
        self.assertGreater(len(blocks), 2)
        for block in blocks:
            self.assertIn(textwrap.indent(block, "  "), test)

    def test_the_page_on_strategies_shows_the_code_and_the_order_of_its_test(self):
        page = (ROOT / "docs" / "howto" / "add_a_strategy.md").read_text()
        test = (ROOT / "tests" / "docs" / "add_a_strategy_test.cc").read_text()
        code = test.split("// --- Code of the page.\n")[1].split("// --- End of the code.")[0]
        self.assertEqual(re.findall(r"```cpp\n(.*?)```", page, re.DOTALL), [code])
        order = test.split("// --- Order of the page.\n")[1].split(";")[0]
        lines = re.findall(r'"(.*)\\n"', order)
        self.assertEqual(page.split("```\n")[-2].splitlines(), lines)

    def test_the_page_on_pytorch_shows_the_code_of_its_test(self):
        page = (ROOT / "docs" / "howto" / "from_pytorch.md").read_text()
        test = (ROOT / "tests" / "docs" / "from_pytorch_test.cc").read_text()
        parts = re.findall(r" *// --- Code of the page\.\n(.*?) *// --- End", test, re.DOTALL)
        self.assertEqual(re.findall(r"```cpp\n(.*?)```", page, re.DOTALL),
                         [parts[0], *(re.sub(r"(?m)^  ", "", part) for part in parts[1:])])
        module = (ROOT / "tests" / "models" / "torch_layers.py").read_text()
        shown = re.findall(r"```python\n(class .*?)```", page, re.DOTALL)
        self.assertEqual(len(shown), 1)
        self.assertIn(shown[0], module)

    def test_the_table_of_parameters_has_the_options_of_a_pipeline(self):
        page = (ROOT / "docs" / "howto" / "pipeline_a_model.md").read_text()
        table = page.split("\n### Parameters of document 001\n")[1]
        rows = re.findall(r"(?m)^\| (.*?) \| (.*) \|$", table)[1:]
        self.assertGreater(len(rows), 20)
        train = ROOT / "src" / "sluice" / "train"
        fields = {}
        for name, header in (("PipelineOptions", "pipeline.h"), ("TensorLocations", "options.h")):
            body = re.search(rf"(?s)struct {name} {{(.*?)\n}};", (train / header).read_text())[1]
            fields[name] = set(re.findall(r"(?m)^  [\w:<>, ]+ (\w+) =", body))
        mentioned = set()
        for parameters, text in rows:
            for code in re.findall(r"`([\w.:()]+)`", text):
                with self.subTest(parameters=parameters, code=code):
                    option, _, part = code.partition(".")
                    if re.match(r"(train|data)::", code):  # A function or a class of this layer.
                        name = code.split("::")[1].rstrip("()")
                        headers = [*train.glob("*.h"), *(train.parent / "data").glob("*.h")]
                        self.assertTrue(any(re.search(rf"\b{name}\b", h.read_text())
                                            for h in headers))
                        continue
                    self.assertIn(option, fields["PipelineOptions"])
                    if part:
                        self.assertIn(part, fields["TensorLocations"])
                    mentioned.add(option)
        self.assertEqual(mentioned, fields["PipelineOptions"])

    def test_the_page_on_pipelines_shows_parts_of_a_lesson_and_what_it_prints(self):
        page = (ROOT / "docs" / "howto" / "pipeline_a_model.md").read_text()
        functions = page.split("\n## From functions\n")[1]
        lesson = (ROOT / "examples" / "13_functions.cc").read_text()
        parts = re.findall(r"```cpp\n(.*?)```", functions, re.DOTALL)
        self.assertEqual(len(parts), 3)
        for part in parts:
            self.assertIn(part, lesson)
        printed = (ROOT / "examples" / "expected" / "13.txt").read_text()
        self.assertIn("```text\n" + printed + "```", functions)

    def test_the_page_on_transformers_shows_a_lesson_of_at_most_45_lines(self):
        page = (ROOT / "docs" / "howto" / "train_a_transformer.md").read_text()
        lesson = (ROOT / "examples" / "20_transformer.cc").read_text()
        self.assertIn("```cpp\n" + lesson + "```", page)
        code = [line for line in lesson.splitlines() if line and not line.startswith("///")]
        self.assertLessEqual(len(code), 45)

    def test_the_page_on_options_shows_errors_that_the_library_has(self):
        page = (ROOT / "docs" / "options.md").read_text()
        section = page.split("## Combinations that are refused\n")[1].split("\n## ")[0]
        errors = re.findall(r"(?m)^\|.*\| `([^`]+)` \|$", section)
        self.assertGreater(len(errors), 15)
        sources = "".join(f.read_text() for f in (ROOT / "src" / "sluice").rglob("*.cc")
                          if not f.name.endswith("_test.cc"))
        # The parts of a text in a source join.
        literals = re.sub(r'"\s*"', "", sources)
        for error in errors:
            with self.subTest(error=error):
                self.assertTrue(error in literals)

    def test_links_lead_somewhere(self):
        for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
            for link in re.findall(r"\]\(([^)#\s]+)\)", document.read_text()):
                if "://" not in link:
                    with self.subTest(document=document.name, link=link):
                        self.assertTrue((document.parent / link).exists())


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        update()
    else:
        unittest.main(verbosity=2)
