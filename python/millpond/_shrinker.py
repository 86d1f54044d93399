"""Shrinkers: caches of the program that shrink when a pond is short of memory.

A thread of the pond calls a shrinker's callbacks with the interpreter's lock held. Only a thread
that ends the shrinker waits for that thread. So a thread may fault while it holds the interpreter's
lock, or a lock that the callbacks take: the fault is served without calling them.

*Exceptions.* No Python code above a callback could catch its exception. The exception goes to
`sys.unraisablehook`, as an exception in `__del__` does, and the pond gets 0.

*References.* The C library has the addresses of two small functions until the shrinker is freed,
and the functions live as long. They find the user's callbacks through a weak reference. A strong
one would keep the pond alive for ever: callbacks often refer to the pond, and the pond keeps the
functions. A shrinker may end itself from inside a callback; then the two functions are in use, and
are kept. A callback that runs holds the shrinker. So the garbage collector never ends a shrinker
during its callback, where it might wait for a lock that its own thread holds.
"""

from __future__ import annotations

import threading
import weakref
from ctypes import CFUNCTYPE
from typing import TYPE_CHECKING, Any, Callable, Optional

from ._handle import Handle, Local
from ._library import library, made
from ._prototypes import Count, Scan

if TYPE_CHECKING:
    from ._group import Group
    from ._pond import Pond

_here = threading.local()
"""Whether this thread is inside a callback."""

_kept: list[Any] = []
"""Functions that were in use when their shrinker ended."""


class Shrinker(Local):
    """A registered cache. `Pond.shrinker` makes one; `close` or the end of a `with` ends it."""

    def __init__(
        self,
        pond: Pond,
        group: Optional[Group],
        count: Callable[[], int],
        scan: Callable[[int], int],
    ) -> None:
        self._pond = pond
        self._count = count
        self._scan = scan
        this = weakref.ref(self)
        functions = (
            Count(lambda _context: _called(this, "_count")),
            Scan(lambda _context, objects: _called(this, "_scan", objects)),
        )
        if group is None:
            pointer = _made(pond, None, functions)
        else:
            with group._handle as its:
                pointer = _made(pond, its, functions)

        def free(pointer: int) -> None:
            library().millpond_shrinker_free(pointer)
            if getattr(_here, "inside", False):
                _kept.append(functions)

        self._handle = Handle(pointer, free, "shrinker", at_exit=True)

    def close(self) -> None:
        """Ends the shrinker: its callbacks are not called any more. A second call does nothing.

        `close` waits for a callback that is running, unless the callback itself calls `close`. So
        it must not be called while the caller holds a lock that a callback takes.
        """
        self._handle.close()
        self._pond._shrinkers.discard(self)

    def __enter__(self) -> Shrinker:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._handle.closed:
            return "<millpond.Shrinker (closed)>"
        return f"<millpond.Shrinker of {self._pond!r}>"


def _made(pond: Pond, group: Optional[int], functions: tuple[Any, Any]) -> int:
    with pond._handle as its:
        return made("millpond_shrinker_new", its, group, *functions, None)


def _called(this: weakref.ref[Shrinker], which: str, *arguments: int) -> int:
    # The shrinker may end when `_answer` returns and drops its reference. Its `free` must then see
    # that this thread is inside a callback.
    _here.inside = True
    answer = _answer(this, which, *arguments)
    _here.inside = False
    return answer


def _answer(this: weakref.ref[Shrinker], which: str, *arguments: int) -> int:
    try:
        shrinker = this()
        return 0 if shrinker is None else max(int(getattr(shrinker, which)(*arguments)), 0)
    except BaseException as error:
        _report(error)
        return 0


def _report(error: BaseException) -> None:
    # Python offers no function that calls the hook with an exception, but ctypes calls it for an
    # exception in a callback. The result of a callback that raises is undefined, so this one has
    # no result.
    def shrinker_callback() -> None:
        raise error

    CFUNCTYPE(None)(shrinker_callback)()
