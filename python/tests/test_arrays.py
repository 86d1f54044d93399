"""Arrays that are larger than the budget: their contents, and how long their memory stays."""

import copy
import gc
from unittest import mock

import numpy as np

import millpond
from millpond import _making

from .support import MIB, PondCase


class Contents(PondCase):
    def test_four_budgets_come_back_exactly(self):
        count = 128 * MIB // 8
        numbers = self.pond.zeros(count, np.uint64)
        step = 1 << 20

        def expected(begin):
            return np.arange(begin, begin + step, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)

        for begin in range(0, count, step):
            numbers[begin : begin + step] = expected(begin)
        stats = self.pond.stats()
        self.assertGreater(stats.stored, 64 * MIB)
        self.assertLess(stats.resident, 32 * MIB)
        for begin in range(0, count, step):
            self.assertTrue(np.array_equal(numbers[begin : begin + step], expected(begin)))
        self.assertGreater(self.pond.stats().pgmajfault, 0)

    def test_arrays_match_numpys_shape_strides_and_contents(self):
        for made, expected in [
            (self.pond.zeros((3, 4)), np.zeros((3, 4))),
            (self.pond.zeros(5, "i2", order="F"), np.zeros(5, "i2")),
            (self.pond.zeros((3, 4), order="F"), np.zeros((3, 4), order="F")),
            (self.pond.empty([2, 2], bool), np.zeros((2, 2), bool)),
            (self.pond.zeros((), "f4"), np.zeros((), "f4")),
            (self.pond.zeros(4, "S"), np.zeros(4, "S")),
            (self.pond.zeros(4, "(2,3)f4"), np.zeros(4, "(2,3)f4")),
            (self.pond.full((2, 3), 7), np.full((2, 3), 7)),
            (self.pond.full(3, 1.5, "f4"), np.full(3, 1.5, "f4")),
            (self.pond.full((2, 2), [1, 2]), np.full((2, 2), [1, 2])),
            (self.pond.zeros(np.array([2, 3])), np.zeros((2, 3))),
        ]:
            with self.subTest(expected=expected):
                self.assertEqual(made.dtype, expected.dtype)
                self.assertEqual(made.shape, expected.shape)
                self.assertEqual(made.strides, expected.strides)
                self.assertTrue(np.array_equal(made, expected))

    def test_structured_and_text_arrays_can_be_filled(self):
        kind = np.dtype([("id", "i4"), ("name", "U8"), ("at", "f8", 3)], align=True)
        rows = self.pond.zeros(1000, kind)
        rows["name"][7] = "seven"
        rows[8] = (8, "eight", (1, 2, 3))
        self.assertEqual(rows["name"][7], "seven")
        self.assertEqual(rows[8]["at"].tolist(), [1, 2, 3])

    def test_arrays_without_elements_are_accepted_everywhere(self):
        for shape in (0, (0, 5), (3, 0)):
            empty = self.pond.zeros(shape)
            self.assertEqual(empty.size, 0)
            self.assertEqual(float(empty.sum()), 0)
            self.assertEqual(millpond.snapshot(empty).shape, empty.shape)
            with millpond.pin(empty):
                millpond.prefetch(empty)
                millpond.advise(empty, "cold")
                self.assertEqual(millpond.discard(empty), 0)

    def test_array_copies_other_arrays_and_buffers(self):
        source = np.asfortranarray(np.arange(12, dtype="i4").reshape(3, 4))
        copy = self.pond.array(source)
        self.assertTrue(np.array_equal(copy, source))
        self.assertTrue(copy.flags.f_contiguous)
        self.assertTrue(self.pond.array(source, order="C").flags.c_contiguous)
        self.assertEqual(self.pond.array(source, "f8").dtype, np.float64)
        self.assertEqual(self.pond.array([[1, 2], [3, 4]]).tolist(), [[1, 2], [3, 4]])
        self.assertEqual(int(self.pond.array(5)), 5)
        self.assertEqual(bytes(self.pond.array(memoryview(b"abc"))), b"abc")
        self.assertEqual(self.pond.array(copy[::2, ::-1]).tolist(), source[::2, ::-1].tolist())

    def test_chunked_sources_are_read_by_slabs(self):
        class OnDisk:
            """An array that is read in parts, as h5py's and zarr's arrays are."""

            def __init__(self, data):
                self.data, self.shape, self.dtype = data, data.shape, data.dtype
                self.chunks = (1, *data.shape[1:])
                self.rows = []

            def __getitem__(self, rows):
                self.rows.append(rows.stop - rows.start)
                return self.data[rows]

        source = OnDisk(np.arange(1000.0).reshape(100, 10))
        with mock.patch.object(_making, "SLAB", 30 * 80):
            copy = self.pond.array(source)
        self.assertEqual(source.rows, [30, 30, 30, 30])
        self.assertTrue(np.array_equal(copy, source.data))

    def test_types_that_refer_to_python_objects_are_refused(self):
        kinds = [object, [("id", "i4"), ("what", object)]]
        if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
            kinds.append(np.dtypes.StringDType())
        for kind in kinds:
            with self.subTest(kind=kind):
                with self.assertRaisesRegex(millpond.InvalidError, "refer to Python's heap"):
                    self.pond.zeros(3, kind)
        with self.assertRaisesRegex(millpond.InvalidError, "refer to Python's heap"):
            self.pond.array([object()])
        with self.assertRaisesRegex(millpond.InvalidError, "refer to Python's heap"):
            self.pond.region(4096).array(object)


class Lifetime(PondCase):
    def resident(self) -> int:
        self.pond.quiesce()
        stats = self.pond.stats()
        return stats.resident + stats.stored + stats.limbo

    def test_memory_goes_back_with_the_last_array(self):
        numbers = self.pond.full(16 * MIB // 8, 1.0)
        self.assertGreaterEqual(self.resident(), 16 * MIB)
        view = numbers.reshape(-1, 1024)[5:10, ::2]
        del numbers
        self.assertGreaterEqual(self.resident(), 16 * MIB)
        self.assertEqual(view.sum(), 5 * 512)
        window = memoryview(view)
        del view
        self.assertEqual(window[0, 0], 1.0)
        again = np.asarray(window)
        del window
        self.assertGreaterEqual(self.resident(), 16 * MIB)
        self.assertEqual(millpond.region_of(again).size, 16 * MIB)
        del again
        self.assertEqual(self.resident(), 0)

    def test_successive_arrays_stay_within_the_budget(self):
        for turn in range(20):
            numbers = self.pond.full(16 * MIB // 8, turn)
            self.assertEqual(int(numbers[-1]), turn)
        self.assertLessEqual(self.resident(), 16 * MIB + (2 << 20))

    def test_an_array_outlives_its_pond(self):
        numbers = self.pond.full(1000, 5)
        region = millpond.region_of(numbers)
        self.pond.close()
        self.pond.close()
        numbers += 1
        self.assertEqual(int(numbers.sum()), 6000)
        self.assertEqual(region.stats().resident % 4096, 0)
        copy = millpond.snapshot(numbers)
        numbers[:] = 0
        self.assertEqual(int(copy.sum()), 6000)
        with self.assertRaisesRegex(millpond.Closed, "the pond is closed"):
            self.pond.zeros(1)

    def test_an_unclosed_pond_is_collected_with_its_objects(self):
        def make():
            pond = millpond.Pond("16M")
            # The callback refers to the pond, and the pond has the shrinker, so this is a cycle.
            shrinker = pond.shrinker(lambda: 0, lambda objects: len(pond.counters()))
            numbers = pond.full(1000, 5)
            things = (pond, shrinker, millpond.region_of(numbers))
            return numbers, [thing._handle._finalizer for thing in things]

        numbers, handles = make()
        gc.collect()
        self.assertTrue(all(handle.alive for handle in handles))
        self.assertEqual(int(numbers.sum()), 5000)
        del numbers
        gc.collect()
        self.assertFalse(any(handle.alive for handle in handles))

    def test_copied_objects_share_a_handle(self):
        region = self.pond.region("1M")
        other = copy.copy(region)
        del region
        other.array()[:] = 3
        self.assertEqual(int(other.array().sum(dtype=np.int64)), 3 * MIB)
