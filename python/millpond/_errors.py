"""What a call can raise.

A caller who catches an error wants to do something about it, and what that is depends on the kind,
not on the call: unpin and try again, write the page anew, use less, open the pond in this process.
So there is one class for each status of the C library, and each is also the built-in class under
which Python programs look for its like: a bad argument is a `ValueError`, memory or addresses that
cannot be had are a `MemoryError`, what the system refuses is an `OSError`.

The text is the library's own. It names the value and the way out.
"""

from __future__ import annotations


class Error(Exception):
    """Anything that went wrong in Millpond."""


class InvalidError(Error, ValueError):
    """An argument is not what the call takes."""


class Unaligned(InvalidError):
    """A range does not lie at pages of 4096 bytes."""


class Pinned(Error):
    """A page of the range is pinned: release its pin first."""


class Lost(Error):
    """The store could not give a page back. Discard it to use it again; it never reads as zeros."""


class NoAddresses(Error, MemoryError):
    """No addresses are left: open the pond with a larger `address_space`."""


class OverBudget(Error, MemoryError):
    """More than the budget allows."""


class Refused(Error, OSError):
    """The system refused memory, a thread, or its permission."""


class StoreError(Error, OSError):
    """The store cannot be opened."""


class Volatile(Error):
    """A volatile range is in the way, or the range is none."""


class Busy(Error):
    """A name is taken, or something is in use: by another thread, or by arrays that lie in it."""


class Removed(Error):
    """The group was removed."""


class OtherPond(InvalidError):
    """Two things that were to work together belong to two ponds."""


class Forked(Error):
    """The pond was opened by a parent of this process. Open one here."""


class Closed(Error, ValueError):
    """The pond, region, group, pin or shrinker was closed before."""


BY_STATUS: dict[int, type[Error]] = {
    1: InvalidError,
    2: Unaligned,
    3: Pinned,
    4: Lost,
    5: NoAddresses,
    6: OverBudget,
    7: Refused,
    8: StoreError,
    9: Volatile,
    10: Busy,
    11: Removed,
    12: OtherPond,
    13: Forked,
}
"""The class of each `enum millpond_status`; a status that a newer library has is an `Error`."""
