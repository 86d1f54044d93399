"""Making arrays in a pond.

Each array has a region of its own, so that its memory is freed when the array goes, and so that a
snapshot copies no other array. New memory reads as zeros and takes no RAM until it is touched, so
`empty` is the same as `zeros`.

`array` copies. If its source is in memory, or a mapped file, numpy copies directly from the source
to the array. A chunked array on a disk (h5py, zarr, dask) would be read as a whole before it is
copied, so it is read slab by slab.
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
"""How many bytes are read at once from a source that is not in memory."""


class Making:
    """The part of `Pond` that makes regions and arrays.

    All methods take `group` and `folios`. The memory is charged to `group`. `folios` is the order
    of the memory's folios, in the form of the pond's own `order`; None means the pond's order. All
    methods raise `NoAddresses` if the pond has no addresses left, `InvalidError`, and `Removed` or
    `OtherPond` for a group that cannot be used.
    """

    def _new_region(self, size: int, folios: Optional[str], group: Optional[Group]) -> Region:
        raise NotImplementedError

    def region(
        self, size: Size, *, group: Optional[Group] = None, folios: Optional[str] = None
    ) -> Region:
        """Makes a region of `size` zero bytes, aligned to 2 MiB. The size is at least one byte."""
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
        """Makes an array as `numpy.zeros` does.

        Raises `InvalidError` if the dtype refers to Python objects.

        >>> pond = millpond.Pond("16M")
        >>> pond.zeros((2, 3), "i2")
        array([[0, 0, 0],
               [0, 0, 0]], dtype=int16)
        """
        form = resolved(shape, dtype)
        # An array without elements needs an address in the pond too, so its region has one byte.
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
        """Makes an array as `numpy.empty` does. The array reads as zeros."""
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
        """Makes an array as `numpy.full` does."""
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
        """Makes a copy of `source` in the pond, with the axes in the source's order by default.

        `source` is an array, a chunked array on a disk, or an object that `numpy.asarray` takes.

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
