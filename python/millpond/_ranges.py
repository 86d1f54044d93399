"""Calls on a range of a region's bytes.

Offsets and lengths are in bytes, as a number or as a text such as "64M". Without a length a range
ends where the region ends. Hints and pins apply to the pages that the range touches. Calls that
change contents need a page-aligned range: the offset and the length are multiples of 4096, but the
range may end where the region ends. The functions of the package that take an array round the range
themselves.

All calls may be made from any thread, and other threads run during a call. No other thread may
access the range during a call that changes contents, and the text of each such call says so. The
interpreter's lock does not ensure that, because the call releases it. Each call can raise
`InvalidError` if the range is empty or not within the region, `Closed`, and `Forked` in a child of
the process that opened the pond.
"""

from __future__ import annotations

import ctypes
from typing import Any, Optional

from ._errors import InvalidError
from ._handle import Handle, Local
from ._library import library, made
from ._pin import Pin
from ._prototypes import ADVICE, Range
from ._size import Size, parse


class Ranges(Local):
    """The part of `Region` that takes ranges."""

    _handle: Handle

    @property
    def size(self) -> int:
        """The region's length in bytes."""
        self._handle.require_own()
        with self._handle as pointer:
            return int(library().millpond_region_size(pointer))

    def populate(self, offset: Size = 0, size: Optional[Size] = None) -> None:
        """Brings in the pages that the range touches, as many as the budget can hold at once.

        Raises `Lost` if the store cannot give a page back.
        """
        self._call("populate", *self._range(offset, size))

    def prefetch(self, offset: Size = 0, size: Optional[Size] = None, *, wait: bool = True) -> None:
        """Brings in the pages that the range touches.

        With `wait=True` this is `populate`. With `wait=False` a thread of the pond brings in one
        range after the other while the caller goes on. If ranges are asked for faster than they can
        be brought in, the oldest requests are dropped. Lost pages are passed over.
        """
        self._call("populate" if wait else "prefetch", *self._range(offset, size))

    def advise(self, advice: str, offset: Size = 0, size: Optional[Size] = None) -> None:
        """Advises the pond about the pages that the range touches.

        "sequential" and "random" say in which order the program will touch them, and "normal" takes
        that back; all three hold for blocks of 2 MiB. "willneed" brings the pages in now, "cold"
        lets them leave first when memory is short, and "pageout" takes them out now.

        Raises `InvalidError` for any other word, and `Lost` if "willneed" cannot bring a page in.
        """
        if advice not in ADVICE:
            raise InvalidError(f"{advice!r} is no advice: give one of {', '.join(ADVICE)}")
        self._call("advise", *self._range(offset, size), ADVICE[advice])

    def pin(self, offset: Size = 0, size: Optional[Size] = None) -> Pin[Any]:
        """Brings in the pages that the range touches, and keeps them in RAM while the pin holds.

        As a context manager the pin gives the region. Raises `OverBudget` if the range does not fit
        into the budget, and `Lost` if the store cannot give a page back.
        """
        return self._pin(self, *self._range(offset, size))

    def _pin(self, target: Any, offset: int, size: int) -> Pin[Any]:
        with self._handle as pointer:
            pin = made("millpond_region_pin", pointer, offset, size)
        handle = Handle(pin, library().millpond_pin_free, "pin", at_exit=False)
        return Pin(target, handle, self, size)

    def discard(self, offset: Size = 0, size: Optional[Size] = None) -> None:
        """Drops the pages of the range.

        They read as zeros afterwards, and take neither RAM nor room in the store. No other thread
        may access the range during the call. Raises `Unaligned`, `Pinned`, and `Lost` if a folio
        that crosses an end of the range has a lost page.
        """
        self._call("discard", *self._range(offset, size))

    def will_overwrite(self, offset: Size = 0, size: Optional[Size] = None) -> None:
        """Announces that the program will write all of the range.

        So the range's data in the store is dropped, and never read back. Until a byte is written it
        has its old value or zero. No other thread may access the range during the call. Raises
        `Unaligned`.
        """
        self._call("will_overwrite", *self._range(offset, size))

    def lazy_free(self, *ranges: tuple[Size, Size], shared: bool = False) -> None:
        """Frees the ranges lazily, or the whole region if no range is given.

        A range is a pair of offset and length. The contents stay until memory is short. A read sees
        the old bytes or zeros; once it has seen zeros, it sees zeros from then on. A write to a
        page ends the lazy free of that page. No other thread may access the ranges during the call,
        unless `shared` is true, which costs one round of write protection. Raises `Unaligned`,
        `Pinned` and `Lost`.
        """
        pairs = [self._range(*pair) for pair in ranges] or [self._range(0, None)]
        array = (Range * len(pairs))(*(Range(*pair) for pair in pairs))
        self._call("lazy_free_shared" if shared else "lazy_free", array, len(pairs))

    def mark_volatile(self, offset: Size = 0, size: Optional[Size] = None) -> None:
        """Allows the pond to purge the range, as a whole, when memory is short.

        The program must not access the range until `mark_nonvolatile` has returned. The call makes
        no system call, whatever the length. Raises `Unaligned`, `Pinned`, and `Volatile` if a part
        of the range is volatile already.
        """
        self._call("mark_volatile", *self._range(offset, size))

    def mark_nonvolatile(self, offset: Size = 0, size: Optional[Size] = None) -> bool:
        """Ends `mark_volatile` of the same range, and returns whether the range was purged.

        A purged range reads as zeros. Raises `Volatile` if the range was not marked as volatile.
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
