"""Runs every command that README.md and docs/ show, and checks its result.

Environment: SLUICE_CLI is the program, SLUICE_MPIRUN the launcher (empty without MPI), SLUICE_BUILD
the build folder, SLUICE_CMAKE its cmake. Commands run as written, in an empty folder, on generated
digits, or on few where they need not learn. Where necessary, --json or --digest is added to show
the result, and --threads or --steps to limit the work. Measurements of docs/performance.md run only
one case and one round.
"""

import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "cli"))
from cli_case import DIGITS

PROGRAM = os.environ["SLUICE_CLI"]
MPIRUN = os.environ["SLUICE_MPIRUN"]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ENVIRONMENT = {
    **os.environ, "SLUICE_DATA": "",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none"
}
FEW_DIGITS = {"SLUICE_DATA": DIGITS[1]}
ONE_THREAD = ["--threads", 1]


def is_command(text):
    return re.match(r"(sluice( |$)|mpirun |\./\w|(cmake|ctest) -|bench/\S+ \S|\.ci/run)",
                    text) is not None


def commands(document):
    """Returns a document's commands: lines of sh blocks or after a prompt, and inline code."""
    text = document.read_text()
    for language, block in FENCE.findall(text):
        for line in block.splitlines():
            if language == "sh":
                yield re.sub(r"\s+# .*", "", line)
            elif line.startswith("$ "):
                yield line[2:]
    for code in re.findall(r"`([^`]+)`", FENCE.sub("", text)):
        code = " ".join(code.split())
        if is_command(code):
            yield code


CHECKED = {}  # Command -> name of the test that runs it.


def runs(*texts):
    def register(test):
        CHECKED.update({text: test.__name__ for text in texts})
        return lambda self: test(self, *texts)

    return register


class Commands(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_words(self, words, code=0, env=None):
        result = subprocess.run(list(map(str, words)),
                                stdin=subprocess.DEVNULL,
                                capture_output=True,
                                text=True,
                                cwd=self.folder,
                                env={
                                    **ENVIRONMENT,
                                    **(env or {})
                                },
                                timeout=600)
        self.assertEqual(result.returncode, code,
                         f"{words}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}")
        return result

    def sluice(self, command, *more, code=0, env=None):
        words = shlex.split(command)
        self.assertEqual(words[0], "sluice")
        return self.run_words([PROGRAM, *words[1:], *more], code, env)

    def record(self, command, *more, env=None):
        return json.loads(self.sluice(command, *more, "--json", env=env).stdout)

    def test_every_command_has_a_check(self):
        shown = {command for document in DOCUMENTS for command in commands(document)}
        self.assertEqual(sorted(shown), sorted(CHECKED))

    @runs("./quickstart")
    def test_quickstart(self, command):
        self.copy_scripts("quickstart")
        text = self.run_words(
            [command, *ONE_THREAD],
            env=self.stand_ins(f'mkdir -p "$4/bin" && cp "{PROGRAM}" "$4/bin/sluice"')).stdout
        self.assertRegex(text, r"device 0 \(cpu\): [\d,]+ bytes of a budget of 8,388,608, ")
        self.assert_learned(text)
        evaluate = re.search(r"(\S+/sluice eval mnist --weights \S+)", text)[1]
        self.assertEqual(self.accuracy(self.run_words(evaluate.split()).stdout),
                         self.accuracy(text))

    @runs("sluice plan mnist-cnn --strategy pipelined --profile")
    def test_a_plan_writes_its_report(self, command):
        self.sluice(command)
        for name in ("report.html", "report.json", "trace.json"):
            self.assertTrue((self.folder / "profile/training" / name).exists())

    @runs("sluice train mlp --optimizer adam --steps 500 --log-dir runs/first --log-histograms 100")
    def test_a_training_writes_its_log(self, command):
        self.sluice(command, *ONE_THREAD, env=FEW_DIGITS)
        names = sorted(p.name for p in (self.folder / "runs/first").iterdir())
        self.assertEqual(len(names), 2)
        self.assertTrue(names[0].startswith("events.out.tfevents."))
        lines = (self.folder / "runs/first/metrics.csv").read_text().splitlines()
        self.assertGreater(len(lines), 100)

    @runs("./selftest")
    def test_selftest_ends_as_its_tests_do(self, command):
        self.copy_scripts("selftest")
        for code in (0, 8):
            stand_ins = self.stand_ins("true", f'echo "ctest $*"; exit {code}')
            self.assertIn("ctest ", self.run_words([command], code, env=stand_ins).stdout)

    def copy_scripts(self, name):
        shutil.copy(ROOT / name, self.folder)
        shutil.copytree(ROOT / "scripts", self.folder / "scripts")

    def stand_ins(self, cmake, ctest="true"):
        """Returns an environment with fake `cmake` (-S . -B FOLDER …) and `ctest` commands."""
        folder = self.folder / "stand_ins"
        folder.mkdir(exist_ok=True)
        for name, script in (
            ("cmake", f'[ "$1" = -S ] || exit 0\n{cmake}'),
            ("ctest", ctest),
            ("dpkg-query", "printf installed"),
        ):
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
        return {"PATH": f"{folder}:{os.environ['PATH']}"}

    @runs("cmake --preset release && cmake --build --preset release && ctest --preset release")
    def test_presets_exist(self, command):
        presets = json.loads((ROOT / "CMakePresets.json").read_text())
        for part, kind in zip(command.split(" && "),
                              ("configurePresets", "buildPresets", "testPresets")):
            self.assertIn(part.split()[-1], [preset["name"] for preset in presets[kind]])

    @runs("scripts/measure_build.py build --target sluice_cli -DSLUICE_UNITY=ON",
          "scripts/measure_build.py headers", "scripts/measure_build.py tests build/selftest")
    def test_measurements_of_builds_and_tests(self, *_):
        script = ROOT / "scripts" / "measure_build.py"
        log = self.folder / "Testing" / "Temporary" / "LastTest.log"
        log.parent.mkdir(parents=True)
        suite = "[----------] 2 tests from Two (1500 ms total)\n"
        log.write_text("".join(
            f'{i}/2 Test: {name}\nCommand: "/build/{program}" "x"\n{suite}Test time = {t} sec\n'
            for i, name, program, t in ((1, "a_1", "a_test", 2.5), (2, "a_2", "a_test", 4))))
        text = self.run_words([script, "tests", self.folder]).stdout
        for row in ("4.0  a_2", "2.5  a_1", "6.5  a_test", "3.0  a_test Two",
                    "6.5 seconds in 2 entries"):
            self.assertIn(row, text)
        # A command of a build: its exit code and its time.
        commands = self.folder / "commands.jsonl"
        busy = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; exit 3"
        self.run_words([script, "launch", commands, "sh", "-c", busy], code=3)
        line = json.loads(commands.read_text())
        self.assertGreater(line["cpu"], 0)
        self.assertEqual(line["command"], ["sh", "-c", busy])

    @runs(
        "cmake --install build/release --prefix DIR", "cmake --build BUILD --target update_docs",
        "cmake --build build/release --target generated_ops_test && "
        "build/release/tests/generated_ops_test --gtest_filter='*Rotate*'",
        "cmake --build build/release --target vector_ops_test && "
        "build/release/tests/vector_ops_test",
        "cmake --build build/release --target compiler_test && "
        "build/release/src/sluice/compiler/compiler_test --gtest_filter='SplitSub*'",
        "cmake --build build/release --target sluice_cli && "
        "build/release/bin/sluice train mnist-rts --steps 20",
        "bench/equality_matrix.py build/bin/sluice --sample --launcher 'mpirun -n {processes}'",
        "bench/plan_oracle.py record build/release/bin/sluice RECORD --sample",
        "bench/plan_oracle.py compare build/release/bin/sluice RECORD", ".ci/run")
    def test_builds_have_the_targets_that_are_named(self, install, *others):
        # Other tests run these: install_test installs, bench_equality_test runs a sample of the
        # matrix, bench_oracle_test the oracle, docs_howto_test the operator.
        targets = self.run_words(
            [os.environ["SLUICE_CMAKE"], "--build", os.environ["SLUICE_BUILD"], "--target",
             "help"]).stdout
        for command in others:
            for target in re.findall(r"--target (\w+)", command):
                self.assertRegex(targets, rf"\b{target}\b")
        # `ctest -N` would replace the log of the run that this test is part of.
        tests = "".join(f.read_text()
                        for f in Path(os.environ["SLUICE_BUILD"]).rglob("CTestTestfile.cmake"))
        for test in ("install_test", "bench_equality_test", "bench_oracle_test",
                     "docs_howto_test"):
            self.assertRegex(tests, rf"add_test\(\W*{test}\b")
        self.assertTrue(os.access(ROOT / ".ci" / "run", os.X_OK))

    def build_cache(self):
        return (Path(os.environ["SLUICE_BUILD"]) / "CMakeCache.txt").read_text()

    @runs("git ls-files -m -o --exclude-standard '*.h' '*.cc' | xargs -r clang-format-14 -i",
          "python3 scripts/check_includes.py", "python3 scripts/check_tree.py",
          "python3 scripts/write_cli_docs.py build/release/bin/sluice",
          "cmake --preset release", "cmake --build --preset release",
          "ctest --preset release -L ops", "ctest --preset release",
          "cmake --build --preset release --target update_docs")
    def test_contributors_commands(self, form, includes, tree, cli_docs, *builds):
        # structure_test runs the checks of scripts/, test_presets_exist has the presets.
        for command in (includes, tree, cli_docs):
            self.assertTrue((ROOT / command.split()[1]).is_file())
        labels = self.run_words(
            ["ctest", "--test-dir", os.environ["SLUICE_BUILD"], "--print-labels"]).stdout.split()
        targets = self.run_words(
            [os.environ["SLUICE_CMAKE"], "--build", os.environ["SLUICE_BUILD"], "--target",
             "help"]).stdout
        for command in builds:
            for label in re.findall(r" -L (\w+)", command):
                self.assertIn(label, labels)
            for target in re.findall(r"--target (\w+)", command):
                self.assertRegex(targets, rf"\b{target}\b")

    @runs(
        "sh scripts/install_missing.sh g++ cmake ninja-build libfmt-dev zlib1g-dev libpcre2-dev "
        "libxxhash-dev nlohmann-json3-dev libcli11-dev libgmock-dev python3",
        "cmake -S . -B build/hour -G Ninja -DCMAKE_BUILD_TYPE=Release -DSLUICE_BUILD_TESTS=ON",
        "cmake --build build/hour --target generated_ops_test",
        "ctest --test-dir build/hour -R '^generated_ops_test$'",
        "build/hour/tests/generated_ops_test --gtest_filter='*Transpose'",
        "sed -i 's/inverse(g.options<TransposeOptions>().permutation)/"
        "g.options<TransposeOptions>().permutation/' "
        "src/sluice/ops/transpose.cc", "git checkout src/sluice/ops/transpose.cc")
    def test_first_hour(self, install, configure, build, test, one, change, undo):
        self.copy_scripts("selftest")
        self.assertEqual(
            self.run_words(shlex.split(install), env=self.stand_ins("true")).stdout, "")
        packages = re.search(r'packages="([^"]*)"',
                             (ROOT / "scripts" / "build_env.sh").read_text())[1].split()
        self.assertEqual(shlex.split(install)[2:], [*packages, "libgmock-dev", "python3"])
        for option in re.findall(r"-D(\w+)=", configure):
            self.assertIn(f"\n{option}:", self.build_cache())
        tests = self.run_words(
            shlex.split(test.replace("build/hour", os.environ["SLUICE_BUILD"])) + ["-N"]).stdout
        self.assertIn("Total Tests: 1\n", tests)
        words = shlex.split(one)
        program = Path(os.environ["SLUICE_BUILD"]) / words[0].removeprefix("build/hour/")
        self.assertRegex(
            self.run_words([program, *words[1:]]).stdout, r"PASSED  \] [1-9]\d* tests\.")
        # The build has the changed operator in docs_first_hour.
        source = self.folder / shlex.split(change)[-1]
        source.parent.mkdir(parents=True)
        shutil.copy(ROOT / shlex.split(change)[-1], source)
        self.run_words(shlex.split(change))
        built = Path(os.environ["SLUICE_BUILD"]) / "tests" / "docs" / "transpose.cc"
        self.assertEqual(source.read_text(), built.read_text())
        self.assertEqual(shlex.split(undo)[-1], shlex.split(change)[-1])
        shown = next(b for k, b in FENCE.findall((ROOT / "docs" / "first_hour.md").read_text())
                     if k == "text")
        self.assertIn(shown,
                      self.run_words([os.environ["SLUICE_FIRST_HOUR"], *words[1:]], 1).stdout)

    @runs(
        "cmake -S . -B build/install -G Ninja -DCMAKE_BUILD_TYPE=Release -DSLUICE_BUILD_TESTS=OFF "
        "-DSLUICE_BUILD_BENCH=OFF", "cmake --build build/install",
        "cmake --install build/install --prefix DIR",
        "cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH=DIR",
        "cmake --build build")
    def test_use_in_cmake(self, *commands):
        # install_test runs these commands. The page's other ways are configured here.
        for option in re.findall(r"-D(SLUICE_\w+)=", " ".join(commands)):
            self.assertIn(f"\n{option}:", self.build_cache())
        blocks = FENCE.findall((ROOT / "docs" / "howto" / "use_sluice_in_cmake.md").read_text())
        find, add, fetch = [block for language, block in blocks if language == "cmake"]
        consumer = ROOT / "tests" / "install" / "consumer"
        self.assertEqual(find, (consumer / "CMakeLists.txt").read_text().partition("#")[0])
        for name, project in (("add", add), ("fetch", re.sub("add_subdirectory.*\n", fetch, add))):
            with self.subTest(way=name):
                folder = self.folder / name
                (folder / "third_party").mkdir(parents=True)
                (folder / "third_party" / "sluice").symlink_to(ROOT)
                (folder / "CMakeLists.txt").write_text(project)
                shutil.copy(consumer / "main.cc", folder)
                cmake = os.environ["SLUICE_CMAKE"]
                self.run_words([
                    cmake, "-S", folder, "-B", folder / "build", "-G", "Ninja",
                    "-DCMAKE_BUILD_TYPE=Release"
                ])
                targets = self.run_words(
                    [cmake, "--build", folder / "build", "--", "-t", "targets", "all"]).stdout
                self.assertRegex(targets, r"\bconsumer: CXX_EXECUTABLE")
                self.assertNotRegex(targets, r"\bbase_test\b")
                cached = (folder / "build" / "CMakeCache.txt").read_text()
                self.assertIn("SLUICE_BUILD_TESTS:BOOL=OFF", cached)

    @runs("sluice --version")
    def test_version(self, command):
        self.assertRegex(self.sluice(command).stdout, r"^sluice \d+\.\d+\.\d+ \(\w+\)\n$")

    @runs("sluice --list")
    def test_list(self, command):
        names = [line.split()[0] for line in self.sluice(command).stdout.splitlines()]
        self.assertIn("mnist-rts", names)  # Shown by docs/howto/add_a_model.md.

    @runs("sluice doctor")
    def test_doctor(self, command):
        self.assertTrue(self.sluice(command).stdout.endswith("healthy\n"))

    @runs("sluice doctor --measure FILE")
    def test_a_machine(self, command):
        path = self.folder / "machine.json"
        self.assertIn(f"written                 {path}\n",
                      self.sluice(command.replace("FILE", str(path))).stdout)
        self.assertIn(f"caches by {path}",
                      self.sluice("sluice plan mnist", "--machine", path, "--transfers").stdout)

    @runs("sluice plan", "sluice plan mnist", "sluice plan --full", "sluice plan mnist --full",
          "sluice plan --check FILE")
    def test_plans(self, plan, plan_mnist, full, full_mnist, check):
        for command in (plan, plan_mnist):
            self.assertRegex(
                self.sluice(command).stdout,
                r"(?s)^fits: no budget is given; smallest budget: device 0 [\d,]+ bytes\n.*"
                r"; the plan is proved\n$"
            )
        text = self.sluice(full).stdout
        self.assertEqual(text, self.sluice(full_mnist).stdout)
        (self.folder / "FILE").write_text(text)
        self.assertTrue(self.sluice(check).stdout.startswith("proved: "))

    @runs("sluice plan MODEL --strategy phased")
    def test_phases_of_a_plan(self, command):
        text = self.sluice(command.replace("MODEL", "mlp-skip")).stdout
        self.assertRegex(text, r"(?m)^phases of 'train': .*fwd.*bwd")

    @runs("sluice plan --dot")
    def test_graphs(self, command):
        text = self.sluice(command).stdout  # cli_Dot_test parses the text.
        self.assertTrue(text.startswith("digraph {\n") and text.endswith("\n}\n"))
        self.assertEqual(text, self.sluice("sluice plan mnist --dot").stdout)

    def accuracy(self, text):
        return float(re.search(r"(?m), accuracy ([\d.]+) %", text)[1])

    def assert_learned(self, text):
        self.assertGreater(self.accuracy(text), 80)

    @runs("sluice train mnist")
    def test_train(self, command):
        self.assert_learned(self.sluice(command, *ONE_THREAD, "--steps", 1000).stdout)

    @runs("sluice train mlp --dataset csv:FILE --optimizer adam --epochs 8 --save w.safetensors",
          "sluice predict mlp --weights w.safetensors --dataset csv:FILE --to predictions.csv")
    def test_a_table(self, train, predict):
        draw = random.Random(1)
        centres = [[draw.gauss(0, 1) for _ in range(20)] for _ in range(3)]
        labels = [draw.randrange(3) for _ in range(1000)]
        (self.folder / "FILE").write_text("".join(
            ",".join(f"{x + draw.gauss(0, 1):.4f}" for x in centres[label]) + f",{label}\n"
            for label in labels))
        self.assertGreaterEqual(self.accuracy(self.sluice(train, *ONE_THREAD).stdout), 95)
        self.assertIn("1000 samples", self.sluice(predict).stdout)
        header, *lines = (self.folder / "predictions.csv").read_text().splitlines()
        self.assertEqual(header, "logits.0,logits.1,logits.2,class")
        right = sum(line.endswith(f",{label}") for line, label in zip(lines, labels))
        self.assertGreaterEqual(right / len(labels), 0.95)

    @runs("sluice train gpt --dataset text:poems.txt --steps 2000 --lr 1e-3 --lr-schedule cosine "
          "--min-lr 1e-4 --warmup-steps 100 --beta2 0.99 --weight-decay 0.1 --clip-norm 1 "
          "--save poems.safetensors",
          "sluice eval gpt --weights poems.safetensors --dataset text:poems.txt --all",
          "sluice generate gpt --weights poems.safetensors --prompt 'the owl' --tokens 40 "
          "--temperature 0.8 --top-k 10",
          "sluice train gpt --dataset text:FILE")
    def test_a_transformer_learns_a_text(self, train, evaluate, generate, usual):
        (self.folder / "poems.txt").write_text("the owl and the cat sat in the old tree.\n" * 60)
        trained = self.sluice(train.replace("2000", "150"))
        self.assertRegex(trained.stdout, r"test loss 0\.\d+, perplexity 1\.\d+, accuracy 9\d")
        self.assertRegex(self.sluice(evaluate).stdout, r"perplexity 1\.\d+, accuracy 9\d")
        self.assertRegex(self.sluice(generate).stdout, r"^the owl [a-z .\n]{38,}$")
        usual = usual.replace("FILE", "poems.txt")
        self.assertIn("vocabulary", self.sluice(usual, "--steps", 2).stderr)

    @runs("sluice train mlp --steps 500 --save first.safetensors",
          "sluice train mlp --layers 5 --weights first.safetensors --load-strict no "
          "--load-names 'fc.3.*=fc.4.*'", "sluice train mlp --weights first.safetensors "
          "--fresh-optimizer --freeze 'fc.0.*,*.bias' --ema-decay 0.99 --save tuned.safetensors",
          "sluice eval mlp --weights tuned.safetensors")
    def test_fine_tuning(self, *commands):  # cli_Files_test has the results.
        for command in commands:
            self.sluice(command, *ONE_THREAD, env=FEW_DIGITS)

    @runs("sluice train mlp --lr 0.2 --lr-schedule one_cycle --steps 500")
    def test_a_learning_rate_has_a_schedule(self, train):
        stderr = self.sluice(train.replace("500", "20"), *ONE_THREAD).stderr
        self.assertIn("lr 0.2 one_cycle, 0 warm-up steps", stderr)

    @runs("sluice train bert --dataset text:poems.txt --steps 2000 --lr 3e-3 --lr-schedule linear "
          "--warmup-steps 100")
    def test_an_encoder_learns_masked_tokens(self, train):
        (self.folder / "poems.txt").write_text("the owl and the cat sat in the old tree.\n" * 60)
        trained = self.sluice(train.replace("2000", "200"))
        self.assertRegex(trained.stdout, r"accuracy [3-9]\d\.\d+ % \(predicted\) and \d+")

    @runs("sluice plan gpt --blocks 12 --width 768 --heads 12 --context 1024 --vocab 50257 "
          "--memory 4G",
          "sluice plan gpt --blocks 12 --width 768 --heads 12 --context 1024 --vocab 50257 "
          "--memory 4G --test-batch 1 --micro-batch 1 --strategy phased")
    def test_a_large_transformer_fits_in_phases(self, resident, phased):
        self.sluice(resident, code=4)
        self.assertIn("fits: yes", self.sluice(phased).stdout)
        subprocess.run([sys.executable, ROOT / "scripts/write_memory_picture.py", PROGRAM,
                        "--check"], check=True)

    @runs("sluice plan gpt --blocks 96 --width 12288 --heads 96 --context 2048 --vocab 50257 "
          "--micro-batch 1 --test-batch 1 --accumulate 96 --optimizer adamw --threads 1 "
          "--machine cluster.json")
    def test_large_models_are_planned_on_paper(self, plan):
        page = (ROOT / "docs/large_models.md").read_text()
        machine = next(block for language, block in FENCE.findall(page) if language == "json")
        (self.folder / "cluster.json").write_text(machine)
        self.assertGreater(self.record(plan)["peak_bytes.device"], 2e12)
        flags = {row[1]: row[2].replace("`", "") for row in
                 re.finditer(r"^\| (\d) \| (.*--.*) \|$", page, re.M)}
        table = {row[1]: row[2] for row in
                 re.finditer(r"^\| (\d) \| ((?:768|1) \|.*)$", page, re.M)}
        self.assertEqual((len(flags), len(table)), (5, 5))
        pipelined = flags["1"] + flags["2"].removeprefix("flags of plan 1,")
        for number, options in (("2", pipelined), ("4", flags["4"])):
            record = self.record(plan, *options.split())
            self.assertLess(record["compile_seconds"], 20)
            devices = [m["total_bytes"] for m in record["memories"]
                       if m["name"].startswith("device")]
            low, high = (f"{f(devices) / 1e9:.0f}" for f in (min, max))
            size = low if len(devices) == 1 else f"{low} to {high}"
            train = next(f for f in record["forecasts"] if f["program"] == "train")
            cells = table[number].split(" | ")
            seconds = float(cells[7].rstrip(" |").replace(",", ""))
            self.assertEqual((cells[1], cells[6]), (size, f"{100 * train['bubble']:.0f} %"))
            self.assertAlmostEqual(train["seconds"] / seconds, 1, 2)

    @runs("sluice train mlp --dataset csv:flowers.csv --separator ';' --decimal , --missing mean "
          "--standardize --target species --optimizer adam --epochs 30 --save w.safetensors",
          "sluice eval mlp --weights w.safetensors --dataset csv:flowers.csv --all",
          "sluice predict mlp --weights w.safetensors --dataset csv:flowers.csv --to species.csv",
          "sluice inspect w.safetensors")
    def test_a_table_with_text(self, train, evaluate, predict, inspect):
        page = (ROOT / "docs/howto/train_on_a_table.md").read_text()
        table, said, header = (block for language, block in FENCE.findall(page)
                               if language == "text")
        draw = random.Random(1)
        species = []
        for k in range(150):
            species.append(("setosa", "versicolor", "virginica")[k % 3])
            numbers = [f"{draw.gauss(5 + k % 3, 0.3):.1f}".replace(".", ","),
                       f"{draw.gauss(2 * (k % 3 == 1), 0.3):.1f}".replace(".", ",")]
            table += ";".join([*numbers, draw.choice(["sand", "clay", ""]), species[-1]]) + "\n"
        (self.folder / "flowers.csv").write_text(table)
        result = self.sluice(train, *ONE_THREAD)
        self.assertIn(said, result.stderr)
        self.assertGreaterEqual(self.accuracy(self.sluice(evaluate).stdout), 90)
        self.assertIn("154 samples", self.sluice(predict).stdout)
        first, *lines = (self.folder / "species.csv").read_text().splitlines()
        self.assertEqual(first + "\n", header)
        right = sum(line.endswith("," + kind) for kind, line in zip(species, lines[4:]))
        self.assertGreaterEqual(right, 135)
        self.assertIn("table: inputs 3: length, width, soil (2 categories); target species",
                      self.sluice(inspect).stdout)

    @runs("sluice train mnist --memory 4000000")
    def test_a_budget_that_is_too_small(self, command):
        said = self.sluice(command, code=4).stderr.splitlines()
        block = next(b for _, b in FENCE.findall(DOCUMENTS[0].read_text())
                     if b.startswith(f"$ {command}\n"))
        shown = block.splitlines()[1:]
        self.assertEqual(shown.pop().strip(), "...")
        first = next(i for i, line in enumerate(said) if line.startswith("error"))
        self.assertEqual(said[first:first + len(shown)], shown)

    @runs("sluice train mlp --layers 128 --width 256 --optimizer adam --strategy phased "
          "--io-mode io_overlapped --remote file:/var/tmp --memory 5M --steps 20")
    def test_networks_larger_than_the_device(self, command):
        # cli_BeyondMemory_test compares the bits with those of the resident run.
        phased = self.record(command, *ONE_THREAD, env=FEW_DIGITS)
        self.assertLessEqual(phased["measured_bytes"], 5 << 20)
        self.assertEqual(phased["measured_bytes"], phased["planned_bytes"])
        self.assertLess(phased["loss"], 3)
        resident = self.record(re.sub("train (.*) --strategy .*", r"plan \1", command))
        self.assertGreater(resident["planned_bytes"], 100e6)

    @runs("sluice train mlp --strategy pipelined --stages fc.0,fc.1+fc.2+fc.3 --accumulate 8 "
          "--memory 6M,6M --steps 20")
    def test_pipelines(self, command):
        two = ["--threads", 2]
        pipelined = self.record(command, *two, env=FEW_DIGITS)
        self.assertLessEqual(pipelined["measured_bytes"], 6 << 20)
        one_device = self.record("sluice train mlp --accumulate 8 --steps 20", *two, env=FEW_DIGITS)
        page = (ROOT / "docs" / "howto" / "pipeline_a_model.md").read_text()
        self.assertIn(f"on one device needs {one_device['planned_bytes']} bytes with two threads",
                      page)
        for key in ("digest", "loss", "accuracy"):
            self.assertEqual(pipelined[key], one_device[key])

    @runs("sluice train mnist --replicas 4 --shard-threshold 512")
    def test_replicas(self, command):
        result = self.sluice(command, *ONE_THREAD, "--steps", 400)
        self.assertIn("micro-batch 8 x replicas 4 = 32 samples a step", result.stderr)
        self.assert_learned(result.stdout)

    @runs("mpirun -n 2 sluice train mnist --replicas 4 --steps 100",
          "mpirun -n 2 sluice train mlp-skip --strategy pipelined --stages 2 --steps 20")
    def test_processes(self, *commands):
        if not MPIRUN:
            self.skipTest("requires a build with MPI (SLUICE_WITH_MPI); this one has none")
        for command in commands:
            launcher, sluice = command.split(" sluice ")
            words = [PROGRAM, *sluice.split(), *ONE_THREAD, "--digest"]
            several = self.run_words([MPIRUN, *launcher.split()[1:], *words], env=FEW_DIGITS).stdout
            self.assertIn("2 processes, ", several)
            digest = re.compile(r"(?m)^digest \S+$")
            self.assertEqual(
                digest.search(several)[0],
                digest.search(self.run_words(words, env=FEW_DIGITS).stdout)[0])

    @runs("sluice plan mnist-rts --sweep 'shard-threshold=inf;262145;1024;512' "
          "--remote-bandwidth 256M")
    def test_document_003(self, command):
        plans = self.record(command)["plans"]
        self.assertEqual([p["shard-threshold"] for p in plans], ["inf", "262145", "1024", "512"])
        state = [p["state_bytes"] for p in plans]
        self.assertEqual(state, [11188344, 7575672, 2811000, 2797176])
        seconds = [p["seconds"] for p in plans]
        self.assertEqual(seconds, sorted(seconds, reverse=True))

    @runs("sluice plan mlp --layers 1160 --width 12288 --strategy phased --optimizer adam "
          "--accumulate 4 --io-mode io_overlapped")
    def test_a_network_of_175_billion_parameters(self, command):
        record = self.record(command)
        self.assertEqual(record["offload"], "optimizer,weights,activations")
        self.assertGreater(record["peak_bytes.host"], 12 * 175e9)
        self.assertLess(record["peak_bytes.device"], 10e9)

    @runs("sluice bench mlp --layers 24 --width 512 --optimizer adam --accumulate 4 "
          "--micro-batch 64 --strategy phased --io-mode io_overlapped --remote file:DIR")
    def test_steps_from_a_file(self, command):
        (self.folder / "DIR").mkdir()
        record = self.record(command, "--steps", 3)
        self.assertEqual(record["steps"], 3)
        self.assertGreater(record["gflops_per_second"], 0)
        self.assertEqual(os.listdir(self.folder / "DIR"), [])

    @runs("sluice bench", "sluice bench --only limit", "sluice bench --only step",
          "sluice bench --only gemm", "sluice bench --only memory", "sluice bench --only operator",
          "sluice bench --only compile", "sluice bench --only phases", "sluice bench --only conv",
          "sluice bench --only model", "sluice bench --only transformer",
          "sluice bench --only gpt", "sluice bench --only attention")
    def test_measurements(self, *commands):
        case = {
            "limit": "limit hand-over between spinning threads",
            "step": "8 layers of 8x8",
            "gemm": "gemm 64,512,10 dX",
            "memory": "memory sum-of-all",
            "operator": "operator transpose, 256 KiB",
            "compile": "compile perceptron of 4 layers",
            "phases": "phases 24 x 512, micro-batch 8",
            "conv": "conv 5x5 1@28x28",
            "model": "model mnist-cnn inference, batch 1",
            "transformer": "transformer 2 blocks",
            "gpt": "gpt of 2 blocks",
            "attention": "attention forward, 8 x"
        }
        for command in commands:
            only = command.rpartition("--only ")[2] if "--only" in command else "limit"
            with self.subTest(command=command):
                words = command.partition(" --only")[0]
                # A hand-over requires two threads, and rows of two appear in cli_Records_test.
                rows = self.record(words, "--only", case[only], "--rounds", 1, "--threads",
                                   2 if only in ("limit", "step") else 1, "--python",
                                   "/no/such/python")["rows"]
                self.assertTrue(rows)
                for row in rows:
                    self.assertIn(only, f"{row['group']} {row['case']}")
                    self.assertGreater(row["measured"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
