import hashlib

import numpy
import scipy.sparse

random = numpy.random.default_rng(5)
count, size = 3_000_000, 60_000
matrix = scipy.sparse.coo_matrix(
    (random.integers(1, 9, count), (random.integers(0, size, count), random.integers(0, size, count))), (size, size)
).tocsr()
vector = numpy.arange(size)
for _ in range(20):
    vector = (matrix @ vector) % 10007
print(hashlib.sha256(vector.tobytes()).hexdigest())
square = matrix[:4000] @ matrix
print(square.nnz, square.sum(), abs(matrix - matrix.T).sum())
labels = scipy.sparse.csgraph.connected_components(matrix[:, :] > 8)
print(labels[0], numpy.bincount(labels[1]).max())
