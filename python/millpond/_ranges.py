"""What can be said to the manager about a range of a region's bytes.

Offsets and lengths are in bytes, as a number or as a text such as "64M". Without a length a range
goes on to the region's end. Hints and pins take the pages that the range touches. What changes
contents wants whole pages, offset and length at multiples of 4096, but that a range may end where
the region does; the functions of the package that take an array round for you.

All calls may be made from any thread, and let others run meanwhile. Those that change contents ask
that no other thread uses these bytes meanwhile, and each says so: the interpreter's lock, which the
call lets go of, does not see to that. Each can raise `InvalidError` for a range that is empty or
not within the region, `Closed`, and `Forked` in a child of the process that opened the pond.
"""

from __future__ import annotations

import ctypes
from typing import Any, Optional

from ._errors import InvalidError
from ._handle import Handle
from ._library import library, made
from ._pin import Pin
from ._prototypes import ADVICE, Range
from ._size import Size, parse


class Ranges:
    """The part of `Region` that takes ranges."""

    _handle: Handle

    @property
    def size(self) -> int:
        """Length in bytes."""
        self._handle.require_own()
        with self._handle as pointer:
            return int(library().millpond_region_size(pointer))

    def populate(self, offset: Size = 0, size: Optional[Size] = None) -> None:
        """Brings in what the range touches, as far as the budget holds it at once.

        Raises `Lost` where the store cannot give a page back.
        """
        self._call("populate", *self._range(offset, size))

    def prefetch(self, offset: Size = 0, size: Optional[Size] = None, *, wait: bool = True) -> None:
        """Brings in what the range touches: `populate`, or, without `wait`, by a thread of the pond's.

        That brings in one range after the other while the caller goes on. Of what is asked for
        faster than it can be had the oldest is forgotten, and a page that was lost is passed over.
        """
        self._call("populate" if wait else "prefetch", *self._range(offset, size))

    def advise(self, advice: str, offset: Size = 0, size: Optional[Size] = None) -> None:
        """A hint about the pages that the range touches.

        "sequential", "random" and "normal" say in which order they will be touched (for whole
        2 MiB), "willneed" brings them in now, "cold" puts them first in line when memory is short,
        "pageout" takes them out now.

        Raises `InvalidError` for any other word, `Lost` for a page that "willneed" cannot bring in.
        """
        if advice not in ADVICE:
            raise InvalidError(f"{advice!r} is no advice: give one of {', '.join(ADVICE)}")
        self._call("advise", *self._range(offset, size), ADVICE[advice])

    def pin(self, offset: Size = 0, size: Optional[Size] = None) -> Pin[Any]:
        """Brings in what the range touches and keeps it in RAM until the pin is released.

        As a context manager it gives the region. Raises `OverBudget` for more than the budget
        holds, `Lost` where the store cannot give a page back.
        """
        return self._pin(self, *self._range(offset, size))

    def _pin(self, target: Any, offset: int, size: int) -> Pin[Any]:
        with self._handle as pointer:
            pin = made("millpond_region_pin", pointer, offset, size)
        handle = Handle(pin, library().millpond_pin_free, "pin", at_exit=False)
        return Pin(target, handle, self)

    def discard(self, offset: Size = 0, size: Optional[Size] = None) -> None:
        """Forgets the pages of the range: they read as zeros, and take neither RAM nor store.

        No other thread may use them meanwhile. Raises `Unaligned`, `Pinned`, and `Lost` for a lost
        page that shares a folio with an end of the range.
        """
        self._call("discard", *self._range(offset, size))

    def will_overwrite(self, offset: Size = 0, size: Optional[Size] = None) -> None:
        """Says that all of the range is about to be written: the store need not be read for it.

        Until it is written it reads as it did, or as zeros. No other thread may use it meanwhile.
        Raises `Unaligned`.
        """
        self._call("will_overwrite", *self._range(offset, size))

    def lazy_free(self, *ranges: tuple[Size, Size], shared: bool = False) -> None:
        """Says that the contents of the ranges are not needed any more; without any, of all.

        A range is a pair of offset and length. The contents stay until memory is short: reads see
        the old bytes or zeros, and zeros once they were; a write keeps its page for good. No other
        thread may use them meanwhile, unless `shared`, which costs a round of write protection.
        Raises `Unaligned`, `Pinned`, `Lost`.
        """
        pairs = [self._range(*pair) for pair in ranges] or [self._range(0, None)]
        array = (Range * len(pairs))(*(Range(*pair) for pair in pairs))
        self._call("lazy_free_shared" if shared else "lazy_free", array, len(pairs))

    def mark_volatile(self, offset: Size = 0, size: Optional[Size] = None) -> None:
        """Lets the range be purged, all or nothing, until `mark_nonvolatile`.

        Nobody may use it until then. Makes no system call, whatever the length. Raises `Unaligned`,
        `Pinned`, and `Volatile` where a part of it is so already.
        """
        self._call("mark_volatile", *self._range(offset, size))

    def mark_nonvolatile(self, offset: Size = 0, size: Optional[Size] = None) -> bool:
        """Asks for the same range again. True if it was purged, and reads as zeros now.

        Raises `Volatile` for a range that was not marked.
        """
        purged = ctypes.c_int()
        self._call("mark_nonvolatile", *self._range(offset, size), ctypes.byref(purged))
        return purged.value != 0

    def _range(self, offset: Size, size: Optional[Size]) -> tuple[int, int]:
        begin = parse(offset, "an offset")
        if size is not None:
            return begin, parse(size, "a length")
        whole = self.size
        if begin > whole:
            raise InvalidError(f"an offset of {begin} is beyond the region's {whole} bytes")
        return begin, whole - begin

    def _call(self, what: str, *arguments: Any) -> None:
        with self._handle as pointer:
            getattr(library(), f"millpond_region_{what}")(pointer, *arguments)
