"""The figures that ponds, regions and groups report, as named tuples.

Each has the fields of a structure of the C header in the header's order and under its names;
`_prototypes` makes the structure out of the tuple, so that a field is written down once. All are
bytes, unless said otherwise.
"""

from __future__ import annotations

from typing import NamedTuple


class PondStats(NamedTuple):
    """The most wanted figures of a pond; `Pond.counters` has all others."""

    ram: int
    """The budget."""
    resident: int
    """Mapped and in use."""
    limbo: int
    """In RAM, taken out of the program, waiting for a second touch."""
    lazyfree: int
    """In RAM, lazily freed and not used since: there for the taking."""
    stored: int
    """In the store, before compression."""
    store_bytes: int
    """What that takes, in RAM and on a device."""
    store_ram: int
    """RAM that the store has."""
    metadata: int
    """The pond's own tables."""
    peak: int
    """Most that counted against the budget at once."""
    pgfault: int
    """Faults (a count)."""
    pgmajfault: int
    """Of these, with a read from the store."""
    pswpin: int
    """Pages read from the store (a count)."""
    pswpout: int
    """Pages written to it."""
    store_failures: int
    """Times the store was found full or failing."""
    fault_p50_ns: int
    """How long a fault takes, in nanoseconds: half of them less than this."""
    fault_p99_ns: int
    """99 of 100 less than this."""
    fault_max_ns: int
    """All no more than this."""


class RegionStats(NamedTuple):
    """How much of a region is where."""

    resident: int
    """Mapped."""
    limbo: int
    """In RAM, waiting for a second touch."""
    lazyfree: int
    """In RAM, lazily freed."""
    swapped: int
    """In the store."""
    inherited: int
    """Shared with a snapshot or its source."""
    lost: int
    """Lost to a failed read of the store."""


class GroupStats(NamedTuple):
    """What a group has, with the groups below it."""

    usage: int
    """In RAM and charged to it."""
    resident: int
    """Mapped and in use."""
    lazyfree: int
    """In RAM, lazily freed and not used since."""
    stored: int
    """In the store."""
    pgmajfault: int
    """Faults that read from the store (a count)."""


class Pressure(NamedTuple):
    """Waiting for memory, as the kernel's memory.pressure has it."""

    some: tuple[float, float, float]
    """Percent of the last 10, 60 and 300 seconds in which a thread that uses the memory waited."""
    full: tuple[float, float, float]
    """The same in which all of them did."""
    some_total_us: int
    """All of the former so far, in microseconds."""
    full_total_us: int
    """All of the latter so far, in microseconds."""
