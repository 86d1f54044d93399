"""Sizes are read in the forms in which people write them."""

import unittest

import numpy as np

from millpond import InvalidError
from millpond._size import parse


class Sizes(unittest.TestCase):
    def test_sizes_are_parsed_from_texts_and_numbers(self):
        for size, expected in [
            ("512M", 512 << 20),
            ("2G", 2 << 30),
            ("1.5GiB", 3 << 29),
            ("1.5gi", 3 << 29),
            (".5k", 512),
            ("1.K", 1024),
            ("64KB", 64_000),
            ("1 TiB", 1 << 40),
            (" 4096 ", 4096),
            ("7B", 7),
            ("0.1G", 107374182),
            (0, 0),
            (np.int64(5), 5),
            ((1 << 63) - 1, (1 << 63) - 1),
        ]:
            with self.subTest(size=size):
                self.assertEqual(parse(size), expected)

    def test_an_invalid_size_is_refused_by_name(self):
        texts = ("", "M", "12Q", "1.2.3G", "-1", "1e9", "5iB", "1 M M", "9999999T")
        for size in (*texts, -1, 1 << 63):
            with self.subTest(size=size):
                with self.assertRaisesRegex(InvalidError, "^a budget of "):
                    parse(size, "a budget")
        for size in (1.5, None, [1]):
            with self.subTest(size=size):
                with self.assertRaisesRegex(TypeError, "a budget must be an int or a text"):
                    parse(size, "a budget")
