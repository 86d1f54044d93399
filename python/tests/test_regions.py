"""Calls on ranges and on arrays, and regions that change their length."""

import time
import weakref

import numpy as np

import millpond

from .support import MIB, PondCase


class Resizing(PondCase):
    def test_growing_keeps_the_contents(self):
        region = self.pond.region("1M")
        neighbour = self.pond.region("1M")
        region.array()[:] = 7
        region.grow("64M")
        self.assertEqual(region.size, 64 * MIB)
        grown = region.array()
        self.assertEqual((grown[MIB - 1], grown[MIB], grown[-1]), (7, 0, 0))
        self.assertEqual(neighbour.size, MIB)

    def test_shrinking_forgets_the_contents_beyond_the_new_size(self):
        region = self.pond.region("4M")
        region.array()[:] = 7
        region.shrink(MIB + 100)
        self.assertEqual(len(region), MIB + 100)
        region.grow("4M")
        bytes_ = region.array()
        self.assertEqual((bytes_[MIB + 99], bytes_[MIB + 100], bytes_[-1]), (7, 0, 0))

    def test_resizing_and_freeing_are_refused_while_arrays_exist(self):
        region = self.pond.region("1M")
        view = region.array("i4", (2, 3))[1:, 1]
        for change in (lambda: region.grow("2M"), lambda: region.shrink(4096), region.free):
            with self.assertRaisesRegex(millpond.Busy, "arrays lie in the region"):
                change()
        self.assertEqual(view.tolist(), [0])
        del view
        region.grow("2M")
        region.shrink(4096)
        region.free()
        region.free()
        self.assertEqual(repr(region), "<millpond.Region (freed)>")
        with self.assertRaisesRegex(millpond.Closed, "the region is closed"):
            region.array()

    def test_an_impossible_size_leaves_the_region_usable(self):
        region = self.pond.region("1M")
        for change, size in ((region.grow, 4096), (region.shrink, "2M"), (region.shrink, 0)):
            with self.assertRaises(millpond.InvalidError):
                change(size)
        with self.assertRaises(millpond.NoAddresses):
            region.grow("8T")
        region.array()[:] = 1

    def test_arrays_over_parts(self):
        region = self.pond.region("1M")
        self.assertEqual(region.array("f8").shape, (MIB // 8,))
        self.assertEqual(region.array("i4", offset=MIB - 10).shape, (2,))
        self.assertEqual(region.array("i4", offset=MIB).shape, (0,))
        columns = region.array("i4", (3, 5), offset=8, order="F")
        self.assertEqual(columns.strides, (4, 12))
        columns[1, 0] = 0x01020304
        self.assertEqual(np.asarray(region)[12:16].tolist(), [4, 3, 2, 1])
        self.assertIs(millpond.region_of(columns), region)
        for bad in (
            lambda: region.array("f8", MIB),
            lambda: region.array("f8", 1, offset=MIB),
            lambda: region.array("f8", -1),
            lambda: region.array("f8", 1, offset=-8),
            lambda: region.array("f8", 1, order="K"),
        ):
            with self.assertRaises(millpond.InvalidError):
                bad()

    def test_asarray_of_a_region_is_its_bytes(self):
        region = self.pond.region(5)
        data = np.asarray(region)
        data[:] = 3
        self.assertEqual(np.array(region).tolist(), [3] * 5)
        self.assertEqual(np.asarray(region, dtype="f4").tolist(), [3.0] * 5)
        self.assertEqual(np.asarray(region).__array_interface__["data"][0], region.address)
        self.assertEqual(region.address % (2 * MIB), 0)
        gone = weakref.ref(region)
        del region
        self.assertIsNotNone(gone())
        del data
        self.assertIsNone(gone())


class Ranges(PondCase):
    def test_discarding_rounds_inward(self):
        numbers = self.pond.full(5 * 4096 + 100, 7, np.uint8)
        self.assertEqual(millpond.discard(numbers[1:4096]), 0)
        self.assertEqual(millpond.discard(numbers[1:8193]), 4096)
        self.assertEqual(np.flatnonzero(numbers == 0).tolist(), list(range(4096, 8192)))
        self.assertEqual(millpond.discard(numbers[4 * 4096 :]), 4096 + 100)
        self.assertEqual(int((numbers == 0).sum()), 4096 + 4096 + 100)
        self.assertEqual(millpond.discard(numbers), numbers.size)
        self.assertEqual(int(numbers.sum()), 0)

    def test_discarding_takes_arrays_without_gaps_that_can_be_written(self):
        table = self.pond.full((64, 1024), 1.0)
        for gaps in (table[:, :512], table[::2], table[::-1]):
            with self.assertRaisesRegex(millpond.InvalidError, "has gaps"):
                millpond.discard(gaps)
        fixed = table[:1]
        fixed.flags.writeable = False
        with self.assertRaisesRegex(millpond.InvalidError, "read-only"):
            millpond.discard(fixed)
        self.assertEqual(millpond.discard(table.T), table.nbytes)

    def test_pins_round_outward_and_take_gaps_along(self):
        numbers = self.pond.full(16 * 4096, 7, np.uint8)
        table = numbers.reshape(16, 4096)
        region = millpond.region_of(numbers)
        for view, first, last in (
            (table[3:5, 100], 3, 4),
            (numbers[4095:4097], 0, 1),
            (table[9:6:-1, ::-7], 7, 9),
        ):
            with millpond.pin(view) as pinned:
                self.assertIs(pinned, view)
                for page in range(16):
                    pinned_page = first <= page <= last
                    try:
                        region.discard(page * 4096, 4096)
                    except millpond.Pinned:
                        self.assertTrue(pinned_page, page)
                    else:
                        self.assertFalse(pinned_page, page)

    def test_advice(self):
        numbers = self.pond.full(8 * MIB, 7, np.uint8)
        region = millpond.region_of(numbers)
        for word in ("sequential", "random", "normal", "cold"):
            millpond.advise(numbers, word)
        millpond.advise(numbers[: 4 * MIB], "pageout")
        self.assertLessEqual(region.stats().resident, 4 * MIB)
        millpond.prefetch(numbers[: 2 * MIB])
        self.assertGreaterEqual(region.stats().resident, 6 * MIB)
        millpond.advise(numbers, "willneed")
        self.assertEqual(region.stats().resident, 8 * MIB)
        millpond.advise(numbers, "pageout")
        self.assertEqual(region.stats().resident, 0)
        region.prefetch(wait=False)
        deadline = time.monotonic() + 20
        while region.stats().resident < 8 * MIB:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        region.prefetch()
        self.assertEqual(int(numbers.sum(dtype=np.int64)), 7 * 8 * MIB)
        with self.assertRaisesRegex(millpond.InvalidError, "'soon' is no advice: give one of"):
            millpond.advise(numbers, "soon")

    def test_lazily_freed_memory_is_old_or_zero_and_written_memory_stays(self):
        region = self.pond.region("16M")
        data = region.array()
        data[:] = 7
        region.lazy_free((0, "4M"), ("8M", "4M"))
        self.assertGreaterEqual(self.pond.stats().lazyfree, 4 * MIB)
        data[0] = 9
        other = self.pond.full(64 * MIB // 8, 1)
        self.assertEqual(int(other.sum()), other.size)
        self.assertEqual((data[0], data[5 * MIB], data[13 * MIB]), (9, 7, 7))
        self.assertTrue(np.isin(data[1 : 4 * MIB], (0, 7)).all())
        region.lazy_free(shared=True)
        self.assertTrue(np.isin(data[1:], (0, 7)).all())

    def test_volatile_ranges_say_whether_they_were_purged(self):
        region = self.pond.region("4M")
        data = region.array()
        data[:] = 7
        region.mark_volatile(0, "1M")
        with self.assertRaises(millpond.Volatile):
            region.mark_volatile(0, "2M")
        with self.assertRaises(millpond.Volatile):
            region.mark_nonvolatile("2M", "1M")
        self.assertFalse(region.mark_nonvolatile(0, "1M"))
        self.assertEqual(int(data[:MIB].sum(dtype=np.int64)), 7 * MIB)
        region.mark_volatile(0, "1M")
        other = self.pond.full(64 * MIB // 8, 1)
        self.assertEqual(int(other.sum()), other.size)
        self.assertTrue(region.mark_nonvolatile(0, "1M"))
        self.assertEqual(int(data[:MIB].sum(dtype=np.int64)), 0)
        self.assertEqual(int(data[MIB:].sum(dtype=np.int64)), 7 * 3 * MIB)

    def test_what_will_be_overwritten_reads_as_before_or_as_zeros(self):
        region = self.pond.region("4M")
        data = region.array()
        data[:] = 7
        region.advise("pageout")
        region.will_overwrite()
        self.assertTrue(np.isin(data, (0, 7)).all())
        data[:] = 8
        self.assertEqual(int(data.sum(dtype=np.int64)), 8 * 4 * MIB)
