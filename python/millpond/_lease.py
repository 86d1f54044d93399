"""Leases: a lease is the base of all arrays over a region.

numpy keeps the object alive that an array has its memory from, and a view keeps the array alive of
which it is a part. So the chain of bases of every array over a region ends at one object, the
lease, and the lease holds the region. The region's memory is freed when its last array goes, in
whatever order the arrays go, and nothing has to count them.

The region itself cannot be the base, because of `grow` and `shrink`. They may move the region or
drop a part of it, and arrays that were made before would point to memory that is gone. Other
objects than arrays hold a region too, so its own references do not tell whether it has arrays. A
region has at most one lease, and a weak reference to it: while the lease is alive there are arrays,
and the region keeps its address and its length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from ._region import Region


class Lease:
    """All bytes of a region, in the form that numpy makes an array of."""

    __slots__ = ("__array_interface__", "__weakref__", "region")

    def __init__(self, region: Region) -> None:
        self.region = region

    def show(self, address: int, size: int) -> None:
        """Sets where the bytes are. By then the lease must be the region's, so that they stay."""
        self.__array_interface__ = {
            "version": 3,
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
        }


def find(array: Any) -> Optional[Lease]:
    """Returns the lease at the end of an array's chain of bases."""
    while array is not None:
        if isinstance(array, Lease):
            return array
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return None
