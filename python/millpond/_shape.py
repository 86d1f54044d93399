"""Shape and dtype before there is an array: how many bytes, and whether a pond may have it.

numpy resolves more than one would think. A dtype may have a shape of its own, which is added to the
array's, and the strings "S" and "U" without a length become one character long. So numpy is asked,
with an array of no elements.
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
"""A length, or a length for each axis."""

Order = Literal["C", "F"]
"""Which axis lies together in memory: the last (rows, as C has it), or the first (Fortran)."""


class Form(NamedTuple):
    """A shape and a dtype that are whole."""

    shape: tuple[int, ...]
    dtype: np.dtype
    nbytes: int


def resolved(shape: Shape, dtype: Any) -> Form:
    """What `np.empty(shape, dtype)` would have.

    Raises `InvalidError` for a negative length and for a dtype that refers to Python objects: those
    are on Python's heap, the garbage collector does not look for them in a pond, and a snapshot
    would not count its references to them.

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
