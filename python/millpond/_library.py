"""Finding the shared library, and calling it.

The first of these that there is:

1. what MILLPOND_LIBRARY names, for whoever wants another build; if it cannot be loaded, that is an
   error;
2. `libmillpond.so` beside this file, where a wheel has it;
3. `target/release` of the checkout that this file lies in, so that nothing need be installed to
   work on it;
4. the system's `libmillpond.so.0`.

Calls go through `ctypes.CDLL`, which lets go of the interpreter's lock for each. They must: a
snapshot or a populate takes as long as it takes, the end of a shrinker waits for a callback that
needs that lock, and a thread that waits in a call may wait for one that runs Python.

A failed call's message waits in the thread that made it, and the check follows the call in the same
thread, so the two belong together whatever other threads do.
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
"""Of the header that this package speaks: before 1.0, each minor one may change anything."""


def candidates() -> list[str]:
    """Where the library may be, in the order in which it is looked for."""
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
    """The library, loaded by the first call, with all its functions declared.

    Raises `Error` where there is none, or one of another version.
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
    """Calls a function whose last parameter is where it puts what it makes, and gives that."""
    out = ctypes.c_void_p()
    getattr(library(), function)(*arguments, ctypes.byref(out))
    return cast(int, out.value)


def text(words: Optional[str], what: str) -> Optional[bytes]:
    """A string for the library. C's end at a zero, so one inside would cut it short."""
    if words is None:
        return None
    if "\0" in words:
        raise BY_STATUS[1](f"{what} {words!r} holds a zero character: leave it out")
    return os.fsencode(words)
