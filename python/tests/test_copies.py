"""Arrays that come into a pond, and copies that leave it: by hand, by file and by pickle."""

import array
import copy
import os
import pickle
import tempfile

import numpy as np

import millpond

from .support import MIB, PondCase, python


class Coming(PondCase):
    def test_from_array_keeps_dtype_shape_and_order(self):
        for source in [
            np.arange(12, dtype="i2").reshape(3, 4),
            np.asfortranarray(np.arange(12.0).reshape(3, 4)),
            np.arange(20)[::-2],
            np.zeros((0, 3), "f4"),
            np.array(7),
            np.array([("a", 1)], [("name", "U3"), ("at", "f8")]),
        ]:
            with self.subTest(source=source):
                made = self.pond.from_array(source)
                self.assertEqual((made.dtype, made.shape), (source.dtype, source.shape))
                columns = source.flags.f_contiguous or made.ndim < 2
                self.assertEqual(made.flags.f_contiguous, columns)
                self.assertTrue(np.array_equal(made, source))
                self.assertIs(millpond.region_of(made).pond, self.pond)
        self.assertEqual(self.pond.from_array(array.array("d", [1, 2])).tolist(), [1, 2])
        self.assertEqual(self.pond.from_array(b"ab").tolist(), [97, 98])
        for wrong in ([1, 2], 7, None, "ab"):
            with self.assertRaisesRegex(TypeError, r"an array is wanted, not \w+"):
                self.pond.from_array(wrong)

    def test_asarray_copies_only_memory_outside_the_pond(self):
        here = self.pond.zeros((3, 4), "f4")
        self.assertIs(self.pond.asarray(here), here)
        self.assertIs(self.pond.asarray(here, np.float32, order="C"), here)
        view = here[1:]
        self.assertIs(self.pond.asarray(view), view)
        with millpond.Pond("16M") as other:
            for copied in [
                self.pond.asarray(here, "f8"),
                self.pond.asarray(here, order="F"),
                other.asarray(here),
                self.pond.asarray([[0] * 4] * 3),
                self.pond.asarray(np.zeros((3, 4))),
            ]:
                self.assertFalse(np.shares_memory(copied, here))
                self.assertEqual(copied.tolist(), here.tolist())
                self.assertIsNotNone(millpond.region_of(copied))


class Files(PondCase):
    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = os.path.join(directory.name, "numbers.npy")

    def test_arrays_of_every_form_are_saved_and_loaded(self):
        many_names = [(f"{n:050}", "i1") for n in range(100)]
        numbers = self.pond.from_array(np.arange(24, dtype=">i4").reshape(2, 3, 4))
        for source in [
            numbers,
            numbers[:, ::2],
            numbers.T,
            numbers[::-1],
            self.pond.array(np.arange(12.0).reshape(3, 4), order="F"),
            self.pond.zeros(0),
            self.pond.zeros((3, 0), "f4"),
            self.pond.full((), 7),
            self.pond.full(3, "abc", "U5"),
            self.pond.zeros(3, many_names),
            np.eye(3),
        ]:
            with self.subTest(shape=source.shape, strides=source.strides):
                millpond.save(self.path, source)
                for read in (np.load(self.path), self.pond.load(self.path)):
                    self.assertEqual((read.dtype, read.shape), (source.dtype, source.shape))
                    self.assertTrue(np.array_equal(read, source))
                np.save(self.path, np.asarray(source))
                self.assertTrue(np.array_equal(self.pond.load(self.path), source))

    def test_unsuitable_arrays_and_files_are_refused(self):
        with self.assertRaisesRegex(millpond.InvalidError, "refers to Python's heap"):
            millpond.save(self.path, np.array([None]))
        with self.assertRaisesRegex(millpond.InvalidError, "beyond Latin-1"):
            millpond.save(self.path, np.zeros(1, [("\u4e00", "i1")]))
        with self.assertRaisesRegex(millpond.InvalidError, "too long for numpy's format"):
            millpond.save(self.path, np.zeros(1, [(f"{n:0100}", "i1") for n in range(1000)]))
        with open(self.path, "wb") as file:
            file.write(b"no numbers")
        with self.assertRaises(ValueError):
            self.pond.load(self.path)
        millpond.save(self.path, np.arange(100))
        os.truncate(self.path, os.path.getsize(self.path) - 8)
        with self.assertRaisesRegex(ValueError, "ends 8 bytes too early"):
            self.pond.load(self.path)
        with self.assertRaises(FileNotFoundError):
            self.pond.load(self.path + ".none")

    def test_four_budgets_take_a_small_buffer_by_each_delivery(self):
        for delivery in ("handler", "in-thread"):
            ended = python(
                f"""
import resource
import numpy as np
import millpond

pond = millpond.Pond("16M", delivery={delivery!r})
numbers = pond.zeros(64 << 17, "i8")
for begin in range(0, len(numbers), 1 << 20):
    numbers[begin:begin + (1 << 20)] = begin
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
millpond.save({self.path!r}, numbers)
read = pond.load({self.path!r})
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
step = 1 << 20
right = all((read[begin:begin + step] == begin).all() for begin in range(0, len(read), step))
print(right, after - before < 32 << 10)
"""
            )
            self.assertEqual((ended.returncode, ended.stdout), (0, "True True\n"), ended.stderr)


class Pickles(PondCase):
    def test_a_pickle_of_an_array_is_a_copy_in_ordinary_memory(self):
        numbers = self.pond.from_array(np.arange(MIB).reshape(2, -1))
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            packed = pickle.dumps(numbers[:, 7:], protocol)
            self.assertGreater(len(packed), 7 * MIB)
            copied = pickle.loads(packed)
            self.assertTrue(np.array_equal(copied, numbers[:, 7:]))
            with self.assertRaisesRegex(millpond.InvalidError, "does not lie in a pond"):
                millpond.region_of(copied)
        back = self.pond.asarray(copied)
        self.assertIs(millpond.region_of(back).pond, self.pond)

    def test_a_deep_copy_of_an_array_is_ordinary_memory(self):
        with self.assertRaises(millpond.InvalidError):
            millpond.region_of(copy.deepcopy(self.pond.zeros(3)))

    def test_handles_that_cannot_be_copied_say_what_to_do_instead(self):
        region = self.pond.region("1M")
        cache = self.pond.shrinker(lambda: 0, lambda _objects: 0)
        self.addCleanup(cache.close)
        for thing, instead in [
            (self.pond, "open a pond in the other process"),
            (self.pond.group("a"), "open a pond in the other process"),
            (region, r"pickle region.array\(\), which copies all of its bytes"),
            (region.pin(0, 4096), "open a pond in the other process"),
            (cache, "open a pond in the other process"),
        ]:
            for copying in (pickle.dumps, copy.deepcopy):
                said = f"{type(thing).__name__} cannot .*{instead}"
                with self.assertRaisesRegex(TypeError, said):
                    copying(thing)


class Texts(PondCase):
    def test_reprs_show_the_figures(self):
        numbers = self.pond.zeros(8 * MIB)
        numbers[:] = np.arange(8 * MIB)
        region = millpond.region_of(numbers)
        figures = r"[\d.]+M in RAM, [\d.]+M in the store"
        self.assertRegex(repr(region), rf"^<millpond.Region of 64M at 0x[0-9a-f]+: {figures}>$")
        self.assertRegex(repr(self.pond), rf"^<millpond.Pond of 32M: {figures}, \d+ major faults>$")
        with millpond.pin(numbers[:1024]) as _pinned:
            pass
        pin = region.pin(0, 6144)
        self.assertEqual(repr(pin), "<millpond.Pin of 6K>")
        pin.release()
        self.assertEqual(repr(pin), "<millpond.Pin of 6K (released)>")
        group = self.pond.group("a")
        group.remove()
        self.assertEqual(repr(group), "<millpond.Group 'a' (removed)>")
        cache = self.pond.shrinker(lambda: 0, lambda _objects: 0)
        self.assertEqual(repr(cache), f"<millpond.Shrinker of {self.pond!r}>")
        cache.close()
        self.assertEqual(repr(cache), "<millpond.Shrinker (closed)>")
        long = self.pond.region("20G")
        self.assertRegex(repr(long), "^<millpond.Region of 20G at 0x[0-9a-f]+>$")
