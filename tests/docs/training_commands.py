"""Tests of commands_test.py for commands that train, evaluate and predict."""

import random
import re
import shutil
import subprocess
import sys

from command_case import CommandCase, FENCE, FEW_DIGITS, ONE_THREAD, PROGRAM, ROOT, commands, runs


class TrainingCommands(CommandCase):
    @runs("sluice train mlp --steps 2000 --checkpoint run --save-every 500",
          "sluice train mlp --steps 4000 --resume run --checkpoint run --save-every 500",
          "sluice inspect run", "sluice eval mlp --weights run",
          "sluice train mlp --steps 4000 --resume run --strategy phased --threads 1",
          "sluice train mlp --steps 4000 --resume run --accumulate 2 --override accumulate",
          "sluice train mlp --steps 4000 --validate-every 200 --patience 5 --save-best "
          "best.safetensors --log-dir log")
    def test_long_runs(self, save, resume, inspect, evaluate, phased, changed, watch):
        few = lambda command: (command.replace("000", "0").replace("500", "5")
                               .replace("200 ", "10 "))
        self.sluice(few(save), *ONE_THREAD, env=FEW_DIGITS)
        self.assertIn("resumed run/step-000000020 after step 20\n",
                      self.sluice(few(resume), *ONE_THREAD, env=FEW_DIGITS).stderr)
        self.assertEqual(self.sluice(inspect).stdout.count("step "), 2)
        self.assertIn("weights of run/step-000000040\n",
                      self.sluice(evaluate, *ONE_THREAD, env=FEW_DIGITS).stderr)
        shutil.rmtree(self.folder / "run" / "step-000000040")
        self.sluice(few(phased), env=FEW_DIGITS)
        self.assertIn("changed --accumulate: 1, now 2\n",
                      self.sluice(few(changed), *ONE_THREAD, env=FEW_DIGITS).stderr)
        self.assertIn("step 20: loss ", self.sluice(few(watch), *ONE_THREAD, env=FEW_DIGITS).stderr)

    @runs("sluice train mlp --accumulate 4 --prefetch 8")
    def test_reading_ahead(self, command):  # cli_Prefetch_test has the digests.
        self.sluice(command, *ONE_THREAD, "--steps", 4, env=FEW_DIGITS)

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
        self.assertRegex(trained.stdout, r"accuracy [3-9]\d\.\d+ % \(predicted [3-9]\d")

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
