"""Transforms of graphs: gradients, accumulation, recomputation, phases."""

import os
import sys
import unittest

import numpy as np

import sluice
from sluice import TensorByRef, ops, transforms


def line():
    """Returns the caller's line as ops have it: "transforms_test.py:12"."""
    frame = sys._getframe(1)
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def layer(x, w, b):
    return ops.tanh(x @ w + b)


def specs(*shapes):
    return [sluice.TensorSpec(shape, sluice.float32) for shape in shapes]


class Layer:
    """A layer tanh(x·w + b) with its arrays, and the gradients that numpy computes."""

    def __init__(self, replication=1):
        self.ir = sluice.Ir(replication)
        self.graph = self.ir.create_graph(layer, *specs((2, 3), (3, 4), (4,)))
        rng = np.random.default_rng(5)
        self.x, self.w, self.b, self.dy = (
            rng.normal(size=s).astype(np.float32) for s in [(2, 3), (3, 4), (4,), (2, 4)])
        dz = self.dy * (1 - np.tanh(self.x @ self.w + self.b) ** 2)
        self.grads = [dz @ self.w.T, self.x.T @ dz, dz.sum(0)]


class Autodiff(unittest.TestCase):
    def test_a_gradient_graph_is_called_with_gradients_and_forward_values(self):
        m = Layer()
        here = line(); info = transforms.autodiff(m.graph)  # noqa: E702
        self.assertEqual(info.graph.name, f"{m.graph.name}_bwd")
        self.assertEqual(info.forward_graph, m.graph)
        self.assertTrue(set(info.graph.lines()) <= set(m.graph.lines()) | {here})
        with m.ir.main_graph:
            x, w, b, dy = (sluice.constant(a) for a in (m.x, m.w, m.b, m.dy))
            fwd = ops.call_with_info(m.graph, x, w, b)
            bwd = ops.call_with_info(info.graph, dy, inputs_dict=info.inputs_dict(fwd))
            by_input = info.fwd_graph_ins_to_grad_parent_outs(bwd)
            by_parent = info.fwd_parent_ins_to_grad_parent_outs(fwd, bwd)
            self.assertEqual(list(map(by_input.get, m.graph.inputs)), list(bwd.outputs))
            self.assertEqual([by_parent[t] for t in (x, w, b)], list(bwd.outputs))
            outs = [sluice.host_store(t, "grad") for t in bwd.outputs]
        results = sluice.Session(m.ir, threads=1).run()
        for out, expected in zip(outs, m.grads):
            np.testing.assert_allclose(results[out], expected, rtol=1e-4, atol=1e-5)

    def test_the_connections_of_a_gradient_graph(self):
        m = Layer()
        info = transforms.autodiff(m.graph, grads_required=m.graph.inputs[1:])
        kinds = [c.connection_type.name for c in info.expected_inputs]
        self.assertEqual(kinds[0], "FwdGrad")
        self.assertEqual(set(kinds[1:]), {"Fwd"})
        self.assertEqual(info.expected_inputs[0].fwd_tensor, m.graph.outputs[0])
        self.assertEqual([c.fwd_tensor for c in info.expected_outputs],
                         list(m.graph.inputs[1:]))
        self.assertEqual(info.outputs, m.graph.inputs[1:])
        self.assertEqual(len(info.inputs), len(info.graph.inputs))
        self.assertEqual(info.graph.inputs[0].name, f"Gradient___{m.graph.outputs[0].name}")
        self.assertIn("GradGraphInfo[", repr(info))
        self.assertIn("(FwdGrad, Tensor[", repr(info.expected_inputs[0]))

    def test_forward_values_become_outputs_of_earlier_calls(self):
        ir = sluice.Ir()

        def cube(x):
            y = ops.exp(x)
            return y * x * x

        graph = ir.create_graph(cube, *specs((2,)))
        with ir.main_graph:
            info = ops.call_with_info(graph, np.ones(2, np.float32))
            transforms.autodiff(graph)
        self.assertEqual(len(graph.original_outputs), 1)
        self.assertGreater(len(graph.outputs), 1)
        self.assertEqual(len(info.outputs), len(graph.outputs))

    def test_calls_and_repeats_are_differentiated(self):
        ir = sluice.Ir()
        square = ir.create_graph(lambda x: x * x, *specs((2,)))
        given = transforms.autodiff(square)

        def outer(x):
            y, = ops.call(square, x)
            return ops.repeat(square, 2, y)[0]

        graph = ir.create_graph(outer, *specs((2,)))
        x = np.array([1.1, 0.9], np.float32)
        outs = []
        for options in [{}, {"iterations": "recompute"}, {"called_graphs": {square: given}}]:
            info = transforms.autodiff(graph, grads_provided=graph.original_outputs, **options)
            with ir.main_graph:
                fwd = ops.call_with_info(graph, x)
                outs += [sluice.host_store(t, "dx") for t in ops.call(
                    info.graph, np.ones(2, np.float32), inputs_dict=info.inputs_dict(fwd))]
        self.assertIn(given.graph, info.graph.called_graphs)
        results = sluice.Session(ir, threads=1).run()
        for out in outs:
            np.testing.assert_allclose(results[out], 8 * x**7, rtol=1e-5)

    def test_unreachable_gradients_are_errors_or_zeros(self):
        ir = sluice.Ir()
        graph = ir.create_graph(lambda x, y: x + x, *specs((2,), (3,)))
        with self.assertRaises(ValueError) as caught:
            transforms.autodiff(graph)
        self.assertIn("'y'", str(caught.exception))
        info = transforms.autodiff(graph, unreachable="zeros")
        with ir.main_graph:
            outs = [sluice.host_store(t, "out") for t in ops.call(
                info.graph, np.ones(2, np.float32))]
        results = sluice.Session(ir, threads=1).run()
        np.testing.assert_array_equal(results[outs[0]], [2, 2])
        np.testing.assert_array_equal(results[outs[1]], [0, 0, 0])

    def test_wrong_arguments_are_refused(self):
        m = Layer()
        other = m.ir.create_graph(lambda x: x, *specs((2,)))
        with self.assertRaisesRegex(ValueError, "unreachable: must be one of error, zeros"):
            transforms.autodiff(m.graph, unreachable="x")
        with self.assertRaisesRegex(ValueError, "iterations: must be one of keep, recompute"):
            transforms.autodiff(m.graph, iterations="x")
        with self.assertRaises(sluice.UsageError):
            transforms.autodiff(m.graph, grads_required=[])
        with self.assertRaises(sluice.UsageError):
            transforms.autodiff(m.graph, grads_required=[other.inputs[0]])
        with self.assertRaises(sluice.UsageError):
            transforms.autodiff(m.ir.main_graph)
        with self.assertRaises(TypeError):
            transforms.GradGraphInfo()
        with self.assertRaisesRegex(TypeError, "called_graphs: must be a GradGraphInfo, got int"):
            transforms.autodiff(m.graph, called_graphs={other: 1})
        info = transforms.autodiff(m.graph)
        with m.ir.main_graph:
            call = ops.call_with_info(other, np.ones(2, np.float32))
            with self.assertRaises(sluice.UsageError):
                info.inputs_dict(call)

    def test_value_and_grad(self):
        ir = sluice.Ir()

        def loss(x, i):
            return ops.sum(x * x) + ops.sum(ops.cast(i, dtype=sluice.float32))

        graph = ir.create_graph(loss, *specs((3,)), sluice.TensorSpec((2,), sluice.int32))
        x = np.array([1, 2, 3], np.float32)
        with ir.main_graph as main:
            xt, it = sluice.constant(x), sluice.constant(np.array([4, 5], np.int32))
            value, (dx, di) = transforms.value_and_grad(graph, [xt, it])
            self.assertIsNone(di)
            outs = [sluice.host_store(t, "out") for t in (value, dx)]
            self.assertEqual(main.called_graphs[0], graph)
        results = sluice.Session(ir, threads=1).run()
        self.assertEqual(float(results[outs[0]]), 23)
        np.testing.assert_array_equal(results[outs[1]], 2 * x)


class Accumulation(unittest.TestCase):
    def accumulate(self, calls, **options):
        """Returns the values of the added inputs after `calls` gradients, and dx."""
        m = Layer()
        result = transforms.autodiff_with_accumulation(
            m.graph, {"weight": m.graph.inputs[1], "bias": m.graph.inputs[2]},
            grads_required=[m.graph.inputs[0]], **options)
        with m.ir.main_graph:
            state = {a.name: sluice.variable(np.zeros(a.spec.shape), name=a.name)
                     for a in result.added}
            for _ in range(calls):
                fwd = ops.call_with_info(m.graph, m.x, m.w, m.b)
                named = result.info.inputs_dict(fwd)
                named.update({a.input: state[a.name] for a in result.added})
                dx, = ops.call(result.info.graph, m.dy, inputs_dict=named)
            out = sluice.host_store(dx, "dx")
        session = sluice.Session(m.ir, threads=1)
        dx = session.run()[out]
        np.testing.assert_allclose(dx, m.grads[0], rtol=1e-4, atol=1e-5)
        return m, {name: session.read(t) for name, t in state.items()}

    def test_a_running_mean_has_a_counter(self):
        m, state = self.accumulate(3)
        self.assertEqual(list(state), ["mean_accum_counter", "accum.weight", "accum.bias"])
        self.assertEqual(float(state["mean_accum_counter"]), 3)
        np.testing.assert_allclose(state["accum.weight"], m.grads[1], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(state["accum.bias"], m.grads[2], rtol=1e-4, atol=1e-5)
        _, state = self.accumulate(2, advance_counter=False)
        self.assertEqual(float(state["mean_accum_counter"]), 0)

    def test_sums_and_means(self):
        m, state = self.accumulate(3, accumulation="sum")
        self.assertEqual(list(state), ["accum.weight", "accum.bias"])
        np.testing.assert_allclose(state["accum.bias"], 3 * m.grads[2], rtol=1e-4, atol=1e-5)
        m, state = self.accumulate(2, accumulation="mean", steps=4)
        np.testing.assert_allclose(state["accum.bias"], m.grads[2] / 2, rtol=1e-4, atol=1e-5)

    def test_wrong_accumulations_are_refused(self):
        m = Layer()
        w = m.graph.inputs[1]
        with self.assertRaisesRegex(ValueError, "must be one of sum, mean, running_mean, got 'x'"):
            transforms.autodiff_with_accumulation(m.graph, [w], accumulation="x")
        with self.assertRaises(ValueError):
            transforms.autodiff_with_accumulation(m.graph, [w], accumulation="mean", steps=0)
        with self.assertRaises(ValueError):
            transforms.autodiff_with_accumulation(m.graph, [w], dtypes=["float32", "float32"])
        result = transforms.autodiff_with_accumulation(
            m.graph, [w], dtypes=["float16"],
            replica_groupings={"weight": m.ir.replica_grouping()})
        self.assertEqual(result.added[1].spec.dtype, sluice.float16)


class Rewrites(unittest.TestCase):
    def test_recomputation_keeps_no_activations_and_the_same_bits(self):
        m = Layer()
        info = transforms.autodiff(m.graph)
        again = transforms.recompute_graph(info)
        self.assertIn("_recomp_subgraph", again.info.graph.name)
        self.assertTrue(set(again.info.inputs) <= {*m.graph.inputs, *m.graph.original_outputs})
        self.assertIn(again.inputs[info.graph.inputs[0]], again.info.graph.inputs)
        outs = []
        with m.ir.main_graph:
            fwd = ops.call_with_info(m.graph, m.x, m.w, m.b)
            for each in (info, again.info):
                outs.append([sluice.host_store(t, "grad") for t in ops.call(
                    each.graph, m.dy, inputs_dict=each.inputs_dict(fwd))])
        results = sluice.Session(m.ir, threads=1).run()
        for kept, recomputed in zip(*outs):
            np.testing.assert_array_equal(results[kept], results[recomputed])

    def test_recomputation_refuses_updates(self):
        ir = sluice.Ir()

        def update(x: TensorByRef, y):
            return ops.add_(x, y) * y

        graph = ir.create_graph(update, *specs((2,), (2,)))
        with self.assertRaises(sluice.UsageError):
            transforms.recompute_graph(transforms.autodiff(graph))

    def test_sums_become_chains(self):
        ir = sluice.Ir()
        graph = ir.create_graph(lambda x, y: ops.add_n([x, y, ops.exp(x)]), *specs((2,), (2,)))
        self.assertIn("Sum.", graph.print_schedule())
        transforms.decompose_sum(graph)
        self.assertNotIn("Sum.", graph.print_schedule())
        with ir.main_graph:
            out, = ops.call(graph, np.zeros(2, np.float32), np.ones(2, np.float32))
            out = sluice.host_store(out, "out")
        np.testing.assert_array_equal(sluice.Session(ir, threads=1).run()[out], [2, 2])

    def test_stores_move_to_another_program(self):
        ir = sluice.Ir()
        x = ir.h2d_stream((2,), name="x")
        with ir.main_graph:
            loaded = sluice.host_load(x)
            y = sluice.host_store(loaded + loaded, "y")
            z = sluice.host_store(loaded * loaded, "z")
        copy = transforms.split_stores(ir, "main", "watched", [z])
        self.assertEqual(copy, ir.entry_graph("watched"))
        session = sluice.Session(ir, threads=1)
        ones = np.ones(2, np.float32)
        self.assertEqual(list(session.run({x: ones})), [y])
        self.assertEqual(set(session.run({x: ones}, "watched")), {y, z})
        with self.assertRaises(sluice.UsageError):
            transforms.split_stores(ir, "main", "watched", [z])
        other = sluice.Ir().d2h_stream((2,), name="other")
        with self.assertRaisesRegex(ValueError, "'other' belongs to another Ir"):
            transforms.split_stores(ir, "main", "third", [other])


class Phases(unittest.TestCase):
    steps = 3

    def phase(self, io_mode):
        """Returns tanh(x·w + b) of micro-batches, stored in a stream and in a buffer."""
        m = Layer()
        x = m.ir.h2d_stream((2, 3), name="x")
        y = m.ir.d2h_stream((2, 4), name="y")
        buffer = transforms.batch_serial_buffer(m.graph.outputs[0], self.steps)
        self.assertEqual(buffer.entries, self.steps)
        phase = transforms.batch_serialise(
            m.graph, self.steps, {m.graph.inputs[0]: x},
            {m.graph.outputs[0]: [y, transforms.BatchHandle(buffer)]}, io_mode=io_mode)
        self.assertEqual(list(phase.inputs), list(m.graph.inputs[1:]))
        self.assertEqual(phase.buffer_of(m.graph.outputs[0]), buffer)
        last = self.steps - 1
        with m.ir.main_graph:
            ops.call(phase.graph, 0, inputs_dict={
                phase.inputs[m.graph.inputs[1]]: sluice.constant(m.w),
                phase.inputs[m.graph.inputs[2]]: sluice.constant(m.b)})
            stored = sluice.host_store(sluice.remote_load(buffer, last), "stored")
        xs = np.stack([m.x * i for i in range(self.steps)])
        results = sluice.Session(m.ir, threads=1).run({x: xs})
        np.testing.assert_allclose(results[y], np.tanh(xs @ m.w + m.b), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(results[stored], results[y][last])
        return phase, results[y]

    def test_modes_change_no_bits(self):
        results = []
        for mode in ["compute", "io", "io_overlapped"]:
            phase, y = self.phase(mode)
            self.assertEqual([phase.io_mode, phase.note], [mode, ""])
            self.assertTrue(phase.graph.name.endswith("__repeat_graph_subgraph(1)"))
            results.append(y)
        self.assertTrue(all(np.array_equal(y, results[0]) for y in results))

    def test_gradients_load_what_the_forward_phase_stores(self):
        m = Layer()
        info = transforms.autodiff(m.graph, grads_required=m.graph.inputs[:1])
        x_stream = m.ir.h2d_stream((2, 3), name="x")
        dy_stream, dx_stream = m.ir.h2d_stream((2, 4), name="dy"), m.ir.d2h_stream((2, 3))
        fwd, bwd, phases = transforms.batch_serialise_fwd_and_grad(
            info, m.graph.inputs[1:], self.steps,
            loads={m.graph.inputs[0]: x_stream, info.graph.inputs[0]: dy_stream},
            stores={info.graph.outputs[0]: dx_stream})
        with m.ir.main_graph:
            weights = {t: sluice.constant(a) for t, a in zip(m.graph.inputs[1:], (m.w, m.b))}
            for phase in (fwd, bwd):
                ops.call(phase.graph, 0, inputs_dict={
                    new: weights[old] for old, new in phase.inputs.items() if old in weights})
        self.assertEqual(phases.graph, bwd.graph)
        batch = [np.stack([a] * self.steps) for a in (m.x, m.dy)]
        results = sluice.Session(m.ir, threads=1).run(dict(zip((x_stream, dy_stream), batch)))
        for dx in results[dx_stream]:
            np.testing.assert_allclose(dx, m.grads[0], rtol=1e-4, atol=1e-5)

    def test_updates_and_rows(self):
        ir = sluice.Ir()
        graph = ir.create_graph(lambda x: x + x, *specs((2,)))
        source = ir.remote_buffer((2,))
        seen = []

        def add(variable, value):
            seen.append((variable.shape, value.shape))
            ops.add_(variable, value)

        phase = transforms.batch_serialise(
            graph, 2, rows=2,
            loads={graph.inputs[0]: transforms.BatchHandle(source, lambda row: row * 1)},
            updates=[transforms.BatchUpdate(graph.outputs[0], "total", *specs((2,)), add)])
        self.assertEqual(seen, [((2,), (2,))])
        self.assertEqual(source.entries, 4)
        with ir.main_graph:
            for i in range(4):
                sluice.remote_store(source, i, sluice.constant(np.full(2, i, np.float32)))
            total = sluice.variable(np.zeros(2), name="total")
            ops.call(phase.graph, 1, inputs_dict={phase.updated["total"]: total})
        session = sluice.Session(ir, threads=1)
        session.run()
        np.testing.assert_array_equal(session.read(total), [10, 10])

    def test_each_iteration_has_a_seed(self):
        ir = sluice.Ir()

        def noisy(seed, x):
            return ops.random_normal(seed, shape=(4,)) + x

        graph = ir.create_graph(noisy, sluice.TensorSpec((2,), sluice.uint32), *specs((4,)))
        y = ir.d2h_stream((4,), name="y")
        phase = transforms.batch_serialise(graph, 2, stores={graph.outputs[0]: y},
                                           seed_input=graph.inputs[0])
        self.assertEqual([t.name for t in phase.graph.inputs[:2]],
                         ["batch_serial_loop_index", "batch_serial_random_seed"])
        with ir.main_graph:
            ops.call(phase.graph, 0, np.array([3, 4], np.uint32), np.zeros(4, np.float32))
        first, second = sluice.Session(ir, threads=1).run()[y]
        self.assertFalse(np.array_equal(first, second))

    def test_replicas_store_shards(self):
        ir = sluice.Ir(replication=2)
        graph = ir.create_graph(lambda x: x + x, *specs((3,)))
        everyone = ir.replica_grouping()
        y, = graph.outputs
        buffer = transforms.batch_serial_buffer(y, 2, shard_group=everyone)
        self.assertEqual([buffer.shape, buffer.meta_shape], [(2,), (3,)])
        handle = transforms.BatchHandle(buffer, None, everyone)
        self.assertEqual(handle.shard_group, everyone)
        phase = transforms.batch_serialise(graph, 2, stores={y: handle})
        with ir.main_graph:
            ops.call(phase.graph, 0, np.arange(3, dtype=np.float32))
            shard = sluice.remote_load(buffer, 1)
            whole = sluice.host_store(ops.replicated_all_gather(shard), "whole")
        result = sluice.Session(ir, threads=1).run()[whole]
        np.testing.assert_array_equal(result, [[0, 2, 4]] * 2)

    def test_wrong_phases_are_refused(self):
        m = Layer()
        x, y = m.graph.inputs[0], m.graph.outputs[0]
        stream = m.ir.h2d_stream((2, 3), name="x")
        with self.assertRaises(sluice.UsageError):
            transforms.batch_serialise(m.graph, 0, {x: stream})
        with self.assertRaises(sluice.UsageError):
            transforms.batch_serialise(m.graph, 2, {y: m.ir.h2d_stream((2, 4), name="y")})
        with self.assertRaisesRegex(ValueError, "io mode: must be one of compute, io"):
            transforms.batch_serialise(m.graph, 2, {x: stream}, io_mode="x")
        with self.assertRaisesRegex(ValueError, "row must be an integer, None or a function"):
            transforms.BatchHandle(m.ir.remote_buffer((2, 3)), "x")
        with self.assertRaisesRegex(TypeError, "must be a stream or a BatchHandle, got int"):
            transforms.batch_serialise(m.graph, 2, {x: 1})
        with self.assertRaisesRegex(TypeError, "row: must be a Tensor, got int"):
            transforms.batch_serialise(m.graph, 2, {
                x: transforms.BatchHandle(m.ir.remote_buffer((2, 3)), lambda row: 1)})
        with self.assertRaisesRegex(ValueError, "is not stored"):
            transforms.batch_serialise(m.graph, 2, {x: stream}, {
                y: m.ir.d2h_stream((2, 4))}).buffer_of(y)


if __name__ == "__main__":
    unittest.main()
