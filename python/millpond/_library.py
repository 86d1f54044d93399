"""Finding the shared library, and calling it.

The package loads the first of these libraries that exists:

1. the library that MILLPOND_LIBRARY names; if it cannot be loaded, that is an error;
2. `libmillpond.so` beside this file, where a wheel has it;
3. the library in `target/release` of the checkout in which this file lies, so that the package can
   be worked on without being installed;
4. the system's `libmillpond.so.0`.

Calls go through `ctypes.CDLL`, which releases the interpreter's lock during each call. That is
necessary for three reasons: a snapshot or a populate may take long, the end of a shrinker waits for
a callback that needs that lock, and a thread that waits in a call may wait for a thread that runs
Python.

The library keeps the message of a failed call for each thread. The check follows the call in the
same thread, so it finds the message of that call whatever other threads do.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any, Optional, cast

from ._errors import BY_STATUS, Error
from ._prototypes import FUNCTIONS, STATUS

VERSION = "0.1"
"""The version of the header that this package follows. Before 1.0 a minor version may change it."""


def candidates() -> list[str]:
    """Returns the places where the library may be, in the order in which they are tried."""
    named = os.environ.get("MILLPOND_LIBRARY")
    if named:
        return [named]
    here = Path(__file__).resolve().parent
    found = [here / "libmillpond.so"]
    checkout = here.parent.parent
    if (checkout / "crates" / "capi" / "Cargo.toml").exists():
        target = checkout / os.environ.get("CARGO_TARGET_DIR", "target")
        found.append(target / "release" / "libmillpond_capi.so")
    return [*(str(path) for path in found if path.exists()), "libmillpond.so.0"]


@functools.lru_cache(maxsize=None)
def library() -> Any:
    """Returns the library with all its functions declared. The first call loads it.

    Raises `Error` if there is no library, or only one of another version.
    """
    refusals = []
    for path in candidates():
        try:
            loaded = ctypes.CDLL(path)
        except OSError as refusal:
            refusals.append(str(refusal))
            continue
        return _declared(loaded, path)
    raise Error(
        f"Millpond's library cannot be loaded ({'; '.join(refusals)}): build it by "
        "`cargo build --release -p millpond-capi`, or name it in MILLPOND_LIBRARY"
    )


def _declared(loaded: ctypes.CDLL, path: str) -> Any:
    try:
        loaded.millpond_version.restype = ctypes.c_char_p
        version = loaded.millpond_version().decode()
    except AttributeError:
        raise Error(f"{path} is not Millpond's library: name that in MILLPOND_LIBRARY") from None
    if version.rsplit(".", 1)[0] != VERSION:
        raise Error(
            f"{path} is version {version} of Millpond, and this package is for {VERSION}: "
            "install both from the same source"
        )
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(loaded, name)
        function.argtypes = arguments
        if result is STATUS:
            function.restype = ctypes.c_int
            function.errcheck = _check
        else:
            function.restype = result
    return loaded


def _check(status: int, _function: Any, _arguments: Any) -> None:
    if status:
        message = library().millpond_error().decode(errors="replace")
        raise BY_STATUS.get(status, Error)(message)


def made(function: str, *arguments: Any) -> int:
    """Calls a function that makes an object, and returns the object's pointer.

    The function writes the pointer to the address that is its last parameter.
    """
    out = ctypes.c_void_p()
    getattr(library(), function)(*arguments, ctypes.byref(out))
    return cast(int, out.value)


def text(words: Optional[str], what: str) -> Optional[bytes]:
    """Encodes a string for the library.

    A string in C ends at its first zero, so a zero character inside would cut it short and is
    refused.
    """
    if words is None:
        return None
    if "\0" in words:
        raise BY_STATUS[1](f"{what} {words!r} holds a zero character: leave it out")
    return os.fsencode(words)
