#!/usr/bin/env python3
"""Joins sales with customers by pandas, and prints the ten regions that bought most.

    millpond run --ram 192M -- python3 examples/pandas_merge.py
"""

import numpy as np
import pandas as pd

SALES, CUSTOMERS, REGIONS = 3_000_000, 200_000, 500


def main() -> None:
    random = np.random.default_rng(1)
    sales = pd.DataFrame({
        "customer": random.integers(0, CUSTOMERS, SALES),
        "pieces": random.integers(1, 9, SALES),
        "price": random.integers(100, 10_000, SALES),
    })
    customers = pd.DataFrame({
        "customer": random.permutation(CUSTOMERS),
        "region": random.integers(0, REGIONS, CUSTOMERS),
    })
    merged = sales.merge(customers, on="customer")
    merged["amount"] = merged["pieces"] * merged["price"]
    totals = merged.groupby("region")["amount"].sum()
    print(totals.sort_values(ascending=False, kind="stable").head(10).to_string())


if __name__ == "__main__":
    main()
