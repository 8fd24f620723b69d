"""Tests plan_text.py and plan_oracle.py: plan_oracle_test.py SLUICE [unittest's arguments]."""

import contextlib
import gzip
import io
import json
import random
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import plan_oracle
from plan_text import STRING, canonical

PROGRAM = sys.argv.pop(1)

# A plan with every kind of line. Its names, locations and numbers are not those of one program.
PLAN = """sluice executable 1
computes 0123456789abcdef
replicas 2
device 0 kind cpu isa avx2 memory -1 workers 2 queues compute io
device 1 kind cpu isa avx2 memory 4096 workers 2 queues compute
tier 0 "host" space host budget -1
arena 0 "device 0 frames" kind frames space device device 0 bytes 4096 stride 0
stream 0 "x # 1" in f32(4,8)
feed 0 "samples" in depth 2 field 0 slots 3 arena 0 offset 0 slot 128
remote 0 "rows" f32(8) entries 3 arena 0 offset 64 stride 64
variable 0 "w \\"token 1\\"" f32(8) arena 0 offset 256 bytes 32 row value %7 shard 0 group -1 \
buffer 0 entry 2 init "one"
constant 0 "one" f32() arena 0 offset 320 value %9 data 0000803f
channel 0 "loss" from 1 to 0 capacity 2 arena 0 offset 384 slot 64
channel 3 "h" from 0 to 1 capacity 4 arena 0 offset 448 slot 64
group 0 stride 1 size 2
value 7 "fc.weight" 0
value 9 "one" 0
function 0 "unused" memo "u" device 0 index_params 0 frame 0 bound 0
function 2 "train" memo "main,row" device 0 index_params 0 frame 512 bound 448
  buffer "sum" offset 64 bytes 32 steps 0 3
  0 loop 4 frame frame+128 trips 3 condition 1 exit 5 origin 12 where "net.py:3"
      carry 0:1 %22
      index it
      read %7 at arena0+256 bytes 32 f32(8) row  # fc.weight v0
      update %20>%21 at frame+64 bytes 32 f32(8) row  # sum v0 > sum v1
  1 sync branch then 4 frame frame+128 else 6 frame frame+192
      condition read %9 at arena0+320 bytes 4 f32() row
      then
      read %21 at frame+64 bytes 32 f32(8) row
      else
      index (it+1)
      read %21 at frame+64 bytes 32 f32(8) row
  2 call 6 frame frame+192
  3 collective all_reduce group 0 sequence 0 workspace 64 where "train.py:1"
      attrs op="token 1" k="%7"
      coincide 0:0
      update %21>%22 at frame+64 bytes 32 f32(8) row
function 4 "body" memo "b" device 0 index_params 1 frame 64 bound 64
  param 0 "w" read %7 bytes 32 f32(8) row
  param 1 "s" update %20>%21 bytes 32 f32(8) row
  0 issue remote_load 0 entry p0 queue 1 token 8 found %9
      write %31 at frame+0@ring(2,32,p0) bytes 32 f32(8) row
      entry_from read %9 at arena0+320 bytes 4 f32() row
  1 wait queue 1 token 8
  2 kernel cpu.fused add+mul tasks 2 workspace 0 flops 16 origin 4
      scalars p0
      read %31 at frame+0 bytes 32 f32(8) row task 16 pitch 32
      update %20>%21 at param1+0 bytes 32 f32(8) row task 16
      stage add from 0 1 to 2 f32(8)
      stage_attrs a=1
  3 send 3 message p0 origin 5
      read %21 at param1+0 bytes 32 f32(8) row
function 6 "arm" memo "a" device 0 index_params 1 frame 0 bound 0
  0 receive 0 message p0
      write %7 at frame+0 bytes 32 f32(8) row
program "train"
  entry device 0 function 2 frame arena0+0
  stream 0 entries 3
  collectives 1 device 0 group 0
  remote 0 loads 3 stores 0 found 77
  final 0 value %22
end
"""


def disguised(text, seed):
    """Returns the text with other names, source locations, numbers and provenances.

    Its functions are in another order.
    """
    noise = random.Random(seed)
    numbers = [*range(100_000)]
    noise.shuffle(numbers)
    head, *functions = re.split(r"^(?=function )", text, flags=re.M)
    *functions, last = functions
    last, programs = re.split(r"^(?=program )", last, maxsplit=1, flags=re.M)
    functions = noise.sample([*functions, last], len(functions) + 1)
    text = head + "".join(functions) + programs
    lines = []
    for line in text.splitlines():
        line = line.split("  #")[0]
        if line.startswith("value 7"):
            lines += ['provenance 0 gradient op "add" at 1 0', 'rows_of_block "fc" "fc" "fc2"']
        line = re.sub(r" (provenance \d+|role \w+ of -?\d+)$", "", line)
        line = re.sub(r"^(  buffer .*) value %\d+$", r"\1", line)
        line = re.sub(rf" where {STRING}$", "", line)
        line = re.sub(r"^(  \d+ .*) origin -?\d+$", r"\1", line)
        line = re.sub(rf"^((?:function|channel|constant|  param) \d+ |  buffer ){STRING}",
                      rf'\1"other {len(lines)}"', line)
        line = re.sub(rf"(^function .* memo ){STRING}", r'\1""', line)
        if not line.startswith(("variable", "      attrs")):
            line = re.sub(r"\b(call|loop|then|else|function|send|receive|token|exit) (\d+)",
                          lambda m: f"{m[1]} {numbers[int(m[2])]}", line)
            line = re.sub(r"^channel (\d+)", lambda m: f"channel {numbers[int(m[1])]}", line)
        if not line.startswith("      attrs"):
            line = re.sub(r"%(\d+)", lambda m: f"%{numbers[int(m[1])]}", line)
        for kind, suffix in ((r"  \d", "provenance 0"), ("value ", "provenance 0"),
                             ("  buffer ", "value %3"), ("variable ", "role update of 0")):
            if re.match(kind, line):
                line += " " + suffix
        lines.append(line)
    channels = sorted(line for line in lines if line.startswith("channel "))
    return "\n".join(channels.pop() if line.startswith("channel ") else line
                     for line in lines) + "\n"


class Canonical(unittest.TestCase):
    def test_names_places_and_numbers_are_not_in_it(self):
        for seed in range(5):
            other = disguised(PLAN, seed)
            self.assertNotEqual(other, PLAN)
            self.assertEqual(canonical(other), canonical(PLAN))
        self.assertIn('attrs op="token 1" k="%7"', canonical(PLAN))
        self.assertIn('stream 0 "x # 1" in', canonical(PLAN))

    def test_those_of_real_plans_are_not_in_it(self):
        for strategy in ("phased --offload optimizer,weights,activations,accumulators",
                         "pipelined --stages 2"):
            plan = subprocess.run([PROGRAM, "plan", "mlp-skip", "--width", "24", "--optimizer",
                                   "adam", "--accumulate", "2", "--replicas", "2",
                                   "--shard-threshold", "0", "--dropout", "0.2", "--full",
                                   "--strategy", *strategy.split()],
                                  capture_output=True, text=True, check=True).stdout
            self.assertEqual(canonical(disguised(plan, 1)), canonical(plan))

    def test_every_other_word_is_in_it(self):
        expected, dropped = canonical(PLAN), set()
        for word in re.finditer(rf'{STRING}|[^\s"]+', PLAN):
            line = PLAN[:word.start()].rsplit("\n", 1)[-1]
            other = word[0][:-1] + '?"' if word[0][0] == '"' else word[0] + "9"
            with contextlib.suppress(KeyError):  # A call of a function that is not there.
                if canonical(PLAN[:word.start()] + other + PLAN[word.end():]) == expected:
                    dropped.add(f"{line.split()[-1]} {word[0]}" if "#" not in line else "comment")
        self.assertEqual(dropped, {
            "comment", "computes 0123456789abcdef", 'where "net.py:3"', 'where "train.py:1"',
            "origin 12", "origin 4", "origin 5", 'memo "u"', 'memo "main,row"', 'memo "b"',
            'memo "a"', '0 "unused"', '2 "train"', '4 "body"', '6 "arm"', 'buffer "sum"', '0 "w"',
            '1 "s"', '0 "loss"', '3 "h"', "value 7", '7 "fc.weight"', '"fc.weight" 0', "value 9",
            '9 "one"', '"one" 0', '0 "one"',
            "function 0", "exit 5"  # Nothing else has these numbers.
        })


class Rows(unittest.TestCase):
    """Records ten rows once. Each test compares them with a record that it changes."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.file = str(Path(folder.name, "record"))
        cls.expect_exit(0, "10 rows", "record", PROGRAM, cls.file, "--sample", "--rows", "10",
                        "--jobs", "1")
        cls.source, cls.rows = plan_oracle.load(cls.file)

    @classmethod
    def expect_exit(cls, code, part, *arguments):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            found = plan_oracle.main(arguments)
        if found != code or part not in said.getvalue():
            raise AssertionError(f"{arguments}: exit {found}, not {code}:\n{said.getvalue()}")

    def first(self, strategy):
        """Returns the title of the first row of a strategy, and a copy of its entry."""
        return next((title, json.loads(json.dumps(entry))) for title, entry in self.rows.items()
                    if plan_oracle.strategy_of(entry["arguments"]) == strategy)

    def expect_change(self, strategy, edit, failures, text, **options):
        """Compares all rows with a record in which `edit` has changed one entry."""
        title, entry = self.first(strategy)
        edit(entry)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            found = plan_oracle.compare({**self.rows, title: entry}, self.rows, **options)
        self.assertEqual(found, failures, said.getvalue())
        self.assertIn(text, said.getvalue())

    def expect_row(self, title, entry, text, *options):
        """Compares the program with a record of one row, which fails."""
        file = self.file + ".changed"
        plan_oracle.store(file, self.source, {title: entry})
        self.expect_exit(1, text, "compare", PROGRAM, file, *options)

    def test_the_rows_have_every_strategy(self):
        for strategy in ("resident", "phased", "sharded", "pipelined"):
            self.first(strategy)
        self.assertGreater(len({entry["digest"] for entry in self.rows.values()}), 5)

    def test_the_same_program_changes_nothing(self):
        self.expect_exit(0, "10 of 10 rows of the record compared: 0 failures; 0 plans and 0 "
                         "digests changed, 0 rows with a larger figure", "compare", PROGRAM,
                         self.file, "--jobs", "1")

    def test_a_changed_plan_fails(self):
        def edit(entry):
            entry["text"] = re.sub(r"  buffer _ offset \d+", "  buffer _ offset 7", entry["text"],
                                   count=1)

        self.expect_change("pipelined", edit, 1, "plan changed")
        self.expect_change("phased", edit, 1, "\n    -  buffer _ offset 7 ")
        self.expect_change("phased", edit, 0, "ok: ", may_change=["phased"])
        self.expect_change("pipelined", edit, 1, "plan changed", may_change=["phased"])

    def test_a_larger_figure_fails_in_any_strategy(self):
        for figure in ("bytes of device 0 (cpu", "steps", "train: steps",
                       "train: bytes of transfers"):
            def edit(entry):
                key = next(k for k in entry["figures"] if k.startswith(figure))
                entry["figures"][key] -= 1

            self.expect_change("phased", edit, 1, f"  {figure}", may_change=["phased"])

        def edit_function(entry):
            entry["figures"]["steps"] -= 1
            entry["functions"]["main"] = 7

        self.expect_change("phased", edit_function, 1, "steps of functions: main 7 -> 0")

    def test_a_smaller_figure_is_reported(self):
        def edit(entry):
            entry["figures"]["bytes of device 0 (cpu)"] += 1

        self.expect_change("resident", edit, 0, " (better)")

    def test_a_changed_digest_fails(self):
        title, entry = self.first("phased")
        entry["digest"] = "fma-0"
        self.expect_row(title, entry, "digest fma-0 -> ", "--may-change", "phased")

    def test_compile_seconds_fail_on_demand(self):
        def seconds(entry):
            phased = plan_oracle.strategy_of(entry["arguments"]) == "phased"
            return entry["compile_seconds"] / (1000 if phased else 1)

        faster = {title: {**entry, "compile_seconds": seconds(entry)}
                  for title, entry in self.rows.items()}
        for text, failures, options in (
                ("compile seconds of phased rows: 0.00 -> ", 0, {}),
                ("must be at most 1.5", 1, {"max_compile_ratio": 1.5})):
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                self.assertEqual(plan_oracle.compare(faster, self.rows, **options), failures)
            self.assertIn(text, said.getvalue())

    def test_a_refused_command_line_fails(self):
        title, entry = self.first("resident")
        entry["arguments"] = [*entry["arguments"], "--disable", "nothing"]
        self.expect_row(title, entry, "disable: must be optional passes")

    def test_a_record_of_another_version_is_refused(self):
        file = self.file + ".old"
        with gzip.open(file, "wt") as f:
            json.dump({"rows": {}, "texts": {}}, f)
        with self.assertRaisesRegex(SystemExit, "must have version 1, got None"):
            plan_oracle.load(file)


class CommandLines(unittest.TestCase):
    def test_the_program_accepts_those_that_are_not_rows_of_the_matrix(self):
        passes = plan_oracle.optional_passes(PROGRAM)
        self.assertIn("fuse", passes)
        rows = plan_oracle.others() | plan_oracle.without_passes(passes[:1])
        options = plan_oracle.parse_arguments(["record", PROGRAM, "", "--plans-only", "--jobs",
                                               "1"])
        with tempfile.TemporaryDirectory() as folder:
            for title, entry in plan_oracle.Oracle(options, folder).run(rows).items():
                self.assertNotIn("error", entry, title)


if __name__ == "__main__":
    unittest.main()
