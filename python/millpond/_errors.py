"""The errors that a call can raise.

A program that catches an error has to react to its kind, whichever call has raised it: to unpin and
try again, to write the page anew, to use less memory, or to open the pond in this process. So there
is one class for each status of the C library. Most classes are also a built-in class that Python
programs catch in such a case: a bad argument is a `ValueError`, a lack of memory or of addresses is
a `MemoryError`, and a refusal by the system is an `OSError`.

The text of an error comes from the library. It names the refused value and a remedy.
"""

from __future__ import annotations


class Error(Exception):
    """The base class of all errors of Millpond."""


class InvalidError(Error, ValueError):
    """An argument is not allowed."""


class Unaligned(InvalidError):
    """The ends of a range are not multiples of 4096 bytes."""


class Pinned(Error):
    """A page of the range is pinned: release its pin first."""


class Lost(Error):
    """The store could not give a page back. Discard it to use it again; it never reads as zeros."""


class NoAddresses(Error, MemoryError):
    """No addresses are left: open the pond with a larger `address_space`."""


class OverBudget(Error, MemoryError):
    """The call needs more memory than the budget allows."""


class Refused(Error, OSError):
    """The system refused memory, a thread, or a permission."""


class StoreError(Error, OSError):
    """The store cannot be opened."""


class Volatile(Error):
    """A volatile range overlaps the range, or the range was not marked as volatile."""


class Busy(Error):
    """A name is taken, or another thread or an array uses the object."""


class Removed(Error):
    """The group was removed."""


class OtherPond(InvalidError):
    """The arguments belong to two different ponds."""


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
"""The class of each `enum millpond_status`. A status of a newer library only is an `Error`."""
