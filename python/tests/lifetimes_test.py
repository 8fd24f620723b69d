"""Objects that keep others alive: handles, arrays, callbacks, cycles, threads and processes."""

import gc
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
from sluice import data


def program(shape=(4,), replicas=1):
    """Returns a program y = x · w and its streams."""
    ir = sluice.Ir(replicas)
    x_stream = ir.h2d_stream(shape, sluice.float32, "x")
    with ir.main_graph as main:
        x = main.host_load(x_stream)
        w = sluice.variable(np.full(shape, 2, np.float32), name="w")
        y_stream = sluice.host_store(x * w, "y")
    return ir, x_stream, y_stream, w


def fed(queue):
    """Returns a program that stores twice each element of a feed, and its streams."""
    ir = sluice.Ir()
    feed = ir.infeed("numbers", queue.fields)
    with ir.main_graph as main:
        (x,) = main.dequeue(feed).values()
        out = sluice.host_store(x * 2, "out")
    return ir, feed, out


def numbers():
    """Yields 0, 1, … for ever."""
    k = 0
    while True:
        yield np.float32(k)
        k += 1


def run_python(code, seconds=30):
    """Runs a program in a new process; returns its exit code and output."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          timeout=seconds)
    return done.returncode, done.stdout + done.stderr


def in_child(work):
    """Runs work() in a child process of fork(); returns its exit code, or -1 if it hangs."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 - the parent sees the code
            print(repr(error), file=sys.stderr)
            os._exit(1)
    for _ in range(1000):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


class Handles(unittest.TestCase):
    def test_a_graph_keeps_its_ir(self):
        graph = sluice.Ir().main_graph
        gc.collect()
        graph.constant(1.0)
        self.assertIn("Graph", graph.print_schedule())

    def test_a_tensor_of_a_freed_ir_is_refused(self):
        ir, *_, w = program()
        del ir
        gc.collect()
        with self.assertRaises(sluice.UsageError):
            w + 1

    def test_a_session_keeps_its_ir(self):
        ir, x_stream, y_stream, w = program()
        session = sluice.Session(ir, threads=1)
        del ir
        gc.collect()
        y = session.run({x_stream: np.ones(4, np.float32)})[y_stream]
        np.testing.assert_array_equal(y, np.full(4, 2))
        np.testing.assert_array_equal(session.read(w), np.full(4, 2))

    def test_a_binding_keeps_session_and_arrays(self):
        ir, x_stream, y_stream, _ = program()
        y = np.zeros(4, np.float32)
        run = sluice.Session(ir, threads=1).bind({x_stream: np.ones(4, np.float32)}, {y_stream: y})
        gc.collect()
        run()
        np.testing.assert_array_equal(y, np.full(4, 2))

    def test_a_pass_keeps_what_it_reads(self):
        def flip(e):
            return -e

        elements = iter(data.from_tensors(np.arange(5, dtype=np.float32)).map(flip).batch(2))
        gone = weakref.ref(flip)
        del flip
        gc.collect()
        np.testing.assert_array_equal(next(elements), [0, -1])
        del elements
        gc.collect()
        self.assertIsNone(gone())


class Callbacks(unittest.TestCase):
    def test_an_exception_arrives_from_the_original(self):
        def broken(e):
            if e == 2:
                raise KeyError("pixel")
            return e

        elements = iter(data.from_tensors(np.arange(5, dtype=np.float32)).map(broken))
        self.assertEqual([next(elements), next(elements)], [0, 1])
        with self.assertRaisesRegex(sluice.UsageError, "map computed element 2") as caught:
            next(elements)
        self.assertIsInstance(caught.exception.__cause__, KeyError)
        frames = caught.exception.__cause__.__traceback__
        self.assertEqual(frames.tb_frame.f_code.co_name, "broken")
        self.assertRegex(str(caught.exception), "KeyError: 'pixel'")
        with self.assertRaises(StopIteration):
            next(elements)

    def test_an_exception_on_a_worker_thread_arrives_too(self):
        def broken(e):
            raise RuntimeError("worker")

        source = data.from_tensors(np.arange(5, dtype=np.float32))
        for dataset in (source.parallel_map(broken, 2), source.map(broken).prefetch(2)):
            with self.assertRaisesRegex(sluice.Error, "element 0") as caught:
                list(dataset)
            self.assertEqual(caught.exception.__cause__.args, ("worker",))

    def test_an_error_of_the_library_keeps_its_kind(self):
        def broken(e):
            raise sluice.IoError("disk")

        with self.assertRaisesRegex(sluice.IoError, "^disk\n") as caught:
            list(data.from_tensors(np.arange(5, dtype=np.float32)).map(broken))
        self.assertIsInstance(caught.exception.__cause__, sluice.IoError)

    def test_exit_and_interrupts_are_no_errors(self):
        def broken(e):
            raise exception

        for exception in (KeyboardInterrupt(), SystemExit(3)):
            with self.assertRaises(type(exception)) as caught:
                list(data.from_tensors(np.arange(5, dtype=np.float32)).map(broken))
            self.assertIs(caught.exception, exception)

    def test_an_exception_of_a_source_ends_the_run(self):
        def broken():
            yield np.float32(1)
            raise OSError("cable")

        queue = data.InfeedQueue(data.from_generator(broken))
        ir, feed, out = fed(queue)
        session = sluice.Session(ir, threads=1)
        session.bind_feed(feed, queue)
        self.assertEqual(session.run()[out], 2)
        with self.assertRaisesRegex(sluice.UsageError, "element 1 of feed 'numbers'") as caught:
            session.run()
        self.assertIsInstance(caught.exception.__cause__, OSError)
        self.assertEqual(caught.exception.__cause__.args, ("cable",))

    def test_the_library_keeps_no_exception(self):
        class Payload:
            """Is held by a frame of the traceback."""

        payloads = []

        def broken(e):
            held = Payload()
            payloads.append(weakref.ref(held))
            raise ValueError(held)

        for _ in range(3):
            with self.assertRaises(sluice.Error):
                list(data.from_tensors(np.arange(5, dtype=np.float32)).map(broken).prefetch(1))
        gc.collect()
        self.assertEqual([p() for p in payloads], [None] * len(payloads))

    def test_an_iterator_refuses_to_be_read_by_its_own_function(self):
        def reads(e):
            return next(elements)

        elements = iter(data.from_tensors(np.arange(5, dtype=np.float32)).map(reads))
        with self.assertRaisesRegex(sluice.UsageError, "one thread at a time"):
            next(elements)


class Cycles(unittest.TestCase):
    def assert_freed(self, make):
        """make() returns an object that a cycle keeps alive."""
        thing = make()
        gone = weakref.ref(thing)
        del thing
        gc.collect()
        self.assertIsNone(gone())

    class Holder:
        """Has any attributes, and a method to map with."""

        def keep(self, e):
            return e

        def elements(self):
            yield np.float32(0)
            yield np.float32(self.offset)

        offset = 1

    def test_a_dataset_and_its_function(self):
        def make():
            holder = self.Holder()
            holder.dataset = data.from_tensors(np.zeros(4, np.float32)).map(holder.keep).batch(2)
            list(holder.dataset)
            return holder

        self.assert_freed(make)

    def test_a_pass_and_its_generator(self):
        def make():
            holder = self.Holder()
            holder.elements_read = iter(data.from_generator(holder.elements))
            next(holder.elements_read)  # The generator's frame refers to `holder`.
            return holder

        self.assert_freed(make)

    def test_a_pass_with_threads(self):
        def make():
            holder = self.Holder()
            source = data.from_function(None, lambda k: np.float32(k))
            holder.elements_read = iter(source.map(holder.keep).prefetch(4))
            next(holder.elements_read)
            return holder

        for _ in range(10):
            self.assert_freed(make)

    def test_a_callable_is_not_called_once_it_is_garbage(self):
        revived = []

        class Revives(self.Holder):
            def __del__(self):
                revived.append(self)

        def make():
            holder = Revives()
            source = data.from_tensors(np.zeros(4, np.float32))
            holder.elements_read = iter(source.map(holder.keep))
            next(holder.elements_read)

        make()
        gc.collect()
        with self.assertRaisesRegex(sluice.UsageError, "after it was freed"):
            next(revived[0].elements_read)

    def test_a_loader(self):
        def make():
            holder = self.Holder()
            dataset = data.from_tensors(np.zeros(64, np.float32)).map(holder.keep)
            holder.loader = data.BatchLoader(dataset, batch=4, workers=2)
            next(holder.loader)
            return holder

        for _ in range(10):
            self.assert_freed(make)

    def test_a_session_with_feeds(self):
        def make():
            holder = self.Holder()
            queue = data.InfeedQueue(data.from_tensors(np.zeros(64, np.float32)).map(holder.keep))
            ir, feed, out = fed(queue)
            holder.session = sluice.Session(ir, threads=1)
            holder.session.bind_feed(feed, queue)
            holder.session.run()
            return holder

        for _ in range(5):
            self.assert_freed(make)

    def test_a_session_and_a_sink(self):
        def make():
            holder = self.Holder()
            ir = sluice.Ir()
            feed = ir.outfeed("out", {"y": sluice.TensorSpec((), sluice.float32)})
            with ir.main_graph as main:
                main.enqueue(feed, {"y": sluice.constant(3.0)})
            holder.session = sluice.Session(ir, threads=1)
            holder.taken = []
            holder.session.bind_feed(feed, lambda fields: holder.taken.append(fields["y"]))
            holder.session.run()
            self.assertEqual(holder.taken, [3])
            return holder

        self.assert_freed(make)

    def test_a_source_that_is_bound_again_is_freed(self):
        first = data.InfeedQueue(data.from_generator(numbers))
        gone = []

        def make():
            yield from numbers()

        gone.append(weakref.ref(make))
        queue = data.InfeedQueue(data.from_generator(make))
        ir, feed, out = fed(first)
        session = sluice.Session(ir, threads=1)
        session.bind_feed(feed, queue)
        self.assertEqual(session.run()[out], 0)
        session.bind_feed(feed, first)
        del queue, make
        gc.collect()
        self.assertIsNone(gone[0]())
        self.assertEqual(session.run()[out], 0)


class Threads(unittest.TestCase):
    def test_two_threads_use_one_session(self):
        ir, x_stream, y_stream, w = program((64,))
        session = sluice.Session(ir, threads=1)
        wrong = []

        def work(i):
            x = np.full(64, i, np.float32)
            for _ in range(100):
                y = session.run({x_stream: x})[y_stream]
                if not np.array_equal(y, 2 * x) or session.read(w)[0] != 2:
                    wrong.append(i)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_a_session_ends_on_another_thread(self):
        queue = data.InfeedQueue(data.from_generator(numbers))
        ir, feed, out = fed(queue)
        sessions = [sluice.Session(ir, threads=1)]
        sessions[0].bind_feed(feed, queue)
        self.assertEqual(sessions[0].run()[out], 0)
        thread = threading.Thread(target=sessions.clear)
        thread.start()
        thread.join()

    def test_a_queue_ends_while_its_threads_call_python(self):
        code = (
            "import numpy as np, sluice\n"
            "from sluice import data\n"
            "for _ in range(20):\n"
            "    source = data.from_function(None, lambda k: np.float32(sum(range(1000))))\n"
            "    queue = data.InfeedQueue(source.prefetch(1000))\n"
            "    ir = sluice.Ir()\n"
            "    feed = ir.infeed('numbers', queue.fields)\n"
            "    ir.main_graph.host_store(ir.d2h_stream(()), ir.main_graph.dequeue(feed)['0'])\n"
            "    session = sluice.Session(ir, threads=1)\n"
            "    session.bind_feed(feed, queue)\n"
            "    session.run()\n"
            "    del session\n"
            "    del queue\n")
        self.assertEqual(run_python(code), (0, ""))

    def test_threads_build_programs_and_run_them(self):
        results = {}

        def work(i):
            for _ in range(10):
                ir, x_stream, y_stream, _ = program()
                session = sluice.Session(ir, threads=1)
                results[i] = session.run({x_stream: np.full(4, i, np.float32)})[y_stream]

        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for i in range(3):
            np.testing.assert_array_equal(results[i], np.full(4, 2 * i))

    def test_a_pass_is_read_by_one_thread_at_a_time(self):
        entered, leave = threading.Event(), threading.Event()

        def waits(e):
            entered.set()
            leave.wait(10)
            return e

        elements = iter(data.from_tensors(np.zeros(2, np.float32)).map(waits))
        thread = threading.Thread(target=lambda: next(elements))
        thread.start()
        entered.wait(10)
        with self.assertRaisesRegex(sluice.UsageError, "one thread at a time"):
            next(elements)
        leave.set()
        thread.join()


class Processes(unittest.TestCase):
    def test_a_session_is_refused_in_a_child(self):
        ir, x_stream, y_stream, w = program()
        session = sluice.Session(ir, threads=2)
        x = {x_stream: np.ones(4, np.float32)}
        bound = session.bind(x, {y_stream: np.zeros(4, np.float32)})
        session.run(x)

        def work():
            for call in (lambda: session.run(x), bound, session.stop, lambda: session.read(w),
                         lambda: session.write(w, np.zeros(4, np.float32))):
                with self.assertRaisesRegex(sluice.UsageError, "after fork"):
                    call()

        self.assertEqual(in_child(work), 0)
        np.testing.assert_array_equal(session.run(x)[y_stream], np.full(4, 2))

    def test_a_child_may_free_a_session_and_make_one(self):
        queue = data.InfeedQueue(data.from_generator(numbers))
        ir, feed, out = fed(queue)
        held = [sluice.Session(ir, threads=2)]
        held[0].bind_feed(feed, queue)
        held[0].run()

        def work():
            held.clear()
            gc.collect()
            ir, x_stream, y_stream, _ = program()
            y = sluice.Session(ir, threads=2).run({x_stream: np.ones(4, np.float32)})[y_stream]
            np.testing.assert_array_equal(y, np.full(4, 2))

        self.assertEqual(in_child(work), 0)
        self.assertEqual(held[0].run()[out], 2)

    def test_an_interrupt_ends_a_run_in_a_child(self):
        ir, x_stream, *_ = program()
        sluice.Session(ir, threads=1).run({x_stream: np.ones(4, np.float32)})

        def work():
            ir = sluice.Ir()
            body = ir.create_empty_graph("body")
            body.set_outputs([body.input((256, 256)) * 2])
            with ir.main_graph as main:
                start = sluice.constant(np.zeros((256, 256), np.float32))
                sluice.host_store(main.repeat(body, 10_000_000, [start])[0], "out")
            session = sluice.Session(ir, threads=1)
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            with self.assertRaises(KeyboardInterrupt):
                session.run()

        self.assertEqual(in_child(work), 0)

    def test_passes_and_loaders_are_refused_in_a_child(self):
        dataset = data.from_tensors(np.arange(64, dtype=np.float32))
        held = [iter(dataset.prefetch(2)), data.BatchLoader(dataset, workers=2)]
        for reader in held:
            next(reader)

        def work():
            for reader in held:
                with self.assertRaisesRegex(sluice.UsageError, "after\\s+fork"):
                    next(reader)
            held.clear()
            self.assertEqual(len(list(dataset)), 64)

        self.assertEqual(in_child(work), 0)

    def test_a_program_ends_while_threads_call_python(self):
        code = (
            "import numpy as np, sluice\n"
            "from sluice import data\n"
            "elements = iter(data.from_function(None, lambda k: np.float32(k)).parallel_map("
            "lambda e: e + 1, 2).prefetch(100))\n"
            "print(next(elements))\n"
            "queue = data.InfeedQueue(data.from_function(None, lambda k: np.float32(k)))\n"
            "ir = sluice.Ir()\n"
            "feed = ir.infeed('numbers', queue.fields, prefetch_depth=50)\n"
            "out = ir.main_graph.host_store\n"
            "stream = ir.d2h_stream((), sluice.float32, 'y')\n"
            "out(stream, ir.main_graph.dequeue(feed)['0'])\n"
            "session = sluice.Session(ir, threads=1)\n"
            "session.bind_feed(feed, queue)\n"
            "print(session.run()[stream])\n")
        for _ in range(3):
            self.assertEqual(run_python(code), (0, "1.0\n0.0\n"))


class Memory(unittest.TestCase):
    @staticmethod
    def resident():
        """Bytes of memory that the process has."""
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def assert_constant(self, work, times, bound):
        for _ in range(max(20, times // 10)):
            work()
        gc.collect()
        before = self.resident()
        for _ in range(times):
            work()
        gc.collect()
        self.assertLess(self.resident() - before, bound)

    def test_sessions(self):
        def work():
            ir, x_stream, y_stream, _ = program((256,))
            sluice.Session(ir, threads=1).run({x_stream: np.ones(256, np.float32)})

        times = 10_000 if os.environ.get("SLUICE_LONG_TESTS") else 1_000
        self.assert_constant(work, times, 2 << 20)

    def test_sessions_with_feeds_and_errors(self):
        def work():
            def broken():
                yield np.zeros(1000, np.float32)
                raise ValueError(np.zeros(1000))

            queue = data.InfeedQueue(data.from_generator(broken))
            ir, feed, out = fed(queue)
            session = sluice.Session(ir, threads=1)
            session.bind_feed(feed, queue)
            session.run()
            with self.assertRaises(sluice.UsageError):
                session.run()

        self.assert_constant(work, 200, 2 << 20)

    def test_passes(self):
        dataset = data.dataset(lambda: iter(np.zeros((8, 1000), np.float32)))
        dataset = dataset.map(lambda e: {"x": e, "y": e + 1}).batch(2).prefetch(2)
        self.assert_constant(lambda: list(dataset), 500, 2 << 20)


if __name__ == "__main__":
    unittest.main()
