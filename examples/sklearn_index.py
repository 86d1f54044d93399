#!/usr/bin/env python3
"""Builds an index of points with scikit-learn, and asks it for the nearest neighbours of a few of them.

    millpond run --ram 160M -- python3 examples/sklearn_index.py
"""

import numpy as np
from sklearn.neighbors import KDTree

POINTS, DIMENSIONS, QUESTIONS = 800_000, 8, 200


def main() -> None:
    random = np.random.default_rng(3)
    # Points lie in clumps, as real vectors do. Whole numbers keep the distances the same on every processor.
    centres = random.integers(-1000, 1000, (2000, DIMENSIONS))
    points = centres[random.integers(0, len(centres), POINTS)] + random.integers(-20, 20, (POINTS, DIMENSIONS))
    tree = KDTree(points.astype(np.float64), leaf_size=64)
    distances, neighbours = tree.query(points[:: POINTS // QUESTIONS].astype(np.float64), k=5)
    print(f"{len(neighbours)} questions, sum of the squared distances {int(np.rint(distances**2).sum())}")
    print("nearest of the last:", *np.rint(distances[-1] ** 2).astype(int))


if __name__ == "__main__":
    main()
