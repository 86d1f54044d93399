"""Handles: the library's pointers, given back once, and not used afterwards.

A pointer is given back when the last Python object that has its handle goes, or earlier by `close`.
Four things could go wrong with that:

*A call in another thread.* `close` may come while another thread is inside a call with the same
pointer, since calls let go of the interpreter's lock. So whoever calls enters the handle (`with
handle as pointer`), and the last one out gives the pointer back. The lock is held for a comparison
and an addition. Nothing is allocated under it, so that no garbage collection runs there, and no
finalizer that would want it.

*The end of the interpreter.* Arrays in modules and in other threads live until the process ends,
and so must their memory: it is left to the kernel. Shrinkers must end before Python does, or the
pond's thread would call into what is no more. `at_exit` says which of the two it is.

*A forked child.* It has none of its parent's threads, so a lock that one of them held stays locked
for ever: a child does not take it. The library knows what is its parent's: it answers calls with
`Forked` and ignores what is freed.

*A copy.* The finalizer belongs to the handle, not to the object that has it, so a copied object
shares it.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Callable

from ._errors import Closed, Forked

_forks = 0
"""Forks between the process that was first and this one."""


def _begin_child() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_begin_child)


class Handle:
    """A pointer, and how to give it back. Entering raises `Closed` after `close`."""

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
        """Whether it is a parent's of this process."""
        return self._forks != _forks

    @property
    def closed(self) -> bool:
        """Whether it was closed, or the interpreter's end has given it back."""
        return self._closed or not self._finalizer.alive

    def require_own(self) -> None:
        """Raises `Forked` in a child, for what the library is not asked about."""
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
        """Gives the pointer back, when the last call with it returns; nothing if it was before."""
        if self.inherited:
            self._closed = True
            self._finalizer()
            return
        with self._lock:
            self._closed = True
            idle = self._users == 0
        if idle:
            self._finalizer()
