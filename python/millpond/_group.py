"""Groups: a tree of budgets in a pond.

A group's regions are charged to it and to all groups above it. Its limits mean what they mean in a
memory cgroup: `min` and `low` protect the group's memory, `high` makes the group reclaim its own
memory first, and `max` is never exceeded. So a program can prevent its cache from pushing out the
memory of its index.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Optional

from ._errors import Removed
from ._figures import GroupStats, Pressure
from ._handle import Handle, Local
from ._library import library
from ._prototypes import GroupStatsStruct, Limits, PressureStruct, sized
from ._size import Size, parse, shown

if TYPE_CHECKING:
    from ._pond import Pond


def limits(min: Size, low: Size, high: Size, max: Size, lazyfree_max: Size) -> Limits:
    """Returns a group's limits in the form that the library takes."""
    return sized(
        Limits,
        min=parse(min, "a min"),
        low=parse(low, "a low"),
        high=parse(high, "a high"),
        max=parse(max, "a max"),
        lazyfree_max=parse(lazyfree_max, "a lazyfree_max"),
    )


def pressure(pond: int, group: Optional[int]) -> Pressure:
    """Returns the pressure of a group, or of the pond if `group` is None."""
    raw = sized(PressureStruct)
    library().millpond_pressure(pond, group, ctypes.byref(raw))
    return Pressure(tuple(raw.some), tuple(raw.full), raw.some_total_us, raw.full_total_us)


class Group(Local):
    """A group of a pond. `Pond.group` makes one.

    The group outlives this object: it stays until it is removed or the pond ends.
    """

    def __init__(self, pond: Pond, name: str, pointer: int) -> None:
        free = library().millpond_group_free
        self._handle = Handle(pointer, free, "group", at_exit=False)
        self._pond = pond
        self._name = name

    @property
    def name(self) -> str:
        """The group's name, which no other group of the same parent has."""
        return self._name

    def set_limits(
        self,
        *,
        min: Size = 0,
        low: Size = 0,
        high: Size = 0,
        max: Size = 0,
        lazyfree_max: Size = 0,
    ) -> None:
        """Sets all limits, in bytes. 0 means no protection, or no limit.

        A `max` is at least 4 MiB. `lazyfree_max` is the most lazily freed memory that stays in RAM.
        Raises `InvalidError` if the limits contradict each other, and `Removed`.
        """
        marks = limits(min, low, high, max, lazyfree_max)
        with self._handle as pointer:
            library().millpond_group_set_limits(pointer, ctypes.byref(marks))

    def stats(self) -> GroupStats:
        """Returns the figures of the group and of the groups below it. Raises `Removed`."""
        raw = sized(GroupStatsStruct)
        with self._handle as pointer:
            library().millpond_group_stats(pointer, ctypes.byref(raw))
        return GroupStats(*(getattr(raw, name) for name in GroupStats._fields))

    def pressure(self) -> Pressure:
        """Returns how long the group's threads waited for memory. Raises `Removed`."""
        with self._pond._handle as pond, self._handle as group:
            return pressure(pond, group)

    def remove(self) -> None:
        """Removes the group. Its parent gets its regions and their memory.

        Raises `Busy` while there are groups below it, and `Removed`.
        """
        with self._handle as pointer:
            library().millpond_group_remove(pointer)

    def __repr__(self) -> str:
        name = f"millpond.Group {self._name!r}"
        if self._handle.closed:
            return f"<{name} (closed)>"
        if self._handle.inherited:
            return f"<{name} (a parent process's)>"
        try:
            stats = self.stats()
        except Removed:
            return f"<{name} (removed)>"
        return f"<{name}: {shown(stats.usage)} in RAM, {shown(stats.stored)} in the store>"
