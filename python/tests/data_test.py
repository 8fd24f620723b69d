"""Datasets, loaders and feeds: order and values against plain Python, sources, errors."""

import collections
import csv
import math
import os
import struct
import tempfile
import unittest

import numpy as np

import sluice
from sluice import data

try:
    import pandas
except ImportError:
    pandas = None
try:
    import torch
    import torch.utils.data
except ImportError:
    torch = None


def count(n):
    """Returns the dataset 0, 1, …, n - 1."""
    return data.from_tensors(np.arange(n, dtype=np.float32))


def values(dataset):
    """Returns the elements as lists of Python."""
    return [e.tolist() for e in dataset]


class Elements(unittest.TestCase):
    def test_an_element_is_an_array_a_tuple_or_a_dict(self):
        x, y = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([7, 8, 9], np.int32)
        self.assertEqual([e.tolist() for e in data.from_tensors(x)], x.tolist())
        pairs = list(data.from_tensors((x, y)))
        self.assertIsInstance(pairs[1], tuple)
        self.assertEqual((pairs[1][0].tolist(), int(pairs[1][1])), ([2, 3], 8))
        named = list(data.from_tensors({"x": x, "y": y}))
        self.assertEqual(list(named[2]), ["x", "y"])
        self.assertEqual(named[2]["x"].tolist(), [4, 5])

    def test_dtypes_become_those_of_devices(self):
        for given, kept in ((np.float64, "float32"), (np.int64, "int32"), (np.int8, "int32"),
                            (np.uint16, "int32"), (np.uint8, "uint8"), (np.bool_, "bool"),
                            (np.float16, "float16"), (np.uint32, "uint32")):
            element = next(iter(data.from_tensors(np.array([1, 0], given))))
            self.assertEqual(element.dtype.name, kept, given)
            self.assertEqual(element, 1)
        with self.assertRaisesRegex(sluice.UsageError, "range of int32, got 2147483648"):
            data.from_tensors(np.array([1 << 31]))

    def test_numbers_lists_and_named_tuples(self):
        Point = collections.namedtuple("Point", "x y")
        made = list(data.dataset([1, 2.5, [1, 2], [np.zeros(2), np.ones(1)], Point(1, [2, 3])]))
        self.assertEqual((made[0].dtype.name, int(made[0])), ("int32", 1))
        self.assertEqual((made[1].dtype.name, float(made[1])), ("float32", 2.5))
        self.assertEqual(made[2].tolist(), [1, 2])
        self.assertEqual([a.tolist() for a in made[3]], [[0, 0], [1]])
        self.assertEqual({k: v.tolist() for k, v in made[4].items()}, {"x": 1, "y": [2, 3]})

    def test_other_values_are_refused(self):
        for value, text in (("a", "got str"), (None, "got NoneType"), ({"x": None}, "field 'x'"),
                            ({1: 2}, "names of fields must be str, got int"),
                            ((1, (2, 3)), "array 1 of the element: .* got tuple"),
                            (np.array(["a"]), "array of numbers")):
            with self.assertRaisesRegex(sluice.UsageError, text):
                list(data.dataset([value]))

    def test_elements_own_their_memory(self):
        element = next(iter(count(3).batch(3)))
        element += 1
        self.assertEqual(element.tolist(), [1, 2, 3])
        self.assertEqual(values(count(3)), [0, 1, 2])


class Sources(unittest.TestCase):
    def test_functions_and_generators(self):
        squares = data.from_function(4, lambda k: np.float32(k * k))
        self.assertEqual(values(squares), [0, 1, 4, 9])
        self.assertEqual(len(squares), 4)

        def make():
            for k in range(3):
                yield np.float32(k), np.int32(-k)

        made = data.from_generator(make)
        for _ in range(2):
            self.assertEqual([int(b) for _, b in made], [0, -1, -2])
        self.assertIsNone(made.size)

    def test_iterables_are_read_anew_in_each_pass(self):
        class Words:
            passes = 0

            def __iter__(self):
                self.passes += 1
                return iter(np.arange(3))

        words = Words()
        dataset = data.dataset(words)
        self.assertEqual(values(dataset.repeat(2)), [0, 1, 2, 0, 1, 2])
        self.assertEqual(words.passes, 2)

    def test_an_iterator_has_one_pass(self):
        dataset = data.dataset(iter([1, 2]))
        self.assertEqual(values(dataset), [1, 2])
        with self.assertRaisesRegex(sluice.UsageError, "can be read once"):
            list(dataset)

    def test_sequences_are_indexed(self):
        class Squares:
            def __len__(self):
                return 100

            def __getitem__(self, k):
                return {"x": np.float32(k * k)}

        loader = data.BatchLoader(data.dataset(Squares()), batch=10, workers=2, seed=1)
        seen = sorted(v for item in loader for v in item["x"].tolist())
        self.assertEqual(seen, [k * k for k in range(100)])

    def test_wrong_sources_are_refused(self):
        for source in (3, None, "file.npy"):
            with self.assertRaises(TypeError):
                data.dataset(source)

    def test_wrong_arguments_are_refused(self):
        with self.assertRaisesRegex(sluice.UsageError, "must be Dataset, got list"):
            data.zip(count(2), [1, 2])
        for call in (lambda: count(2).pad(4, [1.5]), lambda: count(2).batch("2"),
                     lambda: count(2).bucket_by_length([("a", 1)], [0])):
            with self.assertRaises(TypeError):
                call()
        ir = sluice.Ir()
        feed = ir.outfeed("out", {"y": sluice.TensorSpec((), sluice.float32)})
        with ir.main_graph as main:
            main.enqueue(feed, {"y": sluice.constant(1.0)})
        session = sluice.Session(ir, threads=1)
        with self.assertRaisesRegex(sluice.UsageError, "an Infeed or an Outfeed, got str"):
            session.bind_feed("out", print)
        with self.assertRaisesRegex(sluice.UsageError, "OutfeedQueue or a function, got int"):
            session.bind_feed(feed, 3)

    def test_specs_are_checked(self):
        spec = sluice.TensorSpec((2,), sluice.float32)
        dataset = data.dataset(lambda: iter([np.zeros(2), np.zeros(3)]), specs={"x": spec})
        self.assertEqual(dataset.specs["x"], spec)
        with self.assertRaisesRegex(sluice.UsageError, "element 0"):
            list(dataset)

    @unittest.skipUnless(pandas, "requires pandas (pip install pandas)")
    def test_data_frames(self):
        frame = pandas.DataFrame({"a": [1.5, 2.5], "b": [3, 4], "c": [True, False]})
        rows = list(data.dataset(frame))
        self.assertEqual({k: v.tolist() for k, v in rows[1].items()},
                         {"a": 2.5, "b": 4, "c": False})
        rows = list(data.from_dataframe(frame, {"x": ["a", "b"], "y": "c"}))
        self.assertEqual(rows[0]["x"].tolist(), [1.5, 3])
        self.assertEqual(values(data.dataset(frame["b"])), [3, 4])
        with self.assertRaisesRegex(sluice.UsageError, "one of a, b, c, got 'd'"):
            data.from_dataframe(frame, {"x": "d"})
        with self.assertRaisesRegex(sluice.UsageError, "column 'n' must have numbers"):
            data.dataset(pandas.DataFrame({"n": ["x"]}))

    @unittest.skipUnless(torch, "requires PyTorch (pip install torch)")
    def test_torch_datasets_and_loaders(self):
        x, y = torch.arange(12.0).reshape(6, 2), torch.arange(6)
        tensors = torch.utils.data.TensorDataset(x, y)
        pairs = list(data.dataset(tensors))
        self.assertEqual(len(pairs), 6)
        self.assertEqual((pairs[5][0].tolist(), int(pairs[5][1])), ([10, 11], 5))
        batches = list(data.dataset(torch.utils.data.DataLoader(tensors, batch_size=4)))
        self.assertEqual([b[0].shape for b in batches], [(4, 2), (2, 2)])

        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(torch.arange(3))

        self.assertEqual(values(data.dataset(Stream())), [0, 1, 2])


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.rng = np.random.default_rng(1)

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_npy_and_npz(self):
        x = self.rng.normal(size=(5, 3)).astype(np.float32)
        np.save(self.path("x.npy"), x)
        np.testing.assert_array_equal(np.stack(list(data.from_npy(self.path("x.npy")))), x)
        np.savez(self.path("a.npz"), x=x, y=np.arange(5))
        rows = list(data.from_npz(self.path("a.npz"), ["y", "x"]))
        self.assertEqual((list(rows[3]), int(rows[3]["y"])), (["y", "x"], 3))
        data.write_npz(self.path("b.npz"), {"x": x}, {"names": ["é", "b"]})
        with np.load(self.path("b.npz")) as file:
            np.testing.assert_array_equal(file["x"], x)
            self.assertEqual(file["names"].tolist(), ["é", "b"])

    def test_safetensors(self):
        x = np.arange(6, dtype=np.float32)
        header = b'{"x":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]}}'
        with open(self.path("a.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + x.tobytes())
        rows = list(data.from_safetensors(self.path("a.safetensors"), ["x"]))
        self.assertEqual([r["x"].tolist() for r in rows], [[0, 1], [2, 3], [4, 5]])
        with self.assertRaisesRegex(sluice.UsageError, "x"):
            data.from_safetensors(self.path("a.safetensors"), ["y"])

    def test_idx(self):
        pixels = self.rng.integers(0, 256, (3, 28, 28)).astype(np.uint8)
        for name, array in (("i", pixels), ("l", np.array([1, 2, 3], np.uint8))):
            with open(self.path(name), "wb") as file:
                file.write(struct.pack(">I", 0x800 + array.ndim))
                file.write(struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes())
        rows = list(data.from_idx(self.path("i"), self.path("l"), raw=True))
        np.testing.assert_array_equal(rows[1]["image"], pixels[1])
        self.assertEqual(int(rows[2]["label"]), 3)
        row = next(iter(data.from_idx(self.path("i"), self.path("l"))))
        np.testing.assert_allclose(row["image"], (pixels[0] / 255 - 0.1307) / 0.3081, rtol=1e-4,
                                   atol=1e-5)

    def test_csv(self):
        with open(self.path("t.csv"), "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["w", "h", "kind"], [1.5, 2, 0], [3, 4.5, 1]])
        path = self.path("t.csv")
        self.assertEqual(data.csv_columns(path), ["w", "h", "kind"])
        self.assertEqual([r.tolist() for r in data.from_csv(path)], [[1.5, 2, 0], [3, 4.5, 1]])
        rows = list(data.from_csv(path, {"x": ["h", 0], "y": ("kind", sluice.int32)}))
        self.assertEqual(rows[0]["x"].tolist(), [2, 1.5])
        self.assertEqual((rows[1]["y"].dtype.name, int(rows[1]["y"])), ("int32", 1))
        with self.assertRaisesRegex(sluice.UsageError, "depth"):
            data.from_csv(path, {"x": "depth"})
        with open(path, "a", encoding="utf-8") as file:
            file.write("1,x,2\n")
        with self.assertRaisesRegex(sluice.BadFileError, "line 4"):
            list(data.from_csv(path))

    def test_missing_files(self):
        with self.assertRaises(OSError):
            data.from_npy(self.path("none.npy"))

    def test_tokens(self):
        ids = np.arange(100, dtype=np.uint16)
        ids.tofile(self.path("t.bin"))
        tokens = data.tokens_file(self.path("t.bin"), vocabulary=100)
        self.assertEqual((len(tokens), tokens.vocabulary), (100, 100))
        self.assertEqual(tokens.read(5, 8).tolist(), [5, 6, 7])
        training, test = tokens.split(20)
        self.assertEqual((len(training), test.read()[0]), (80, 80))
        windows = list(data.consecutive_windows(training, 16))
        self.assertEqual(len(windows), 4)
        self.assertEqual(windows[1]["input"].tolist(), list(range(16, 32)))
        self.assertEqual(windows[1]["target"].tolist(), list(range(17, 33)))
        drawn = list(data.random_windows(tokens, 8, seed=3).take(20))
        for window in drawn:
            self.assertEqual(window["target"].tolist(), (window["input"] + 1).tolist())
        self.assertGreater(len({int(w["input"][0]) for w in drawn}), 5)
        with self.assertRaises(sluice.UsageError):
            data.Tokens([1, 2, 300], 256)

    def test_texts(self):
        with open(self.path("t.txt"), "w", encoding="utf-8") as file:
            file.write("déjà vu")
        tokenizer, tokens = data.text_tokens(self.path("t.txt"))
        self.assertEqual(tokenizer.vocabulary_size, len(set("déjà vu")))
        self.assertEqual(tokenizer.decode(tokens.read()), "déjà vu")
        self.assertEqual(tokenizer.decode(tokenizer.encode("vu")), "vu")
        tokenizer, tokens = data.text_tokens(self.path("t.txt"), bytes=True)
        self.assertEqual(tokens.read().tolist(), list("déjà vu".encode()))


class Combinators(unittest.TestCase):
    def test_map(self):
        self.assertEqual(values(count(4).map(lambda e: e * 2)), [0, 2, 4, 6])
        self.assertEqual(values(count(50).parallel_map(lambda e: e * 2, 3)),
                         [2 * k for k in range(50)])
        pairs = count(3).map(lambda e: {"x": e, "y": e + 1})
        self.assertEqual([p["y"].tolist() for p in pairs], [1, 2, 3])
        spec = sluice.TensorSpec((2,), sluice.float32)
        with self.assertRaisesRegex(sluice.UsageError, "map computed element 0"):
            list(count(3).map(lambda e: e, specs=spec))

    def test_augmentation_differs_by_epoch_and_repeats_by_seed(self):
        def noise(e, c):
            return e + np.float32(c.uniform())

        dataset = count(5).map(noise, seed=1)
        first, second = values(dataset.iterate(0)), values(dataset.iterate(1))
        self.assertNotEqual(first, second)
        self.assertEqual(values(dataset.repeat(2)), first + second)
        self.assertEqual(values(count(5).parallel_map(noise, 3, seed=1).iterate(1)), second)
        self.assertNotEqual(values(count(5).map(noise, seed=2)), first)
        self.assertTrue(all(0 <= v - k < 1 for k, v in enumerate(first)))
        with self.assertRaisesRegex(sluice.UsageError, "cache"):
            dataset.cache()

    def test_the_context_has_epoch_index_and_generators(self):
        seen = []

        def look(e, c):
            seen.append((c.epoch, c.index, c.key, c.rng().random(), c.normal(2)))
            return e

        dataset = count(2).map(look, seed=1).repeat(2)
        list(dataset)
        self.assertEqual([s[:2] for s in seen], [(0, 0), (0, 1), (1, 0), (1, 1)])
        self.assertEqual(len({s[2] for s in seen}), 4)
        self.assertEqual(len({s[3] for s in seen}), 4)
        again = seen[:]
        seen.clear()
        list(dataset)
        self.assertEqual(seen, again)

    def test_batches(self):
        self.assertEqual(values(count(5).batch(2)), [[0, 1], [2, 3]])
        self.assertEqual(values(count(5).batch(2, drop_remainder=False)), [[0, 1], [2, 3], [4]])
        self.assertEqual(len(count(5).batch(2)), 2)

    def test_take_skip_repeat_and_cache(self):
        self.assertEqual(values(count(5).skip(1).take(3)), [1, 2, 3])
        self.assertEqual(values(count(2).repeat(3)), [0, 1] * 3)
        self.assertEqual(count(2).repeat().size, math.inf)
        with self.assertRaises(TypeError):
            len(count(2).repeat())
        self.assertEqual(values(count(2).repeat().take(5)), [0, 1, 0, 1, 0])
        calls = []
        cached = count(3).map(lambda e: calls.append(1) or e).cache()
        self.assertEqual(values(cached), values(cached))
        self.assertEqual(len(calls), 3)

    def test_shuffle(self):
        shuffled = count(20).shuffle(seed=1, buffer=20)
        first = values(shuffled)
        self.assertEqual(sorted(first), list(range(20)))
        self.assertNotEqual(first, list(range(20)))
        self.assertEqual(values(shuffled), first)
        self.assertNotEqual(values(shuffled.iterate(1)), first)

    def test_prefetch_keeps_the_order(self):
        self.assertEqual(values(count(100).map(lambda e: e + 1).prefetch(8)),
                         list(range(1, 101)))

    def test_split_and_weighted(self):
        parts = count(10).split([0.7, 0.3], seed=1)
        self.assertEqual([len(p) for p in parts], [7, 3])
        self.assertEqual(sorted(values(parts[0]) + values(parts[1])), list(range(10)))
        self.assertEqual(values(parts[0]), sorted(values(parts[0])))
        drawn = values(count(3).weighted([0, 1, 3], seed=1, n=4000))
        self.assertNotIn(0, drawn)
        self.assertAlmostEqual(drawn.count(2) / 4000, 0.75, delta=0.04)
        with self.assertRaisesRegex(sluice.UsageError, "weight"):
            count(3).weighted([1, 1], seed=1)

    def test_mixtures(self):
        letters = data.from_tensors(np.array([10, 11, 12], np.float32))
        self.assertEqual(values(data.concat(count(2), letters)), [0, 1, 10, 11, 12])
        self.assertEqual(values(data.interleave(count(5), letters, block=2)),
                         [0, 1, 10, 11, 2, 3, 12, 4])
        self.assertEqual([(int(a), int(b)) for a, b in data.zip(count(9), letters)],
                         [(0, 10), (1, 11), (2, 12)])
        mixed = data.sample_from([count(9).repeat(), letters.repeat()], [1, 3], seed=1)
        drawn = values(mixed.take(2000))
        self.assertAlmostEqual(sum(v >= 10 for v in drawn) / 2000, 0.75, delta=0.05)
        with self.assertRaisesRegex(sluice.UsageError, "block"):
            data.interleave(count(5), letters, block=0)

    def test_padding_and_buckets(self):
        lengths = [1, 5, 2, 6, 3, 8]
        rows = [{"tokens": np.full(n, n, np.int32), "labels": np.full(n, -n, np.int32)}
                for n in lengths]
        padded = list(data.dataset(rows).pad(8, {"tokens": 0, "labels": -100}))
        self.assertEqual(padded[2]["tokens"].tolist(), [2, 2] + [0] * 6)
        self.assertEqual(padded[2]["labels"].tolist(), [-2, -2] + [-100] * 6)
        multiple = data.dataset(rows).pad_to_multiple(4, ["tokens", "labels"])
        self.assertEqual([len(e["tokens"]) for e in multiple], [4, 8, 4, 8, 4, 8])
        batches = list(data.dataset(rows).bucket_by_length(
            [(4, 2), (8, 3)], {"tokens": 0, "labels": 0}, drop_remainder=False))
        self.assertEqual([b["tokens"].shape for b in batches], [(2, 4), (3, 8), (1, 4)])
        self.assertEqual(batches[0]["tokens"].tolist(), [[1, 0, 0, 0], [2, 2, 0, 0]])
        with self.assertRaisesRegex(sluice.UsageError, "at most 4, got 5"):
            list(data.dataset(rows).bucket_by_length([(4, 2)], ["tokens", "labels"]))
        short = data.dataset(rows).bucket_by_length([(4, 3)], ["tokens", "labels"],
                                                    drop_longer=True)
        self.assertEqual([b["tokens"].tolist() for b in short],
                         [[[1, 0, 0, 0], [2, 2, 0, 0], [3, 3, 3, 0]]])

    def test_the_benchmark_counts_elements(self):
        result = data.dataset_benchmark(count(10).repeat(), epochs=2, elements=50)
        self.assertEqual([e["elements_processed"] for e in result["epochs"]], [50, 50])
        self.assertEqual(result["produced"], 100)


class Loaders(unittest.TestCase):
    def test_for_reads_an_epoch(self):
        loader = data.BatchLoader(count(10), batch=3, seed=1)
        self.assertEqual((len(loader), loader.items, loader.dropped), (3, 3, 1))
        epochs = [[item.tolist() for item in loader] for _ in range(3)]
        self.assertEqual([len(e) for e in epochs], [3, 3, 3])
        self.assertNotEqual(epochs[0], epochs[1])
        self.assertEqual(loader.epoch, 2)
        loader.start_epoch(1, item=1)
        self.assertEqual([item.tolist() for item in loader], epochs[1][1:])

    def test_workers_change_nothing(self):
        def noise(e, c):
            return e + np.float32(c.uniform())

        runs = []
        for workers in (0, 3):
            loader = data.BatchLoader(count(40).map(noise, seed=5), batch=8, workers=workers)
            runs.append([[item.tolist() for item in loader] for _ in range(2)])
        self.assertEqual(runs[0], runs[1])
        self.assertNotEqual(runs[0][0], runs[0][1])

    def test_without_shuffling(self):
        loader = data.BatchLoader(count(5), batch=2, shuffle=False, drop_remainder=False)
        self.assertEqual([item.tolist() for item in loader], [[0, 1], [2, 3], [4]])
        self.assertEqual(loader.specs, sluice.TensorSpec((), sluice.float32))

    def test_errors_name_epoch_and_element(self):
        def broken(e):
            if e == 3:
                raise ValueError("bad")
            return e

        loader = data.BatchLoader(count(8).map(broken), batch=2, shuffle=False, workers=2)
        self.assertEqual(next(loader).tolist(), [0, 1])
        with self.assertRaisesRegex(sluice.UsageError, "element 3\n.*item 1 of epoch 0") as caught:
            next(loader)
        self.assertEqual(caught.exception.__cause__.args, ("bad",))


class Feeds(unittest.TestCase):
    def test_a_queue_feeds_a_program(self):
        queue = data.InfeedQueue(
            data.dataset({"x": np.arange(4), "y": np.arange(4.0)}).repeat(), prefetch_depth=2)
        self.assertEqual(list(queue.fields), ["x", "y"])
        ir = sluice.Ir()
        feed = ir.infeed("digits", queue.fields, queue.depth)
        results = ir.outfeed("sums", {"sum": sluice.TensorSpec((), sluice.float32)}, depth=2)
        with ir.main_graph as main:
            fields = main.dequeue(feed)
            self.assertEqual(list(fields), ["x", "y"])
            main.enqueue(results, {"sum": fields["y"] * 10})
        session = sluice.Session(ir, threads=1)
        out = data.OutfeedQueue()
        session.bind_feed(feed, queue)
        session.bind_feed(results, out)
        for _ in range(6):
            session.run()
        self.assertTrue(out.wait_for(1))
        self.assertEqual(len(out), 6)
        self.assertEqual(out.dequeue()["sum"].tolist(), [0, 10, 20, 30, 0, 10])
        self.assertEqual(len(out), 0)
        self.assertGreaterEqual(queue.position, 6)

    def test_python_objects_are_sources_and_sinks(self):
        def make():
            for k in range(3):
                yield np.float32(k)

        taken = []
        ir = sluice.Ir()
        spec = sluice.TensorSpec((), sluice.float32)
        feed = ir.infeed("in", {"0": spec}, prefetch_depth=2)
        results = ir.outfeed("out", {"y": spec})
        with ir.main_graph as main:
            main.enqueue(results, {"y": main.dequeue(feed)["0"] + 1})
        session = sluice.Session(ir, threads=1)
        session.bind_feed(feed, make)
        session.bind_feed(results, lambda fields: taken.append(float(fields["y"])))
        for _ in range(3):
            session.run()
        self.assertEqual(taken, [1, 2, 3])
        with self.assertRaisesRegex(sluice.UsageError, "produced 3"):
            session.run()

    def test_an_exception_of_a_sink_ends_the_run(self):
        def refuse(fields):
            raise OSError("disk")

        ir = sluice.Ir()
        results = ir.outfeed("out", {"y": sluice.TensorSpec((), sluice.float32)})
        with ir.main_graph as main:
            main.enqueue(results, {"y": sluice.constant(1.0)})
        session = sluice.Session(ir, threads=1)
        session.bind_feed(results, refuse)
        with self.assertRaisesRegex(sluice.Error, "taking element 0 of feed 'out'") as caught:
            session.run()
        self.assertIsInstance(caught.exception.__cause__, OSError)

    def test_the_newest_element_and_wrong_fields(self):
        ir = sluice.Ir()
        spec = sluice.TensorSpec((2,), sluice.float32)
        results = ir.outfeed("out", {"y": spec})
        feed = ir.infeed("in", {"x": spec})
        with ir.main_graph as main:
            main.enqueue(results, {"y": main.dequeue(feed)["x"]})
        session = sluice.Session(ir, threads=1)
        out = data.OutfeedQueue(last=True)
        session.bind_feed(results, out)
        with self.assertRaisesRegex(sluice.UsageError, "feed 'in'"):
            session.bind_feed(feed, {"x": np.zeros((4, 3), np.float32)})
        session.bind_feed(feed, {"x": np.arange(8, dtype=np.float32).reshape(4, 2)})
        for _ in range(3):
            session.run()
        self.assertEqual(out.dequeue()["y"].tolist(), [4, 5])


if __name__ == "__main__":
    unittest.main()
