"""Growth: a file that was opened for changes becomes longer, and so does the array over it.

The longer array is a mapping of its own, at other addresses, since other memory lies behind the old
one. Old arrays may be anywhere in the program, so their memory must stay: it ends with the last of
them, as always. But two mappings of one file do not see each other's changes before these are in
the file, and a page that is changed in both is written twice. So an array grows once, all that was
written is in the file before the longer array is made, and the old array is read-only from then on.
Numpy cannot do that to views which the program has made before: that part is the program's.

*The header.* A `.npy` file says its shape in its first bytes, which are no part of the mapping. The
file is made longer first and the header is written last, so a program that ends in between leaves a
file that numpy reads as it was. Numpy leaves room in the header for a longer axis.
"""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np

from ._errors import Busy, InvalidError
from ._files import longer_header
from ._mapped import FileLease, Source, identity, lease_of
from ._shape import Form, resolved


def grow(array: np.ndarray, length: SupportsIndex) -> np.ndarray:
    """Makes a file longer that was opened with "r+", and returns a longer array over it.

    `length` is the new length of the first axis, or of the last one if the axes are in Fortran's
    order. The other axes, the dtype and all elements stay, and new elements are zero where the file
    was shorter. The header of a `.npy` file says the new shape afterwards. As with `flush`, a view
    stands for the whole array that was opened.

    The old array stays valid and becomes read-only: go on with the one that is returned. The old
    one may or may not show what is written to the new one. Views that were made of it before the
    call must not be written to any more, since what is written there may be lost, or may replace
    what was written to the new array. No other thread may write to the file's arrays during the
    call.

    Raises `InvalidError` if the array cannot grow: it lies over no file, was not opened with "r+",
    has no axis, is a part of a `.npz` file, or is longer already; `Busy` if it has grown before;
    `Closed` if the pond was closed; `NoAddresses`; and `Refused` or `OSError` if the file cannot be
    written, or made so long. The array and the file's header are as they were then.

    >>> import tempfile
    >>> pond = millpond.Pond("16M")
    >>> with tempfile.NamedTemporaryFile(suffix=".npy") as file:
    ...     np.save(file, np.arange(4).reshape(2, 2))
    ...     file.flush()
    ...     numbers = pond.open(file.name, "r+")
    ...     numbers = millpond.grow(numbers, 3)
    ...     numbers[2] = 7
    ...     millpond.flush(numbers)
    ...     np.load(file.name).tolist()
    [[0, 1], [2, 3], [7, 7]]
    """
    lease = lease_of(array)
    try:
        # Of two threads that are here, one gets the source.
        source = lease.source.pop()
    except IndexError:
        raise Busy("the array has grown before: go on with the one that was returned") from None
    try:
        longer = _opened_anew(source, lease, _longer(source, operator.index(length)))
    except BaseException:
        lease.source.append(source)
        raise
    _close_for_writes(array)
    _close_for_writes(lease.opened())
    return longer


def _longer(source: Source, length: int) -> Form:
    """Returns the shape of the longer array."""
    shape = list(source.form.shape)
    if source.mode != "r+":
        raise InvalidError(
            f'the file was opened with "{source.mode}", and stays as it is: open it with "r+"'
        )
    if source.holder == "npz":
        raise InvalidError(
            f"the array is a part of {source.path}, where others follow it: save it to a file of "
            "its own"
        )
    if not shape:
        raise InvalidError("an array without axes cannot grow: open it with a shape of (1,)")
    axis = -1 if source.order == "F" else 0
    if length < shape[axis]:
        raise InvalidError(f"{length} is less than the array's {shape[axis]}: give a length above")
    shape[axis] = length
    return resolved(shape, source.form.dtype)


def _opened_anew(source: Source, lease: FileLease, form: Form) -> np.ndarray:
    with Path(source.path).open("r+b") as file:
        if identity(file.fileno()) != source.identity:
            raise InvalidError(
                f"{source.path} is another file by now than the one that was opened: open it anew"
            )
        header = longer_header(file, form.shape) if source.holder == "npy" else b""
        lease.sync()
        longer = source.open(form)
        file.seek(0)
        file.write(header)
    return longer


def _close_for_writes(array: Any) -> None:
    """Makes an array, and all arrays that it is a view of, read-only."""
    while isinstance(array, np.ndarray):
        array.flags.writeable = False
        array = array.base
