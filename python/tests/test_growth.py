"""Growth of files: the longer array holds all, the old one stays valid, nothing is done by halves."""

import os
import tempfile
import threading
import unittest
from pathlib import Path

import numpy as np

import millpond

from .support import MIB, PondCase


class Growth(PondCase):
    def setUp(self) -> None:
        super().setUp()
        directory = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.addCleanup(directory.cleanup)
        self.path = Path(directory.name) / "x.npy"

    def saved(self, array: np.ndarray) -> np.ndarray:
        np.save(self.path, array)
        return self.pond.open(self.path, "r+")

    def test_saved_arrays_of_any_kind_grow_along_their_outermost_axis(self):
        for array in (
            np.arange(10),
            np.arange(60, dtype="f4").reshape(3, 4, 5),
            np.asfortranarray(np.arange(60).reshape(6, 10)),
            np.array([(1, 2.5), (3, 4.5)], dtype=[("a", ">i2"), ("b", "f8")]),
            np.arange(7, dtype=">u4"),
        ):
            with self.subTest(array.dtype, shape=array.shape):
                numbers = self.saved(array)
                columns = numbers.flags.f_contiguous and not numbers.flags.c_contiguous
                axis = -1 if columns else 0
                longer = millpond.grow(numbers, array.shape[axis] + 5000)
                more = np.zeros(longer.shape, longer.dtype, order="F" if columns else "C")
                old = (..., slice(array.shape[-1])) if columns else slice(len(array))
                more[old] = array
                np.testing.assert_array_equal(longer, more)
                self.assertEqual(longer.flags.f_contiguous, numbers.flags.f_contiguous)
                longer[...] = more = longer[::-1].copy() if not columns else longer[:, ::-1].copy()
                millpond.flush(longer)
                loaded = np.load(self.path)
                self.assertEqual((loaded.dtype, loaded.shape), (longer.dtype, longer.shape))
                np.testing.assert_array_equal(loaded, more)

    def test_earlier_writes_are_in_the_grown_array_and_in_the_file(self):
        numbers = self.saved(np.zeros(MIB))
        for n in range(1, 7):
            numbers[-MIB // 2 :] = n
            numbers = millpond.grow(numbers, (n + 1) * MIB)  # 56 MiB at last, in 32
            self.assertEqual(float(numbers[n * MIB - 1]), n)
            self.assertEqual(float(numbers[-1]), 0)
        expected = np.zeros(7 * MIB)
        for n in range(1, 7):
            expected[n * MIB - MIB // 2 : n * MIB] = n
        np.testing.assert_array_equal(numbers, expected)
        del numbers
        np.testing.assert_array_equal(np.load(self.path), expected)

    def test_the_old_array_stays_and_cannot_be_written(self):
        numbers = self.saved(np.arange(6 * MIB))
        view, rows = numbers[::1000], numbers.reshape(6, -1)
        longer = millpond.grow(rows, 7 * MIB)
        longer[:] = 7
        for old in (numbers, rows):
            self.assertEqual(old.size, 6 * MIB)
            with self.assertRaises(ValueError):
                old[...] = 1
        self.pond.close()
        del numbers, rows, longer
        self.assertEqual(len(view), -(-6 * MIB // 1000))
        self.assertTrue(set(np.unique(view[:10])) <= {*range(0, 10_000, 1000), 7})
        self.assertEqual(int(np.load(self.path).sum()), 7 * 7 * MIB)

    def test_bytes_without_a_header_grow_where_they_lie(self):
        self.path.write_bytes(b"0123456789")
        numbers = self.pond.memmap(self.path, "u1", "r+", offset=3, shape=4)
        numbers[:] = 65
        longer = millpond.grow(numbers, 12)
        # What the file had behind the array is in the longer one.
        self.assertEqual(longer.tobytes(), b"AAAA789" + bytes(5))
        longer[-1] = 66
        millpond.flush(longer)
        self.assertEqual(self.path.read_bytes(), b"012AAAA789" + bytes(4) + b"B")

    def test_growth_by_nothing_and_only_once(self):
        numbers = self.saved(np.arange(10))
        same = millpond.grow(numbers, 10)
        self.assertEqual(same.tolist(), list(range(10)))
        with self.assertRaisesRegex(millpond.Busy, "grown before"):
            millpond.grow(numbers, 20)
        self.assertEqual(millpond.grow(same, 11).tolist(), [*range(10), 0])
        self.assertEqual(len(np.load(self.path)), 11)

    def test_only_one_of_several_threads_gets_the_grown_array(self):
        numbers = self.saved(np.arange(1000))
        got = []

        def work() -> None:
            try:
                got.append(millpond.grow(numbers, 2000))
            except millpond.Busy:
                pass

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([array.size for array in got], [2000])

    def test_a_refused_growth_changes_nothing(self):
        archive = self.path.with_suffix(".npz")
        np.savez(archive, a=np.arange(10))
        raw = self.path.with_suffix(".raw")
        raw.write_bytes(bytes(range(100)))
        np.save(self.path, np.arange(10))
        for name, array, length, refusal in (
            ("only read", self.pond.open(self.path), 20, 'opened with "r"'),
            ("of its own", self.pond.open(self.path, "c"), 20, 'opened with "c"'),
            ("in an archive", self.pond.open(archive, "r+")["a"], 20, "a file of its own"),
            ("without axes", self.pond.memmap(raw, "u1", "r+", shape=()), 20, "without axes"),
            ("shorter", self.pond.open(self.path, "r+"), 9, "9 is less than the array's 10"),
            ("too long", self.pond.memmap(raw, "u1", "r+"), 2**62, ""),
            ("in ordinary memory", np.arange(10), 20, "lies over no file"),
            ("in the pond", self.pond.zeros(10), 20, "lies over no file"),
        ):
            with self.subTest(name):
                before = [path.read_bytes() for path in (self.path, archive, raw)]
                with self.assertRaisesRegex(millpond.Error, refusal):
                    millpond.grow(array, length)
                after = [path.read_bytes() for path in (self.path, archive, raw)]
                self.assertEqual(after, before)
                if array.flags.writeable:
                    array[...] = array[...] + 0
        numbers = self.pond.open(self.path, "r+")
        with self.assertRaises(millpond.InvalidError):
            millpond.grow(numbers, 3)
        # A refusal is not the end: a later call may grow the array.
        self.assertEqual(millpond.grow(numbers, 12).size, 12)

    def test_after_the_end_of_the_pond_an_array_keeps_its_length(self):
        numbers = self.saved(np.arange(10))
        self.pond.close()
        for _ in range(2):
            with self.assertRaises(millpond.Closed):
                millpond.grow(numbers, 20)
        numbers[0] = 7
        millpond.flush(numbers)
        self.assertEqual(np.load(self.path).tolist(), [7, *range(1, 10)])

    def test_another_file_of_the_same_name_is_left_alone(self):
        numbers = self.saved(np.arange(10))
        other = self.path.with_name("other.npy")
        np.save(other, np.arange(3))
        os.replace(other, self.path)
        with self.assertRaisesRegex(millpond.InvalidError, "another file"):
            millpond.grow(numbers, 20)
        self.assertEqual(np.load(self.path).tolist(), [0, 1, 2])
        self.assertEqual(numbers.tolist(), list(range(10)))
        self.path.unlink()
        with self.assertRaises(OSError):
            millpond.grow(numbers, 20)

    def test_the_program_may_change_its_directory(self):
        numbers = self.saved(np.arange(10))
        del numbers
        here = Path.cwd()
        self.addCleanup(os.chdir, here)
        os.chdir(self.path.parent)
        numbers = self.pond.open("x.npy", "r+")
        os.chdir(here)
        self.assertEqual(millpond.grow(numbers, 11).size, 11)

    def test_a_header_without_room_is_an_error_before_anything_is_changed(self):
        """Older versions of numpy leave no more room than the alignment needs."""
        numbers = np.arange(10, dtype="i8")
        words = "{'descr': '<i8', 'fortran_order': False, 'shape': (10,), }"
        words = words.encode("latin-1") + b"\n"
        header = b"\x93NUMPY\x01\x00" + len(words).to_bytes(2, "little") + words
        self.path.write_bytes(header + numbers.tobytes())
        opened = self.pond.open(self.path, "r+")
        with self.assertRaisesRegex(millpond.InvalidError, "no room.*millpond.save"):
            millpond.grow(opened, 100)
        self.assertEqual(self.path.read_bytes(), header + numbers.tobytes())
        self.assertEqual(millpond.grow(opened, 99).size, 99)
        self.assertEqual(np.load(self.path).size, 99)

    def test_files_of_format_version_2_grow(self):
        with self.path.open("wb") as file:
            np.lib.format.write_array(file, np.arange(10), version=(2, 0))
        millpond.grow(self.pond.open(self.path, "r+"), 4000)[-1] = 5
        loaded = np.load(self.path)
        self.assertEqual((loaded.size, int(loaded[-1]), int(loaded[9])), (4000, 5, 9))


if __name__ == "__main__":
    unittest.main()
