"""A pond's memory is the buffer of a system call, while it is pinned and while it is absent."""

import os
import tempfile
from pathlib import Path

import numpy as np

import millpond

from .support import MIB, PondCase

DELIVERIES = ("handler", "in-thread")


class SystemCalls(PondCase):
    def setUp(self):
        super().setUp()
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.path = Path(place.name, "numbers")

    def test_pinned_memory_is_read_into_with_either_delivery(self):
        expected = np.random.default_rng(1).bytes(4 * MIB)
        self.path.write_bytes(expected)
        for delivery in DELIVERIES:
            with self.subTest(delivery=delivery), millpond.Pond("16M", delivery=delivery) as pond:
                buffer = pond.zeros(8 * MIB, np.uint8)[MIB : 5 * MIB]
                with millpond.pin(buffer) as pinned, open(self.path, "rb", buffering=0) as file:
                    self.assertEqual(file.readinto(pinned), 4 * MIB)
                self.assertEqual(buffer.tobytes(), expected)

    def test_absent_memory_is_read_and_written_by_the_kernel(self):
        numbers = self.pond.zeros(128 * MIB // 8, np.int64)
        numbers[:] = np.arange(numbers.size)
        numbers.tofile(self.path)
        self.assertEqual(os.path.getsize(self.path), numbers.nbytes)
        copy = self.pond.zeros(numbers.size, np.int64)
        with open(self.path, "rb", buffering=0) as file:
            self.assertEqual(file.readinto(copy), copy.nbytes)
        self.assertTrue(np.array_equal(copy, numbers))

    def test_numpys_own_files(self):
        numbers = self.pond.array(np.arange(8 * MIB, dtype="f4").reshape(1024, -1))
        millpond.advise(numbers, "pageout")
        np.save(self.path, numbers)
        saved = self.path.with_suffix(".npy")
        self.assertTrue(np.array_equal(np.load(saved), numbers))
        again = self.pond.array(np.load(saved, mmap_mode="r"))
        self.assertTrue(np.array_equal(again, numbers))
        again.T.tofile(self.path)
        read = np.fromfile(self.path, "f4").reshape(again.T.shape)
        self.assertTrue(np.array_equal(read, again.T))

    def test_a_released_pin_can_be_released_and_outlives_its_array(self):
        numbers = self.pond.full(MIB, 7, np.uint8)
        pin = millpond.pin(numbers)
        self.assertFalse(pin.released)
        with self.assertRaises(millpond.Pinned):
            millpond.discard(numbers)
        del numbers
        self.pond.quiesce()
        self.assertEqual(self.pond.stats().resident, MIB)
        pin.release()
        pin.release()
        self.assertTrue(pin.released)
        del pin
        self.pond.quiesce()
        self.assertEqual(self.pond.stats().resident, 0)

    def test_a_pin_goes_with_its_object(self):
        numbers = self.pond.full(MIB, 7, np.uint8)
        millpond.pin(numbers)
        self.assertEqual(millpond.discard(numbers), MIB)

    def test_no_more_is_pinned_than_the_budget_holds(self):
        numbers = self.pond.zeros(64 * MIB, np.uint8)
        with self.assertRaisesRegex(millpond.OverBudget, str(32 * MIB)) as caught:
            millpond.pin(numbers)
        self.assertIsInstance(caught.exception, MemoryError)
