"""Operators: values against numpy, signatures, words, documentation, indexing, errors."""

import inspect
import math
import os
import re
import sys
import typing
import unittest
from pathlib import Path

import numpy as np

import sluice
from sluice import ops

ROOT = Path(__file__).resolve().parents[2]

# Functions of the headers that are no operators of programs.
NOT_FOR_PROGRAMS = {
    "array_text", "at_call", "collective_group", "elementwise_op", "emit", "emit_one", "find_op",
    "fold_batch", "hyper_values", "hypers_of", "is_attention", "is_attention_grad", "matmul_shape",
    "register_op", "require_float", "require_hypers", "require_index", "scalar_arg", "word_of",
    "words_of",
}


def line():
    """Returns the caller's line as ops have it: "operators_test.py:12"."""
    frame = sys._getframe(1)
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def installed_functions():
    """Returns the names of the public functions in the installed headers of ops/."""
    names = set()
    for header in (ROOT / "cmake/installed_headers.txt").read_text().split():
        if not header.startswith("sluice/ops/") or not (ROOT / "src" / header).exists():
            continue
        text = (ROOT / "src" / header).read_text(encoding="utf-8")
        text = re.sub(r"namespace internal \{.*?\}  // namespace internal", "", text, flags=re.S)
        found = re.findall(
            r"^(?:inline |constexpr )*(?:std::)?[A-Z_a-z][\w:<>, ]*[&*]? (\w+)\(", text, flags=re.M)
        names.update(name for name in found if not name.endswith("_def"))
    return names


class Surface(unittest.TestCase):
    def test_every_public_function_of_the_headers_is_bound(self):
        names = installed_functions()
        self.assertGreater(len(names), 200)
        missing = {n for n in names - NOT_FOR_PROGRAMS if not hasattr(ops, n)}
        self.assertEqual(missing, set())

    def test_parts_of_other_operators_are_not_exported(self):
        definitions = sluice._core.operators()
        hidden = {op["name"] for op in definitions if not op["public"]}
        self.assertIn("gelu_grad", hidden)
        self.assertEqual(hidden & set(dir(ops)), set())
        self.assertEqual(len(definitions) - len(hidden), 165)

    def test_every_function_has_a_signature_and_a_docstring(self):
        for name in sorted(ops._operators.__all__):
            with self.subTest(name):
                function = getattr(ops, name)
                signature = inspect.signature(function)
                self.assertGreater(len(function.__doc__), 2)
                self.assertNotEqual(signature.return_annotation, inspect.Signature.empty)
                typing.get_type_hints(function)

    def test_signatures_have_the_defaults_of_the_options(self):
        def text(function):
            return str(inspect.signature(function)).replace("sluice._core.", "")

        self.assertIn("axis: int = -1", text(ops.softmax))
        self.assertEqual(inspect.signature(ops.elu).parameters["alpha"].default, 1.0)
        self.assertEqual(inspect.signature(ops.rms_norm).parameters["epsilon"].default, 2**-23)
        self.assertIs(inspect.signature(ops.onehot).parameters["classes"].default,
                      inspect.Parameter.empty)
        self.assertEqual(inspect.signature(ops.nll_loss).parameters["reduction"].default, "mean")
        self.assertEqual(inspect.signature(ops.conv).parameters["pad_type"].default, "explicit")
        self.assertEqual(inspect.signature(ops.adam_var_update).parameters[
            "max_weight_norm"].default, math.inf)

    def test_docstrings_explain_options(self):
        self.assertIn("axis: Axis to search; negative counts from the end.", ops.argmax.__doc__)
        self.assertIn("(C1)", ops.matmul.__doc__)
        self.assertIn("include_self: Whether the former element is a term too.",
                      ops.scatter_reduce.__doc__)


class Program(unittest.TestCase):
    """Computes all cases of a test in one program, and compares them with numpy."""

    def setUp(self):
        self.ir = sluice.Ir()
        self.cases = []
        rng = np.random.default_rng(7)
        self.a = rng.normal(size=(3, 4)).astype(np.float32)
        self.b = rng.normal(size=(3, 4)).astype(np.float32)
        self.p = np.abs(self.a) + np.float32(0.5)
        self.i = np.array([2, 0, 1, 1], np.int32)

    def expect(self, expected, f, *arrays):
        """Adds results of `f` on constants that must equal `expected`, an array or several."""
        with self.ir.main_graph:
            results = f(*(sluice.constant(x) for x in arrays))
            if not isinstance(results, (tuple, list)):
                results, expected = [results], [expected]
            stores = [sluice.host_store(r, f"out{len(self.cases)}_{k}")
                      for k, r in enumerate(results)]
        self.assertEqual(len(stores), len(expected))
        self.cases.append((sys._getframe(1).f_lineno, stores, expected))

    def check(self, rtol=2e-5, atol=2e-6):
        results = sluice.Session(self.ir, threads=1).run()
        for number, stores, expected in self.cases:
            for stream, value in zip(stores, expected):
                value = np.asarray(value)
                with self.subTest(line=number):
                    self.assertEqual(results[stream].shape, value.shape)
                    np.testing.assert_allclose(results[stream].astype(np.float64),
                                               value.astype(np.float64), rtol=rtol, atol=atol)


class Values(Program):
    def test_elementwise(self):
        a, b, p, e = self.a, self.b, self.p, self.expect
        e(a + b, ops.add, a, b)
        e(a - 2, lambda x: ops.sub(x, 2), a)
        e(2 / p, lambda x: ops.div(2, x), p)
        e(a * b[0], lambda x: ops.mul(x, b[0]), a)
        e(p**a, ops.pow, p, a)
        e(np.fmod(a, p), lambda x, y: x % y, a, p)
        e(np.remainder(a, p), ops.remainder, a, p)
        e(np.maximum(np.maximum(a, b), 0.25), lambda x, y: ops.maximum(x, y, 0.25), a, b)
        e(np.where(a > 0, a, 0.1 * a), lambda x: ops.leaky_relu(x, slope=0.1), a)
        e(np.where(a > 0, a, np.expm1(a)), ops.elu, a)
        e(a * a, ops.square, a)
        e(a * np.tanh(np.log1p(np.exp(a))), ops.mish, a)
        e(np.clip((a + 3) / 6, 0, 1), ops.hard_sigmoid, a)
        e(a * np.clip((a + 3) / 6, 0, 1), ops.hard_swish, a)
        e(np.clip(a, -0.5, 1), lambda x: ops.clip(x, -0.5, 1), a)
        e(np.arctan2(a, b), ops.atan2, a, b)
        e(np.where(a > 0, a, 7), lambda x: ops.where(ops.greater(x, 0), x, 7), a)
        e((a > 0) & (b > 0), lambda x, y: ops.greater(x, 0) & ops.greater(y, 0), a, b)
        e((a > 0) | (b > 0), lambda x, y: ops.greater(x, 0) | ops.greater(y, 0), a, b)
        e(~(a > 0), lambda x: ~ops.greater(x, 0), a)
        e(np.logical_and(a, np.array([0, 1, 0, 1])), lambda x: ops.logical_and(x, [0, 1, 0, 1]), a)
        e(a.astype(np.int32), lambda x: ops.cast(x, np.int32), a)
        e((np.arange(4) + 3) % 3, lambda x: ops.increment_mod(x, 3, 3), np.arange(4))
        e(abs(-a), lambda x: abs(-x), a)
        self.check()

    def test_shapes(self):
        a, e = self.a, self.expect
        c = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        e(c.reshape(4, 6), lambda t: ops.reshape(t, (4, -1)), c)
        e(c.reshape(2, 12), lambda t: ops.flatten(t, 1), c)
        e(c.reshape(-1), ops.flatten, c)
        e(c[None, :, None], lambda t: ops.unsqueeze(t, (0, 2)), c)
        e(c, lambda t: ops.squeeze(ops.unsqueeze(t, 1)), c)
        e(c, lambda t: ops.squeeze(ops.unsqueeze(t, 1), 1), c)
        e(np.broadcast_to(a, (2, 3, 4)), lambda t: ops.broadcast_to(t, (2, 3, 4)), a)
        e(np.broadcast_to(a, (2, 3, 4)), lambda t: ops.expand(t, (2, -1, -1)), a)
        e(c.sum((0, 1), keepdims=True)[0], lambda t: ops.reduce_to(t, (1, 4)), c)
        e(c.transpose(), ops.transpose, c)
        e(c.transpose(1, 2, 0), lambda t: ops.transpose(t, (1, 2, 0)), c)
        e(c.swapaxes(0, 2), lambda t: ops.swap_axes(t, 0, -1), c)
        e(c[:, 1:3], lambda t: ops.slice(t, 1, 3, axes=1), c)
        e(c[1:, ::-1], lambda t: ops.slice(t, [1, None], None, [None, -1]), c)
        e(c[:, 2], lambda t: ops.select(t, -1, 1), c)
        e(c[:, ::-1], lambda t: ops.flip(t, 1), c)
        e(np.flip(c), ops.flip, c)
        e(np.stack([a[:, k:k + 2] for k in (0, 1, 2)], 1), lambda t: ops.unfold(t, 1, 2, 1), a)
        e(np.concatenate([a, a], 1), lambda t: ops.concat([t, t], 1), a)
        e(np.stack([a, -a], 1), lambda t: ops.stack([t, -t], axis=1), a)
        e(np.split(a, 2, 1), lambda t: ops.split(t, 2, axis=1), a)
        e([a[:1], a[1:]], lambda t: ops.split(t, [1, 2]), a)
        e(3 * a, lambda t: ops.add_n([t, t, t]), a)
        e(np.tile(a, (2, 1)), lambda t: ops.tile(t, (2, 1)), a)
        e(np.roll(a, 1, 0), lambda t: ops.roll(t, 1, 0), a)
        e(np.roll(a, 5), lambda t: ops.roll(t, 5), a)
        e(np.pad(a, ((1, 0), (2, 1)), constant_values=3),
          lambda t: ops.pad(t, [(1, 0), (2, 1)], value=3), a)
        e(np.pad(a, ((1, 0), (2, 1)), "reflect"),
          lambda t: ops.pad(t, [(1, 0), (2, 1)], "reflect"), a)
        e(np.full((2, 2), 3), lambda: ops.init((2, 2), value=3))
        e(np.float32(1.5), lambda t: ops.scalar_like(t, 1.5), a)
        self.check()

    def test_reductions_and_order(self):
        a, e = self.a, self.expect
        e(a.sum(1), lambda t: ops.sum(t, 1), a)
        e(a.sum(), ops.sum, a)
        e(a.mean((0, 1), keepdims=True), lambda t: ops.mean(t, (0, 1), keepdims=True), a)
        e(a.var(0), lambda t: ops.var(t, 0), a)
        e(a.std(1, ddof=1), lambda t: ops.standard_deviation(t, 1, correction=1), a)
        e(np.linalg.norm(a, axis=1), lambda t: ops.norm(t, axes=1), a)
        e(np.abs(a).max(), lambda t: ops.norm(t, math.inf), a)
        e((a > 2).any(1), lambda t: ops.any(ops.greater(t, 2), 1), a)
        e((a > -9).all(), lambda t: ops.all(ops.greater(t, -9)), a)
        e(a.argmax(1), lambda t: ops.argmax(t, 1), a)
        e(a.argsort(1), ops.argsort, a)
        e([np.sort(a), a.argsort()], ops.sort, a)
        e([-np.sort(-a)[:, :2], (-a).argsort()[:, :2]], lambda t: ops.topk(t, 2), a)
        e([np.sort(a)[:, 1], a.argsort()[:, 1]], ops.median, a)
        e(a.cumsum(1), lambda t: ops.cumsum(t, 1), a)
        e(np.bincount(self.i, minlength=5), lambda t: ops.bincount(t, 5), self.i)
        e(np.histogram(a, 4, (-1, 1))[0], lambda t: ops.histogram(t, 4, -1, 1), a)
        self.check()

    def test_contractions_losses_and_norms(self):
        a, b, i, e = self.a, self.b, self.i[:3], self.expect
        probs = np.exp(a) / np.exp(a).sum(1, keepdims=True)
        loss = -np.log(probs[np.arange(3), i])
        onehot = np.eye(4, dtype=np.float32)[i]
        e(a @ b.T, lambda x, y: x @ y.T, a, b)
        e(a @ b.T, lambda x: ops.matmul(x, b, rhs_transposed=True), a)
        e(b.T @ a, lambda x: b.T @ x, a)
        e(probs, lambda t: ops.softmax(t, 1), a)
        e(loss.mean(), ops.cross_entropy, a, i)
        e(loss, lambda x, y: ops.cross_entropy(x, y, reduction="none"), a, i)
        e(loss[i != 1].mean(), lambda x, y: ops.nll_loss(x, y, ignore_index=1), probs, i)
        e([loss.sum(), 2 * (probs - onehot)],
          lambda x, y: ops.cross_entropy_with_grad(x, y, 2.0, reduction="sum"), a, i)
        e(onehot, lambda y: ops.onehot(y, np.array([0, 1], np.float32), 4), i)
        normed = (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5)
        w = np.arange(4, dtype=np.float32)
        e(normed, ops.layer_norm, a)
        e(normed * w + 1, lambda x, w: ops.layer_norm(x, w, ops.add(ops.mul(w, 0), 1)), a, w)
        e(a / np.sqrt((a * a).mean(1, keepdims=True) + 2**-23) * w, ops.rms_norm, a, w)
        columns = (a - a.mean(0)) / np.sqrt(a.var(0) + 1e-5)
        e([columns, a.mean(0), a.var(0)], ops.batch_norm, a)
        e((a - 1) / np.sqrt(4 + 1e-5),
          lambda x, m, v: ops.batch_norm_inference(x, None, None, m, v), a, 0 * w + 1, 0 * w + 4)
        x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
        e(x[:, :, 1::2, 1::2], lambda t: ops.max_pool(t, 2), x)
        e(x.reshape(1, 1, 2, 2, 2, 2).mean((3, 5)), lambda t: ops.average_pool(t, (2, 2)), x)
        e(x.mean((2, 3), keepdims=True), ops.global_average_pool, x)
        e(x.repeat(2, 2).repeat(2, 3), lambda t: ops.interpolate(t, (8, 8)), x)
        ones = np.ones((1, 1, 1, 1), np.float32)
        e(x[:, :, ::2, ::2], lambda t, k: ops.conv(t, k, stride=2, pad_type="valid"), x, ones)
        score = a @ b.T / 2
        weights = np.exp(score) / np.exp(score).sum(1, keepdims=True)
        e(weights @ b, lambda q, k: ops.attention(q, k, k), a, b)
        seen = np.tril(np.exp(score))
        e(seen / seen.sum(1, keepdims=True) @ b,
          lambda q, k: ops.attention(q, k, k, causal=True), a, b)
        self.check(rtol=2e-4, atol=1e-5)

    def test_data_movement(self):
        a, i, e = self.a, self.i, self.expect
        e(a[i], ops.gather, a, i)
        e(np.take_along_axis(a, i[:, None][:3], 1),
          ops.take_along_axis, a, i[:3, None])
        summed, largest = np.zeros_like(a), a.copy()
        for row, k in enumerate(i):
            summed[k] += 1
            largest[k] = np.maximum(largest[k], row)
        ones = np.ones((4, 4), np.float32)
        rows = np.arange(4, dtype=np.float32)[:, None] + 0 * ones
        e(summed + a, lambda t, s, k: ops.index_reduce(t, s, k, axis=0), a, ones, i)
        e(largest, lambda t, s, k: ops.index_reduce(t, s, k, 0, "max"), a, rows, i)
        self.check()

    def test_random_numbers_are_functions_of_the_seed(self):
        seed = np.array([1, 2], np.uint32)

        def numbers(s):
            one = ops.random_uniform(s, (3, 4), low=2, high=3)
            other = ops.random_uniform(ops.fold_seed(s, "layer/0"), 5)
            return [one, ops.random_uniform(s, (3, 4), 2, 3), other,
                    ops.random_uniform(ops.fold_seed(s, "layer/0"), 5),
                    ops.random_normal(ops.split_random_seed(s)[1], (3,), dtype="float16")]

        with self.ir.main_graph:
            stores = [sluice.host_store(t) for t in numbers(sluice.constant(seed))]
        results = sluice.Session(self.ir, threads=1).run()
        one, same, other, again, normal = (results[s] for s in stores)
        np.testing.assert_array_equal(one, same)
        np.testing.assert_array_equal(other, again)
        self.assertTrue(np.all((one >= 2) & (one < 3)) and len(set(one.flat)) == 12)
        self.assertEqual(normal.dtype, np.float16)

    def test_collectives_over_all_replicas(self):
        self.ir = sluice.Ir(replication=2)
        x = np.arange(4, dtype=np.float32)
        with self.ir.main_graph:
            t = sluice.constant(x)
            stores = [sluice.host_store(r) for r in (
                ops.replicated_all_reduce(t), ops.replicated_all_reduce(t, "max"),
                ops.replicated_reduce_scatter(t, "mean"), ops.replica_sharded_slice(t),
                ops.replicated_all_gather(t, arrangement="new_axis"), ops.replicated_slice(t))]
        results = sluice.Session(self.ir, threads=1).run()
        both = np.stack([x, x])
        for stream, value in zip(stores, (2 * both, both, x.reshape(2, 2), x.reshape(2, 2),
                                          np.stack([both, both]), x.reshape(2, 2))):
            np.testing.assert_array_equal(results[stream], value)


class Updates(unittest.TestCase):
    """Hyperparameters are numbers or scalar tensors."""

    def run_update(self, update, *first):
        """Returns the variable after update(variable, x, f) with f as a number and as a tensor."""
        x = np.array([1, -2, 3], np.float32)
        values = []
        for as_tensor in (False, True):
            ir = sluice.Ir()
            with ir.main_graph:
                t = sluice.variable(np.array([4, 5, 6], np.float32))
                f = sluice.constant(np.float32(0.25)) if as_tensor else 0.25
                update(t, sluice.constant(x), f)
            session = sluice.Session(ir, threads=1)
            session.run()
            values.append(session.read(t))
        np.testing.assert_array_equal(*values)
        return values[0]

    def test_updates_with_numbers_and_tensors(self):
        t, x, f = np.array([4, 5, 6.0]), np.array([1, -2, 3.0]), 0.25
        for update, expected in (
                (ops.accumulate_, t + f * x),
                (ops.accumulate_square_, t + f * x * x),
                (ops.accumulate_mean_, f / (f + 1) * t + x / (f + 1)),
                (ops.accumulate_moving_average_, f * t + (1 - f) * x),
                (ops.accumulate_moving_average_square_, f * t + (1 - f) * x * x),
                (ops.accumulate_infinity_, np.maximum(f * t, np.abs(x))),
                (lambda t, x, f: ops.scaled_add_(t, x, b=f), t + f * x),
                (lambda t, x, f: ops.accumulator_scale_(t, f), f * t),
                (lambda t, x, f: ops.accumulator_zero_(t), 0 * t),
                (lambda t, x, f: ops.copy_var_update_(t, ops.scaled_add(t, x, f, 2)),
                 f * t + 2 * x)):
            with self.subTest(getattr(update, "__name__", "")):
                np.testing.assert_allclose(self.run_update(update), expected, rtol=1e-6)

    def test_adam_updater_increments_its_time_step(self):
        m, v = np.array([1, 2], np.float32), np.array([4, 9], np.float32)
        ir = sluice.Ir()
        with ir.main_graph:
            step = sluice.variable(np.float32(0))
            beta2 = sluice.constant(np.float32(0.75))
            u = ops.adam_updater(sluice.constant(m), sluice.constant(v), time_step=step,
                                 beta1=0.5, beta2=beta2)
            out = sluice.host_store(u)
        session = sluice.Session(ir, threads=1)
        u = session.run()[out]
        np.testing.assert_allclose(u, (m / 0.5) / (np.sqrt(v / 0.25) + 1e-7), rtol=1e-6)
        self.assertEqual(session.read(step), 1)
        with ir.create_empty_graph("g") as g:
            t = g.input((2,))
            with self.assertRaisesRegex(sluice.UsageError, "weight_decay requires weight"):
                ops.adam_updater(t, t, weight_decay=0.1)


class Indexing(Program):
    def test_basic_indexing(self):
        c, e = np.arange(60, dtype=np.float32).reshape(3, 4, 5), self.expect
        for key in (0, -1, slice(1, 3), slice(None), slice(None, None, -1), slice(0, 3, 2),
                    (1, 2), (1, 2, 3), (slice(1, None), -2), (slice(None), slice(1, 3), 0),
                    (2, slice(None, None, 2)), np.int64(1), ()):
            e(c[key], lambda t, key=key: t[key], c)
        self.check(0, 0)

    def test_arrays_gather_and_masks_keep_the_shape(self):
        a, e = self.a, self.expect
        e(a[[2, 0]], lambda t: t[[2, 0]], a)
        e(a[[-1, 0]], lambda t: t[np.array([-1, 0])], a)
        e(a[np.array([[0, 1], [2, 2]])], lambda t: t[np.array([[0, 1], [2, 2]])], a)
        e(a[self.i], lambda t, i: t[i], a, self.i)
        e(np.where(a > 0, a, 0), lambda t: t[ops.greater(t, 0)], a)
        e(np.where(a[0] > 0, a, 0), lambda t: t[a[0] > 0], a)
        e(np.where([True, False, True, True], a, 0), lambda t: t[[True, False, True, True]], a)
        self.check(0, 0)

    def test_methods(self):
        a, e = self.a, self.expect
        e(a.T, lambda t: t.T, a)
        e(a.T, lambda t: t.transpose(), a)
        e(a.T, lambda t: t.transpose((1, 0)), a)
        e(a.reshape(2, 6), lambda t: t.reshape((2, -1)), a)
        e(a.reshape(-1), lambda t: t.flatten(), a)
        e(a, lambda t: t.detach(), a)
        e(np.diag(a[:3, :3]), lambda t: t[:, :3].diag(), a)
        e(self.b - a, lambda t: self.b - t, a)
        e([1, 2, 3, 4] / self.p, lambda t: [1, 2, 3, 4] / t, self.p)
        self.check()
        with self.ir.create_empty_graph("g") as g:
            t = g.input((3, 4))
            self.assertEqual(len(t), 3)
            self.assertEqual(t.strides(), (4, 1))
            self.assertEqual(t.strides((2, 3, 4)), (12, 4, 1))
            self.assertEqual(t[:], t)
            self.assertEqual(t.ir.id, self.ir.id)
            with self.assertRaises(TypeError):
                1.0 in t  # noqa: B015
            with self.assertRaises(ValueError):
                len(g.input(()))

    def test_a_view_shares_its_storage(self):
        ir = sluice.Ir()
        with ir.main_graph:
            t = sluice.variable(np.zeros((2, 3), np.float32))
            view = t.T_
            view += np.arange(6).reshape(3, 2)
            flat = t.flatten_()
            flat += 1
        session = sluice.Session(ir, threads=1)
        session.run()
        np.testing.assert_array_equal(session.read(t), np.arange(6).reshape(3, 2).T + 1)

    def test_other_keys_are_refused(self):
        with self.ir.create_empty_graph("g") as g:
            t = g.input((3, 4))
            for key in (None, ..., True, "a", 1.5, (1, None), (0, [1, 2]), (slice(None), ...)):
                with self.subTest(key=key):
                    with self.assertRaisesRegex(sluice.ArgumentTypeError, "an index must be"):
                        t[key]
            for key, text in ((3, r"index must be in \[-3, 3\) on axis 0"),
                              ((0, -5), r"index must be in \[-4, 4\) on axis 1"),
                              ((0, 0, 0), "at most 2 indices"), ([3], r"must be in \[-3, 3\)")):
                with self.assertRaisesRegex(sluice.UsageError, text):
                    t[key]


class Errors(unittest.TestCase):
    def setUp(self):
        self.graph = sluice.Ir().create_empty_graph("g")
        self.ir = self.graph.ir
        self.x = self.graph.input((2, 3), name="x")

    def test_errors_name_the_line_of_the_program(self):
        x = self.x
        for refused in (lambda: ops.softmax(x, 5), lambda: ops.concat([x, x[0]]),
                        lambda: x.reshape((7, 1)) @ x, lambda: ops.layer_norm(x, x),
                        lambda: x + np.ones((4, 3)), lambda: ops.accumulate_(x, x[0])):
            with self.assertRaises(sluice.UsageError) as caught:
                refused()
            if "reshape" not in str(caught.exception):
                self.assertIn(f"at operators_test.py:{refused.__code__.co_firstlineno}",
                              str(caught.exception))

    def test_ops_of_composites_have_the_line_of_the_program(self):
        here = line(); ops.mish(self.x)[0].T  # noqa: E702
        self.assertEqual(set(self.graph.lines()), {here})
        self.assertGreater(len(self.graph.lines()), 4)

    def test_words_are_checked(self):
        x = self.x
        labels = self.graph.input((2,), sluice.int32)
        for refused, text in (
                (lambda: ops.nll_loss(x, labels, reduction="avg"),
                 "nll_loss: reduction: must be mean, sum or none, got 'avg'"),
                (lambda: ops.pad(x, [(0, 0), (1, 1)], "mirror"),
                 "pad: mode: must be constant, reflect, replicate or circular, got 'mirror'"),
                (lambda: ops.max_pool(x, 2, pad_type="same"), "max_pool: pad_type: must be explicit"
                 ", same_upper, same_lower or valid, got 'same'"),
                (lambda: ops.replicated_all_reduce(x, "local"), "op must be add")):
            with self.assertRaisesRegex(sluice.UsageError, re.escape(text)):
                refused()

    def test_wrong_types_are_refused(self):
        x = self.x
        for refused, text in (
                (lambda: ops.softmax(x, "a"), "softmax: axis: must be an integer, got str"),
                (lambda: ops.softmax(x, 1.0), "softmax: axis: must be an integer, got float"),
                (lambda: ops.clip(x, min="a"), "clip: min: must be a number, got str"),
                (lambda: ops.sum(x, axes="0"),
                 "sum: axes: must be an integer or a list of integers, got str"),
                (lambda: ops.scatter_reduce(x, x, x, reduction=1),
                 "scatter_reduce: reduction: must be a word, got int"),
                (lambda: ops.add(1, 2), "add: at least one operand must be a tensor"),
                (lambda: ops.add(x, "1"),
                 "add: operand 1: must be a tensor, a number or an array, got str")):
            with self.assertRaisesRegex(sluice.ArgumentTypeError, re.escape(text)):
                refused()
        for refused in (lambda: x + "a", lambda: x + None, lambda: ops.squeeze(1),
                        lambda: ops.reshape(x, x), lambda: ops.onehot(x, x)):
            with self.assertRaises(TypeError):
                refused()

    def test_numbers_that_the_dtype_cannot_hold_are_refused(self):
        i = self.graph.input((2,), sluice.int32)
        with self.assertRaisesRegex(sluice.UsageError, "cast"):
            i + 0.5


if __name__ == "__main__":
    unittest.main()
