"""Arrays over files: they hold what numpy reads, and keep to the budget."""

import tempfile
import unittest
from pathlib import Path

import numpy as np

import millpond

from .support import MIB, PondCase


class Files(PondCase):
    def setUp(self) -> None:
        super().setUp()
        directory = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def test_an_array_is_opened_with_its_dtype_and_shape(self):
        path = self.directory / "x.npy"
        for saved in (
            np.arange(60, dtype="f4").reshape(3, 4, 5),
            np.asfortranarray(np.arange(60).reshape(6, 10)),
            np.array([(1, 2.5)], dtype=[("a", "i2"), ("b", "f8")]),
            np.zeros((0, 3)),
        ):
            np.save(path, saved)
            opened = self.pond.open(path)
            self.assertEqual((opened.dtype, opened.shape), (saved.dtype, saved.shape))
            self.assertEqual(opened.tobytes(), saved.tobytes())
            self.assertEqual(opened.flags.f_contiguous, saved.flags.f_contiguous)

    def test_a_read_only_array_cannot_be_written(self):
        path = self.directory / "x.npy"
        np.save(path, np.arange(10))
        with self.assertRaises(ValueError):
            self.pond.open(path)[0] = 1

    def test_own_changes_do_not_reach_the_file(self):
        path = self.directory / "x.npy"
        np.save(path, np.ones(8 * MIB))
        numbers = self.pond.open(path, "c")
        numbers[::7] = 2
        del path
        self.assertEqual(int((numbers == 2).sum()), -(-numbers.size // 7))
        self.assertEqual(int(np.load(self.directory / "x.npy", mmap_mode="r").max()), 1)

    def test_a_file_larger_than_the_budget_is_summed_in_it(self):
        path = self.directory / "raw"
        numbers = np.arange(16 * MIB, dtype="u4")
        numbers.tofile(path)
        mapped = self.pond.memmap(path, "u4")
        for _ in range(2):
            self.assertEqual(int(mapped.sum(dtype="u8")), int(numbers.sum(dtype="u8")))
        stats = self.pond.stats()
        self.assertEqual((stats.pswpout, stats.stored), (0, 0))
        self.assertLessEqual(stats.resident, 32 * MIB)

    def test_changes_of_the_file_are_in_it_after_a_flush(self):
        path = self.directory / "x.npy"
        np.save(path, np.zeros(6 * MIB))
        numbers = self.pond.open(path, "r+")
        numbers[::3] = 5
        millpond.flush(numbers[10:20])
        saved = np.load(path)
        np.testing.assert_array_equal(saved, numbers)
        self.assertEqual(self.pond.stats().stored, 0)
        numbers[1] = 7
        del numbers
        self.assertEqual(float(np.load(path)[1]), 7)
        with self.assertRaises(millpond.InvalidError):
            millpond.flush(saved)

    def test_an_array_holds_its_file_and_its_pond(self):
        path = self.directory / "x.npy"
        np.save(path, np.arange(1000))
        view = self.pond.open(path)[10:20]
        path.unlink()
        self.pond.close()
        self.assertEqual(view.tolist(), list(range(10, 20)))

    def test_memmap_accepts_the_arguments_of_numpys(self):
        path = self.directory / "raw"
        np.arange(100, dtype="i4").tofile(path)
        for arguments in (
            ("i4",),
            ("i4", "r", 40),
            ("i2", "r", 3, (5, 7)),
            ("i4", "r", 8, (4, 4), "F"),
        ):
            ours, theirs = self.pond.memmap(path, *arguments), np.memmap(path, *arguments)
            np.testing.assert_array_equal(ours, theirs)
        for arguments in (("i4", "r", 2), ("i4", "r", 400), ("i4", "w+"), ("i4", "r", 0, (101,))):
            with self.subTest(arguments), self.assertRaises(millpond.InvalidError):
                self.pond.memmap(path, *arguments)
        with self.assertRaises(millpond.Refused):
            self.pond.memmap(self.directory / "missing", "i4", shape=(3,))

    def test_the_arrays_of_an_archive_are_opened_if_they_are_not_compressed(self):
        path = self.directory / "some.npz"
        saved = {"a": np.arange(1000), "b": np.ones((3, 4), "f2")}
        np.savez(path, **saved)
        opened = self.pond.open(path)
        self.assertEqual(set(opened), set(saved))
        for name, array in saved.items():
            np.testing.assert_array_equal(opened[name], array)
        np.savez_compressed(path, **saved)
        with self.assertRaisesRegex(millpond.InvalidError, "compressed.*numpy.savez"):
            self.pond.open(path)
        (self.directory / "text").write_text("no array")
        with self.assertRaisesRegex(millpond.InvalidError, "no array that numpy saved"):
            self.pond.open(self.directory / "text")


if __name__ == "__main__":
    unittest.main()
