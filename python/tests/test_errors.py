"""Errors have the right classes, and messages that say what to do."""

import ctypes
import os
import signal
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

import millpond
from millpond import _library

from .support import MIB, PACKAGE, PondCase, in_child, python


def anybody_may_handle() -> bool:
    """Whether the system lets unprivileged programs resolve the kernel's faults."""
    setting = Path("/proc/sys/vm/unprivileged_userfaultfd")
    device = Path("/dev/userfaultfd")
    return (setting.exists() and setting.read_text().strip() != "0") or (
        device.exists() and device.stat().st_mode & 0o006 == 0o006
    )


class Errors(PondCase):
    def test_opening_refuses_invalid_options(self):
        for options, error, message in [
            (dict(ram="1M"), ValueError, "16 MiB"),
            (dict(ram="lots"), ValueError, "a budget of 'lots'"),
            (dict(ram="16M", store="tape"), ValueError, "tape"),
            (dict(ram="16M", order="11"), ValueError, "11"),
            (dict(ram="16M", delivery="pigeon"), ValueError, "pigeon"),
            (dict(ram="16M", background="maybe"), ValueError, "maybe"),
            (dict(ram="16M", store="file:\0"), ValueError, "zero character"),
            (dict(ram="16M", store_file="4M"), ValueError, "for the file of auto,URL"),
            (dict(ram="16M", store="s3://bucket"), ValueError, "write auto,URL"),
            (dict(ram="16M", store_directory="/"), ValueError, "for the file of auto,URL"),
            (dict(ram="16M", store="file:/nowhere/at/all"), millpond.StoreError, "/nowhere/at"),
        ]:
            with self.subTest(options=options):
                with self.assertRaisesRegex(error, message) as caught:
                    millpond.Pond(**options)
                self.assertIsInstance(caught.exception, millpond.Error)

    def test_a_pond_refuses_invalid_calls(self):
        self.pond.set_ram("20M")
        self.assertEqual(self.pond.stats().ram, 20 * MIB)
        self.pond.set_ram("32M")
        for act, error, message in [
            (lambda: self.pond.set_ram("64M"), ValueError, "67108864"),
            (lambda: self.pond.set_ram("1M"), ValueError, "1048576"),
            (lambda: self.pond.region(0), ValueError, "0 bytes"),
            (lambda: self.pond.zeros(1 << 40), millpond.NoAddresses, "address"),
            (lambda: self.pond.zeros(1 << 40), MemoryError, "address"),
            (lambda: self.pond.zeros((1 << 40, 1 << 40)), ValueError, "below 2\\*\\*63"),
            (lambda: self.pond.zeros(-1), ValueError, "negative"),
            (lambda: self.pond.zeros(3, order="K"), ValueError, "'K'"),
            (lambda: self.pond.zeros(3, folios="12"), ValueError, "12"),
            (lambda: self.pond.region("1M").discard(1, 4096), millpond.Unaligned, "4096"),
            (lambda: self.pond.region("1M").discard(0, "2M"), ValueError, "2097152"),
            (lambda: self.pond.region("1M").populate("2M"), ValueError, "2097152"),
            (lambda: self.pond.region("1M").pin(0, 0), ValueError, "empty"),
        ]:
            with self.assertRaisesRegex(error, message) as caught:
                act()
            self.assertIsInstance(caught.exception, millpond.Error)

    def test_arrays_outside_any_pond_are_refused(self):
        for call in (
            millpond.region_of,
            millpond.snapshot,
            millpond.pin,
            millpond.prefetch,
            millpond.discard,
            lambda array: millpond.advise(array, "cold"),
        ):
            with self.assertRaisesRegex(millpond.InvalidError, "does not lie in a pond"):
                call(np.zeros(3))
            with self.assertRaisesRegex(millpond.InvalidError, "does not lie in a pond"):
                call(self.pond.zeros(3) + 1)
            with self.assertRaisesRegex(TypeError, "an array is wanted, not list"):
                call([1, 2])

    def test_a_lost_page_is_an_error_in_the_call_that_finds_it(self):
        # This runs in a process of its own, because the library writes to standard error which page
        # is lost, and an access to that page ends the process.
        ended = python(
            """
import os, numpy, millpond
before = set(os.listdir("/proc/self/fd"))
pond = millpond.Pond("16M", store="file", order="0")
numbers = pond.zeros(64 << 20, numpy.uint8)
random = numpy.random.default_rng(1)
for begin in range(0, numbers.size, 1 << 20):
    numbers[begin : begin + (1 << 20)] = numpy.frombuffer(random.bytes(1 << 20), numpy.uint8)
for descriptor in set(os.listdir("/proc/self/fd")) - before:
    path = f"/proc/self/fd/{descriptor}"
    if os.path.lexists(path) and "(deleted)" in os.readlink(path):
        os.ftruncate(int(descriptor), 0)
some = numbers[: 1 << 20]
try:
    millpond.prefetch(some)
except millpond.Lost as error:
    print(error, flush=True)
millpond.discard(some)
assert some.sum() == 0
some[:] = 7
assert (some == 7).all()
numbers.sum()
"""
        )
        self.assertRegex(ended.stdout, "is lost: the store could not give it back; discard it")
        self.assertEqual(ended.returncode, -signal.SIGBUS, ended.stderr)

    @unittest.skipUnless(os.getuid() == 0, "only root can become nobody")
    @unittest.skipIf(anybody_may_handle(), "this machine lets unprivileged programs use a handler")
    def test_a_refused_handler_names_a_remedy(self):
        def act():
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            # Without this PR_SET_DUMPABLE the files of /proc/self would still belong to root.
            ctypes.CDLL(None).prctl(4, 1)
            ways_out = 'userfaultfd.*millpond doctor.*delivery="in-thread"'
            with self.assertRaisesRegex(millpond.Refused, ways_out):
                millpond.Pond("16M")
            with millpond.Pond("16M", delivery="in-thread") as pond:
                self.assertEqual(int(pond.full(1000, 1).sum()), 1000)

        self.assertEqual(in_child(act), 0)


class Loading(unittest.TestCase):
    def test_only_a_named_library_is_tried(self):
        for name, message in [("/nowhere.so", "/nowhere.so"), ("libc.so.6", "not Millpond's")]:
            with mock.patch.dict(os.environ, MILLPOND_LIBRARY=name):
                self.assertEqual(_library.candidates(), [name])
                ended = python("import millpond; millpond.Pond('16M')")
            self.assertEqual(ended.returncode, 1)
            self.assertIn("millpond._errors.Error", ended.stderr)
            self.assertIn(message, ended.stderr)
            self.assertIn("MILLPOND_LIBRARY", ended.stderr)

    def test_the_bundled_library_comes_before_the_systems(self):
        with mock.patch.dict(os.environ):
            os.environ.pop("MILLPOND_LIBRARY", None)
            found = _library.candidates()
        self.assertEqual(found[-1], "libmillpond.so.0")
        bundled = str(PACKAGE / "libmillpond.so")
        self.assertTrue(bundled not in found or found[0] == bundled)
