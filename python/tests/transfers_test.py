"""Transfers and replicas: remote buffers, feeds, groups, collectives, shards."""

import os
import sys
import unittest

import numpy as np

import sluice
from sluice import ops


def line():
    """Returns the caller's line as ops have it: "transfers_test.py:12"."""
    frame = sys._getframe(1)
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def ones(*shape):
    return np.ones(shape, np.float32)


def run(ir, inputs=None, **options):
    """Runs the main program on one thread."""
    return sluice.Session(ir, threads=1, **options).run(inputs or {})


class Remote(unittest.TestCase):
    def test_entries_are_stored_and_loaded(self):
        ir = sluice.Ir()
        buffer = ir.remote_buffer((3,), sluice.float32, entries=2)
        x = ir.h2d_stream((3,), name="x")
        with ir.main_graph:
            sluice.remote_store(buffer, 0, sluice.host_load(x))
            loaded = sluice.remote_load(buffer, 0)
            row = sluice.constant(np.int32(1))
            sluice.remote_store(buffer, row, loaded + loaded)
            sluice.remote_load_(buffer, row, loaded)
            out = sluice.host_store(loaded, "out")
        np.testing.assert_array_equal(run(ir, {x: ones(3)})[out], [2, 2, 2])
        self.assertEqual([buffer.id, buffer.entries, buffer.shape, buffer.meta_shape],
                         [1, 2, (3,), ()])
        buffer.grow(5)
        self.assertEqual(buffer.entries, 5)
        self.assertEqual(repr(buffer), "RemoteBuffer[1 f32[3] entries=5]".replace(
            "f32[3]", repr(buffer.spec)[len("TensorSpec["):-1]))
        with self.assertRaisesRegex(ValueError, "entries must be a positive integer, got 0"):
            ir.remote_buffer((3,), entries=0)
        with ir.main_graph:
            with self.assertRaises(ValueError):
                sluice.remote_store(buffer, 0, sluice.constant(ones(4)))
            with self.assertRaisesRegex(TypeError, "entry: must be an integer or a tensor"):
                sluice.remote_load(buffer, "first")

    def test_a_remote_variable_lives_in_its_buffer(self):
        ir = sluice.Ir()
        buffer = ir.remote_buffer((2,), entries=2)
        with ir.main_graph:
            v = sluice.remote_variable([1.0, 2.0], buffer, 1, name="v")
            x = sluice.remote_load(buffer, 1)
            sluice.remote_store(buffer, 1, x + x)
        session = sluice.Session(ir, threads=1)
        session.run()
        np.testing.assert_array_equal(session.read(v), [2, 4])
        session.write(v, np.array([5, 6], np.float32))
        session.run()
        np.testing.assert_array_equal(session.read("v"), [10, 12])
        with ir.main_graph:
            with self.assertRaisesRegex(ValueError, "remote_variable 'w': must be .* got"):
                sluice.remote_variable(ones(3), buffer, name="w")
            with self.assertRaisesRegex(ValueError, r"entry must be in \[0, 2\), got 2"):
                sluice.remote_variable(ones(2), buffer, 2, name="w")

    def test_feeds_are_declared(self):
        ir = sluice.Ir()
        infeed = ir.infeed("images", {"x": ((2,), "float32"),
                                      "y": sluice.TensorSpec((), sluice.int32)}, prefetch_depth=2)
        outfeed = ir.outfeed("results", {"z": ((2,), sluice.float32)})
        self.assertEqual(list(infeed.fields), ["x", "y"])
        self.assertEqual([s.name for s in infeed.streams], ["images.x", "images.y"])
        with ir.main_graph as main:
            element = sluice.dequeue(infeed)
            self.assertEqual(list(element), ["x", "y"])
            self.assertEqual(element["y"].dtype, sluice.int32)
            sluice.enqueue(outfeed, {"z": element["x"]})
            with self.assertRaises(ValueError):
                sluice.enqueue(outfeed, {"w": element["x"]})

            def body(total, x, y):
                return total + x

            total, = ops.repeat(body, 3, sluice.constant(np.zeros(2)), infeed=infeed)
        self.assertEqual(total.shape, (2,))
        self.assertIn("Loop", main.print_schedule())
        with self.assertRaisesRegex(ValueError, "1 to 255|255"):
            ir.infeed("deep", {"x": ((), "float32")}, prefetch_depth=256)


class Replicas(unittest.TestCase):
    def test_groupings(self):
        ir = sluice.Ir(replication=8)
        self.assertEqual(ir.replica_grouping(2, 2).assignment, [0, 1, 0, 1, 2, 3, 2, 3])
        self.assertEqual(ir.replica_grouping(2).assignment, [0, 1] * 4)
        pairs = ir.replica_grouping(1, 2)
        self.assertEqual([pairs.stride, pairs.group_size, pairs.num_groups, pairs.num_replicas],
                         [1, 2, 4, 8])
        self.assertEqual(repr(pairs), "ReplicaGrouping(num_replicas=8, stride=1, group_size=2, "
                         "num_groups=4)")
        self.assertEqual(pairs.transpose().assignment, [0, 1] * 4)
        self.assertEqual(pairs.members(1), [2, 3])
        self.assertEqual(pairs.group_of(7), 3)
        mixed = ir.replica_grouping_from_assignments([0, 1, 1, 0, 2, 3, 3, 2])
        self.assertFalse(mixed.is_const)
        self.assertTrue(mixed.const_rg.is_const)
        self.assertEqual(len(mixed.to_host_map()), 4)
        self.assertEqual(len(mixed.to_device_map()), mixed.const_rg.num_groups)
        self.assertEqual(pairs, ir.replica_grouping(1, 2))
        self.assertNotEqual(pairs, mixed)
        with self.assertRaises(ValueError):
            mixed.stride  # noqa: B018: reads the property
        with self.assertRaises(ValueError):
            ir.replica_grouping(3, 2)
        with self.assertRaisesRegex(ValueError, "2 replicas are assigned, the program has 8"):
            ir.replica_grouping_from_assignments([0, 0])
        with self.assertRaisesRegex(ValueError, "a replica grouping relies on it"):
            ir.replication = 4

    def test_collectives(self):
        ir = sluice.Ir(replication=4)
        pairs = ir.replica_grouping(1, 2)
        stream = ir.h2d_stream((2,), name="x")
        with ir.main_graph as main:
            x = sluice.host_load(stream)
            gathered = {
                "sum": ops.replicated_all_reduce(x),
                "mean": ops.replicated_all_reduce(x, "mean", pairs),
                "chunk": ops.replicated_reduce_scatter(x, group=pairs),
                "local": ops.replicated_reduce_scatter(x, "local", pairs),
                "concat": ops.replicated_all_gather(x, group=pairs),
                "stack": ops.replicated_all_gather(x, group=pairs, arrangement="new_axis"),
                "part": ops.replicated_slice(x, 0, pairs)}
            shard = ops.replica_sharded_slice(gathered["sum"], pairs)
            self.assertEqual(shard.meta_shape, (2,))
            scattered = ops.replicated_reduce_scatter(x, group=pairs, sharded=True)
            self.assertEqual(scattered.meta_shape, (2,))
            gathered["whole"] = ops.replicated_all_gather(shard, group=pairs)
            here = line(); ops.collectives.replicated_all_reduce_(x, "max")  # noqa: E702
            self.assertEqual(main.lines()[-1], here)
            gathered["max"] = x
            outs = {k: sluice.host_store(t, k) for k, t in gathered.items()}
            with self.assertRaisesRegex(ValueError, "must be add, mean, mul, .*got 'sum'"):
                ops.replicated_all_reduce(x, "sum")
        x = np.arange(8, dtype=np.float32).reshape(4, 2)
        results = run(ir, {stream: x})
        got = {k: results[out] for k, out in outs.items()}
        by_pair = x.reshape(2, 2, 2)
        np.testing.assert_array_equal(got["sum"], np.tile(x.sum(0), (4, 1)))
        np.testing.assert_array_equal(got["mean"], by_pair.mean(1).repeat(2, 0))
        np.testing.assert_array_equal(got["chunk"], by_pair.sum(1).reshape(4, 1))
        np.testing.assert_array_equal(got["local"], [[0], [3], [4], [7]])
        np.testing.assert_array_equal(got["concat"], x.reshape(2, 4).repeat(2, 0))
        np.testing.assert_array_equal(got["stack"], by_pair.repeat(2, 0))
        np.testing.assert_array_equal(got["part"].ravel(), [0, 3, 4, 7])
        np.testing.assert_array_equal(got["whole"], np.tile(x.sum(0), (4, 1)))
        np.testing.assert_array_equal(got["max"], np.tile(x.max(0), (4, 1)))

    def test_groups_of_replicas_hold_their_own_values(self):
        ir = sluice.Ir(replication=4)
        pairs = ir.replica_grouping(1, 2)
        with ir.main_graph:
            v = sluice.variable([[1.0, 2.0], [3.0, 4.0]], name="v", grouping=pairs)
            self.assertEqual(v.shape, (2,))
            out = sluice.host_store(v, "out")
            with self.assertRaisesRegex(ValueError, "first axis must have the 2 groups"):
                sluice.variable(ones(3, 2), name="w", grouping=pairs)
        session = sluice.Session(ir, threads=1)
        np.testing.assert_array_equal(session.run()[out], [[1, 2], [1, 2], [3, 4], [3, 4]])
        np.testing.assert_array_equal(session.read(v), [[1, 2], [3, 4]])

    def test_shards_are_read_and_written_whole(self):
        value = np.arange(5, dtype=np.float32)
        ir = sluice.Ir(replication=2)
        buffer = ir.sharded_buffer((5,))
        self.assertEqual([buffer.shape, buffer.meta_shape], [(3,), (5,)])
        with ir.main_graph:
            v = sluice.sharded_variable(value, name="v")
            r = sluice.remote_variable(value, buffer, name="r")
            self.assertEqual([v.shape, v.meta_shape], [(3,), (5,)])
            ops.add_(v, sluice.remote_load(buffer))
            out = sluice.host_store(v, "out")
        session = sluice.Session(ir, threads=1)
        np.testing.assert_array_equal(session.run()[out], [[0, 2, 4], [6, 8, 0]])
        np.testing.assert_array_equal(session.read(v), 2 * value)
        np.testing.assert_array_equal(session.read(r), value)
        session.write(r, value + 1)
        session.write("v", value)
        session.run()
        np.testing.assert_array_equal(session.read("v"), 2 * value + 1)
        self.assertEqual(session.variables["r"].shape, (5,))
        with self.assertRaisesRegex(ValueError, "shards must divide the 2 replicas"):
            ir.sharded_buffer((5,), shards=3)


if __name__ == "__main__":
    unittest.main()
