#!/usr/bin/env python3
"""Joins measurements with their sensors by polars, and prints the warmest sites.

    millpond run --ram 192M -- python3 examples/polars_join.py
"""

import numpy as np
import polars as pl

MEASUREMENTS, SENSORS, SITES = 6_000_000, 100_000, 300


def main() -> None:
    random = np.random.default_rng(2)
    measurements = pl.DataFrame({
        "sensor": random.integers(0, SENSORS, MEASUREMENTS),
        "hour": random.integers(0, 24, MEASUREMENTS),
        "tenths": random.integers(-200, 400, MEASUREMENTS),
    })
    sensors = pl.DataFrame({"sensor": random.permutation(SENSORS), "site": random.integers(0, SITES, SENSORS)})
    warmest = (
        measurements.join(sensors, on="sensor")
        .group_by("site", "hour")
        .agg(pl.col("tenths").sum(), pl.len().alias("measurements"))
        .sort(["tenths", "site", "hour"], descending=[True, False, False])
        .head(10)
    )
    for row in warmest.rows():
        print(*row)


if __name__ == "__main__":
    main()
