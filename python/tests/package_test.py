"""The package end to end: graphs, operators, sessions, errors, lines and interrupts."""

import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
import weakref

import numpy as np

import sluice
from sluice import ops


def line():
    """Returns the caller's line as ops have it: "package_test.py:12"."""
    frame = sys._getframe(1)
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def perceptron():
    """Returns a program y = gelu(x·w + b), its streams and its variables."""
    ir = sluice.Ir()
    x_stream = ir.h2d_stream((8, 16), sluice.float32, "x")
    rng = np.random.default_rng(1)
    with ir.main_graph as main:
        x = main.host_load(x_stream)
        w = sluice.variable(rng.normal(size=(16, 4)).astype(np.float32), name="w")
        b = sluice.variable(np.zeros(4), name="b")
        y_stream = sluice.host_store(ops.gelu(x @ w + b), "y")
    return ir, x_stream, y_stream, w, b


def endless():
    """Returns a program that runs for minutes."""
    ir = sluice.Ir()
    body = ir.create_empty_graph("body")
    x = body.input((256, 256))
    body.set_outputs([x @ x])
    with ir.main_graph as main:
        start = sluice.constant(np.zeros((256, 256), np.float32))
        out = sluice.host_store(main.repeat(body, 1_000_000, [start])[0], "out")
    return ir, out


class Programs(unittest.TestCase):
    def test_a_program_computes_what_numpy_does(self):
        ir, x_stream, y_stream, w, b = perceptron()
        session = sluice.Session(ir, memory=1 << 20, threads=1)
        x = np.random.default_rng(2).normal(size=(8, 16)).astype(np.float32)
        y = session.run({x_stream: x})[y_stream]
        z = x @ session.read(w)
        expected = z / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
        session.write(b, np.ones(4, np.float32))
        self.assertFalse(np.array_equal(session.run({x_stream: x})[y_stream], y))
        self.assertIn("fits", session.summary())

    def test_bound_arrays_are_read_and_written_where_they_are(self):
        ir, x_stream, y_stream, *_ = perceptron()
        session = sluice.Session(ir, threads=1)
        x, y = np.ones((8, 16), np.float32), np.zeros((8, 4), np.float32)
        run = session.bind({x_stream: x}, {y_stream: y})
        run()
        first = y.copy()
        self.assertTrue(np.any(first))
        x *= 2
        run()
        self.assertFalse(np.array_equal(first, y))
        np.testing.assert_array_equal(session.run({x_stream: x})[y_stream], y)

    def test_columns_are_copied_and_written_arrays_must_be_row_major(self):
        ir, x_stream, y_stream, *_ = perceptron()
        session = sluice.Session(ir, threads=1)
        x = np.random.default_rng(2).normal(size=(16, 8)).astype(np.float32)
        expected = session.run({x_stream: np.ascontiguousarray(x.T)})[y_stream]
        np.testing.assert_array_equal(session.run({x_stream: x.T})[y_stream], expected)
        with self.assertRaisesRegex(sluice.UsageError, "row-major"):
            session.bind({x_stream: x.T}, {y_stream: np.zeros((4, 8), np.float32).T})

    def test_results_outlive_their_session(self):
        ir, x_stream, y_stream, *_ = perceptron()
        session = sluice.Session(ir, threads=1)
        y = session.run({x_stream: np.ones((8, 16), np.float32)})[y_stream]
        before = y.copy()
        del session, ir
        gc.collect()
        np.testing.assert_array_equal(y, before)

    def test_a_cycle_through_a_bound_array_is_collected(self):
        class Array(np.ndarray):
            """Holds the binding that reads it."""

        ir, x_stream, y_stream, *_ = perceptron()
        session = sluice.Session(ir, threads=1)
        x = np.ones((8, 16), np.float32).view(Array)
        x.run = session.bind({x_stream: x}, {y_stream: np.zeros((8, 4), np.float32)})
        x.run()
        gone = weakref.ref(x)
        del x
        self.assertIsNotNone(gone())
        gc.collect()
        self.assertIsNone(gone())

    def test_two_threads_share_a_session(self):
        ir, x_stream, y_stream, *_ = perceptron()
        session = sluice.Session(ir, threads=1)
        inputs = [np.full((8, 16), i, np.float32) for i in range(2)]
        expected = [session.run({x_stream: x})[y_stream] for x in inputs]
        wrong = []

        def work(i):
            for _ in range(50):
                if not np.array_equal(session.run({x_stream: inputs[i]})[y_stream], expected[i]):
                    wrong.append(i)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])


class Options(unittest.TestCase):
    def test_keywords_are_those_of_the_option_table(self):
        ir, *_ = perceptron()
        session = sluice.Session(ir, memory="1M", threads=1, io_queues=3, disable=["fuse"])
        self.assertIn("of 1,048,576 bytes", session.summary())
        doc = sluice.Session.__init__.__doc__
        self.assertIn("memory: Limit device memory to BYTES (default: none)", doc)

    def test_wrong_keywords_and_values_are_refused(self):
        ir, *_ = perceptron()
        with self.assertRaisesRegex(TypeError, "Session: keyword must be one of memory, threads"):
            sluice.Session(ir, memry=1)
        with self.assertRaisesRegex(ValueError, "device.threads: must be an integer from 0"):
            sluice.Session(ir, threads=-1)
        with self.assertRaisesRegex(ValueError, "remote_direct requires remote file:DIR"):
            sluice.Session(ir, remote_direct=True)


class Operators(unittest.TestCase):
    def test_signatures_and_docs_come_from_the_definitions(self):
        signature = inspect.signature(ops.matmul)
        self.assertEqual(list(signature.parameters),
                         ["lhs", "rhs", "lhs_transposed", "rhs_transposed", "name"])
        self.assertIs(signature.parameters["lhs_transposed"].default, False)
        self.assertIn("(C1)", ops.matmul.__doc__)

    def test_options_reach_the_op(self):
        ir = sluice.Ir()
        with ir.main_graph:
            x = sluice.constant(np.arange(6, dtype=np.float32).reshape(2, 3))
            y = sluice.host_store(ops.sum(x, axes=[1], keepdims=True), "y")
            z = sluice.host_store(ops.matmul(x, x, rhs_transposed=True), "z")
            s = sluice.host_store(2 - x * 2 + x**2, "s")
        results = sluice.Session(ir, threads=1).run()
        a = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.testing.assert_array_equal(results[y], a.sum(1, keepdims=True))
        np.testing.assert_array_equal(results[z], a @ a.T)
        np.testing.assert_array_equal(results[s], 2 - a * 2 + a**2)

    def test_schedules_print_as_in_the_documents(self):
        ir = sluice.Ir()
        linear = ir.create_empty_graph("Linear")
        x, w = linear.input((2, 4), name="x"), linear.input((4, 32), name="weight")
        linear.set_outputs([x @ w])
        self.assertEqual(
            linear.print_schedule(),
            "Graph : Linear_subgraph(0)\n"
            "  (%1, %2) -> (%3) {\n"
            "    MatMul.100 (%1 [(2, 4) float32], %2 [(4, 32) float32]) -> "
            "(%3 [(2, 32) float32])\n  }")
        self.assertEqual(repr(w), "Tensor[Linear_subgraph(0)/weight popxl.dtypes.float32 (4, 32)]")

    def test_tensors_are_keys_and_compare_by_identity(self):
        ir = sluice.Ir()
        a = ir.main_graph.constant(1.0)
        b = ir.main_graph.constant(1.0)
        self.assertEqual({a: 1, b: 2}[a], 1)
        self.assertNotEqual(a, b)
        self.assertNotEqual(a, 1)
        with self.assertRaises(TypeError):
            iter(a)
        self.assertIsInstance(np.ones(1, np.float32) + np.float32(1), np.ndarray)


class Errors(unittest.TestCase):
    def test_kinds_are_builtin_classes_too(self):
        ir, x_stream, *_ = perceptron()
        with self.assertRaises(ValueError) as caught:
            sluice.Session(ir, threads=1).run({x_stream: np.ones((8, 15), np.float32)})
        self.assertIsInstance(caught.exception, sluice.Error)
        self.assertEqual(caught.exception.kind, "usage")
        with self.assertRaises(MemoryError) as caught:
            sluice.Session(ir, memory=100, threads=1)
        self.assertIsInstance(caught.exception, sluice.DoesNotFit)
        self.assertGreater(caught.exception.bytes_needed, 100)

    def test_an_error_names_the_line_of_the_program(self):
        ir = sluice.Ir()
        x = ir.main_graph.constant(np.ones((2, 3)))
        with self.assertRaises(sluice.UsageError) as caught:
            here = line(); x @ x  # noqa: E702: the line of both
        self.assertIn(f"adding matmul at {here}", str(caught.exception))
        with self.assertRaises(sluice.UsageError) as caught:
            here = line(); ops.matmul(x, x)  # noqa: E702
        self.assertIn(f"adding matmul at {here}", str(caught.exception))

    def test_ops_have_the_line_of_the_program(self):
        ir = sluice.Ir()
        with ir.main_graph as main:
            x = sluice.constant(np.ones((2, 2)))
            here = line(); ops.gelu(x) + x  # noqa: E702
        self.assertEqual(main.lines(), [here, here])

    def test_a_handle_without_its_ir_is_refused(self):
        t = sluice.Ir().main_graph.constant(1.0)
        gc.collect()
        with self.assertRaises(sluice.UsageError):
            t.name  # noqa: B018: reads the property

    def test_graphs_of_two_programs_are_not_in_use_together(self):
        with sluice.Ir().main_graph:
            with self.assertRaisesRegex(sluice.UsageError, "must be a graph of Ir"):
                with sluice.Ir().main_graph:
                    pass
        with self.assertRaisesRegex(sluice.UsageError, "no graph is in use"):
            sluice.constant(1.0)


class Interrupts(unittest.TestCase):
    def interrupt_after(self, seconds):
        timer = threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        return timer

    def test_an_interrupt_ends_a_run_and_the_session_runs_again(self):
        ir, _ = endless()
        session = sluice.Session(ir, threads=1)
        for _ in range(2):
            timer = self.interrupt_after(0.2)
            begin = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                session.run()
            timer.join()
            self.assertLess(time.monotonic() - begin, 5)

    def test_other_threads_run_python_during_a_run(self):
        ir, _ = endless()
        session = sluice.Session(ir, threads=1)
        counted = []

        def count():
            begin = time.monotonic()
            while time.monotonic() - begin < 0.2:
                counted.append(1)
            self.assertTrue(session.stop())

        thread = threading.Thread(target=count)
        thread.start()
        with self.assertRaises(sluice.Stopped):
            session.run()
        thread.join()
        self.assertGreater(len(counted), 1000)

    def test_a_handler_of_the_program_does_not_end_a_run(self):
        ir, x_stream, y_stream, *_ = perceptron()
        session = sluice.Session(ir, threads=1)
        seen = []
        before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
        try:
            timer = self.interrupt_after(0.05)
            x = np.ones((8, 16), np.float32)
            begin = time.monotonic()
            while not seen and time.monotonic() - begin < 5:
                session.run({x_stream: x})
            timer.join()
        finally:
            signal.signal(signal.SIGINT, before)
        self.assertEqual(seen, [1])


class Package(unittest.TestCase):
    def test_only_numpy_is_imported(self):
        code = ("import sys, sluice; "
                "print(sorted({m.split('.')[0] for m in sys.modules} & "
                "{'numpy', 'torch', 'pandas', 'typing_extensions'}))")
        out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        self.assertEqual(out.stdout.decode().strip(), "[]")


if __name__ == "__main__":
    unittest.main()
