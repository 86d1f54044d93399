"""Making arrays in a pond.

Each array has a region of its own, so that its memory is freed when the array goes, and so that a
snapshot copies no other array. New memory reads as zeros and takes no RAM until it is touched, so
`empty` is the same as `zeros`.

`array` copies. If its source is in memory, or a mapped file, numpy copies directly from the source
to the array. A chunked array on a disk (h5py, zarr, dask) would be read as a whole before it is
copied, so it is read slab by slab.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Optional, Union

import numpy as np

from ._files import fill, header
from ._lease import find
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
    ) -> np.ndarray[Any, Any]:
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
    ) -> np.ndarray[Any, Any]:
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
    ) -> np.ndarray[Any, Any]:
        """Makes an array as `numpy.full` does."""
        kind = np.asarray(fill_value).dtype if dtype is None else dtype
        made = self.zeros(shape, kind, order=order, group=group, folios=folios)
        made[...] = fill_value
        return made

    def asarray(
        self,
        source: Any,
        dtype: Any = None,
        *,
        order: Optional[Order] = None,
        group: Optional[Group] = None,
        folios: Optional[str] = None,
    ) -> np.ndarray[Any, Any]:
        """Returns `source` itself if it is an array that lies in this pond, or else a copy there.

        As with `numpy.asarray`, an array of another dtype or order is copied. `group` and `folios`
        are those of a copy; an array that is returned itself keeps its own.

        >>> pond = millpond.Pond("16M")
        >>> numbers = pond.asarray(np.arange(1000))
        >>> pond.asarray(numbers) is numbers, pond.asarray(numbers, "f4") is numbers
        (True, False)
        """
        if isinstance(source, np.ndarray):
            lease = find(source)
            here = lease is not None and lease.region.pond is self
            kind = dtype is None or np.dtype(dtype) == source.dtype
            flags = source.flags
            axes = order is None or (flags.c_contiguous if order == "C" else flags.f_contiguous)
            if here and kind and axes:
                return source
        return self.array(source, dtype, order=order, group=group, folios=folios)

    def from_array(
        self, source: Any, *, group: Optional[Group] = None, folios: Optional[str] = None
    ) -> np.ndarray[Any, Any]:
        """Makes a copy of an array in the pond, of the same shape, dtype and order of axes.

        `source` is an array of numpy's, a chunked array on a disk, or an array of another library
        that numpy can look at without a copy (by `__array_interface__`, by `__array__` or as a
        buffer). Raises `TypeError` for anything else, such as a list: `array` takes that.

        >>> pond = millpond.Pond("16M")
        >>> pond.from_array(np.eye(2, dtype="f4")).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        looks = ("__array_interface__", "__array__", "__array_struct__")
        if not _is_chunked(source) and not any(hasattr(source, name) for name in looks):
            try:
                source = memoryview(source)
            except TypeError:
                kind = type(source).__name__
                raise TypeError(f"an array is wanted, not {kind}: .array() takes that") from None
        return self.array(source, group=group, folios=folios)

    def load(
        self,
        path: Union[str, os.PathLike[str]],
        *,
        group: Optional[Group] = None,
        folios: Optional[str] = None,
    ) -> np.ndarray[Any, Any]:
        """Makes an array of a file that `millpond.save` or `numpy.save` has written.

        The file is read in pieces, so an array may be larger than RAM. Raises `ValueError` for a
        file of another kind and for one with pickled objects.
        """
        with open(path, "rb") as file:
            shape, columns, dtype = header(file)
            made = self.zeros(
                shape, dtype, order="F" if columns else "C", group=group, folios=folios
            )
            fill(made.T if columns else made, file)
        return made

    def array(
        self,
        source: Any,
        dtype: Any = None,
        *,
        order: Optional[Order] = None,
        group: Optional[Group] = None,
        folios: Optional[str] = None,
    ) -> np.ndarray[Any, Any]:
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
