"""Arrays larger than RAM, under one hard budget.

    import millpond
    with millpond.Pond("512M") as pond:
        a = pond.zeros((20_000, 20_000))      # 3.2 GB of floats in 512 MiB of RAM
        a += 1                                # an ordinary numpy array

A pond has a budget and a store. Its arrays are memory at fixed addresses to numpy and to whatever
numpy hands them to; what does not fit in the budget flows to the store (compressed RAM, a file) and
comes back when it is touched. Results of arithmetic are ordinary arrays in ordinary memory: write
`numpy.add(a, b, out=c)` or `c[...] = ...` for results that are large, too.

`Pond` makes arrays. `region_of`, `snapshot`, `pin`, `prefetch`, `advise` and `discard` take any
array that lies in one, or a view of it. Sizes are bytes, or texts such as "512M". What can go wrong
is a subclass of `Error`.

A forked child has none of its parent's ponds: calls raise `Forked`, inherited arrays can be deleted
but not read (that ends the child, with a line on standard error), and the child may open a pond of
its own.
"""

from __future__ import annotations

from ._arrays import advise, discard, pin, prefetch, region_of, snapshot
from ._errors import (
    Busy,
    Closed,
    Error,
    Forked,
    InvalidError,
    Lost,
    NoAddresses,
    OtherPond,
    OverBudget,
    Pinned,
    Refused,
    Removed,
    StoreError,
    Unaligned,
    Volatile,
)
from ._figures import GroupStats, PondStats, Pressure, RegionStats
from ._group import Group
from ._pin import Pin
from ._pond import Pond
from ._region import Region
from ._shrinker import Shrinker

__version__ = "0.1.0"

__all__ = [
    "Busy",
    "Closed",
    "Error",
    "Forked",
    "Group",
    "GroupStats",
    "InvalidError",
    "Lost",
    "NoAddresses",
    "OtherPond",
    "OverBudget",
    "Pin",
    "Pinned",
    "Pond",
    "PondStats",
    "Pressure",
    "Refused",
    "Region",
    "RegionStats",
    "Removed",
    "Shrinker",
    "StoreError",
    "Unaligned",
    "Volatile",
    "advise",
    "discard",
    "pin",
    "prefetch",
    "region_of",
    "snapshot",
]
