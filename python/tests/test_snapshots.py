"""A snapshot and its source do not change each other."""

import numpy as np

import millpond

from .support import MIB, PondCase


class Snapshots(PondCase):
    def test_source_and_snapshot_do_not_see_each_others_writes(self):
        numbers = self.pond.zeros(64 * MIB // 8, np.int64)
        numbers[:] = np.arange(numbers.size)
        before = millpond.snapshot(numbers)
        numbers[::512] = -1
        before[1::512] = -2
        expected = np.arange(numbers.size)
        expected[1::512] = -2
        self.assertTrue(np.array_equal(before, expected))
        expected = np.arange(numbers.size)
        expected[::512] = -1
        self.assertTrue(np.array_equal(numbers, expected))

    def test_views_keep_their_form(self):
        numbers = self.pond.array(np.arange(10_000.0).reshape(100, 100), order="F")
        for view in (numbers, numbers[5:50:3, ::-1], numbers.T[::-2], numbers[3, 4], numbers[3]):
            view = np.asarray(view) if isinstance(view, np.ndarray) else numbers[3:4, 4:5]
            copy = millpond.snapshot(view)
            self.assertEqual(copy.strides, view.strides)
            self.assertEqual(copy.dtype, view.dtype)
            self.assertTrue(np.array_equal(copy, view))
            self.assertIsNot(millpond.region_of(copy), millpond.region_of(view))

    def test_snapshots_can_be_dropped_in_any_order(self):
        numbers = self.pond.full(MIB, 1)
        first = millpond.snapshot(numbers)
        second = millpond.snapshot(first)
        del first
        numbers[:] = 2
        del numbers
        self.assertEqual(int(second.sum()), MIB)
        del second
        self.pond.quiesce()
        self.assertEqual(self.pond.stats().resident, 0)

    def test_a_snapshot_of_a_pinned_array_is_refused(self):
        numbers = self.pond.full(MIB, 1)
        with millpond.pin(numbers[:1]):
            with self.assertRaisesRegex(millpond.Pinned, "offset 0 is pinned"):
                millpond.snapshot(numbers)
        millpond.snapshot(numbers)
