"""Groups: a tree of budgets in a pond.

A group's regions are charged to it and to all groups above it. Its marks mean what they mean in a
memory cgroup: `min` and `low` protect it, `high` makes it reclaim its own memory first, `max` is
never exceeded. So a cache can be kept from pushing out what an index needs, in one process.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Optional

from ._figures import GroupStats, Pressure
from ._handle import Handle
from ._library import library
from ._prototypes import GroupStatsStruct, Limits, PressureStruct, sized
from ._size import Size, parse

if TYPE_CHECKING:
    from ._pond import Pond


def limits(min: Size, low: Size, high: Size, max: Size, lazyfree_max: Size) -> Limits:
    """A group's marks for the library."""
    return sized(
        Limits,
        min=parse(min, "a min"),
        low=parse(low, "a low"),
        high=parse(high, "a high"),
        max=parse(max, "a max"),
        lazyfree_max=parse(lazyfree_max, "a lazyfree_max"),
    )


def pressure(pond: int, group: Optional[int]) -> Pressure:
    """What the library says of a group; of the pond, for None."""
    raw = sized(PressureStruct)
    library().millpond_pressure(pond, group, ctypes.byref(raw))
    return Pressure(tuple(raw.some), tuple(raw.full), raw.some_total_us, raw.full_total_us)


class Group:
    """A group of a pond; `Pond.group` makes one.

    It lives on when this object goes: until it is removed, or the pond ends.
    """

    def __init__(self, pond: Pond, name: str, pointer: int) -> None:
        free = library().millpond_group_free
        self._handle = Handle(pointer, free, "group", at_exit=False)
        self._pond = pond
        self._name = name

    @property
    def name(self) -> str:
        """Its name among those of the same parent."""
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
        """Sets all marks, in bytes; 0 is no protection, or no limit. A `max` is at least 4 MiB.

        `lazyfree_max` is the most that stays in RAM after it was lazily freed. Raises
        `InvalidError` for marks that contradict each other, `Removed`.
        """
        marks = limits(min, low, high, max, lazyfree_max)
        with self._handle as pointer:
            library().millpond_group_set_limits(pointer, ctypes.byref(marks))

    def stats(self) -> GroupStats:
        """What it has, with the groups below it. Raises `Removed`."""
        raw = sized(GroupStatsStruct)
        with self._handle as pointer:
            library().millpond_group_stats(pointer, ctypes.byref(raw))
        return GroupStats(*(getattr(raw, name) for name in GroupStats._fields))

    def pressure(self) -> Pressure:
        """How much its threads waited for memory. Raises `Removed`."""
        with self._pond._handle as pond, self._handle as group:
            return pressure(pond, group)

    def remove(self) -> None:
        """Removes the group; its regions, with all they have, become its parent's.

        Raises `Busy` while there are groups below it, `Removed`.
        """
        with self._handle as pointer:
            library().millpond_group_remove(pointer)

    def __repr__(self) -> str:
        return f"<millpond.Group {self._name!r}>"
