"""Pins: a pin keeps memory in RAM.

A pin holds from the moment at which it is made until `release`, until the end of a `with` block, or
until the object goes. A pin also holds its region: if the region's last array goes, the region
stays as long as the pin. So the array and the pin can go in any order.
"""

from __future__ import annotations

from typing import Any, Generic, Optional, TypeVar

from ._handle import Handle, Local
from ._size import shown

T = TypeVar("T")


class Pin(Local, Generic[T]):
    """Keeps bytes in RAM until it is released. `Region.pin` and `millpond.pin` make them.

    As a context manager a pin gives the array or the region that it pins.
    """

    def __init__(self, target: T, handle: Optional[Handle], region: Any, size: int) -> None:
        self._target = target
        self._handle = handle
        self._region = region
        self._size = size

    def release(self) -> None:
        """Releases the pin. A second call does nothing, and so does a call in a forked child."""
        if self._handle is not None:
            self._handle.close()

    @property
    def released(self) -> bool:
        """Whether the pin was released. It is true from the beginning for an array of no bytes."""
        return self._handle is None or self._handle.closed

    def __enter__(self) -> T:
        return self._target

    def __exit__(self, *_exception: object) -> None:
        self.release()

    def __repr__(self) -> str:
        state = " (released)" if self.released else ""
        return f"<millpond.Pin of {shown(self._size)}{state}>"
