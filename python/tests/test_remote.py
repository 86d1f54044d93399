"""Arrays in a pond whose store is beyond the machine: here, objects in a directory."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import millpond

from .support import PACKAGE, python

EXAMPLE = PACKAGE.parent.parent / "examples" / "worker_pool.py"

COUNT = 6_000_000
"""So many numbers take 48 MB: three times the budget, and more than the file in front holds."""


def opened(store: str, **options: object) -> millpond.Pond:
    """Opens a pond of 16 MiB over a store, or skips the test if the library has no such stores."""
    try:
        return millpond.Pond("16M", store=store, **options)
    except millpond.StoreError as error:
        if "built without" in str(error):
            raise unittest.SkipTest(
                "the library was built without stores beyond the machine (--features remote)"
            ) from None
        raise


def sum_of_squares(job: tuple[str, int]) -> tuple[int, int]:
    """Sums squares in a pond of this process's own, and counts the runs that the store has."""
    url, seed = job
    with millpond.Pond("16M", store=f"zram,{url}") as pond:
        numbers = pond.array(np.random.default_rng(seed).integers(1 << 20, size=COUNT // 2))
        numbers *= numbers
        names = os.listdir(url.removeprefix("fs://"))
        return int(numbers.sum()), sum(name.startswith("millpond-run-") for name in names)


class Remote(unittest.TestCase):
    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = place.name
        self.url = f"fs://{place.name}"

    def test_numbers_come_back_and_nothing_is_left(self):
        for local, file in (("zram", 0), ("auto", "8M"), ("auto", 0)):
            with self.subTest(local=local, store_file=file):
                pond = opened(f"{local},{self.url}", store_file=file)
                expected = np.random.default_rng(5).random(COUNT)
                numbers = pond.array(expected)
                self.assertTrue(np.array_equal(numbers, expected))
                self.assertTrue(np.array_equal(numbers[::-1], expected[::-1]))
                self.assertGreater(pond.stats().stored, 20 << 20)
                runs = os.listdir(self.place)
                self.assertEqual(len(runs), 1)
                objects = os.path.join(self.place, runs[0], "o")
                # A file that may take half of what is free holds all of it.
                self.assertEqual(os.path.exists(objects), (local, file) != ("auto", 0))
                del numbers
                pond.close()
                self.assertEqual(os.listdir(self.place), [])

    def test_invalid_stores_are_refused(self):
        opened(f"zram,{self.url}").close()
        for options, error, message in [
            (dict(store="auto,ftp://host/x"), ValueError, "use s3://"),
            (dict(store="zram,redis://:hunter2@host/0"), ValueError, "REDISCLI_AUTH"),
            (dict(store=f"auto,{self.url}", store_file="1M"), millpond.StoreError, "too small"),
            (
                dict(store=f"auto,{self.url}", store_directory="/nowhere"),
                millpond.StoreError,
                "/nowhere",
            ),
        ]:
            with self.subTest(options=options):
                with self.assertRaisesRegex(error, message) as caught:
                    millpond.Pond("16M", **options)
                self.assertNotIn("hunter2", str(caught.exception))

    def test_workers_of_a_pool_share_one_store(self):
        opened(f"zram,{self.url}").close()
        seeds = range(4)
        for method in ("spawn", "fork"):
            with self.subTest(method=method):
                with multiprocessing.get_context(method).Pool(2) as pool:
                    jobs = [(self.url, seed) for seed in seeds]
                    sums = pool.map(sum_of_squares, jobs, chunksize=1)
                for seed, (total, runs) in zip(seeds, sums):
                    numbers = np.random.default_rng(seed).integers(1 << 20, size=COUNT // 2)
                    self.assertEqual(total, int((numbers * numbers).sum()))
                    self.assertGreater(runs, 0)
                self.assertEqual(os.listdir(self.place), [])

    @unittest.skipUnless(EXAMPLE.exists(), "the examples are not beside an installed package")
    def test_the_example_prints_the_same_with_a_store_and_without(self):
        opened(f"zram,{self.url}").close()
        more = {"PYTHONPATH": str(PACKAGE.parent), "MIB": "48", "BUDGET": "16M"}
        printed = []
        for arguments in ([], [self.url]):
            ran = subprocess.run(
                [sys.executable, EXAMPLE, *arguments],
                env={**os.environ, **more},
                capture_output=True,
                text=True,
                timeout=300,
            )
            self.assertEqual(ran.returncode, 0, ran.stderr)
            printed.append(ran.stdout)
        self.assertEqual(len(printed[0].splitlines()), 4)
        self.assertEqual(printed[1], printed[0])
        self.assertEqual(os.listdir(self.place), [])

    def test_a_library_without_remote_stores_says_so(self):
        said = python(f"import millpond; millpond.Pond('16M', store='zram,{self.url}').close()")
        if said.returncode:
            self.assertIn("StoreError", said.stderr)
            self.assertIn("built without stores beyond the machine", said.stderr)
