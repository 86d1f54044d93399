"""Threads, forks, and the end of the interpreter."""

import gc
import multiprocessing
import os
import signal
import tempfile
import threading
import unittest
import warnings

import numpy as np

import millpond

from .support import MIB, PondCase, in_child, python


class Threads(PondCase):
    def run_all(self, *acts):
        failures = []

        def guarded(act):
            try:
                act()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=guarded, args=(act,)) for act in acts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def test_threads_fill_and_read_parts_of_one_array(self):
        numbers = self.pond.zeros((4, 32 * MIB // 8), np.int64)

        def work(row):
            numbers[row] = np.arange(numbers.shape[1]) + row
            for _ in range(2):
                self.assertTrue((numbers[row] == np.arange(numbers.shape[1]) + row).all())

        self.run_all(*(lambda row=row: work(row) for row in range(4)))

    def test_arrays_made_and_dropped_during_calls_leave_nothing(self):
        def work(seed):
            random = np.random.default_rng(seed)
            for turn in range(60):
                numbers = self.pond.full(int(random.integers(1, MIB)), turn, np.uint8)
                with millpond.pin(numbers[:4096]):
                    numbers[:10] = turn
                copy = millpond.snapshot(numbers)
                numbers[:] = 255
                self.assertTrue((copy == turn).all())
                self.pond.stats()
                millpond.discard(numbers)

        self.run_all(*(lambda seed=seed: work(seed) for seed in range(3)))
        self.pond.quiesce()
        self.assertEqual(self.pond.stats().resident, 0)

    def test_closing_a_pond_during_calls_is_safe(self):
        for _ in range(20):
            pond = millpond.Pond("16M", delivery="in-thread")
            region = pond.region("1M")
            started = threading.Barrier(3)

            def call(pond=pond, region=region, started=started):
                started.wait()
                try:
                    while True:
                        pond.stats()
                        region.populate()
                except millpond.Closed:
                    pass

            def close(pond=pond, region=region, started=started):
                started.wait()
                region.free()
                pond.close()

            self.run_all(call, call, close)

    def test_growing_a_region_while_arrays_are_made_is_safe(self):
        region = self.pond.region("1M")
        done = threading.Event()

        def grow():
            try:
                for size in range(2, 200):
                    try:
                        region.grow(size * MIB)
                    except millpond.Busy:
                        pass
            finally:
                done.set()

        def make():
            while not done.is_set():
                try:
                    made = region.array()
                except millpond.Busy:
                    continue
                made[:: 64 * 1024] = 1
                del made

        self.run_all(grow, make)


class Forks(PondCase):
    def test_a_child_can_drop_arrays_and_not_use_them(self):
        numbers = self.pond.full(MIB, 7, np.uint8)
        region = millpond.region_of(numbers)
        pin = millpond.pin(numbers[:10])
        group = self.pond.group("g")
        shrinker = self.pond.shrinker(lambda: 0, lambda objects: 0)
        child_has = [numbers, region, pin, group, shrinker]

        def act():
            nonlocal numbers, region, pin, group, shrinker
            for call in (
                self.pond.stats,
                lambda: self.pond.zeros(1),
                region.populate,
                region.array,
                region.snapshot,
                lambda: region.grow("2M"),
                lambda: millpond.pin(numbers),
                lambda: millpond.snapshot(numbers),
                group.stats,
            ):
                with self.assertRaises(millpond.Forked) as caught:
                    call()
                self.assertIn("parent", str(caught.exception))
            shrinker.close()
            pin.release()
            child_has.clear()
            numbers = region = pin = group = shrinker = None
            gc.collect()
            self.pond.close()
            with millpond.Pond("16M") as own:
                self.assertEqual(int(own.full(1000, 3).sum()), 3000)

        self.assertEqual(in_child(act), 0)
        self.assertTrue((numbers == 7).all())
        with self.assertRaises(millpond.Pinned):
            millpond.discard(numbers)
        self.assertFalse(shrinker._handle.closed)

    def test_a_touch_in_a_forked_child_ends_it_with_a_message(self):
        numbers = self.pond.full(MIB, 7, np.uint8)
        with tempfile.TemporaryFile() as said:

            def act():
                os.dup2(said.fileno(), 2)
                numbers[0]

            self.assertEqual(in_child(act), -signal.SIGABRT)
            said.seek(0)
            self.assertRegex(said.read().decode(), "^millpond: .* before the fork.*\n$")
        self.assertTrue((numbers == 7).all())

    def test_a_pool_whose_workers_touch_the_parents_memory_ends(self):
        # multiprocessing.Pool would replace its workers for ever; each worker says why it ends.
        ended = python(
            """
import concurrent.futures, multiprocessing, warnings, numpy, millpond
warnings.simplefilter("ignore", DeprecationWarning)
numbers = millpond.Pond("16M").full(1000, 7.0)
def total(_):
    return numbers.sum()
context = multiprocessing.get_context("fork")
with concurrent.futures.ProcessPoolExecutor(2, context) as pool:
    try:
        list(pool.map(total, range(4)))
    except concurrent.futures.process.BrokenProcessPool:
        print("broken")
assert numbers.sum() == 7000
"""
        )
        self.assertEqual((ended.returncode, ended.stdout), (0, "broken\n"), ended.stderr)
        self.assertIn("millpond: this process, forked from one that has a manager", ended.stderr)

    def test_a_multiprocessing_child_is_refused_calls_and_drops_arrays(self):
        numbers = self.pond.full(MIB, 7, np.uint8)
        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()

        def work(holder):
            try:
                millpond.prefetch(holder[0])
            except millpond.Forked as error:
                queue.put(str(error))
            holder.clear()
            gc.collect()
            queue.put("dropped")

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = context.Process(target=work, args=([numbers],))
            child.start()
        child.join()
        self.assertEqual(child.exitcode, 0)
        self.assertIn("parent", queue.get())
        self.assertEqual(queue.get(), "dropped")
        self.assertTrue((numbers == 7).all())

    def test_a_lock_held_during_the_fork_does_not_block_the_child(self):
        region = self.pond.region("1M")
        with region._handle._lock, region._lock, self.pond._handle._lock:

            def act():
                for call in (self.pond.stats, region.populate, region.array):
                    with self.assertRaises(millpond.Forked):
                        call()
                region.free()
                self.pond.close()

            self.assertEqual(in_child(act), 0)
        region.populate()


class Exit(unittest.TestCase):
    def ends_well(self, program):
        ended = python(program)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""), ended.stdout)

    def test_the_interpreter_exits_cleanly_with_everything_alive(self):
        self.ends_well(
            """
import atexit, threading, numpy, millpond
pond = millpond.Pond("16M")
numbers = pond.full(8_000_000, 1.0)
pin = millpond.pin(numbers[:10])
snapshot = millpond.snapshot(pond.zeros(10))
cache = list(range(1000))
shrinker = pond.shrinker(lambda: len(cache), lambda objects: 0)
class Last:
    def __del__(self):
        assert numbers.sum() == 8_000_000
last = Last()
atexit.register(lambda: numbers.sum())
def touch():
    while True:
        numbers.sum()
threading.Thread(target=touch, daemon=True).start()
"""
        )

    def test_calls_after_the_end_raise_closed(self):
        self.ends_well(
            """
import atexit
def late():
    try:
        pond.stats()
    except millpond.Closed:
        pass
    assert numbers.sum() == 1000
atexit.register(late)
import millpond
pond = millpond.Pond("16M")
numbers = pond.full(1000, 1.0)
"""
        )
