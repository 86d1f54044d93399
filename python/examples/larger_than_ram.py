"""Sums and sorts four times as much data as the budget, and shows how much RAM that took.

    python3 larger_than_ram.py [BUDGET]        (64M)

The process's RAM is the pond's RAM and the RAM that Python and numpy need anyway. The second part
is measured before the pond is opened, so that the last line can compare the rest with the budget.
"""

import re
import sys
import time

import numpy as np

import millpond


def memory(which: str) -> float:
    """Returns a figure of /proc/self/status, in MiB."""
    with open("/proc/self/status") as status:
        return int(re.findall(rf"{which}:\s+(\d+) kB", status.read())[0]) / 1024


def main() -> None:
    # numpy loads some of its parts on first use, and their memory is not the pond's.
    random = np.random.default_rng(1)
    np.sort(random.random(1 << 16)).sum()
    before = memory("VmRSS")
    started = time.monotonic()
    with millpond.Pond(sys.argv[1] if len(sys.argv) > 1 else "64M") as pond:
        budget = pond.stats().ram
        numbers = pond.zeros(4 * budget // 8)
        random.random(out=numbers)
        said = f"{numbers.nbytes / 2**20:.0f} MiB of numbers in {budget / 2**20:.0f} MiB"
        print(f"{said}: their sum is {numbers.sum():.3f}")
        numbers.sort()
        median = numbers[numbers.size // 2]
        print(f"sorted: their median is {median:.6f}, their sum {numbers.sum():.3f}")
        stats = pond.stats()
    print(
        f"{time.monotonic() - started:.1f} s, {stats.pgmajfault} major faults, "
        f"{stats.stored / 2**20:.0f} MiB in the store at the end"
    )
    peak = memory("VmHWM")
    print(
        f"peak resident set {peak:.1f} MiB: {before:.1f} before there was a pond, "
        f"and {peak - before:.1f} beside its budget of {budget / 2**20:.1f}"
    )


if __name__ == "__main__":
    main()
