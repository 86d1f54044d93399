"""Ponds: one hard budget of RAM, and arrays that need not fit into it.

*Delivery.* When a thread touches an absent page, a thread has to bring the page in. By the C
library's own default the thread that touches the page does so, in a handler of SIGBUS. That is the
fastest way, and it has three requirements that a Python program can hardly meet. Absent memory must
not be handed to a system call, as numpy does in `tofile` and files do in `readinto`. No thread may
block SIGBUS, the threads of a BLAS library included. And the handler must not be replaced, as
`faulthandler.enable()` does when it is called later. So this package has a thread of the pond
resolve faults, unless it is asked otherwise. That thread never needs the interpreter's lock, so a
thread that holds the lock may fault. If the system refuses this to unprivileged programs, opening a
pond raises an error that says what to do. The package never falls back to the other delivery.

*Lifetime.* A pond ends when it is closed, or its object is gone, and its last region is gone as
well. So arrays remain usable after the end of a `with` block.
"""

from __future__ import annotations

import ctypes
from typing import Callable, Optional

from ._errors import InvalidError, Refused
from ._figures import PondStats, Pressure
from ._group import Group, limits, pressure
from ._handle import Handle, Local
from ._library import library, made, text
from ._making import Making
from ._mapped import Opening
from ._prototypes import (
    ABORT_WHEN_FULL,
    BACKGROUND_ALWAYS,
    BACKGROUND_NEVER,
    COVER_PROCESS,
    ENCRYPT,
    STORE_OUTSIDE_BUDGET,
    Options,
    Stats,
    sized,
)
from ._region import Region
from ._shrinker import Shrinker
from ._size import Size, parse, shown

_BACKGROUND = {"auto": 0, "always": BACKGROUND_ALWAYS, "never": BACKGROUND_NEVER}


def _way_out(delivery: str, refusal: str) -> str:
    ways = "`millpond doctor` says what this machine allows, and how to allow the rest"
    if delivery == "handler" and "userfaultfd is refused" in refusal:
        # The kernel allows in-thread delivery to every user; only a sandbox may refuse it as well.
        return f'{ways}; delivery="in-thread" needs no grant (help(millpond.Pond) says its price)'
    return ways


class Pond(Making, Opening, Local):
    """Memory under one budget.

    >>> with millpond.Pond("16M") as pond:
    ...     numbers = pond.zeros(8_000_000)         # 64 MB of floats in 16 MiB of RAM
    ...     numbers[:] = 1
    ...     float(numbers.sum()), pond.stats().resident <= 16 << 20
    (8000000.0, True)

    All sizes are numbers of bytes, or texts such as "512M".

    ram: the budget, at least 16 MiB.
    store: where pages go that do not fit into the budget. "zram" is compressed RAM; "file" and
        "file:PATH" are a file; "auto" is compressed RAM first and then a file; "none" is no store.
        If no file can be made in TMPDIR, "auto" is the same as "zram", and a line on standard error
        says so. In "auto,URL" and "zram,URL" what these do not hold goes on to objects beyond the
        machine, if the library was built with them. The URL is "s3://BUCKET/PREFIX?region=NAME",
        "redis://HOST:PORT/DB" or "fs:///DIRECTORY". Credentials come from the environment.
    store_max: the most bytes that "zram" or "file" may take, or the objects at a URL. 0 means that
        the library chooses, and no limit for objects.
    store_directory: the directory of the file of "auto,URL". None means TMPDIR, or /var/tmp.
    store_file: the most bytes of that file, at least "4M". 0 means half of what is free there.
    order: a folio has 2^order pages. The order is "0" to "9", or "adaptive", which is chosen from
        the accesses, or "adaptive:N" with N as the largest.
    delivery: which thread resolves faults. With "handler" it is a thread of the pond. With
        "in-thread" it is the thread that faults, which is faster and has three requirements: memory
        that is passed to a system call is pinned, no thread blocks SIGBUS, and `faulthandler`, if
        it is enabled at all, was enabled before.
    address_space: how many addresses to reserve. 0 means 16 times the budget, and at least 64 GiB.
    lazyfree_max: the most lazily freed bytes that stay in RAM. 0 means no limit.
    publish: the name under which `millpond stat` shows the pond.
    store_outside_budget: the store's RAM is not charged to the budget.
    cover_process: all resident memory of the process is charged to the budget, managed or not.
    abort_when_full: a full or failing store aborts the process. Otherwise the budget is exceeded,
        and no data is lost.
    encrypt: data in a file is encrypted, by a key that exists only in this process.
    background: whether a thread reclaims memory ahead of need: "always", "never", or "auto", which
        means where it helps.

    Raises `InvalidError`, `Refused` if the system does not allow the delivery, and `StoreError`.
    """

    _instead = "open a pond in the other process"

    def __init__(
        self,
        ram: Size,
        *,
        store: str = "auto",
        store_max: Size = 0,
        store_directory: Optional[str] = None,
        store_file: Size = 0,
        order: str = "adaptive",
        delivery: str = "handler",
        address_space: Size = 0,
        lazyfree_max: Size = 0,
        publish: Optional[str] = None,
        store_outside_budget: bool = False,
        cover_process: bool = False,
        abort_when_full: bool = False,
        encrypt: bool = False,
        background: str = "auto",
    ) -> None:
        if background not in _BACKGROUND:
            raise InvalidError(f"background is one of {', '.join(_BACKGROUND)}, not {background!r}")
        options = sized(
            Options,
            ram=parse(ram, "a budget"),
            store=text(store, "a store"),
            store_max=parse(store_max, "a store_max"),
            order=text(order, "an order"),
            delivery=text(delivery, "a delivery"),
            address_space=parse(address_space, "an address_space"),
            lazyfree_max=parse(lazyfree_max, "a lazyfree_max"),
            publish=text(publish, "a name to publish"),
            flags=(
                (STORE_OUTSIDE_BUDGET if store_outside_budget else 0)
                | (COVER_PROCESS if cover_process else 0)
                | (ABORT_WHEN_FULL if abort_when_full else 0)
                | (ENCRYPT if encrypt else 0)
                | _BACKGROUND[background]
            ),
            store_directory=text(store_directory, "a store_directory"),
            store_file=parse(store_file, "a store_file"),
        )
        try:
            pointer = made("millpond_open", ctypes.byref(options))
        except Refused as refused:
            if "millpond doctor" in str(refused):
                raise
            raise Refused(f"{refused}; {_way_out(delivery, str(refused))}") from None
        self._handle = Handle(pointer, library().millpond_close, "pond", at_exit=True)
        # A shrinker's object often has no other reference, so this one keeps it while it is
        # registered.
        self._shrinkers: set[Shrinker] = set()

    def close(self) -> None:
        """Ends the pond's shrinkers and closes the pond. A second call does nothing.

        Arrays and regions remain usable, and the pond ends with the last of them.
        """
        for shrinker in tuple(self._shrinkers):
            shrinker.close()
        self._handle.close()

    def __enter__(self) -> Pond:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _new_region(self, size: int, folios: Optional[str], group: Optional[Group]) -> Region:
        with self._handle as pointer:
            new = made("millpond_region_new", pointer, size, text(folios, "folios"))
        region = Region(self, new)
        if group is not None:
            region.set_group(group)
        return region

    def set_ram(self, ram: Size) -> None:
        """Changes the budget, up to the one that the pond was opened with.

        A lower budget holds when the call returns. Raises `InvalidError` if the budget is above
        that, or below the least.
        """
        budget = parse(ram, "a budget")
        with self._handle as pointer:
            library().millpond_set_ram(pointer, budget)

    def quiesce(self) -> None:
        """Waits until memory that is being freed in the background has gone back to the kernel."""
        with self._handle as pointer:
            library().millpond_quiesce(pointer)

    def stats(self) -> PondStats:
        """Returns the most wanted figures of the pond."""
        raw = sized(Stats)
        with self._handle as pointer:
            library().millpond_stats(pointer, ctypes.byref(raw))
        return PondStats(*(getattr(raw, name) for name in PondStats._fields))

    def counters(self) -> dict[str, int]:
        """Returns all counters at one moment, by the names that `millpond stat` prints."""
        names: list[str] = []
        while (name := library().millpond_counter_name(len(names))) is not None:
            names.append(name.decode())
        values = (ctypes.c_uint64 * len(names))()
        with self._handle as pointer:
            library().millpond_counters(pointer, values, len(names))
        return dict(zip(names, values))

    def avoided(self, more: Size) -> Optional[float]:
        """Returns the share of major faults so far that a larger budget would have spared.

        The share, 0 to 1, is an estimate for a budget that is larger by `more` bytes. It is None
        while too few major faults have happened to tell.
        """
        share = ctypes.c_double()
        wanted = parse(more)
        with self._handle as pointer:
            library().millpond_avoided(pointer, wanted, ctypes.byref(share))
        return share.value if share.value >= 0 else None

    def curve(self) -> list[tuple[int, float]]:
        """Returns `avoided` for a quarter, a half, one and two budgets more.

        Each pair has the bytes and the share. The list is empty while too few major faults have
        happened to tell.
        """
        ram = self.stats().ram
        steps = ((more, self.avoided(more)) for more in (ram // 4, ram // 2, ram, 2 * ram))
        return [(more, share) for more, share in steps if share is not None]

    def pressure(self) -> Pressure:
        """Returns how long the pond's threads waited for memory."""
        with self._handle as pointer:
            return pressure(pointer, None)

    def group(
        self,
        name: str,
        *,
        parent: Optional[Group] = None,
        min: Size = 0,
        low: Size = 0,
        high: Size = 0,
        max: Size = 0,
        lazyfree_max: Size = 0,
    ) -> Group:
        """Makes a group below `parent`, or below the pond itself if `parent` is None.

        The limits are those of `Group.set_limits`. Raises `Busy` if the name is taken,
        `InvalidError`, `Removed` and `OtherPond`.
        """
        marks = ctypes.byref(limits(min, low, high, max, lazyfree_max))
        called = text(name, "a name")
        with self._handle as pointer:
            if parent is None:
                new = made("millpond_group_new", pointer, None, called, marks)
            else:
                with parent._handle as above:
                    new = made("millpond_group_new", pointer, above, called, marks)
        return Group(self, name, new)

    def shrinker(
        self,
        count: Callable[[], int],
        scan: Callable[[int], int],
        *,
        group: Optional[Group] = None,
    ) -> Shrinker:
        """Registers a cache of the program that shrinks when memory is short in the group or pond.

        `count()` returns how many objects the cache could free. `scan(objects)` looks at that many
        objects, frees those that it can, and returns how many it has freed. A thread of the pond
        calls both, and holds the interpreter's lock during a call, until the shrinker or the pond
        is closed. An exception in a callback goes to `sys.unraisablehook`, and the callback counts
        as having returned 0.
        """
        shrinker = Shrinker(self, group, count, scan)
        self._shrinkers.add(shrinker)
        return shrinker

    def __repr__(self) -> str:
        if self._handle.closed:
            return "<millpond.Pond (closed)>"
        if self._handle.inherited:
            return "<millpond.Pond (a parent process's)>"
        stats = self.stats()
        ram = stats.resident + stats.limbo + stats.lazyfree
        return (
            f"<millpond.Pond of {shown(stats.ram)}: {shown(ram)} in RAM, {shown(stats.stored)} in "
            f"the store, {stats.pgmajfault} major faults>"
        )
