"""The examples in the docstrings run, and every public name has a docstring."""

import doctest
import importlib
import pkgutil
import unittest

import numpy as np

import millpond


def load_tests(_loader, tests, _pattern):
    names = {"millpond": millpond, "np": np}
    for module in pkgutil.iter_modules(millpond.__path__, "millpond."):
        tests.addTests(doctest.DocTestSuite(importlib.import_module(module.name), extraglobs=names))
    return tests


class Documented(unittest.TestCase):
    def test_everything_public_says_what_it_does(self):
        for name in millpond.__all__:
            thing = getattr(millpond, name)
            self.assertTrue(thing.__doc__, name)
            if isinstance(thing, type) and not issubclass(thing, tuple):
                for part, value in vars(thing).items():
                    if not part.startswith("_"):
                        self.assertTrue(getattr(value, "__doc__", None), f"{name}.{part}")
