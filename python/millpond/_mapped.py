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
import weakref
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Mapping, NamedTuple, Optional, Union

import numpy as np

from ._errors import InvalidError
from ._files import header
from ._handle import Handle
from ._library import library, made, text
from ._shape import Form, Order, Shape, resolved
from ._size import Size, parse

if TYPE_CHECKING:
    FilePath = Union[str, "os.PathLike[str]"]

_MODES = {"r": 0, "c": 1, "r+": 2}
"""The values of `enum millpond_file_mode`, by numpy's words."""

Holder = Literal["raw", "npy", "npz"]
"""What a file is: bytes, numpy's format with its header, or an archive of several arrays."""

_LOCAL_HEADER = struct.Struct("<26xHH")
"""The lengths of name and extra field, at the end of a zip member's own header."""


class Source(NamedTuple):
    """What an array over a file was opened from, so that it can be opened once more."""

    pond: Opening
    path: str
    """The absolute path."""
    identity: tuple[int, int]
    mode: str
    offset: int
    """Where the array begins in the file."""
    form: Form
    order: Order
    holder: Holder

    def open(self, form: Form) -> np.ndarray:
        """Opens an array of this form at the same place."""
        return self.pond._open(self.path, self.mode, self.offset, form, self.order, self.holder)


def identity(file: Union[FilePath, int]) -> tuple[int, int]:
    """Returns the device and the inode of a file, which no other file has as long as it is open."""
    stat = os.stat(file)
    return stat.st_dev, stat.st_ino


class FileLease:
    """The bytes of a mapped file, in the form that numpy makes an array of.

    It is the base of all arrays over them, and the mapping ends with the last of these.
    """

    __slots__ = ("__array_interface__", "_handle", "opened", "source")

    __array_interface__: dict[str, Any]
    source: list[Source]
    """What the array was opened from. It is gone once a longer array has taken its place."""
    opened: weakref.ref[np.ndarray]
    """The array that was opened."""

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
        """Writes all that has changed to the file."""
        with self._handle as file:
            library().millpond_file_sync(file, 0, self.__array_interface__["shape"][0])


def lease_of(array: Any) -> FileLease:
    """Returns the lease at the end of an array's chain of bases."""
    base = array
    while base is not None and not isinstance(base, FileLease):
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    if base is None:
        raise InvalidError("the array lies over no file: make it by Pond.open or Pond.memmap")
    return base


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
    lease_of(array).sync()


class Opening:
    """The part of `Pond` that opens files in place.

    The mode is "r", "r+" or "c", with numpy's meaning: an array that is only read, one whose
    changes go to the file (`millpond.flush` says when they are there), or one whose changes are the
    program's own and go to the store. All methods raise `InvalidError` if the file does not
    hold what is asked for, `Refused` if it cannot be opened, and `NoAddresses`.
    """

    _handle: Handle

    def _open(
        self, path: FilePath, mode: str, offset: int, form: Form, order: Order, holder: Holder
    ) -> np.ndarray:
        if form.nbytes == 0:
            return np.empty(form.shape, form.dtype, order=order)
        if mode not in _MODES:
            raise InvalidError(
                f'a mode of {mode!r} is none: give "r" (read), "r+" (changes go to the file) or '
                "\"c\" (changes are the program's own)"
            )
        name = text(os.fspath(path), "a path")
        with self._handle as pond:
            new = made("millpond_map_file", pond, name, offset, form.nbytes, _MODES[mode])
        lease = FileLease(new, readonly=mode == "r")
        opened = np.ndarray(form.shape, form.dtype, np.asarray(lease), order=order)
        whole = os.path.abspath(os.fspath(path))
        lease.source = [Source(self, whole, identity(path), mode, offset, form, order, holder)]
        lease.opened = weakref.ref(opened)
        return opened

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
        return self._open(path, mode, begin, resolved(shape, dtype), order, "raw")

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
                return self._open_npy(path, file, 0, mode, "npy")
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
                    arrays[name] = self._open_npy(path, file, begin, mode, "npz")
            return arrays

    def _open_npy(
        self, path: FilePath, file: BinaryIO, begin: int, mode: str, holder: Holder
    ) -> np.ndarray:
        file.seek(begin)
        try:
            shape, columns_first, dtype = header(file)
        except ValueError as error:
            raise InvalidError(f"{os.fspath(path)} is no array that numpy saved: {error}") from None
        order: Order = "F" if columns_first else "C"
        return self._open(path, mode, file.tell(), resolved(shape, dtype), order, holder)
