"""Caches of the program that shrink when memory is short."""

import gc
import sys
import threading
import time
import weakref

import millpond

from .support import MIB, PondCase


class Shrinkers(PondCase):
    def press(self, until, seconds=10):
        """Uses memory of twice the budget until an expected event has happened."""
        numbers = self.pond.zeros(64 * MIB // 8)
        end = time.monotonic() + seconds
        while not until():
            numbers += 1
            self.assertLess(time.monotonic(), end, "nothing happened")

    def test_a_cache_shrinks_under_pressure(self):
        cache = list(range(10_000))
        lock = threading.Lock()

        def scan(objects):
            with lock:
                given = min(objects, len(cache))
                del cache[:given]
                return given

        with self.pond.shrinker(lambda: len(cache), scan) as shrinker:
            self.press(lambda: len(cache) < 10_000)
        left = len(cache)
        self.press(lambda: True)
        shrinker.close()
        self.assertEqual(len(cache), left)

    def test_a_shrinker_needs_no_reference_and_ends_with_the_pond(self):
        called = []
        self.pond.shrinker(lambda: called.append(1) or 1, lambda objects: 0)
        gc.collect()
        self.press(lambda: called)
        self.pond.close()
        called.clear()
        time.sleep(0.05)
        self.assertEqual(called, [])

    def test_exceptions_go_to_the_hook(self):
        caught = []
        before, sys.unraisablehook = sys.unraisablehook, caught.append
        try:
            broken = self.pond.shrinker(lambda: 1 // 0, lambda objects: 0)
            self.press(lambda: caught)
            broken.close()
            self.assertIs(caught[0].exc_type, ZeroDivisionError)
            caught.clear()
            self.pond.shrinker(lambda: 1000, lambda objects: "many")
            self.press(lambda: caught)
            self.assertIs(caught[0].exc_type, ValueError)
        finally:
            self.pond.close()
            sys.unraisablehook = before
        caught.clear()

    def test_a_shrinker_may_close_itself(self):
        ended = threading.Event()

        def count():
            shrinker.close()
            ended.set()
            return 0

        shrinker = self.pond.shrinker(count, lambda objects: 0)
        self.press(ended.is_set)
        self.press(lambda: True)

    def test_the_last_reference_may_be_dropped_in_a_callback(self):
        pond = millpond.Pond("16M")
        numbers = pond.zeros(32 * MIB // 8)
        gone = threading.Event()
        weakref.finalize(pond, gone.set)
        holder = [pond]

        def count():
            if holder:
                holder.pop().close()
            return 0

        pond.shrinker(count, lambda objects: 0)
        del pond
        while holder:
            numbers += 1
        del numbers, count
        gc.collect()
        self.assertTrue(gone.wait(10))

    def test_a_shrinker_of_a_group_is_called(self):
        group = self.pond.group("small", max="4M")
        asked = []
        with self.pond.shrinker(lambda: asked.append(1) or 0, lambda objects: 0, group=group):
            numbers = self.pond.zeros(16 * MIB // 8, group=group)
            end = time.monotonic() + 10
            while not asked and time.monotonic() < end:
                numbers += 1
        self.assertTrue(asked)
