"""The figures that ponds, regions and groups report, as named tuples.

Each tuple has the fields of a structure of the C header, in the header's order and under its names.
`_prototypes` makes the structure out of the tuple, so that a field is written down once. A figure
is in bytes unless its text says otherwise.
"""

from __future__ import annotations

from typing import NamedTuple


class PondStats(NamedTuple):
    """The most wanted figures of a pond; `Pond.counters` has all others."""

    ram: int
    """The budget."""
    resident: int
    """Memory that is mapped and in use."""
    limbo: int
    """Pages that are unmapped and still in RAM; an access maps them again."""
    lazyfree: int
    """Pages in RAM that were lazily freed and not used since."""
    stored: int
    """Data in the store, before compression."""
    store_bytes: int
    """Memory that the data in the store takes, in RAM and on a device."""
    store_ram: int
    """RAM that the store takes."""
    metadata: int
    """The pond's own tables."""
    peak: int
    """The most memory that was charged to the budget at one time."""
    pgfault: int
    """How many faults there were."""
    pgmajfault: int
    """How many faults read from the store, or from a file."""
    pswpin: int
    """How many pages were read from the store."""
    pswpout: int
    """How many pages were written to the store."""
    store_failures: int
    """How often the store was found full or failing."""
    fault_p50_ns: int
    """Half of the faults took less time than this, in nanoseconds."""
    fault_p99_ns: int
    """99 of 100 faults took less time than this, in nanoseconds."""
    fault_max_ns: int
    """No fault took longer than this, in nanoseconds."""


class RegionStats(NamedTuple):
    """How many bytes of a region are in each place."""

    resident: int
    """Pages that are mapped."""
    limbo: int
    """Pages that are unmapped and still in RAM; an access maps them again."""
    lazyfree: int
    """Pages in RAM that were lazily freed."""
    swapped: int
    """Pages in the store."""
    inherited: int
    """Pages that are shared with a snapshot, or with the source of the snapshot."""
    lost: int
    """Pages that were lost when a read of the store failed."""


class GroupStats(NamedTuple):
    """The figures of a group and of the groups below it."""

    usage: int
    """Bytes in RAM that are charged to the group."""
    resident: int
    """Bytes that are mapped and in use."""
    lazyfree: int
    """Bytes in RAM that were lazily freed and not used since."""
    stored: int
    """Bytes in the store."""
    pgmajfault: int
    """How many faults read from the store, or from a file."""


class Pressure(NamedTuple):
    """How long threads waited for memory, as in the kernel's memory.pressure.

    `some` and `full` are in percent of the last 10, 60 and 300 seconds.
    """

    some: tuple[float, float, float]
    """The time in which at least one of the threads that use the memory waited."""
    full: tuple[float, float, float]
    """The time in which all threads that use the memory waited."""
    some_total_us: int
    """The total time of `some`, in microseconds."""
    full_total_us: int
    """The total time of `full`, in microseconds."""
