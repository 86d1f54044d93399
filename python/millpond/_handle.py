"""Handles: the library's pointers, each freed once and not used afterwards.

A pointer is freed when the last Python object that has its handle goes, or earlier by `close`. Four
cases need care:

*A call in another thread.* `close` may come while another thread is inside a call with the same
pointer, since calls release the interpreter's lock. So each caller enters the handle (`with handle
as pointer`), and the last caller to leave it frees the pointer. The handle's lock is held for a
comparison and an addition. Nothing is allocated under it, so no garbage collection runs there, and
no finalizer that would take the lock again.

*The end of the interpreter.* Arrays in modules and in other threads live until the process ends,
and so must their memory: it is left to the kernel. Shrinkers must end before Python does, because
the pond's thread would otherwise call callbacks that are gone. `at_exit` says whether the pointer
is freed at the end of the interpreter.

*A forked child.* The child has none of its parent's threads, so a lock that one of them held stays
locked for ever, and the child does not take the handle's lock. The library knows which objects
belong to its parent: it answers calls on them with `Forked` and ignores calls that free them.

*A copy.* The finalizer belongs to the handle and not to the object that has the handle, so a copied
object shares it. A pickle, or a deep copy, would have to copy memory that may be larger than RAM,
so there is none: the error says how to copy on purpose.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Callable, NoReturn, TypeVar

from ._errors import Closed, Forked

Self = TypeVar("Self", bound="Local")

_forks = 0
"""How many forks lie between the first process and this one."""


def _begin_child() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_begin_child)


class Handle:
    """A pointer and the function that frees it. Entering raises `Closed` after `close`."""

    def __init__(
        self, pointer: int, free: Callable[[int], None], what: str, *, at_exit: bool
    ) -> None:
        self._pointer = pointer
        self._what = what
        self._forks = _forks
        self._lock = threading.Lock()
        self._users = 0
        self._closed = False
        self._finalizer = weakref.finalize(self, free, pointer)
        self._finalizer.atexit = at_exit

    @property
    def inherited(self) -> bool:
        """Whether the handle belongs to a parent of this process."""
        return self._forks != _forks

    @property
    def closed(self) -> bool:
        """Whether the handle was closed, or freed at the interpreter's end."""
        return self._closed or not self._finalizer.alive

    def require_own(self) -> None:
        """Raises `Forked` in a child, for operations that do not call the library."""
        if self.inherited:
            raise Forked(f"the {self._what} is a parent's of this process: open a pond in this one")

    def __enter__(self) -> int:
        if self.closed:
            raise Closed(f"the {self._what} is closed: use one that is not")
        if not self.inherited:
            with self._lock:
                closed = self._closed
                if not closed:
                    self._users += 1
            if closed:
                raise Closed(f"the {self._what} is closed: use one that is not")
        return self._pointer

    def __exit__(self, *_exception: object) -> None:
        if not self.inherited:
            with self._lock:
                self._users -= 1
                last = self._closed and self._users == 0
            if last:
                self._finalizer()

    def close(self) -> None:
        """Frees the pointer when the last call with it returns. A second `close` does nothing."""
        if self.inherited:
            self._closed = True
            self._finalizer()
            return
        with self._lock:
            self._closed = True
            idle = self._users == 0
        if idle:
            self._finalizer()


class Local:
    """An object that stands for a pointer of this process, and cannot be pickled."""

    _instead = "open a pond in the other process, and make the object there"
    """What a program should do that wants the object elsewhere."""

    def __copy__(self: Self) -> Self:
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied deeply, since its memory belongs "
            f"to this process: {self._instead}"
        )
