"""Regions: bytes of a pond's memory, and arrays over them.

A region is memory at a fixed address. `array` makes arrays over a region, any number of them, and
they hold the region. Its memory is freed when the last array and the region object itself are gone.
The memory goes back in the background, one pointer for each gigabyte (`Pond.quiesce` waits for it).

*Resizing.* `grow` and `shrink` are refused while there are arrays, because the arrays would point
to memory that is gone. No array is made during `grow` and `shrink`. A flag ensures that, and not a
lock: a call that comes at the wrong time raises `Busy`, and no thread waits for another.

*Fork.* A forked child does not have the memory. The child may delete inherited arrays, but reading
one ends the child.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import TYPE_CHECKING, Any, Optional

import numpy as np

from ._errors import Busy, InvalidError
from ._figures import RegionStats
from ._handle import Handle
from ._lease import Lease
from ._library import library, made
from ._prototypes import RegionStatsStruct, sized
from ._ranges import Ranges
from ._shape import Order, Shape, resolved
from ._size import Size, parse, shown

if TYPE_CHECKING:
    from ._group import Group
    from ._pond import Pond


LONG = 16 << 30
"""The length from which on a region's text has no figures: to count them takes too long."""


class Region(Ranges):
    """Memory of a pond. `Pond.region` makes one, and `snapshot`.

    >>> with millpond.Pond("16M") as pond:
    ...     region = pond.region("1M")
    >>> numbers = region.array("i4", (256, 1024))
    >>> numbers[3, 4] = 7
    >>> numbers.nbytes == region.size, int(numbers.sum())
    (True, 7)
    """

    _instead = (
        "pickle region.array(), which copies all of its bytes to ordinary memory, or write them by "
        "millpond.save"
    )

    def __init__(self, pond: Pond, pointer: int) -> None:
        free = library().millpond_region_free_async
        self._handle = Handle(pointer, free, "region", at_exit=False)
        self._pond = pond
        self._lock = threading.Lock()
        self._leased: Optional[weakref.ref[Lease]] = None
        self._resizing = False

    @property
    def pond(self) -> Pond:
        """The pond of the region."""
        return self._pond

    @property
    def address(self) -> int:
        """The address of the region's first byte. It stays the same unless the region grows."""
        self._handle.require_own()
        with self._handle as pointer:
            return int(library().millpond_region_data(pointer))

    def array(
        self,
        dtype: Any = np.uint8,
        shape: Optional[Shape] = None,
        *,
        offset: Size = 0,
        order: Order = "C",
    ) -> np.ndarray[Any, Any]:
        """Makes an array over the bytes from `offset` on.

        `order` is the order of the array's axes, "C" or "F". Without a shape the array has one axis
        with as many elements as there is room for. Raises `InvalidError` if the array does not fit,
        or if the dtype refers to Python objects.
        """
        if order not in ("C", "F"):
            raise InvalidError(f'an order of {order!r} is none: give "C" (rows) or "F" (columns)')
        begin = parse(offset, "an offset")
        data = self._bytes()
        if shape is None:
            itemsize = resolved(1, dtype).nbytes
            shape = max(data.size - begin, 0) // itemsize if itemsize else 0
        form = resolved(shape, dtype)
        if begin + form.nbytes > data.size:
            raise InvalidError(
                f"an array of {form.nbytes} bytes at offset {begin} is beyond the region's "
                f"{data.size}: make it smaller, or the region larger"
            )
        return np.ndarray(form.shape, form.dtype, data, begin, order=order)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray[Any, Any]:
        """Lets `np.asarray(region)` return the region's bytes without a copy."""
        data = self._bytes()
        if copy or (dtype is not None and np.dtype(dtype) != data.dtype):
            if copy is False:
                raise InvalidError(f"bytes become {dtype} only by a copy: call .array({dtype!r})")
            return np.array(data, dtype=dtype)
        return data

    def _bytes(self) -> np.ndarray[Any, Any]:
        self._handle.require_own()
        with self._handle:
            fresh = Lease(self)
            reference = weakref.ref(fresh)
            with self._lock:
                lease = self._leased() if self._leased is not None else None
                if lease is None and not self._resizing:
                    lease, self._leased = fresh, reference
            if lease is None:
                raise Busy("another thread grows, shrinks or frees the region: try again later")
            # Now that there is a lease, the region keeps its address and its size.
            lease.show(self.address, self.size)
            return np.asarray(lease)

    def snapshot(self) -> Region:
        """Makes a copy of this region as it is now.

        The two regions share each page until one of them writes to it. No other thread may write to
        this region during the call. The copy takes addresses of twice the length. Raises `Pinned`,
        `NoAddresses`, and `Refused` if the kernel cannot move page tables.
        """
        with self._handle as pointer:
            return Region(self._pond, made("millpond_region_snapshot", pointer))

    def grow(self, size: Size) -> None:
        """Makes the region `size` bytes long. The new bytes read as zeros.

        Nothing is copied, and the address may change. Raises `Busy` while there are arrays over the
        region, `InvalidError` if the size is smaller than before, `NoAddresses`, and `Pinned` if
        the region has pinned pages and has to move.
        """
        self._resize("grow", size)

    def shrink(self, size: Size) -> None:
        """Makes the region `size` bytes long. The bytes beyond that are dropped.

        Raises `Busy` while there are arrays over the region, `InvalidError` if the size is zero or
        larger than before, `Pinned`, and `Volatile` if a volatile range is dropped only in part.
        """
        self._resize("shrink", size)

    def _resize(self, how: str, size: Size) -> None:
        wanted = parse(size)
        self._begin_resizing(how)
        try:
            self._call(how, wanted)
        finally:
            self._resizing = False

    def _begin_resizing(self, how: str) -> None:
        self._handle.require_own()
        with self._lock:
            busy = self._resizing
            arrays = self._leased is not None and self._leased() is not None
            if not busy and not arrays:
                self._resizing = True
        if busy:
            raise Busy(f"another thread grows, shrinks or frees the region: {how} it afterwards")
        if arrays:
            raise Busy(f"arrays lie in the region: to {how} it, delete them and all views of them")

    def set_group(self, group: Optional[Group]) -> None:
        """Moves the region and its memory to a group, or to the pond itself if `group` is None.

        Raises `Removed`, `OtherPond` and `Busy`.
        """
        if group is None:
            self._call("set_group", None)
        else:
            with group._handle as its:
                self._call("set_group", its)

    def stats(self) -> RegionStats:
        """Returns how many bytes of the region are in each place.

        The call takes time in proportion to the region's length.
        """
        raw = sized(RegionStatsStruct)
        self._call("stats", ctypes.byref(raw))
        return RegionStats(*(getattr(raw, name) for name in RegionStats._fields))

    def free(self) -> None:
        """Ends the region now instead of with its last reference. A second call does nothing.

        A pin keeps its pages until it is released. Raises `Busy` while there are arrays over the
        region.
        """
        if self._handle.closed:
            return
        if not self._handle.inherited:
            # The flag stays set for good, so no array can be made over the region from here on.
            self._begin_resizing("free")
        self._handle.close()

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        if self._handle.closed:
            return "<millpond.Region (freed)>"
        if self._handle.inherited:
            return "<millpond.Region (a parent process's)>"
        size = self.size
        text = f"<millpond.Region of {shown(size)} at {self.address:#x}"
        if size >= LONG:
            return f"{text}>"
        stats = self.stats()
        ram = stats.resident + stats.limbo + stats.lazyfree
        return f"{text}: {shown(ram)} in RAM, {shown(stats.swapped)} in the store>"
