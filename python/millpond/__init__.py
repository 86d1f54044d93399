"""Arrays larger than RAM, under one hard budget.

    import millpond
    with millpond.Pond("512M") as pond:
        a = pond.zeros((20_000, 20_000))      # 3.2 GB of floats in 512 MiB of RAM
        a += 1                                # an ordinary numpy array

A pond has a RAM budget and a store. Its arrays are memory at fixed addresses to numpy and to every
library that numpy hands them to. Pages that do not fit into the budget go to the store (compressed
RAM, a file), and come back when the program touches them. Results of arithmetic are ordinary arrays
in ordinary memory. If a result is large too, write `numpy.add(a, b, out=c)` or `c[...] = ...`.

`Pond` makes arrays. `region_of`, `snapshot`, `pin`, `prefetch`, `advise` and `discard` take any
array that lies in a pond, or a view of one. A size is a number of bytes, or a text such as "512M".
Every error that the package raises on its own account is a subclass of `Error`.

*Pickling copies.* An array in a pond is an ordinary numpy array, and its pickle holds all of its
bytes. So `pickle`, `copy.deepcopy` and the arguments of `multiprocessing` take as much ordinary
memory as the array is long, and what comes out does not lie in a pond: `Pond.asarray` puts it into
one. To hand over more than fits into RAM, write it by `save` and read it by `Pond.load`, which take
a small buffer. Ponds, regions, groups, pins and shrinkers cannot be pickled.

A forked child cannot use its parent's ponds. Calls raise `Forked`. The child may delete inherited
arrays, but reading one ends the child with a line on standard error. The child may open a pond of
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
from ._files import save
from ._group import Group
from ._growth import grow
from ._mapped import flush
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
    "flush",
    "grow",
    "pin",
    "prefetch",
    "region_of",
    "save",
    "snapshot",
]
