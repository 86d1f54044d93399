"""Whatever goes first, no array points to memory that is gone: a program never ends by a signal.

Each program runs in a process of its own, since one that is wrong would take the tests with it.
"""

import unittest

from .support import python

BEGIN = """
import atexit, copy, ctypes, gc, sys, threading, weakref
import numpy as np
import millpond

def made(count=4_000_000):
    pond = millpond.Pond("16M")
    numbers = pond.zeros(count)         # two budgets
    numbers[:] = 1
    return pond, numbers
"""

PROGRAMS = {
    "an array outlives its pond": """
        pond, numbers = made()
        pond.close()
        del pond
        gc.collect()
        print(numbers.sum() == numbers.size)
    """,
    "an array outlives the block": """
        with millpond.Pond("16M") as pond:
            numbers = pond.full(4_000_000, 1.0)
        print(numbers.sum() == numbers.size)
    """,
    "an array outlives a block that raised": """
        try:
            with millpond.Pond("16M") as pond:
                numbers = pond.full(4_000_000, 1.0)
                raise KeyError
        except KeyError:
            pass
        del pond
        gc.collect()
        print(numbers.sum() == numbers.size)
    """,
    "a view of a view outlives all": """
        pond, numbers = made()
        view = numbers[1::2].reshape(2, -1).T[::-1].view("i8")
        del pond, numbers
        gc.collect()
        print(int(view.view("f8").sum()) == 2_000_000)
    """,
    "buffers outlive all": """
        pond, numbers = made()
        buffers = [
            memoryview(numbers),
            np.frombuffer(numbers, "u1"),
            np.from_dlpack(numbers),
            np.asarray(memoryview(numbers).cast("B")),
            np.ndarray(10, "f8", numbers, 80),
            (ctypes.c_double * 10).from_buffer(numbers),
        ]
        del pond, numbers
        gc.collect()
        print(all(np.asarray(buffer).view("f8")[9] == 1 for buffer in buffers))
    """,
    "a pin outlives all": """
        pond, numbers = made()
        pin = millpond.pin(numbers[:1000])
        pond.close()
        del pond, numbers
        gc.collect()
        with pin as pinned:
            print(pinned.sum() == 1000)
    """,
    "a snapshot outlives all": """
        pond, numbers = made()
        before = millpond.snapshot(numbers)
        numbers[:] = 2
        pond.close()
        del pond, numbers
        gc.collect()
        print(before.sum() == before.size)
    """,
    "a cycle is collected": """
        pond, numbers = made()
        class Node: pass
        node = Node()
        node.self, node.pond, node.numbers = node, pond, numbers
        gone = weakref.ref(node)
        del pond, numbers, node
        gc.collect()
        print(gone() is None)
    """,
    "a region cannot be freed under its arrays": """
        pond, numbers = made()
        region = millpond.region_of(numbers)
        refused = 0
        for change in (region.free, lambda: region.shrink(4096), lambda: region.grow("1G")):
            try:
                change()
            except millpond.Busy:
                refused += 1
        print(refused == 3 and numbers.sum() == numbers.size)
    """,
    "a memory view holds the region too": """
        region = millpond.Pond("16M").region("32M")
        view = memoryview(region.array())
        try:
            region.free()
        except millpond.Busy:
            print(view[-1] == 0)
    """,
    "a copy of a region is the same memory": """
        pond, numbers = made()
        region = copy.copy(millpond.region_of(numbers))
        del pond, numbers
        gc.collect()
        print(region.array("f8").sum() == 4_000_000)
    """,
    "a closed pond makes nothing": """
        pond, numbers = made()
        pond.close()
        try:
            pond.zeros(1)
        except millpond.Closed:
            print(repr(pond) == "<millpond.Pond (closed)>" and numbers[-1] == 1)
    """,
    "closing beside threads that make and read arrays": """
        pond, numbers = made()
        def work():
            try:
                while True:
                    pond.zeros(1_000_000)[::512] += numbers[:1_000_000:512]
            except millpond.Closed:
                pass
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        pond.close()
        for thread in threads:
            thread.join()
        print(numbers.sum() == numbers.size)
    """,
    "daemon threads read until the end": """
        pond, numbers = made()
        def work():
            while True:
                numbers[::512].sum()
        for _ in range(2):
            threading.Thread(target=work, daemon=True).start()
        print(True)
    """,
    "an array over a file outlives its pond, its file and its growth": """
        import os, tempfile
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "x.npy")
            np.save(path, np.ones(4_000_000))
            pond = millpond.Pond("16M")
            numbers = pond.open(path, "r+")
            views = [numbers[::1000], memoryview(numbers)[:10], numbers.reshape(2, -1).T]
            longer = millpond.grow(numbers, 5_000_000)
            longer[-1] = 1
            pond.close()
        del pond, numbers
        gc.collect()
        print(all(np.asarray(view).min() == 1 for view in views) and longer.sum() == 4_000_001)
    """,
    "an array over a file that grew is read after the interpreter's own end": """
        import tempfile
        with tempfile.NamedTemporaryFile() as file:
            file.write(bytes(1000))
            file.flush()
            pond = millpond.Pond("16M")
            old = pond.memmap(file.name, mode="r+")
            sys.kept = millpond.grow(old, 9_000_000), old
        @atexit.register
        def last():
            print(not any(array.any() for array in sys.kept))
        atexit.register(pond.close)
    """,
    "an array is read after the interpreter's own end": """
        pond, numbers = made()
        sys.kept = numbers
        @atexit.register
        def last():
            print(numbers.sum() == numbers.size)
        class Late:
            def __del__(self, numbers=numbers):
                numbers[0] = numbers[-1]
        sys.late = Late()
        atexit.register(pond.close)
    """,
}


class Lifetimes(unittest.TestCase):
    def test_no_program_ends_by_a_signal(self):
        for name, program in PROGRAMS.items():
            with self.subTest(name):
                lines = (line[8:] for line in program.splitlines())
                ended = python(BEGIN + "\n".join(lines))
                self.assertEqual((ended.returncode, ended.stdout), (0, "True\n"), ended.stderr)
