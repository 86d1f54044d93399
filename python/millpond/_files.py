"""Arrays and files of numpy's format (`.npy`).

`numpy.save` and `numpy.load` hand an array's memory to system calls, which needs a thread that
resolves faults (`delivery="handler"`), and `numpy.load` reads to ordinary memory. Here all bytes go
through a small buffer in ordinary memory, so any delivery will do and no more than that is needed
besides the budget.
"""

from __future__ import annotations

import os
from typing import Any, BinaryIO, Union

import numpy as np

from ._errors import InvalidError

_format: Any = np.lib.format
"""Older versions of numpy have no types for it."""

PIECE = 4 << 20
"""How many bytes are read or written at once."""


def save(path: Union[str, os.PathLike[str]], array: np.ndarray[Any, Any]) -> None:
    """Writes an array to a file in numpy's format, in pieces.

    The array need not lie in a pond. The file has the name that is given; `numpy.save` would add
    ".npy". `numpy.load` reads it, and so does `Pond.load`. Raises `InvalidError` if the dtype
    refers to Python objects, and `OSError` if the file cannot be written, which may leave a part of
    it.

    >>> import os, tempfile
    >>> pond = millpond.Pond("16M")
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     path = os.path.join(directory, "numbers.npy")
    ...     millpond.save(path, pond.full((3, 2), 7))
    ...     np.load(path).tolist(), pond.load(path).shape
    ([[7, 7], [7, 7], [7, 7]], (3, 2))
    """
    if array.dtype.hasobject:
        raise InvalidError(
            f"an array of {array.dtype} refers to Python's heap: use numpy.save, which pickles it"
        )
    # Of an array that is contiguous by columns, the transposed array is contiguous by rows.
    columns = array.flags.f_contiguous and not array.flags.c_contiguous
    rows = array.T if columns else array
    described = {
        "descr": _format.dtype_to_descr(array.dtype),
        "fortran_order": columns,
        "shape": array.shape,
    }
    with open(path, "wb") as file:
        try:
            _format.write_array_header_1_0(file, described)
        except UnicodeEncodeError:
            raise InvalidError(f"names of {array.dtype} are beyond Latin-1: rename them") from None
        except ValueError:
            raise InvalidError(
                f"a dtype of {len(array.dtype.names or ())} fields is too long for numpy's format: "
                "save them as several arrays"
            ) from None
        for piece in _pieces(rows):
            file.write(piece.tobytes())


def header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Reads a file's header, and returns the shape, whether axes are in Fortran's order, and dtype.

    Raises `ValueError` for another kind of file.
    """
    # Version 2 has longer headers, and version 3 names beyond Latin-1.
    version = _format.read_magic(file)
    if version == (1, 0):
        shape, columns, dtype = _format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, columns, dtype = _format.read_array_header_2_0(file)
    else:
        raise ValueError(f"version {version} of numpy's format is not known here: use numpy.load")
    return shape, columns, dtype


def longer_header(file: BinaryIO, shape: tuple[int, ...]) -> bytes:
    """Returns the bytes of a file's header as they are for another shape. They are as many.

    Raises `InvalidError` if the header has no room for the shape.
    """
    file.seek(0)
    _, columns, dtype = header(file)
    size = file.tell()
    file.seek(0)
    begin = file.read(8)
    # Version 1 has a length of two bytes, and version 2 one of four.
    begin += file.read(2 if begin[6] == 1 else 4)
    descr = _format.dtype_to_descr(dtype)
    words = f"{{'descr': {descr!r}, 'fortran_order': {columns}, 'shape': {shape!r}, }}"
    room = size - len(begin) - 1
    if len(words) > room:
        raise InvalidError(
            f"the file's header has no room for a shape of {shape}: save the array by "
            "millpond.save, which leaves some"
        )
    return begin + words.ljust(room).encode("latin-1") + b"\n"


def fill(rows: np.ndarray[Any, Any], file: BinaryIO) -> None:
    """Reads the elements of an array that is contiguous by rows.

    Raises `ValueError` if the file ends before that.
    """
    flat = rows.reshape(-1)
    step = max(PIECE // max(flat.itemsize, 1), 1)
    for begin in range(0, flat.size if flat.itemsize else 0, step):
        piece = flat[begin : begin + step]
        read = file.read(piece.nbytes)
        if len(read) < piece.nbytes:
            raise ValueError(f"the file ends {piece.nbytes - len(read)} bytes too early")
        piece[...] = np.frombuffer(read, piece.dtype)


def _pieces(rows: np.ndarray[Any, Any]) -> Any:
    """Returns the array's elements by rows, in pieces."""
    return np.nditer(
        rows,
        flags=["external_loop", "buffered", "zerosize_ok"],
        buffersize=max(PIECE // max(rows.itemsize, 1), 1),
        order="C",
    )
