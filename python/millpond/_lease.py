"""What an array over a region has as its base.

numpy keeps alive what gave an array its memory, and each view keeps the array that it was cut from.
So the chain of bases of every array over a region ends at one object, and that one holds the
region: memory is given back when the last array over it goes, whatever order they go in, with
nobody counting.

That object is not the region itself, because of `grow` and `shrink`. They may move the region or
end a part of it, and arrays that were made before would point to where nothing is. A region is held
by others than arrays, so it cannot tell from its own references whether there are any. It has at
most one lease, and knows it by a weak reference: while that is alive there are arrays, and the
region keeps its address and its length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from ._region import Region


class Lease:
    """All bytes of a region, for numpy to take."""

    __slots__ = ("__array_interface__", "__weakref__", "region")

    def __init__(self, region: Region) -> None:
        self.region = region

    def show(self, address: int, size: int) -> None:
        """Says where the bytes are: once it is the region's lease, and thereby keeps them there."""
        self.__array_interface__ = {
            "version": 3,
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
        }


def find(array: Any) -> Optional[Lease]:
    """The lease at the end of an array's chain of bases."""
    while array is not None:
        if isinstance(array, Lease):
            return array
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return None
