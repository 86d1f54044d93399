"""Pins: memory that stays where it is.

A pin is taken when it is made and given back by `release`, by the end of a `with` block, or with
the object. It holds what it pins: a region whose last array goes while it is pinned stays as long
as the pin. So the two can go in any order.
"""

from __future__ import annotations

from typing import Any, Generic, Optional, TypeVar

from ._handle import Handle

T = TypeVar("T")


class Pin(Generic[T]):
    """Keeps bytes in RAM until it is released. `Region.pin` and `millpond.pin` make them.

    As a context manager it gives what was pinned.
    """

    def __init__(self, target: T, handle: Optional[Handle], region: Any) -> None:
        self._target = target
        self._handle = handle
        self._region = region

    def release(self) -> None:
        """Lets go. A second time is nothing, and so is the first in a forked child."""
        if self._handle is not None:
            self._handle.close()

    @property
    def released(self) -> bool:
        """Whether it was released; what has no bytes is never pinned."""
        return self._handle is None or self._handle.closed

    def __enter__(self) -> T:
        return self._target

    def __exit__(self, *_exception: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<millpond.Pin{' (released)' if self.released else ''}>"
