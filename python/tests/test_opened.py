"""What programs do with arrays: each kind of array, in each kind of file, does all of it in place.

A library such as scikit-learn is handed an array and does not ask where its bytes are. So each row of
one table is an array that `numpy.load` reads back, and each row of the other a thing that a library
does with one; the result must be that of the array in ordinary memory.
"""

import copy
import io
import pickle
import tempfile
import unittest
from pathlib import Path
from typing import Any, Callable

import numpy as np

import millpond

from .support import MIB, PondCase

_fields = [("key", "<i4"), ("text", "S3"), ("part", [("x", ">f8"), ("y", "?")]), ("row", "u2", 3)]

ARRAYS: dict[str, np.ndarray] = {
    "numbers": np.arange(-500, 500, dtype="i8"),
    "rows": np.arange(600, dtype="f4").reshape(20, 30),
    "columns": np.asfortranarray(np.arange(600, dtype="f4").reshape(20, 30)),
    "three axes": np.arange(24, dtype="i2").reshape(2, 3, 4),
    "three axes by columns": np.asfortranarray(np.arange(24, dtype="i2").reshape(2, 3, 4)),
    "one element": np.array([7.5]),
    "no axis": np.array(7.5),
    "empty": np.zeros(0, "f4"),
    "empty rows": np.zeros((0, 3), "i2"),
    "empty columns": np.zeros((3, 0), ">i2", order="F"),
    "big-endian integers": np.arange(1000, dtype=">i4"),
    "big-endian floats by columns": np.asfortranarray(np.ones((9, 7), ">f8").cumsum(0)),
    "complex": np.exp(1j * np.arange(100)),
    "half": (np.arange(100) / 128).astype("f2"),
    "truths": np.arange(100) % 3 == 0,
    "text": np.array(["a", "bc", "äöü"]),
    "bytes": np.array([b"a", b"bcd"]),
    "dates": np.arange("2020-01", "2021-01", dtype="M8[D]"),
    "fields": np.array([(n, b"abc", (n / 2, n % 2), (n, n, n)) for n in range(50)], _fields),
    "fields of every offset": np.ones(10, np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    "big-endian fields": np.array([(1, 2.5), (3, 4.5)], [("a", ">i2"), ("b", ">f4")]),
    "no field": np.zeros(0, _fields),
}


def _saved_again(array: np.ndarray) -> Any:
    file = io.BytesIO()
    np.save(file, array)
    file.seek(0)
    return np.load(file)


def _sorted(array: np.ndarray) -> Any:
    return np.sort(array, axis=None) if array.dtype.kind != "c" else np.sort_complex(array.ravel())


def _numbers(use: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], Any]:
    """Makes a use of one that is for arrays of numbers only."""
    return lambda array: use(array) if array.dtype.kind in "iufc" and array.size else None


USES: dict[str, Callable[[np.ndarray], Any]] = {
    "all": lambda array: array.copy(order="K"),
    "a slice": lambda array: array[1:5] if array.ndim else array[...],
    "a slice with steps": lambda array: array[::-3] if array.ndim else array[()],
    "the last axis": lambda array: array[..., ::2] if array.ndim else array,
    "the transposed": lambda array: array.T,
    "a view as bytes": lambda array: np.frombuffer(array.tobytes("A"), "u1"),
    "chosen by numbers": lambda array: array.ravel()[[0, -1, 0]] if array.size else None,
    "chosen by truths": lambda array: array.ravel()[np.arange(array.size) % 7 == 1],
    "fields": lambda array: [array[name] for name in array.dtype.names or ()],
    "sorted": _sorted,
    "the places of the sorted": lambda array: np.argsort(array, axis=None, kind="stable"),
    "unique": lambda array: np.unique(array),
    "compared": lambda array: array == array.copy(),
    "joined": lambda array: np.concatenate([array.ravel(), array.ravel()[:3]]),
    "in the machine's order": lambda array: array.astype(array.dtype.newbyteorder("=")),
    "a ufunc": _numbers(lambda array: np.sqrt(np.abs(array))),
    "arithmetic": _numbers(lambda array: array * 2 + array[..., :1] if array.ndim else array + 1),
    "a sum by axis": _numbers(lambda array: array.sum(axis=0)),
    "mean and deviation": _numbers(lambda array: [array.mean(), array.std()]),
    "accumulated": _numbers(lambda array: np.add.accumulate(array.ravel()[:1000])),
    "a product": _numbers(lambda array: array.ravel()[:500] @ array.ravel()[:500]),
    "a histogram": _numbers(lambda array: np.histogram(array.real)[0]),
    "saved again": _saved_again,
    "pickled": lambda array: pickle.loads(pickle.dumps(array)),
    "pickled by protocol 5": lambda array: pickle.loads(pickle.dumps(array, 5)),
    "copied": copy.copy,
    "copied deeply": copy.deepcopy,
}


class Opened(PondCase):
    def setUp(self) -> None:
        super().setUp()
        directory = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def assert_same(self, one: Any, other: Any) -> None:
        one, other = np.asanyarray(one), np.asanyarray(other)
        self.assertEqual((one.dtype, one.shape), (other.dtype, other.shape))
        np.testing.assert_array_equal(one, other)

    def check_uses(self, opened: np.ndarray, expected: np.ndarray) -> None:
        self.assert_same(opened, expected)
        for flag in ("c_contiguous", "f_contiguous"):
            self.assertEqual(getattr(opened.flags, flag), getattr(expected.flags, flag))
        for name, use in USES.items():
            with self.subTest(use=name):
                wanted = use(expected)
                got = use(opened)
                if isinstance(wanted, list):
                    self.assertEqual(len(got), len(wanted))
                    for one, other in zip(got, wanted):
                        self.assert_same(one, other)
                elif wanted is not None:
                    self.assert_same(got, wanted)

    def test_arrays_of_a_saved_file_behave_like_ordinary_ones(self) -> None:
        path = self.directory / "x.npy"
        for name, array in ARRAYS.items():
            np.save(path, array)
            for mode in ("r", "c", "r+"):
                with self.subTest(name, mode=mode):
                    self.check_uses(self.pond.open(path, mode), np.load(path))
            self.assert_same(np.load(path), array)

    def test_arrays_of_an_archive_behave_like_ordinary_ones(self) -> None:
        path = self.directory / "x.npz"
        np.savez(path, **{name.replace(" ", "_"): array for name, array in ARRAYS.items()})
        opened = self.pond.open(path)
        with np.load(path) as loaded:
            self.assertEqual(list(opened), list(loaded))
            for name, array in opened.items():
                with self.subTest(name):
                    self.check_uses(array, loaded[name])

    def test_saving_an_opened_array_reproduces_its_file(self) -> None:
        path, other = self.directory / "x.npy", self.directory / "y.npy"
        for name, array in ARRAYS.items():
            np.save(path, array)
            for save in (np.save, millpond.save):
                with self.subTest(name, save=save.__name__):
                    save(other, self.pond.open(path))
                    self.assert_same(np.load(other), array)
                    self.assertEqual(
                        np.load(other).flags.f_contiguous, np.load(path).flags.f_contiguous
                    )

    def test_more_than_the_budget_is_used_in_each_mode(self) -> None:
        path = self.directory / "x.npy"
        expected = np.arange(5 * MIB, dtype=">f8").reshape(5, MIB)  # 40 MiB in 32
        np.save(path, expected)
        for mode in ("r", "c", "r+"):
            opened = self.pond.open(path, mode)
            for name in ("a slice with steps", "the last axis", "a sum by axis", "saved again"):
                with self.subTest(name, mode=mode):
                    self.assert_same(USES[name](opened), USES[name](expected))
            del opened
        self.assertLessEqual(self.pond.stats().resident, 32 * MIB)

    def test_a_pickle_and_a_deep_copy_hold_the_bytes_and_no_file(self) -> None:
        path = self.directory / "x.npy"
        np.save(path, np.arange(1000))
        opened = self.pond.open(path, "r+")
        copies = [copy.deepcopy(opened), pickle.loads(pickle.dumps(opened)), opened.copy()]
        opened[:] = 7
        for copied in copies:
            self.assertEqual(copied.tolist(), list(range(1000)))
            copied[0] = 5
            with self.assertRaises(millpond.InvalidError):
                millpond.flush(copied)
        del opened
        self.assertEqual(set(np.load(path)), {7})

    def test_results_are_written_into_a_file_in_place(self) -> None:
        path = self.directory / "x.npy"
        for name, array in ARRAYS.items():
            if array.dtype.kind not in "iuf" or not array.size:
                continue
            with self.subTest(name):
                np.save(path, array)
                opened = self.pond.open(path, "r+")
                np.add(opened, 1, out=opened)
                opened *= 2
                opened.flat[0] = 3
                expected = np.array((array + 1) * 2, array.dtype, order="K")
                expected.flat[0] = 3
                millpond.flush(opened)
                self.assert_same(np.load(path), expected)

    def test_statistics_by_columns_as_a_scaler_takes_them(self) -> None:
        """A scaler learns by batches, and then transforms all into an array of the pond."""
        path = self.directory / "x.npy"
        random = np.random.default_rng(4)
        points = random.normal(3, 2, (MIB // 2, 10))  # 40 MiB in 32
        np.save(path, points)
        opened = self.pond.open(path)
        sums = squares = np.zeros(10)
        for batch in np.array_split(opened, 40):
            sums = sums + batch.sum(axis=0)
            squares = squares + (batch**2).sum(axis=0)
        mean = sums / len(opened)
        deviation = np.sqrt(squares / len(opened) - mean**2)
        np.testing.assert_allclose(mean, points.mean(axis=0))
        np.testing.assert_allclose(deviation, points.std(axis=0))
        scaled = self.pond.empty(points.shape)
        np.subtract(opened, mean, out=scaled)
        scaled /= deviation
        np.testing.assert_array_equal(scaled, (points - mean) / deviation)
        self.assertLessEqual(self.pond.stats().resident, 32 * MIB)


if __name__ == "__main__":
    unittest.main()
