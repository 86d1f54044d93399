"""Ponds: one hard budget of RAM, and arrays that need not fit in it.

*Delivery.* Somebody has to bring an absent page when it is touched. The C library's own default is
that the thread that touches it does, in a handler of SIGBUS. That is the fastest, and asks for what
a Python program can hardly promise: that absent memory is never handed to a system call (numpy does
so in `tofile`, files in `readinto`), that no thread blocks that signal, the threads of a BLAS
library included, and that nobody takes the handler away, as `faulthandler.enable()` does when it
comes later. So here a thread of the pond's resolves faults, unless asked otherwise. It never needs
the interpreter's lock, and so a thread that has that lock may fault. Where the system refuses this
to unprivileged programs, opening a pond says so and what to do; it does not quietly open another
kind.

*How long it lives.* A pond ends when it was closed, or its object has gone, and its last region has
gone as well. So arrays stay good after the end of a `with` block, in whatever order things go.
"""

from __future__ import annotations

import ctypes
from typing import Callable, Optional

from ._errors import InvalidError, Refused
from ._figures import PondStats, Pressure
from ._group import Group, limits, pressure
from ._handle import Handle
from ._library import library, made, text
from ._making import Making
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
from ._size import Size, parse

_BACKGROUND = {"auto": 0, "always": BACKGROUND_ALWAYS, "never": BACKGROUND_NEVER}


def _way_out(delivery: str, refusal: str) -> str:
    ways = "`millpond doctor` says what this machine allows, and what grants the rest"
    if delivery == "handler" and "userfaultfd is refused" in refusal:
        # The kernel gives every user what this needs; only a sandbox may refuse that as well.
        return f'{ways}; delivery="in-thread" needs no grant (help(millpond.Pond) says its price)'
    return ways


class Pond(Making):
    """Memory under one budget.

    >>> with millpond.Pond("16M") as pond:
    ...     numbers = pond.zeros(8_000_000)         # 64 MB of floats in 16 MiB of RAM
    ...     numbers[:] = 1
    ...     float(numbers.sum()), pond.stats().resident <= 16 << 20
    (8000000.0, True)

    ram: the budget, at least 16 MiB; in bytes or as "512M", as all sizes are.
    store: where what does not fit goes: "auto" (compressed RAM, then a file; where none can be made
        in TMPDIR a line says so and it is "zram"), "zram" (compressed RAM), "file", "file:PATH",
        "none".
    store_max: most bytes that "zram" or "file" may take; 0: by itself.
    order: folios of 2^order pages, "0" to "9", or "adaptive", or "adaptive:9" with a largest.
    delivery: who resolves faults: "handler", a thread of the pond's; or "in-thread", the thread
        that has them: faster, but what is passed to a system call must be pinned, no thread may
        block SIGBUS, and `faulthandler` must have been enabled before, if at all.
    address_space: addresses to reserve; 0: 16 times the budget, at least 64 GiB.
    lazyfree_max: most bytes that stay in RAM after they were lazily freed; 0: no limit.
    publish: a name under which `millpond stat` shows the pond.
    store_outside_budget: the store's RAM does not count.
    cover_process: all resident memory of the process counts, managed or not.
    abort_when_full: a full or failing store aborts the process. Otherwise the budget is exceeded,
        and nothing is lost.
    encrypt: what goes to a file is encrypted, by a key that is nowhere but in this process.
    background: whether a thread reclaims ahead of need: "auto" (where it helps), "always", "never".

    Raises `InvalidError`, `Refused` where the system does not allow it, `StoreError`.
    """

    def __init__(
        self,
        ram: Size,
        *,
        store: str = "auto",
        store_max: Size = 0,
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
        )
        try:
            pointer = made("millpond_open", ctypes.byref(options))
        except Refused as refused:
            if "millpond doctor" in str(refused):
                raise
            raise Refused(f"{refused}; {_way_out(delivery, str(refused))}") from None
        self._handle = Handle(pointer, library().millpond_close, "pond", at_exit=True)
        # A shrinker's object often has no other reference: it lives as long as it is registered.
        self._shrinkers: set[Shrinker] = set()

    def close(self) -> None:
        """Ends its shrinkers and lets go of it; a second time is nothing.

        Arrays and regions stay good, and it ends with the last of them.
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
        """Changes the budget, up to what the pond was opened with. A lower one is kept from now on.

        Raises `InvalidError` for more than that, or less than the least.
        """
        budget = parse(ram, "a budget")
        with self._handle as pointer:
            library().millpond_set_ram(pointer, budget)

    def quiesce(self) -> None:
        """Waits until all memory that is being freed in the background has been given back."""
        with self._handle as pointer:
            library().millpond_quiesce(pointer)

    def stats(self) -> PondStats:
        """The most wanted figures."""
        raw = sized(Stats)
        with self._handle as pointer:
            library().millpond_stats(pointer, ctypes.byref(raw))
        return PondStats(*(getattr(raw, name) for name in PondStats._fields))

    def counters(self) -> dict[str, int]:
        """All counters at one moment by their names, as `millpond stat` prints them."""
        names: list[str] = []
        while (name := library().millpond_counter_name(len(names))) is not None:
            names.append(name.decode())
        values = (ctypes.c_uint64 * len(names))()
        with self._handle as pointer:
            library().millpond_counters(pointer, values, len(names))
        return dict(zip(names, values))

    def avoided(self, more: Size) -> Optional[float]:
        """The share of major faults so far, 0 to 1, that `more` bytes of budget would have spared.

        None while too few have happened to say.
        """
        share = ctypes.c_double()
        wanted = parse(more)
        with self._handle as pointer:
            library().millpond_avoided(pointer, wanted, ctypes.byref(share))
        return share.value if share.value >= 0 else None

    def curve(self) -> list[tuple[int, float]]:
        """What more RAM would spare: `avoided` for a quarter, a half, one and two budgets more.

        Pairs of bytes and share; empty while too few major faults have happened to say.
        """
        ram = self.stats().ram
        steps = ((more, self.avoided(more)) for more in (ram // 4, ram // 2, ram, 2 * ram))
        return [(more, share) for more, share in steps if share is not None]

    def pressure(self) -> Pressure:
        """How much of the time threads waited for memory."""
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
        """A new group below `parent`, or below the pond itself; see `Group.set_limits`.

        Raises `Busy` where the name is taken, `InvalidError`, `Removed`, `OtherPond`.
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
        """Lets a cache of the program's give way when memory of the group, or the pond, is short.

        `count()` says how many objects could be given up; `scan(objects)` looks at so many, gives
        up those that it can, and says how many that were. Both are called by a thread of the
        pond's, which holds the interpreter's lock meanwhile, until the shrinker or the pond is
        closed. What they raise goes to `sys.unraisablehook` and counts as 0.
        """
        shrinker = Shrinker(self, group, count, scan)
        self._shrinkers.add(shrinker)
        return shrinker

    def __repr__(self) -> str:
        if self._handle.closed:
            return "<millpond.Pond (closed)>"
        if self._handle.inherited:
            return "<millpond.Pond (a parent process's)>"
        return f"<millpond.Pond of {self.stats().ram} bytes>"
