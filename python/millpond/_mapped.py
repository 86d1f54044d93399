"""Files in place: arrays over files, read when they are touched, under the pond's budget.

`numpy.memmap` keeps what it has read in the page cache, and a budget does not hold that. Here the
pages of a file come and go like all pages of the pond. A page that was only read is dropped when
memory is short, and read again when it is touched; nothing of it goes to the store.

Nobody else may change the file while an array lies over it. If it becomes shorter all the same, a
touch of what is missing ends the process by SIGBUS, as with `numpy.memmap`.
"""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Mapping, Optional, Union

import numpy as np

from ._errors import InvalidError
from ._files import header
from ._handle import Handle
from ._library import library, made, text
from ._shape import Order, Shape, resolved
from ._size import Size, parse

if TYPE_CHECKING:
    FilePath = Union[str, "os.PathLike[str]"]

_MODES = {"r": 0, "c": 1, "r+": 2}
"""The values of `enum millpond_file_mode`, by numpy's words."""

_LOCAL_HEADER = struct.Struct("<26xHH")
"""The lengths of name and extra field, at the end of a zip member's own header."""


class _FileLease:
    """The bytes of a mapped file, in the form that numpy makes an array of.

    It is the base of all arrays over them, and the mapping ends with the last of these.
    """

    __slots__ = ("__array_interface__", "_handle")

    def __init__(self, pointer: int, readonly: bool) -> None:
        free = library().millpond_file_free
        self._handle = Handle(pointer, free, "file", at_exit=False)
        with self._handle as file:
            self.__array_interface__ = {
                "version": 3,
                "shape": (int(library().millpond_file_size(file)),),
                "typestr": "|u1",
                "data": (int(library().millpond_file_data(file)), readonly),
            }

    def sync(self) -> None:
        with self._handle as file:
            library().millpond_file_sync(file, 0, self.__array_interface__["shape"][0])


def flush(array: np.ndarray) -> None:
    """Writes what has changed in the array's file, and returns when the device has it.

    All of the file's mapped bytes count, not only those of a view. An array that was opened to be
    read, or for changes of the program's own, has nothing to write. Raises `Refused` if a page
    cannot be written: it stays in memory, and the next call tries again; `Lost` if the file has
    become shorter; and `InvalidError` if the array does not lie over a file.

    >>> import tempfile
    >>> pond = millpond.Pond("16M")
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     numbers = pond.memmap(file.name, "u1", "r+", shape=(3,))
    ...     numbers[:] = [7, 8, 9]
    ...     millpond.flush(numbers)
    ...     list(file.read())
    [7, 8, 9]
    """
    base: Any = array
    while base is not None and not isinstance(base, _FileLease):
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    if base is None:
        raise InvalidError("the array lies over no file: make it by Pond.open or Pond.memmap")
    base.sync()


class Opening:
    """The part of `Pond` that opens files in place.

    The mode is "r", "r+" or "c", with numpy's meaning: an array that is only read, one whose
    changes go to the file (`millpond.flush` says when they are there), or one whose changes are the
    program's own and go to the store. All methods raise `InvalidError` if the file does not
    hold what is asked for, `Refused` if it cannot be opened, and `NoAddresses`.
    """

    _handle: Handle

    def _map(self, path: FilePath, offset: int, size: int, mode: str) -> np.ndarray:
        if mode not in _MODES:
            raise InvalidError(
                f'a mode of {mode!r} is none: give "r" (read), "r+" (changes go to the file) or '
                "\"c\" (changes are the program's own)"
            )
        name = text(os.fspath(path), "a path")
        with self._handle as pond:
            new = made("millpond_map_file", pond, name, offset, size, _MODES[mode])
        return np.asarray(_FileLease(new, readonly=mode == "r"))

    def memmap(
        self,
        path: FilePath,
        dtype: Any = np.uint8,
        mode: str = "r",
        offset: Size = 0,
        shape: Optional[Shape] = None,
        order: Order = "C",
    ) -> np.ndarray:
        """Makes an array over a file's bytes from `offset` on, as `numpy.memmap` does.

        Without a shape the array has one axis, with all elements up to the file's end.

        >>> import tempfile
        >>> pond = millpond.Pond("16M")
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     _ = file.write(b"abcdefgh")
        ...     file.flush()
        ...     pond.memmap(file.name, "S2", offset=2).tolist()
        [b'cd', b'ef', b'gh']
        """
        begin = parse(offset, "an offset")
        if shape is None:
            itemsize = resolved(1, dtype).nbytes
            room = os.stat(path).st_size - begin
            if itemsize == 0 or room <= 0 or room % itemsize:
                raise InvalidError(
                    f"{max(room, 0)} bytes from offset {begin} on are no elements of {itemsize} "
                    "bytes: give a shape, or another offset"
                )
            shape = room // itemsize
        form = resolved(shape, dtype)
        if form.nbytes == 0:
            return np.empty(form.shape, form.dtype, order=order)
        data = self._map(path, begin, form.nbytes, mode)
        return np.ndarray(form.shape, form.dtype, data, order=order)

    def open(
        self, path: FilePath, mode: str = "r"
    ) -> Union[np.ndarray, Mapping[str, np.ndarray]]:
        """Opens a `.npy` or `.npz` file in place, with its dtype and shape.

        A `.npz` file gives a dict of its arrays. They must not be compressed: `numpy.savez` writes
        such files, `numpy.savez_compressed` does not.

        >>> import tempfile
        >>> pond = millpond.Pond("16M")
        >>> with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        ...     np.save(file, np.arange(6).reshape(2, 3))
        ...     file.flush()
        ...     int(pond.open(file.name)[1].sum())
        12
        """
        with Path(path).open("rb") as file:
            if not zipfile.is_zipfile(file):
                return self._open_npy(path, file, 0, mode)
            arrays = {}
            with zipfile.ZipFile(file) as archive:
                for member in archive.infolist():
                    if member.compress_type != zipfile.ZIP_STORED:
                        raise InvalidError(
                            f"{member.filename} in {os.fspath(path)} is compressed: write the file "
                            "by numpy.savez, or load it by numpy.load"
                        )
                    file.seek(member.header_offset)
                    lengths = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
                    begin = member.header_offset + _LOCAL_HEADER.size + sum(lengths)
                    name = member.filename.removesuffix(".npy")
                    arrays[name] = self._open_npy(path, file, begin, mode)
            return arrays

    def _open_npy(self, path: FilePath, file: BinaryIO, begin: int, mode: str) -> np.ndarray:
        file.seek(begin)
        try:
            shape, columns_first, dtype = header(file)
        except ValueError as error:
            raise InvalidError(f"{os.fspath(path)} is no array that numpy saved: {error}") from None
        order: Order = "F" if columns_first else "C"
        return self.memmap(path, dtype, mode, file.tell(), shape, order)
