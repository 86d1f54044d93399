"""Making arrays in a pond.

Each array has a region of its own, so that its memory goes back when it goes, and so that a
snapshot takes no neighbours along. New memory reads as zeros and takes none until it is touched:
`empty` and `zeros` are the same.

`array` copies. Where its source is in memory already, or a file that is mapped, numpy copies from
the one place to the other without a third. A chunked array on a disk (h5py, zarr, dask) would be
read as a whole before it is copied; so those are asked for slabs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

import numpy as np

from ._shape import Order, Shape, resolved
from ._size import Size, parse

if TYPE_CHECKING:
    from ._group import Group
    from ._region import Region

SLAB = 4 << 20
"""Bytes that are asked for at once of a source that is not in memory."""


class Making:
    """The part of `Pond` that makes regions and arrays.

    All of it takes `group`, to which the memory is charged, and `folios`, the order of its folios
    as in the pond's own `order` (None: the pond's). Raises `NoAddresses` where the pond's addresses
    are used up, `InvalidError`, `Removed` and `OtherPond` for the group.
    """

    def _new_region(self, size: int, folios: Optional[str], group: Optional[Group]) -> Region:
        raise NotImplementedError

    def region(
        self, size: Size, *, group: Optional[Group] = None, folios: Optional[str] = None
    ) -> Region:
        """Memory of `size` bytes, at least one, all zeros, aligned to 2 MiB."""
        return self._new_region(parse(size), folios, group)

    def zeros(
        self,
        shape: Shape,
        dtype: Any = float,
        *,
        order: Order = "C",
        group: Optional[Group] = None,
        folios: Optional[str] = None,
    ) -> np.ndarray:
        """As `numpy.zeros`. Raises `InvalidError` for a dtype that refers to Python objects.

        >>> pond = millpond.Pond("16M")
        >>> pond.zeros((2, 3), "i2")
        array([[0, 0, 0],
               [0, 0, 0]], dtype=int16)
        """
        form = resolved(shape, dtype)
        # An array without elements has a place in a pond, too.
        region = self._new_region(max(form.nbytes, 1), folios, group)
        return region.array(form.dtype, form.shape, order=order)

    def empty(
        self,
        shape: Shape,
        dtype: Any = float,
        *,
        order: Order = "C",
        group: Optional[Group] = None,
        folios: Optional[str] = None,
    ) -> np.ndarray:
        """As `numpy.empty`; it reads as zeros."""
        return self.zeros(shape, dtype, order=order, group=group, folios=folios)

    def full(
        self,
        shape: Shape,
        fill_value: Any,
        dtype: Any = None,
        *,
        order: Order = "C",
        group: Optional[Group] = None,
        folios: Optional[str] = None,
    ) -> np.ndarray:
        """As `numpy.full`."""
        kind = np.asarray(fill_value).dtype if dtype is None else dtype
        made = self.zeros(shape, kind, order=order, group=group, folios=folios)
        made[...] = fill_value
        return made

    def array(
        self,
        source: Any,
        dtype: Any = None,
        *,
        order: Optional[Order] = None,
        group: Optional[Group] = None,
        folios: Optional[str] = None,
    ) -> np.ndarray:
        """A copy of `source` in the pond; axes in its own order, unless one is given.

        `source` is an array, a chunked array on a disk, or what `numpy.asarray` takes.

        >>> pond = millpond.Pond("16M")
        >>> pond.array([[1, 2], [3, 4]], "f4").tolist()
        [[1.0, 2.0], [3.0, 4.0]]
        """
        if not _is_chunked(source):
            source = np.asarray(source)
        if order is None:
            columns = isinstance(source, np.ndarray) and source.flags.fnc
            order = "F" if columns else "C"
        kind = source.dtype if dtype is None else dtype
        made = self.zeros(source.shape, kind, order=order, group=group, folios=folios)
        if isinstance(source, np.ndarray) or made.ndim == 0:
            made[...] = source
        elif made.size:
            rows = max(SLAB // made[:1].nbytes, 1)
            for begin in range(0, len(made), rows):
                made[begin : begin + rows] = source[begin : begin + rows]
        return made


def _is_chunked(source: Any) -> bool:
    return not isinstance(source, np.ndarray) and all(
        hasattr(source, name) for name in ("chunks", "shape", "dtype", "__getitem__")
    )
