"""`sluice plan --dot`: Graphviz text of the graphs.

SLUICE_CLI names the program. The test parses the text; Graphviz reads it too where installed.
"""

import collections
import re
import shutil
import subprocess
import unittest

from cli_case import HANG, PROGRAM

QUOTED = r'"((?:[^"\\]|\\.)*)"'
CLUSTER = re.compile(r"  subgraph cluster_(\d+) \{")
LABEL = re.compile(rf"    label={QUOTED};")
NODE = re.compile(rf"    (\w+) \[label={QUOTED}(, shape=ellipse)?\];")
EDGE = re.compile(rf"    (\w+) -> (\w+)(?: \[label={QUOTED}\])?;")


def sluice(*arguments):
    return subprocess.run([PROGRAM, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=HANG)


class Graph:
    def __init__(self):
        self.name, self.ops, self.tensors, self.readers = "", {}, {}, collections.defaultdict(list)

    def reachable(self, node):
        """Returns the node and all nodes that edges lead to from it."""
        seen, todo = {node}, [node]
        while todo:
            for reader in self.readers[todo.pop()]:
                if reader not in seen:
                    seen.add(reader)
                    todo.append(reader)
        return seen


class Dot(unittest.TestCase):
    def parse(self, text):
        """Returns the graphs by name. Fails for a line that is not valid."""
        lines = text.splitlines()
        self.assertEqual(lines[:2], ["digraph {", "  node [shape=box, fontname=monospace];"])
        self.assertEqual(lines[-1], "}")
        graphs, graph = {}, None
        for line in lines[2:-1]:
            if CLUSTER.fullmatch(line):
                self.assertIsNone(graph)
                graph = Graph()
            elif line == "  }":
                self.assertNotIn(graph.name, graphs)
                graphs[graph.name] = graph
                graph = None
            elif found := LABEL.fullmatch(line):
                graph.name = found[1]
            elif found := NODE.fullmatch(line):
                nodes = graph.tensors if found[3] else graph.ops
                nodes[found[1]] = found[2]
            else:
                found = EDGE.fullmatch(line)
                self.assertIsNotNone(found, line)
                graph.readers[found[1]].append(found[2])
        self.assertIsNone(graph)
        return graphs

    def check(self, *arguments):
        result = sluice("plan", *arguments, "--dot")
        self.assertEqual(result.returncode, 0, result.stderr)
        graphs = self.parse(result.stdout)
        called = set()
        for graph in graphs.values():
            nodes = graph.ops.keys() | graph.tensors.keys()
            ends = {*graph.readers, *(r for readers in graph.readers.values() for r in readers)}
            self.assertLessEqual(ends, nodes)
            for node in nodes:  # No op depends on its own results.
                for reader in graph.readers[node]:
                    self.assertNotIn(node, graph.reachable(reader))
            for label in graph.ops.values():
                called.update(label.split(" ")[1:])
        self.assertEqual(called | {"train", "eval"}, graphs.keys())
        if shutil.which("dot"):
            drawn = subprocess.run(["dot", "-Tplain"], input=result.stdout, capture_output=True,
                                   text=True, timeout=HANG)
            self.assertEqual((drawn.returncode, drawn.stderr), (0, ""))
        return graphs

    def test_models(self):
        lines = sluice("--list").stdout.splitlines()
        self.assertTrue(lines)
        for line in lines:
            with self.subTest(model=line.split()[0]):
                self.check(line.split()[0])

    def test_the_loss_depends_on_the_weights(self):
        train = self.check("mnist", "--layers", "2", "--width", "16")["train"]
        weight = next(n for n, label in train.tensors.items()
                      if label == "fc.0.weight (784, 16) float32")
        read = [train.ops.get(n, "") for n in train.reachable(weight)]
        self.assertTrue(any(label.startswith("HostStore.") for label in read), read)
        loads = [n for n, label in train.ops.items() if label.startswith("HostLoad")]
        self.assertEqual(len(loads), 2)
        for load in loads:
            self.assertTrue(train.readers[load])

    def test_refusals(self):
        for flags in (["--json"], ["--full"], ["--passes"], ["--print-after", "all"],
                      ["--problem", "a.csv"], ["--check", "a.txt"], ["--sweep", "replicas=1;2"]):
            with self.subTest(flags=flags):
                result = sluice("plan", "--dot", *flags)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertIn("--dot cannot be combined with", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
