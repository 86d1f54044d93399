"""The shape and the dtype of an array that is to be made, and how many bytes it needs.

numpy resolves both in ways that are easy to miss: a dtype may have a shape of its own, which is
added to the array's, and the strings "S" and "U" without a length become one character long. So
this module lets numpy resolve them, by an array without elements.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, SupportsIndex, Union

import numpy as np

from ._errors import InvalidError
from ._size import parse

Shape = Union[SupportsIndex, Iterable[SupportsIndex]]
"""The length of one axis, or a length for each axis."""

Order = Literal["C", "F"]
"""The order of the elements in memory: "C" keeps each row together, "F" each column."""


class Form(NamedTuple):
    """A resolved shape and dtype, and the bytes that an array of them needs."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int


def resolved(shape: Shape, dtype: Any) -> Form:
    """Returns the shape, dtype and bytes that `np.empty(shape, dtype)` would have.

    Raises `InvalidError` if a length is negative, or if the dtype refers to Python objects. Such
    objects are on Python's heap: the garbage collector does not look into a pond for references to
    them, and a snapshot would not count its references.

    >>> resolved((2, 3), "f4").nbytes
    24
    """
    probe = np.empty(0, dtype)
    if probe.dtype.hasobject:
        raise InvalidError(
            f"arrays of {probe.dtype} cannot lie in a pond, since their elements refer to Python's "
            'heap: use a dtype of fixed size, such as "S20" or "U20" for text'
        )
    axes = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    lengths = tuple(operator.index(length) for length in axes)
    if any(length < 0 for length in lengths):
        raise InvalidError(f"a shape of {shape!r} is none: lengths must not be negative")
    lengths += probe.shape[1:]
    return Form(lengths, probe.dtype, parse(math.prod(lengths) * probe.dtype.itemsize, "an array"))
