#!/usr/bin/env python3
"""Sorts many numbers in a pool of processes, each of which keeps what does not fit in a store beyond the machine.

    python3 worker_pool.py                                  # in ordinary memory
    python3 worker_pool.py fs:///mnt/share/pond             # objects in a directory
    python3 worker_pool.py 's3://cold-pages/team?region=eu-central-1'
    python3 worker_pool.py redis://127.0.0.1:6379/0

BUDGET=64M is the memory of each worker's pond, and MIB=256 is how much each job needs. All print the same.

The workers share the store, and nothing else. Each pond is a run of its own there: its objects have names that no other
run's begin with, and they are sealed by a key that only this process has. They are deleted when the pond ends. What a
worker leaves that was killed, `millpond remote clean URL` removes.

The library must have stores beyond the machine: `cargo build --release -p millpond-capi --features remote`.
"""

import multiprocessing
import os
import sys

import numpy as np

JOBS, WORKERS = 4, 2
COUNT = (int(os.environ.get("MIB", "256")) << 20) // 8


def sort(numbers: np.ndarray, seed: int) -> list[int]:
    """Fills the array with numbers, a block at a time, sorts it, and returns some of them."""
    random = np.random.default_rng(seed)
    for begin in range(0, len(numbers), 1 << 20):
        block = numbers[begin : begin + (1 << 20)]
        block[:] = random.integers(1 << 62, size=len(block))
    numbers.sort()
    if (numbers[1:] < numbers[:-1]).any():
        raise AssertionError(f"job {seed} is not in order")
    return numbers[:: len(numbers) // 4].tolist()


def job(url: str, seed: int) -> list[int]:
    """Does one job, in a pond of this process's own if there is a store."""
    if not url:
        return sort(np.empty(COUNT, "i8"), seed)
    import millpond

    def opened(delivery: str) -> millpond.Pond:
        return millpond.Pond(os.environ.get("BUDGET", "64M"), store=f"auto,{url}", store_file="32M", delivery=delivery)

    try:
        # A thread of the pond brings pages in, or the thread that touches them, where that is not allowed.
        pond = opened("handler")
    except millpond.Refused:
        pond = opened("in-thread")
    with pond:
        return sort(pond.empty(COUNT, "i8"), seed)


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else ""
    # Each worker starts as a process of its own: a forked one would have none of its parent's ponds.
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        results = pool.starmap(job, [(url, seed) for seed in range(JOBS)], chunksize=1)
        pool.close()
        # The workers end by themselves, and delete what they have in the store.
        pool.join()
    for seed, result in enumerate(results):
        print(seed, *result)


if __name__ == "__main__":
    main()
