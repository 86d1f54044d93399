"""A program with types, which test_types.py checks as its users would: it is never run."""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import assert_type

import millpond


def work(path: str) -> float:
    with millpond.Pond("64M", store="zram", order="adaptive:4") as pond:
        assert_type(pond, millpond.Pond)
        numbers = pond.zeros((3, 4), "f4", order="F")
        more: np.ndarray[Any, Any] = pond.from_array(np.eye(3))
        numbers[:] = pond.asarray(more, dtype=np.float32)[0, 0]
        millpond.save(path, numbers)
        back = pond.load(path)
        with millpond.pin(back[:1]) as pinned:
            pinned += 1
        region = millpond.region_of(back)
        assert_type(region, millpond.Region)
        assert_type(region.stats(), millpond.RegionStats)
        assert_type(region.stats().resident, int)
        assert_type(pond.stats().ram, int)
        assert_type(pond.counters(), dict[str, int])
        assert_type(pond.avoided("1M"), "float | None")
        group = pond.group("cache", low=1 << 20, max="16M")
        assert_type(group, millpond.Group)
        cache: dict[int, bytes] = {}

        def scan(objects: int) -> int:
            gone = list(cache)[:objects]
            for key in gone:
                del cache[key]
            return len(gone)

        with pond.shrinker(lambda: len(cache), scan, group=group) as shrinker:
            assert_type(shrinker, millpond.Shrinker)
        millpond.advise(numbers, "cold")
        assert_type(millpond.discard(numbers), int)
        before = millpond.snapshot(back)
        mapped = pond.memmap(path, "f4", "r+", shape=(3, 4))
        grown: np.ndarray[Any, Any] = millpond.grow(mapped, 5)
        millpond.flush(grown)
    return float(before.sum())
