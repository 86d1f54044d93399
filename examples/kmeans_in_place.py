#!/usr/bin/env python3
"""Finds clusters of points in a file that is larger than the memory that it may take.

    python3 kmeans_in_place.py prepare points.npy    # MIB=256 is the size of the file
    python3 kmeans_in_place.py slices points.npy     # by np.memmap, which keeps what it has read in memory
    python3 kmeans_in_place.py pond points.npy       # by Pond.open, in BUDGET=64M

The last two print the same. The budget of the last one covers the whole process, Python and numpy included, and it
checks that the process's highest resident set, as the kernel counts it, is not above the budget. Points and centres are
whole numbers, so no sum depends on the pieces in which it is made.
"""

import json
import os
import re
import sys
from collections.abc import Iterator

# The products here are small, and threads of numpy's would wait for each other most of the time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import millpond

DIMENSIONS, CENTRES, ROUNDS = 32, 12, 3
# Points whose distances are found at once. Numpy needs about two MiB of ordinary memory for them, for a moment.
BLOCK = 1 << 11


def peak() -> int:
    """Returns the process's highest resident set as the kernel counts it, in bytes."""
    with open("/proc/self/status") as status:
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status.read())[0]) << 10


def blocks(points: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the parts of the points that are looked at one after the other."""
    for begin in range(0, len(points), BLOCK):
        yield points[begin : begin + BLOCK]


def prepare(path: str) -> None:
    """Writes points that lie in clumps."""
    count = (int(os.environ.get("MIB", "256")) << 20) // (2 * DIMENSIONS)
    random = np.random.default_rng(5)
    middles = random.integers(-900, 900, (CENTRES, DIMENSIONS), "i2")
    points = np.lib.format.open_memmap(path, "w+", "i2", (count, DIMENSIONS))
    for part in blocks(points):
        part[:] = middles[random.integers(0, CENTRES, len(part))] + random.integers(-90, 90, part.shape, "i2")


def assigned(part: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns for each centre the sum of the points that are nearest to it, and how many they are."""
    floats = part.astype("f8")
    # The square of a point is the same for all centres.
    nearest = ((centres * centres).sum(axis=1) - 2 * floats @ centres.T).argmin(axis=1)
    sums = [np.bincount(nearest, column, CENTRES) for column in floats.T]
    return np.array(sums).T, np.bincount(nearest, minlength=CENTRES)


def clusters(points: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    """Finds the clusters by k-means, and prints them."""
    centres = points[:: len(points) // CENTRES][:CENTRES].astype("f8")
    for _ in range(ROUNDS):
        sums, counts = np.zeros_like(centres), np.zeros(CENTRES, "i8")
        for part in blocks(points):
            more_sums, more_counts = assigned(part, centres)
            sums += more_sums
            counts += more_counts
        centres = np.rint(sums / np.maximum(counts, 1)[:, None])
    print("points from", *low, "to", *high)
    for count, centre in sorted(zip(counts, centres.astype(int).tolist())):
        print(count, *centre)


def in_slices(path: str) -> None:
    """Looks at the file by np.memmap, a part at a time."""
    points = np.load(path, mmap_mode="r")
    low = high = points[0].copy()
    for part in blocks(points):
        low, high = np.minimum(low, part.min(axis=0)), np.maximum(high, part.max(axis=0))
    clusters(points, low, high)


def opened() -> millpond.Pond:
    """Opens the pond. A thread of it brings pages in, or the thread that touches them, where that is not allowed."""
    budget, delivery = os.environ.get("BUDGET", "64M"), os.environ.get("DELIVERY")
    try:
        return millpond.Pond(budget, delivery=delivery or "handler", cover_process=True)
    except millpond.Refused:
        if delivery:
            raise
        return millpond.Pond(budget, delivery="in-thread", cover_process=True)


def in_pond(path: str) -> None:
    """Looks at the file in place, under the budget, and at all of it at once where there is no reason not to."""
    with opened() as pond:
        budget = pond.stats().ram
        points = pond.open(path, mode="r")
        clusters(points, points.min(axis=0), points.max(axis=0))
    if report := os.environ.get("REPORT"):
        with open(report, "w") as file:
            json.dump({"peak_resident_bytes": peak()}, file)
    if peak() > budget:
        sys.exit(f"the process had {peak()} bytes in memory at once: the budget is {budget}")


if __name__ == "__main__":
    {"prepare": prepare, "slices": in_slices, "pond": in_pond}[sys.argv[1]](sys.argv[2])
