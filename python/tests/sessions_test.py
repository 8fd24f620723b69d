"""Sessions: several programs, variables by path, files, reports."""

import tempfile
import unittest
from pathlib import Path

import numpy as np

import sluice
from sluice import ops


def ones(*shape):
    return np.ones(shape, np.float32)


class Sessions(unittest.TestCase):
    def programs(self):
        """Two programs that share a variable."""
        ir = sluice.Ir()
        x = ir.h2d_stream((2,), name="x")
        with ir.main_graph:
            w = sluice.variable([1.0, 2.0], name="w", path="net.w")
            b = sluice.variable(
                sluice.Initializer.normal(0, 1).keyed(7), name="b", shape=(3,))
            ops.add_(w, sluice.host_load(x))
        with ir.entry_graph("infer") as infer:
            out = sluice.host_store(infer.share_variable(w) * 10, "out")
        return ir, x, out, w, b

    def test_several_programs_share_variables(self):
        ir, x, out, *_ = self.programs()
        session = sluice.Session(ir, threads=1)
        self.assertEqual(set(session.programs), {"main", "infer"})
        self.assertEqual({s: t.shape for s, t in session.expected_inputs().items()}, {x: (2,)})
        self.assertEqual(session.expected_inputs("infer"), {})
        changes = session.variable_changes
        session.run({x: ones(2)})
        self.assertGreater(session.variable_changes, changes)
        np.testing.assert_array_equal(session.run(program="infer")[out], [20, 30])

    def test_variables_have_paths(self):
        ir, x, _, w, b = self.programs()
        session = sluice.Session(ir, threads=1)
        self.assertEqual(list(session.variables), ["b", "net.w"])
        self.assertEqual(session.variables["net.w"].shape, (2,))
        first = sluice.Initializer.normal(0, 1).keyed(7).evaluate((3,))
        np.testing.assert_array_equal(session.read("b"), first)
        session.run({x: ones(2)})
        values = session.values()
        np.testing.assert_array_equal(values["net.w"], [2, 3])
        session.initialize_variables()
        np.testing.assert_array_equal(session.read("net.w"), [1, 2])
        session.restore(values)
        np.testing.assert_array_equal(session.read(w), [2, 3])
        for failing, text in [
                (lambda: session.read("w"), "there is no variable 'w'"),
                (lambda: session.write("b", ones(2)), "variable 'b': must be .*got"),
                (lambda: session.write(b, np.ones(3)), "must be|got"),
                (lambda: session.restore({"b": ones(3)}), "for each of 2 variables, got 1")]:
            with self.assertRaisesRegex(sluice.UsageError, text):
                failing()
        with self.assertRaisesRegex(TypeError, "variable: must be a Tensor, got int"):
            session.read(1)

    def test_files_are_safetensors(self):
        ir, x, _, w, _ = self.programs()
        session = sluice.Session(ir, threads=1)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            session.run({x: ones(2)})
            session.save(path, {"steps": "1"})
            header = path.read_bytes()
            self.assertIn(b'"net.w"', header)
            self.assertIn(b'"steps":"1"', header)
            other = sluice.Session(ir, threads=1)
            result = other.load(path)
            self.assertEqual([result.missing, result.unused], [[], []])
            np.testing.assert_array_equal(other.read(w), [2, 3])
            result = other.load(path, strict=False, names={"net.*": "lost.*"})
            self.assertEqual([result.missing, result.unused], [["net.w"], ["net.w"]])
            with self.assertRaises(sluice.BadFileError):
                other.load(path, names={"net.*": ""})
            with self.assertRaises(OSError) as caught:
                other.load(Path(folder) / "none")
            self.assertEqual(caught.exception.kind, "io")

    def test_reports(self):
        ir, x, *_ = self.programs()
        session = sluice.Session(ir, threads=1, memory=1 << 20)
        self.assertEqual(session.planned_bytes(), session.measured_bytes())
        session.run({x: ones(2)})
        self.assertGreater(session.counters["kernels"], 0)
        report = session.report()
        self.assertEqual([p["name"] for p in report["programs"]], list(session.programs))
        self.assertTrue(session.report_html().startswith("<!"))
        self.assertIn("srcdoc=", session._repr_html_())
        with self.assertRaises(sluice.UsageError):
            session.planned_bytes(1)


if __name__ == "__main__":
    unittest.main()
