"""Shrinkers: caches of the program's own that give way when a pond is short of memory.

The pond calls them from a thread of its own, with the interpreter's lock, and nobody waits for that
thread but whoever ends the shrinker. So a thread that holds that lock, or one that the callbacks
take, may have a fault meanwhile: it is served without them.

*Exceptions.* There is nobody above the callback to catch one. It goes to `sys.unraisablehook`, as
one in `__del__` does, and the pond is told 0.

*What keeps what.* The C library has the addresses of two small functions until the shrinker is
freed, and they live as long. They find the user's callbacks through a weak reference: callbacks
often refer to the pond, which would otherwise live for ever, held by what lives until it goes. A
shrinker may end itself from inside a callback; then the two functions are in use, and are kept.
And since a callback under way holds the shrinker, the garbage collector never ends one that is
called just then: it could wait for a lock that its own thread has.
"""

from __future__ import annotations

import threading
import weakref
from ctypes import CFUNCTYPE
from typing import TYPE_CHECKING, Any, Callable, Optional

from ._handle import Handle
from ._library import library, made
from ._prototypes import Count, Scan

if TYPE_CHECKING:
    from ._group import Group
    from ._pond import Pond

_here = threading.local()
"""Whether this thread is inside of a callback."""

_kept: list[Any] = []
"""Functions that were in use when their shrinker ended."""


class Shrinker:
    """A registered cache; `Pond.shrinker` makes one. `close` or the end of a `with` ends it."""

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
        """Ends it: the callbacks are not called any more. A second time is nothing.

        Waits for a call under way, unless it is made from that. So it must not be called with a
        lock held that a callback takes.
        """
        self._handle.close()
        self._pond._shrinkers.discard(self)

    def __enter__(self) -> Shrinker:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _made(pond: Pond, group: Optional[int], functions: tuple[Any, Any]) -> int:
    with pond._handle as its:
        return made("millpond_shrinker_new", its, group, *functions, None)


def _called(this: weakref.ref[Shrinker], which: str, *arguments: int) -> int:
    # What `_answer` refers to may go with it, the shrinker too, and must find this thread inside.
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
    # Python has no way to call the hook with an exception, but ctypes does so for a callback. It
    # does not say what a callback that raises returns; for this one, that is nothing.
    def shrinker_callback() -> None:
        raise error

    CFUNCTYPE(None)(shrinker_callback)()
