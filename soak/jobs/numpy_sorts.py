import hashlib

import numpy

numbers = numpy.random.default_rng(1).integers(0, 2**62, 2_500_000)
order = numpy.argsort(numbers, kind="stable")
ranked = numbers[order]
sums = numpy.cumsum(ranked % 1000)
pairs = numpy.unique(numpy.stack([numbers % 3000, numbers % 7], axis=1), axis=0)
for array in (order, ranked, sums, pairs):
    print(array.shape, hashlib.sha256(array.tobytes()).hexdigest())
small = (numbers[:250_000] % 100).reshape(500, 500)
print((small @ small.T).trace())
