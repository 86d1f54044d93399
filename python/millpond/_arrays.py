"""Calls on an array, or on a view of one, that lies in a pond.

An array knows its region through its bases, so a call needs only the array: `pin(a[100:200])`. The
bytes of an array are all bytes from its first to its last. A view with gaps, such as a column,
includes the gaps.

*Rounding.* Memory is managed in pages of 4096 bytes. Hints and pins apply to every page that the
bytes touch. `discard` drops only pages that lie wholly inside, so that a neighbour's bytes stay,
and returns how many bytes it has dropped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ._errors import InvalidError
from ._lease import find
from ._pin import Pin
from ._region import Region
from ._size import PAGE


class _Place(NamedTuple):
    region: Region
    first: int
    """The offset of the array's first element."""
    begin: int
    """The offset of the array's lowest byte."""
    end: int
    """The offset behind the array's highest byte."""


def _place(array: np.ndarray[Any, Any]) -> _Place:
    region = region_of(array)
    first = array.__array_interface__["data"][0] - region.address
    if array.size == 0:
        return _Place(region, first, first, first)
    reach = [
        (length - 1) * stride for length, stride in zip(array.shape, array.strides) if length > 1
    ]
    begin = first + sum(step for step in reach if step < 0)
    end = first + sum(step for step in reach if step > 0) + array.itemsize
    return _Place(region, first, begin, end)


def region_of(array: Any) -> Region:
    """Returns the region in which an array lies.

    Raises `InvalidError` if the array does not lie in a pond, which is so for every result of
    arithmetic, and `TypeError` if the argument is no array.

    >>> pond = millpond.Pond("16M")
    >>> numbers = pond.zeros(1000)
    >>> millpond.region_of(numbers[10:20]).size
    8000
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"an array is wanted, not {type(array).__name__}")
    lease = find(array)
    if lease is None:
        raise InvalidError(
            "the array does not lie in a pond: make it by one (zeros, array, ...), and give "
            "results a place there (out=, [...] =)"
        )
    return lease.region


def snapshot(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns a copy of the array as it is now, of the same shape, dtype and strides.

    A page is copied only when the program touches it in the array or in the copy. The snapshot
    covers all of the array's region, and no other thread may write to that region during the call.
    Raises the errors of `Region.snapshot`.

    >>> pond = millpond.Pond("16M")
    >>> numbers = pond.full(1000, 1)
    >>> before = millpond.snapshot(numbers)
    >>> numbers[:] = 2
    >>> int(before.sum()), int(numbers.sum())
    (1000, 2000)
    """
    place = _place(array)
    data = np.asarray(place.region.snapshot())
    return np.ndarray(array.shape, array.dtype, data, place.first, array.strides)


def pin(array: np.ndarray[Any, Any]) -> Pin[np.ndarray[Any, Any]]:
    """Brings the array's bytes in and keeps them in RAM until the pin is released.

    As a context manager the pin gives the array. Raises `OverBudget` if the bytes do not fit into
    the budget, and `Lost` if the store cannot give a page back.

    >>> pond = millpond.Pond("16M")
    >>> numbers = pond.zeros(1000)
    >>> with millpond.pin(numbers[:10]) as some, open("/dev/zero", "rb") as file:
    ...     file.readinto(some)
    80
    """
    place = _place(array)
    if place.begin == place.end:
        return Pin(array, None, place.region, 0)
    return place.region._pin(array, place.begin, place.end - place.begin)


def prefetch(array: np.ndarray[Any, Any], *, wait: bool = True) -> None:
    """Brings the array's bytes in, as many of them as the budget can hold at once.

    With `wait=False` a thread of the pond brings them in while the caller goes on; see
    `Region.prefetch`. With `wait=True` raises `Lost` if the store cannot give a page back.

    >>> pond = millpond.Pond("16M")
    >>> a = pond.zeros(1_000_000)
    >>> millpond.prefetch(a[:1000], wait=False)
    """
    place = _place(array)
    if place.begin < place.end:
        place.region.prefetch(place.begin, place.end - place.begin, wait=wait)


def advise(array: np.ndarray[Any, Any], advice: str) -> None:
    """Advises the pond about the array's bytes, as `Region.advise` does, with the same errors.

    >>> pond = millpond.Pond("16M")
    >>> millpond.advise(pond.zeros(1000), "sequential")
    """
    place = _place(array)
    if place.begin < place.end:
        place.region.advise(advice, place.begin, place.end - place.begin)


def discard(array: np.ndarray[Any, Any]) -> int:
    """Drops the whole pages among the array's bytes, and returns how many bytes they have.

    The dropped pages read as zeros and take neither RAM nor room in the store. A page that the
    array covers only in part keeps its contents, unless the region ends there. No other thread may
    access the array during the call. Raises `InvalidError` if the array is not contiguous or is
    read-only, `Pinned` and `Lost`.

    >>> pond = millpond.Pond("16M")
    >>> numbers = pond.full(1024, 7)
    >>> millpond.discard(numbers[1:]), numbers[[0, 511, 512, 1023]].tolist()
    (4096, [7, 7, 0, 0])
    """
    place = _place(array)
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise InvalidError("the array has gaps, whose bytes would go, too: give a view without any")
    if not array.flags.writeable:
        raise InvalidError("the array is read-only: give one that can be written")
    begin = -(-place.begin // PAGE) * PAGE
    end = place.end if place.end == place.region.size else place.end // PAGE * PAGE
    if begin >= end:
        return 0
    place.region.discard(begin, end - begin)
    return end - begin
