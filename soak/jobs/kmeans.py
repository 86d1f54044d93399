import numpy
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier

random = numpy.random.default_rng(3)
centres = random.integers(0, 1000, (6, 20))
points = (centres[random.integers(0, 6, 250_000)] + random.integers(-20, 20, (250_000, 20))).astype(float)
means = KMeans(6, n_init=2, random_state=0, max_iter=20).fit(points)
print(sorted(numpy.bincount(means.labels_)))
forest = RandomForestClassifier(8, max_depth=8, random_state=0, n_jobs=2).fit(points[:40_000], means.labels_[:40_000])
print((forest.predict(points) == means.labels_).sum())
