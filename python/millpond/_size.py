"""Sizes: a number of bytes, or a text such as "512M".

Budgets are said in gigabytes and lengths of arrays come out of arithmetic, so every call that takes
a size takes both. The text is what the `millpond` command takes: K, M, G and T, alone or with "i"
or "iB" behind them, are powers of 1024; KB, MB, GB and TB are powers of 1000, as in GNU's tools; in
either case. A fraction is exact ("1.5G" is 1536 MiB), and what is left of a byte is dropped.

The library takes 64-bit numbers, and ctypes hands on the lower 64 bits of whatever it is given, a
negative number too. So this is also where a size that does not fit is refused.
"""

from __future__ import annotations

import operator
import re
from fractions import Fraction
from typing import SupportsIndex, Union

from ._errors import InvalidError

Size = Union[SupportsIndex, str]
"""Bytes as an integer, or as a text with a unit."""

PAGE = 4096
"""Bytes in a page."""

_TEXT = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*(?:([KMGT])(I?)(B?)|B)?\s*", re.IGNORECASE | re.ASCII)
_END = 1 << 63


def parse(size: Size, what: str = "a size") -> int:
    """The bytes that `size` says; `what` is named in the error.

    >>> parse("1.5GiB"), parse("64k"), parse("64KB"), parse(4096)
    (1610612736, 65536, 64000, 4096)

    Raises `InvalidError` for any other text, a negative number or one of 2**63 and more, and
    `TypeError` for what is neither an integer nor a text.
    """
    if isinstance(size, str):
        match = _TEXT.fullmatch(size)
        if match is None:
            raise InvalidError(
                f'{what} of {size!r} is none: write a number with K, M, G or T, as in "512M"'
            )
        number, letter, binary, byte = match.groups()
        base = 1000 if byte and not binary else 1024
        power = " KMGT".index(letter.upper()) if letter else 0
        parsed = int(Fraction(number) * base**power)
    else:
        try:
            parsed = operator.index(size)
        except TypeError:
            kind = type(size).__name__
            raise TypeError(f'{what} must be an int or a text such as "512M", not {kind}') from None
    if not 0 <= parsed < _END:
        raise InvalidError(f"{what} of {size!r} is none: it must be from 0 to below 2**63 bytes")
    return parsed
