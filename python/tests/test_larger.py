"""Usual operations of numpy, on arrays that are larger than the budget."""

import numpy as np

from .support import MIB, PondCase


class Larger(PondCase):
    def test_sorting_in_place(self):
        numbers = self.pond.zeros(48 * MIB // 8)
        random = np.random.default_rng(1)
        random.random(out=numbers)
        total = float(numbers.sum())
        numbers.sort()
        self.assertTrue((numbers[1:] >= numbers[:-1]).all())
        self.assertAlmostEqual(float(numbers.sum()), total, places=3)

    def test_a_product_of_matrices(self):
        # Three arrays of 18 MB do not fit into a budget of 32 MiB.
        size = 1500
        left = self.pond.zeros((size, size))
        right = self.pond.zeros((size, size))
        product = self.pond.zeros((size, size))
        left[:] = np.arange(size)
        right[:] = np.arange(size)[:, None]
        np.matmul(left, right, out=product)
        expected = float((np.arange(size, dtype=np.float64) ** 2).sum())
        self.assertTrue((product == expected).all())

    def test_sums_over_columns_and_rows_are_right(self):
        table = self.pond.zeros((2048, 4096))
        table += np.arange(4096)
        table.T[:] += np.arange(2048)
        sums = table.sum(axis=1)
        expected = np.arange(4096).sum() + np.arange(2048) * 4096
        self.assertTrue(np.array_equal(sums, expected))
