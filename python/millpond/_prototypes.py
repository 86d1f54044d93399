"""The C header in the form that ctypes needs.

Unless ctypes is told otherwise, it takes every argument and every result for an `int` of 32 bits,
and silently cuts pointers and lengths in half. So every function of `millpond.h` is declared here
with its types, in the header's order. That includes functions that this package does not call.
`tests/test_prototypes.py` compares sizes and offsets with those that a C compiler derives from the
header.

Structures that a caller passes begin with their own size. `sized` makes a structure and sets that
field.
"""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_int,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
    sizeof,
)
from typing import Any, TypeVar

from ._figures import GroupStats, PondStats, RegionStats

STORE_OUTSIDE_BUDGET = 1 << 0
COVER_PROCESS = 1 << 1
ABORT_WHEN_FULL = 1 << 2
BACKGROUND_ALWAYS = 1 << 3
BACKGROUND_NEVER = 1 << 4
ENCRYPT = 1 << 5

ADVICE = {"normal": 0, "sequential": 1, "random": 2, "willneed": 3, "cold": 4, "pageout": 5}
"""The values of `enum millpond_advice`, by the words that this package takes."""


class Options(Structure):
    """`struct millpond_options`."""

    _fields_ = [
        ("size", c_size_t),
        ("ram", c_uint64),
        ("store", c_char_p),
        ("store_max", c_uint64),
        ("order", c_char_p),
        ("delivery", c_char_p),
        ("address_space", c_uint64),
        ("lazyfree_max", c_uint64),
        ("publish", c_char_p),
        ("flags", c_uint32),
        ("store_directory", c_char_p),
        ("store_file", c_uint64),
    ]


class Stats(Structure):
    """`struct millpond_stats`."""

    _fields_ = [("size", c_size_t), *((name, c_uint64) for name in PondStats._fields)]


class RegionStatsStruct(Structure):
    """`struct millpond_region_stats`."""

    _fields_ = [("size", c_size_t), *((name, c_uint64) for name in RegionStats._fields)]


class Range(Structure):
    """`struct millpond_range`."""

    _fields_ = [("offset", c_size_t), ("len", c_size_t)]


class Limits(Structure):
    """`struct millpond_limits`."""

    _fields_ = [
        ("size", c_size_t),
        ("min", c_uint64),
        ("low", c_uint64),
        ("high", c_uint64),
        ("max", c_uint64),
        ("lazyfree_max", c_uint64),
    ]


class GroupStatsStruct(Structure):
    """`struct millpond_group_stats`."""

    _fields_ = [("size", c_size_t), *((name, c_uint64) for name in GroupStats._fields)]


class PressureStruct(Structure):
    """`struct millpond_pressure`."""

    _fields_ = [
        ("size", c_size_t),
        ("some", c_double * 3),
        ("full", c_double * 3),
        ("some_total_us", c_uint64),
        ("full_total_us", c_uint64),
    ]


S = TypeVar("S", bound=Structure)


def sized(kind: type[S], **fields: Any) -> S:
    """Makes a structure with its size set. Fields that are not named are zero."""
    return kind(size=sizeof(kind), **fields)


Count = CFUNCTYPE(c_size_t, c_void_p)
"""The type of a shrinker's `count`."""
Scan = CFUNCTYPE(c_size_t, c_void_p, c_size_t)
"""The type of a shrinker's `scan`."""

STATUS = object()
"""Stands for the `int` of a call that can fail. The library's check turns it into an error."""

_handle = c_void_p
_out = POINTER(c_void_p)

FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "millpond_error": (c_char_p, []),
    "millpond_version": (c_char_p, []),
    "millpond_open": (STATUS, [POINTER(Options), _out]),
    "millpond_close": (None, [_handle]),
    "millpond_set_ram": (STATUS, [_handle, c_uint64]),
    "millpond_quiesce": (STATUS, [_handle]),
    "millpond_stats": (STATUS, [_handle, POINTER(Stats)]),
    "millpond_counter": (STATUS, [_handle, c_char_p, POINTER(c_uint64)]),
    "millpond_counters": (STATUS, [_handle, POINTER(c_uint64), c_size_t]),
    "millpond_counter_name": (c_char_p, [c_size_t]),
    "millpond_avoided": (STATUS, [_handle, c_uint64, POINTER(c_double)]),
    "millpond_region_new": (STATUS, [_handle, c_size_t, c_char_p, _out]),
    "millpond_region_data": (c_void_p, [_handle]),
    "millpond_region_size": (c_size_t, [_handle]),
    "millpond_region_free": (None, [_handle]),
    "millpond_region_free_async": (None, [_handle]),
    "millpond_region_stats": (STATUS, [_handle, POINTER(RegionStatsStruct)]),
    "millpond_region_advise": (STATUS, [_handle, c_size_t, c_size_t, c_int]),
    "millpond_region_populate": (STATUS, [_handle, c_size_t, c_size_t]),
    "millpond_region_pin": (STATUS, [_handle, c_size_t, c_size_t, _out]),
    "millpond_pin_free": (None, [_handle]),
    "millpond_region_try_read": (
        STATUS,
        [_handle, c_size_t, c_void_p, c_size_t, POINTER(c_int)],
    ),
    "millpond_region_try_write": (
        STATUS,
        [_handle, c_size_t, c_void_p, c_size_t, POINTER(c_int)],
    ),
    "millpond_region_try_pin": (STATUS, [_handle, c_size_t, c_size_t, _out, POINTER(c_int)]),
    "millpond_region_prefetch": (STATUS, [_handle, c_size_t, c_size_t]),
    "millpond_region_discard": (STATUS, [_handle, c_size_t, c_size_t]),
    "millpond_region_will_overwrite": (STATUS, [_handle, c_size_t, c_size_t]),
    "millpond_region_lazy_free": (STATUS, [_handle, POINTER(Range), c_size_t]),
    "millpond_region_lazy_free_shared": (STATUS, [_handle, POINTER(Range), c_size_t]),
    "millpond_region_mark_volatile": (STATUS, [_handle, c_size_t, c_size_t]),
    "millpond_region_mark_nonvolatile": (STATUS, [_handle, c_size_t, c_size_t, POINTER(c_int)]),
    "millpond_region_grow": (STATUS, [_handle, c_size_t]),
    "millpond_region_shrink": (STATUS, [_handle, c_size_t]),
    "millpond_region_move": (STATUS, [_handle, c_size_t, c_size_t, _handle, c_size_t]),
    "millpond_region_split": (STATUS, [_handle, c_size_t, c_size_t, c_size_t, _out]),
    "millpond_region_snapshot": (STATUS, [_handle, _out]),
    "millpond_map_file": (STATUS, [_handle, c_char_p, c_uint64, c_uint64, c_int, _out]),
    "millpond_file_data": (c_void_p, [_handle]),
    "millpond_file_size": (c_size_t, [_handle]),
    "millpond_file_free": (None, [_handle]),
    "millpond_file_read": (STATUS, [_handle, c_size_t, c_void_p, c_size_t]),
    "millpond_file_advise": (STATUS, [_handle, c_size_t, c_size_t, c_int]),
    "millpond_file_sync": (STATUS, [_handle, c_size_t, c_size_t]),
    "millpond_file_grow": (STATUS, [_handle, c_size_t]),
    "millpond_group_new": (STATUS, [_handle, _handle, c_char_p, POINTER(Limits), _out]),
    "millpond_group_set_limits": (STATUS, [_handle, POINTER(Limits)]),
    "millpond_group_remove": (STATUS, [_handle]),
    "millpond_group_free": (None, [_handle]),
    "millpond_region_set_group": (STATUS, [_handle, _handle]),
    "millpond_group_stats": (STATUS, [_handle, POINTER(GroupStatsStruct)]),
    "millpond_pressure": (STATUS, [_handle, _handle, POINTER(PressureStruct)]),
    "millpond_shrinker_new": (STATUS, [_handle, _handle, Count, Scan, c_void_p, _out]),
    "millpond_shrinker_free": (None, [_handle]),
}
"""The result type and the argument types of every function of the header."""
