"""Sizes: a number of bytes, or a text such as "512M".

Budgets are written in gigabytes, and lengths of arrays are results of arithmetic, so every call
that takes a size takes a text or a number. The text has the form that the `millpond` command takes.
K, M, G and T, alone or followed by "i" or "iB", are powers of 1024. KB, MB, GB and TB are powers of
1000, as in GNU's tools. Upper and lower case are the same. A fraction is exact ("1.5G" is
1536 MiB), and a rest of less than a byte is dropped.

The library takes 64-bit numbers, and ctypes passes the lower 64 bits of any number, even of a
negative one. So this module also refuses sizes that do not fit.
"""

from __future__ import annotations

import operator
import re
from fractions import Fraction
from typing import SupportsIndex, Union

from ._errors import InvalidError

Size = Union[SupportsIndex, str]
"""A number of bytes, or a text with a unit."""

PAGE = 4096
"""The size of a page in bytes."""

_TEXT = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*(?:([KMGT])(I?)(B?)|B)?\s*", re.IGNORECASE | re.ASCII)
_END = 1 << 63


def parse(size: Size, what: str = "a size") -> int:
    """Returns how many bytes `size` is. An error names the size by `what`.

    >>> parse("1.5GiB"), parse("64k"), parse("64KB"), parse(4096)
    (1610612736, 65536, 64000, 4096)

    Raises `InvalidError` for any other text, for a negative number and for 2**63 or more. Raises
    `TypeError` for an argument that is neither an integer nor a text.
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


def shown(size: int) -> str:
    """Returns a number of bytes as people read it, in the form that `parse` takes.

    >>> shown(64 << 20), shown(65_700_000), shown(700)
    ('64M', '62.7M', '700')
    """
    number, unit = float(size), ""
    for unit in ("", "K", "M", "G", "T"):
        if number < 1024 or unit == "T":
            break
        number /= 1024
    return f"{number:.1f}".removesuffix(".0") + unit
