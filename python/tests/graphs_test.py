"""Graphs: functions as graphs, scopes, schedules, calls, loops, conditionals."""

import functools
import os
import sys
import unittest
from typing import List

import numpy as np

import sluice
from sluice import TensorByRef, ops


def line():
    """Returns the caller's line as ops have it: "graphs_test.py:12"."""
    frame = sys._getframe(1)
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def ones(*shape):
    return np.ones(shape, np.float32)


def run(ir, inputs=None, **options):
    """Runs the main program on one thread."""
    return sluice.Session(ir, threads=1, **options).run(inputs or {})


def linear(x, w, b):
    return x @ w + b


class CreateGraph(unittest.TestCase):
    def setUp(self):
        self.ir = sluice.Ir()
        self.spec = sluice.TensorSpec((2, 2), sluice.float32)

    def test_tensors_and_specs_become_inputs_named_after_parameters(self):
        x = self.ir.main_graph.constant(ones(2, 2))
        seen = []

        def layer(x, weight, rate, options=None):
            seen.append((rate, options, sluice.current_graph().name))
            return x @ weight

        graph = self.ir.create_graph(layer, x, self.spec, 0.5)
        self.assertEqual([t.name for t in graph.inputs], ["x", "weight"])
        self.assertEqual(list(graph.inputs_by_name), ["x", "weight"])
        name = ".".join(self.id().split(".")[-2:])
        self.assertEqual(graph.name, f"{name}.layer_subgraph(0)")
        self.assertEqual(seen, [(0.5, None, graph.name)])
        self.assertEqual(graph.outputs[0].shape, (2, 2))
        self.assertNotIn(x, graph)
        self.assertEqual(self.ir.create_graph(lambda x: x, x).name.split(".")[-1],
                         "<lambda>_subgraph(1)")

    def test_the_members_of_lists_args_and_keywords_become_inputs(self):
        def layer(pair, *others, **named):
            self.assertEqual([len(pair), len(others), list(named)], [2, 1, ["w"]])
            return [pair[0] + others[0], named["w"] + pair[1]]

        graph = self.ir.create_graph(layer, (self.spec, self.spec), self.spec, w=self.spec)
        self.assertEqual([t.name for t in graph.inputs], ["pair_0", "pair_1", "others_0", "w"])
        self.assertEqual(len(graph.outputs), 2)

        def plain(x, sizes, table, empty=()):
            self.assertEqual((sizes, table, empty), ([1, 2], {"x": self.spec}, ()))

        graph = self.ir.create_graph(plain, self.spec, [1, 2], {"x": self.spec})
        self.assertEqual([len(graph.inputs), len(graph.outputs)], [1, 0])

    def test_an_annotation_passes_by_reference(self):
        def add_one(x: TensorByRef, xs: List[TensorByRef], y: sluice.Tensor, s: "TensorByRef"):
            ops.add_(x, y)

        graph = self.ir.create_graph(add_one, self.spec, [self.spec], self.spec, self.spec)
        self.assertEqual([t.name for t in graph.inputs_by_reference], ["x", "xs_0", "s"])

    def test_inputs_and_outputs_of_the_body_precede_and_follow(self):
        def layer(x):
            w = sluice.graph_input((2, 2), sluice.float32, "w", by_ref=True)
            sluice.graph_output(w)
            return x @ w

        graph = self.ir.create_graph(layer, self.spec)
        self.assertEqual([t.name for t in graph.inputs], ["x", "w"])
        self.assertEqual(graph.outputs[0], graph.inputs[1])
        self.assertEqual(len(graph.outputs), 2)

    def test_the_spec_of_a_shard_remains(self):
        spec = sluice.TensorSpec((2,), sluice.float32, (4,))
        graph = self.ir.create_graph(lambda x: x, spec)
        self.assertEqual(graph.inputs[0].meta_shape, (4,))
        self.assertEqual(graph.input((2,), sluice.float32, "y", False, (3,)).meta_shape, (3,))

    def test_wrong_functions_arguments_and_results_are_refused(self):
        def layer(x):
            return x

        with self.assertRaisesRegex(TypeError, "must be a function, got int"):
            self.ir.create_graph(1)
        with self.assertRaisesRegex(TypeError, "must have a __qualname__"):
            self.ir.create_graph(functools.partial(layer), self.spec)
        with self.assertRaisesRegex(ValueError, r"arguments must match .*layer\(x\), got: "):
            self.ir.create_graph(layer)
        with self.assertRaisesRegex(TypeError, "'x' must have only tensors or none"):
            self.ir.create_graph(layer, [self.spec, 1])
        with self.assertRaisesRegex(ValueError, "must return None, a Tensor or Tensors, got int"):
            self.ir.create_graph(lambda x: 1, self.spec)
        with self.assertRaisesRegex(ValueError, "got a list of Tensor, int"):
            self.ir.create_graph(lambda x: [x, 1], self.spec)
        x = self.ir.main_graph.constant(ones(2, 2))
        with self.assertRaisesRegex(sluice.UsageError, "belongs to"):
            self.ir.create_graph(lambda y: y + x, self.spec)
        with self.assertRaisesRegex(sluice.UsageError, "variables live in entry graphs"):
            self.ir.create_graph(lambda y: sluice.variable(1.0, name="v"), self.spec)

    def test_an_error_in_the_body_leaves_the_context(self):
        def layer(x):
            raise KeyError("mine")

        with self.assertRaisesRegex(KeyError, "mine"):
            self.ir.create_graph(layer, self.spec)
        with self.assertRaisesRegex(sluice.UsageError, "no graph is in use"):
            sluice.current_graph()


class Reading(unittest.TestCase):
    def test_graphs_list_their_tensors_and_callees(self):
        ir = sluice.Ir()
        inner = ir.create_graph(lambda x: x + x, sluice.TensorSpec((2,), sluice.float32))
        with ir.main_graph as main:
            one = sluice.constant(ones(2), name="one")
            v = sluice.variable(ones(2), name="v")
            y, = ops.call(inner, one)
            ops.call(inner, y)
        self.assertEqual(main.called_graphs, (inner,))
        self.assertEqual(main.constants, (one,))
        self.assertEqual(main.variables, (v,))
        self.assertIn(y, main.tensors)
        self.assertEqual(main.get_tensor("one"), one)
        self.assertIn(one, main)
        self.assertNotIn(one, inner)
        self.assertEqual(ir.graphs, (inner, main))
        self.assertEqual(ir.entries, {"main": main})
        self.assertTrue(main.is_entry)
        with self.assertRaisesRegex(sluice.UsageError, "must have a tensor named 'two'"):
            main.get_tensor("two")
        self.assertIn("digraph", ir.to_dot())
        self.assertEqual(ir, main.ir)
        self.assertEqual({ir: 1}[main.ir], 1)

    def test_only_streams_in_use_are_listed(self):
        ir = sluice.Ir()
        x, _ = ir.h2d_stream((2,), name="x"), ir.h2d_stream((2,), name="unused")
        with ir.main_graph:
            y = sluice.host_store(sluice.host_load(x), "y")
        self.assertEqual(ir.h2d_streams, [x])
        self.assertEqual(ir.d2h_streams, [y])
        self.assertEqual(ir.stream_count, 3)

    def test_scopes_name_ops_and_choose_devices(self):
        ir = sluice.Ir()
        with ir.main_graph as main:
            x = sluice.constant(ones(2, 2))
            with sluice.name_scope("net"), sluice.name_scope("fc1"):
                y = x @ x
            with sluice.device_scope(1):
                with sluice.device_scope(None):
                    z = y + y
                ops.gelu(z)
        self.assertEqual(main.module_paths(), ["net/fc1", "", ""])
        self.assertEqual(main.devices(), [None, None, 1])
        scope = sluice._core.name_scope(main, "twice")
        with scope:
            with self.assertRaisesRegex(sluice.UsageError, "must not be entered twice"):
                scope.__enter__()
        with self.assertRaisesRegex(sluice.UsageError, "device"):
            with main, sluice.device_scope(-2):
                pass

    def test_io_scopes_change_no_result(self):
        results = []
        for mode in ["compute", "io", "io_overlapped"]:
            ir = sluice.Ir()
            x = ir.h2d_stream((2,), name="x")
            with ir.main_graph, sluice.io_scope(mode):
                y = sluice.host_store(ops.exp(sluice.host_load(x)), "y")
            results.append(run(ir, {x: ones(2)}, io_queues=1)[y])
        self.assertTrue(all(np.array_equal(r, results[0]) for r in results))
        with self.assertRaisesRegex(ValueError, "io mode: must be one of compute, io, io_overl"):
            sluice._core.io_scope(ir.main_graph, "x")


class Schedules(unittest.TestCase):
    """The texts of document 004, whose graphs are built by hand."""

    def linear(self, ir, features):
        def Linear(x, weight, bias):  # noqa: N802: the name of the document's module
            return x @ weight + bias

        return ir.create_graph(Linear, *(sluice.TensorSpec(s, sluice.float32) for s in features))

    def test_linear(self):
        ir = sluice.Ir()
        graph = self.linear(ir, [(2, 4), (4, 32), (32,)])
        weight, bias = graph.inputs[1:]
        text = graph.print_schedule({"weight": weight, "bias": bias}).split("\n", 1)
        self.assertTrue(text[0].endswith(".Linear_subgraph(0)"), text[0])
        self.assertEqual(text[1], """\
  (%1, weight=%2, bias=%3) -> (%5) {
    MatMul.100 (%1 [(2, 4) float32], %2 [(4, 32) float32]) -> (%4 [(2, 32) float32])
    Add.101 (%4 [(2, 32) float32], %3 [(32,) float32]) -> (%5 [(2, 32) float32])
  }""")

    def net(self, ir, hidden):
        """Builds the document's network; `hidden(x, w, b, ir)` is its layers 2 and 3."""
        net = ir.create_empty_graph("Net")
        with net:
            x = net.input((28, 28), sluice.float32, "x")
            sizes = [(784, 512), (512, 512), (512, 512), (512, 10)]
            named, h = {}, None
            for i, size in enumerate(sizes, 1):
                named[f"fc{i}.weight"] = net.input(size, sluice.float32, f"fc{i}/weight")
                named[f"fc{i}.bias"] = net.input(size[1:], sluice.float32, f"fc{i}/bias")
            for i, size in enumerate(sizes, 1):
                w, b = named[f"fc{i}.weight"], named[f"fc{i}.bias"]
                h = ops.reshape(x, shape=(1, 784)) if i == 1 else h
                h = hidden(h, w, b, ir) if i in (2, 3) else h @ w + b
                h = ops.gelu(h) if i < 4 else h
            net.set_outputs([h])
        return net.print_schedule(named)

    def test_inlined_net(self):
        text = self.net(sluice.Ir(), lambda x, w, b, _: x @ w + b)
        self.assertEqual(text, """\
Graph : Net_subgraph(0)
  (%1, fc1.weight=%2, fc1.bias=%3, fc2.weight=%4, fc2.bias=%5, fc3.weight=%6, fc3.bias=%7, \
fc4.weight=%8, fc4.bias=%9) -> (%21) {
    Reshape.100 (%1 [(28, 28) float32]) -> (%10 [(1, 784) float32])
    MatMul.101 (%10 [(1, 784) float32], %2 [(784, 512) float32]) -> (%11 [(1, 512) float32])
    Add.102 (%11 [(1, 512) float32], %3 [(512,) float32]) -> (%12 [(1, 512) float32])
    Gelu.103 (%12 [(1, 512) float32]) -> (%13 [(1, 512) float32])
    MatMul.104 (%13 [(1, 512) float32], %4 [(512, 512) float32]) -> (%14 [(1, 512) float32])
    Add.105 (%14 [(1, 512) float32], %5 [(512,) float32]) -> (%15 [(1, 512) float32])
    Gelu.106 (%15 [(1, 512) float32]) -> (%16 [(1, 512) float32])
    MatMul.107 (%16 [(1, 512) float32], %6 [(512, 512) float32]) -> (%17 [(1, 512) float32])
    Add.108 (%17 [(1, 512) float32], %7 [(512,) float32]) -> (%18 [(1, 512) float32])
    Gelu.109 (%18 [(1, 512) float32]) -> (%19 [(1, 512) float32])
    MatMul.110 (%19 [(1, 512) float32], %8 [(512, 10) float32]) -> (%20 [(1, 10) float32])
    Add.111 (%20 [(1, 10) float32], %9 [(10,) float32]) -> (%21 [(1, 10) float32])
  }""")

    def test_outlined_net(self):
        shared = []

        def hidden(x, w, b, ir):
            if not shared:
                shared.append(self.linear(ir, [(1, 512), (512, 512), (512,)]))
            return ops.call(shared[0], x, w, b)[0]

        text = self.net(sluice.Ir(), hidden).replace("Schedules.linear.Linear", "Linear")
        self.assertIn("""\
    Gelu.103 (%12 [(1, 512) float32]) -> (%13 [(1, 512) float32])
    Call.106(Linear_subgraph(1)) (%13 [(1, 512) float32], %4 [(512, 512) float32], \
%5 [(512,) float32]) -> (%14 [(1, 512) float32])
    Gelu.107 (%14 [(1, 512) float32]) -> (%15 [(1, 512) float32])
    Call.108(Linear_subgraph(1)) (%15 [(1, 512) float32], %6 [(512, 512) float32], \
%7 [(512,) float32]) -> (%16 [(1, 512) float32])
    Gelu.109 (%16 [(1, 512) float32]) -> (%17 [(1, 512) float32])
    MatMul.110 (%17 [(1, 512) float32], %8 [(512, 10) float32]) -> (%18 [(1, 10) float32])
    Add.111 (%18 [(1, 10) float32], %9 [(10,) float32]) -> (%19 [(1, 10) float32])""", text)

    def test_remote_graphs(self):
        ir = sluice.Ir()
        buffer = ir.remote_buffer((5,))
        load, store = ir.create_empty_graph("load_remote"), ir.create_empty_graph("store_remote")
        load.set_outputs([load.remote_load(buffer, load.input((), sluice.int32, "load_index"))])
        index, weight = store.input((), sluice.int32, "store_index"), store.input((5,))
        store.remote_store(buffer, index, weight)
        self.assertEqual(load.print_schedule(), """\
Graph : load_remote_subgraph(0)
  (%1) -> (%3) {
    Init.100 () -> (%2 [(5,) float32])
    RemoteLoad.101 (%2 [(5,) float32], %1 [() int32]) -> (%3 [(5,) float32])
  }""")
        self.assertEqual(store.print_schedule({"weight": weight}), """\
Graph : store_remote_subgraph(1)
  (%1, weight=%2) -> () {
    RemoteStore.102 (%2 [(5,) float32], %1 [() int32]) -> ()
  }""")


class Calls(unittest.TestCase):
    def setUp(self):
        self.ir = sluice.Ir()
        self.rng = np.random.default_rng(3)
        specs = [sluice.TensorSpec(s, sluice.float32) for s in [(2, 3), (3, 4), (4,)]]
        self.linear = self.ir.create_graph(linear, *specs)
        self.arrays = [self.rng.normal(size=s).astype(np.float32) for s in [(2, 3), (3, 4), (4,)]]

    def test_positional_and_named_inputs(self):
        with self.ir.main_graph:
            x, w, b = (sluice.constant(a) for a in self.arrays)
            y, = ops.call(self.linear, x, inputs_dict={
                self.linear.inputs[2]: b, self.linear.inputs[1]: w})
            z, = ops.call(self.linear, [x, w], self.arrays[2])
            outs = [sluice.host_store(t, "out") for t in (y, z)]
        results = run(self.ir)
        a, w, b = self.arrays
        for out in outs:
            np.testing.assert_allclose(results[out], a @ w + b, rtol=1e-5)

    def test_the_call_site_maps_tensors_and_indices(self):
        with self.ir.main_graph as main:
            x, w, b = (sluice.constant(a) for a in self.arrays)
            here = line(); info = ops.call_with_info(self.linear, x, w, b)  # noqa: E702
        graph = self.linear
        self.assertEqual(main.lines(), [here])
        self.assertEqual(info.called_graph, graph)
        self.assertEqual(info.parent, main)
        self.assertEqual(info.inputs, (x, w, b))
        self.assertEqual(info.graph_to_parent(graph.inputs[1]), w)
        self.assertEqual(info.graph_to_parent(graph.outputs[0]), info.outputs[0])
        self.assertEqual(info.parent_to_graph(b), graph.inputs[2])
        self.assertEqual(info.parent_input(0), x)
        self.assertEqual(info.parent_output(0), info.outputs[0])
        for i in range(3):
            self.assertEqual(info.graph_to_parent_input_index(i), i)
            self.assertEqual(info.parent_to_graph_input_index(i), i)
        self.assertEqual(info.graph_to_parent_output_index(0), 0)
        self.assertEqual(info.parent_to_graph_output_index(0), 0)
        for failing in [lambda: info.parent_input(3), lambda: info.parent_output(-1),
                        lambda: info.graph_to_parent_input_index(3),
                        lambda: info.parent_to_graph_output_index(1)]:
            with self.assertRaisesRegex(sluice.UsageError, r"must be in \[0, [13]\), got"):
                failing()
        with self.assertRaisesRegex(sluice.UsageError, "is not one of its inputs"):
            info.parent_to_graph(info.outputs[0])
        with self.assertRaisesRegex(sluice.UsageError, "does not belong to the called graph"):
            info.graph_to_parent(x)

    def test_inputs_by_reference_are_updated_and_others_are_copied(self):
        def add_one(x: TensorByRef, y):
            ops.add_(x, y)
            ops.add_(y, x)

        spec = sluice.TensorSpec((2,), sluice.float32)
        graph = self.ir.create_graph(add_one, spec, spec)
        with self.ir.main_graph:
            x, y = sluice.variable(ones(2), name="x"), sluice.variable(ones(2), name="y")
            ops.call(graph, x, y)
        session = sluice.Session(self.ir, threads=1)
        session.run()
        np.testing.assert_array_equal(session.read(x), [2, 2])
        np.testing.assert_array_equal(session.read(y), [1, 1])

    def test_named_inputs_are_tensors(self):
        with self.ir.main_graph:
            with self.assertRaisesRegex(sluice.ArgumentTypeError, "must be a Tensor, got int"):
                ops.call(self.linear, inputs_dict={self.linear.inputs[0]: 1})
            with self.assertRaisesRegex(TypeError, "must be a Tensor, got str"):
                ops.call(self.linear, inputs_dict={"x": sluice.constant(1.0)})

    def test_wrong_inputs_are_refused(self):
        other = self.ir.create_empty_graph("other").input((2, 3))
        with self.ir.main_graph:
            x, w, b = (sluice.constant(a) for a in self.arrays)
            for error, inputs, named in [
                    ("3 inputs given|4 inputs given", (x, w, b, b), {}),
                    ("Not enough inputs have been provided", (x, w), {}),
                    ("is not a tensor of graph|is not an input", (x, w), {x: b}),
                    ("is given twice", (x, w, b), {self.linear.inputs[0]: x}),
                    ("belongs to graph", (other, w, b), {}),
                    ("must be", (x, w, w), {})]:
                with self.assertRaisesRegex(ValueError, error) as caught:
                    ops.call(self.linear, *inputs, inputs_dict=named)
                self.assertEqual(caught.exception.kind, "usage")


class Loops(unittest.TestCase):
    def setUp(self):
        self.ir = sluice.Ir()
        self.scalar = sluice.TensorSpec((), sluice.float32)

    def test_repeat_carries_all_values_at_once(self):
        swap = self.ir.create_graph(lambda a, b: (b, a + b), self.scalar, self.scalar)
        with self.ir.main_graph:
            outs = [sluice.host_store(t, "f") for t in ops.repeat(swap, 7, 0.0, 1.0)]
            zero = ops.repeat(swap, 0, 2.0, 3.0)
            outs += [sluice.host_store(t, "z") for t in zero]
            info = ops.repeat_with_info(swap, 2, 0.0, 1.0)
        results = run(self.ir)
        self.assertEqual([float(results[o]) for o in outs], [13, 21, 2, 3])
        self.assertIn("loop_wrapper", info.called_graph.name)
        self.assertEqual(len(info.outputs), 2)

    def test_references_accumulate_and_the_iteration_is_an_input(self):
        body = self.ir.create_empty_graph("body")
        total = body.input((), sluice.int32, "total", by_ref=True)
        step = body.input((), sluice.int32, "step")
        with body:
            ops.add_(total, step)
        with self.ir.main_graph:
            t = sluice.variable(np.int32(0), name="t")
            ops.repeat(body, 5, t, iteration=step)
        session = sluice.Session(self.ir, threads=1)
        session.run()
        self.assertEqual(int(session.read(t)), 10)

    def test_a_condition_ends_a_repeat(self):
        body = self.ir.create_empty_graph("body")
        total = body.input((), sluice.float32, "total", by_ref=True)
        going = body.input((), sluice.bool_, "going", by_ref=True)
        with body:
            ops.add_(total, sluice.constant(1.0))
            ops.update_slice_(going, ops.greater(sluice.constant(4.0), total))
        with self.ir.main_graph:
            t = sluice.variable(0.0, name="t")
            self.assertEqual(t.shape, ())
            ops.repeat(body, 100, t, sluice.variable(True, name="going"), condition=going)
        session = sluice.Session(self.ir, threads=1)
        session.run()
        self.assertEqual(float(session.read(t)), 4)

    def test_functions_are_bodies(self):
        with self.ir.main_graph as main:
            limit = sluice.constant(100.0)
            start = sluice.constant(1.0)
            total = sluice.variable(0.0, name="total")

            def double(v):
                ops.add_(total, v)
                return v + v

            y, = ops.repeat(double, 4, start)
            z, = ops.while_loop(lambda v: ops.greater(limit, v), lambda v: v + v, start)
            outs = [sluice.host_store(t, "out") for t in (y, z)]
        session = sluice.Session(self.ir, threads=1)
        results = session.run()
        self.assertEqual([float(results[o]) for o in outs], [16, 128])
        self.assertEqual(float(session.read(total)), 15)
        self.assertTrue(all("graphs_test.py" in text for text in main.lines()))

    def test_an_error_in_a_body_leaves_the_graph_as_it_was(self):
        class Mine(Exception):
            """An error of the program."""

        with self.ir.main_graph as main:
            start = sluice.constant(1.0)
            before = main.print_schedule()

            def body(v):
                v + v  # noqa: B018: adds an op
                raise Mine

            with self.assertRaises(Mine):
                ops.repeat(body, 3, start)
            self.assertEqual(main.print_schedule(), before)
            with self.assertRaisesRegex(ValueError, r"body must take 1 tensors, got \(a, b\)"):
                ops.repeat(lambda a, b: a, 3, start)
            with self.assertRaisesRegex(ValueError, "body must return None, a Tensor"):
                ops.repeat(lambda a: 3, 3, start)
            with self.assertRaisesRegex(TypeError, "the condition must be a function, got bool"):
                ops.while_loop(True, lambda a: a, start)
            self.assertEqual(main.print_schedule(), before)

    def test_scan_runs_over_rows(self):
        def step(total, x, w):
            total = total + x * w
            return total, total + total

        graph = self.ir.create_graph(step, self.scalar, self.scalar, self.scalar)
        with self.ir.main_graph:
            xs = sluice.constant(np.arange(4, dtype=np.float32))
            carried, rows = ops.scan(graph, [sluice.constant(0.0)], [xs],
                                     {graph.inputs[2]: sluice.constant(3.0)})
            last = sluice.host_store(carried[0], "last")
            all_rows = sluice.host_store(rows[0], "rows")
        results = run(self.ir)
        self.assertEqual(float(results[last]), 18)
        np.testing.assert_array_equal(results[all_rows], 2 * np.cumsum(np.arange(4) * 3.0))

    def test_wrong_loops_are_refused(self):
        graph = self.ir.create_graph(lambda a: (a, a), self.scalar)
        with self.ir.main_graph:
            with self.assertRaisesRegex(ValueError, r"trips must be in \[0, 2147483647\], got -1"):
                ops.repeat(graph, -1, 1.0)
            with self.assertRaisesRegex(ValueError, "2 outputs but only 1 inputs"):
                ops.repeat(graph, 2, 1.0)
            with self.assertRaisesRegex(ValueError, "infeed requires a function"):
                ops.repeat(graph, 2, 1.0, infeed=self.ir.infeed("f", {"x": ((), "float32")}))

    def test_conditional_runs_one_branch(self):
        up = self.ir.create_graph(lambda a, b: a + b, self.scalar, self.scalar)
        down = self.ir.create_graph(lambda a: a - 1, self.scalar)
        flag = self.ir.h2d_stream((), sluice.bool_, "flag")
        with self.ir.main_graph:
            cond = sluice.host_load(flag)
            x, y = sluice.constant(5.0), sluice.constant(2.0)
            info = ops.conditional_with_info(cond, up, down, [x], [], {up.inputs[1]: y},
                                             {down.inputs[0]: x})
            out = sluice.host_store(info.outputs[0], "out")
        session = sluice.Session(self.ir, threads=1)
        self.assertEqual(float(session.run({flag: np.array(True)})[out]), 7)
        self.assertEqual(float(session.run({flag: np.array(False)})[out]), 4)
        self.assertEqual(info.called_graph, (up, down))
        self.assertEqual(info.inputs, (cond, x, y, x))
        self.assertEqual(info.graph_to_parent(up.inputs[1]), y)
        self.assertEqual(info.graph_to_parent(down.inputs[0]), x)
        self.assertEqual(info.graph_to_parent(down.outputs[0]), info.parent_output(0))
        self.assertEqual(info.graph_to_parent_input_index(0, then_branch=False), 3)
        self.assertEqual(info.graph_to_parent_input_index(1, then_branch=True), 2)
        self.assertEqual([info.parent_to_graph_input_index(i) for i in (1, 2, 3)], [0, 1, 0])
        self.assertEqual([info.is_parent_index_in_then_branch(i) for i in range(4)],
                         [False, True, True, False])

    def test_wrong_branches_are_refused(self):
        one = self.ir.create_graph(lambda a: a, self.scalar)
        two = self.ir.create_graph(lambda a: (a, a), self.scalar)
        with self.ir.main_graph:
            cond = sluice.constant(True)
            with self.assertRaisesRegex(ValueError, "output"):
                ops.conditional(cond, one, two, [1.0], [1.0])
            with self.assertRaisesRegex(ValueError, "Not enough inputs have been provided: "
                                        "conditional: then branch: input 'a'"):
                ops.conditional(cond, one, one, [], [1.0])
            with self.assertRaisesRegex(ValueError, "else branch: 2 inputs given"):
                ops.conditional(cond, one, one, [1.0], [1.0, 2.0])


if __name__ == "__main__":
    unittest.main()
