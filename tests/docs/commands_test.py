"""Runs every command that README.md and docs/ show, and checks its result.

Environment: SLUICE_CLI is the program, SLUICE_MPIRUN the launcher (empty without MPI), SLUICE_BUILD
the build folder, SLUICE_CMAKE its cmake. Commands run as written, in an empty folder, on generated
digits, or on few where they need not learn. Where necessary, --json or --digest is added to show
the result, and --threads or --steps to limit the work. Measurements of docs/performance.md run only
one case and one round.
"""

import json
import os
import re
import shlex
import shutil
import unittest
from pathlib import Path

import training_commands
from command_case import (CHECKED, DOCUMENTS, FENCE, FEW_DIGITS, MPIRUN, ONE_THREAD, PROGRAM, ROOT,
                          commands, runs)


class Commands(training_commands.TrainingCommands):
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
        self.assertEqual(names[1:], ["metrics.csv", "run-id"])
        self.assertTrue(names[0].startswith("events.out.tfevents."))
        lines = (self.folder / "runs/first/metrics.csv").read_text().splitlines()
        self.assertGreater(len(lines), 100)

    @runs("sluice train mlp --steps 20 --log-dir runs/watched --watch-gradients 'fc.*.weight' "
          "--watch-values fc.0 --watch-every 10")
    def test_a_training_writes_watched_tensors(self, command):
        self.sluice(command, *ONE_THREAD, env=FEW_DIGITS)
        folder = self.folder / "runs/watched/watched"
        self.assertEqual(sorted(f.name for f in folder.iterdir()),
                         ["10.safetensors", "20.safetensors"])
        text = (folder / "10.safetensors").read_bytes()
        for name in (b'"gradient/fc.0.weight"', b'"value/fc.0"'):
            self.assertIn(name, text)

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
