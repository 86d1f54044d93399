import numba
import numpy


@numba.njit
def fill(count):
    numbers = numpy.empty(count, dtype=numpy.int64)
    state = 1
    for at in range(count):
        state = (state * 1103515245 + 12345) % 2147483648
        numbers[at] = state
    return numbers


@numba.njit(parallel=True)
def mix(numbers):
    for at in numba.prange(len(numbers)):
        number = numbers[at] % 1000003
        for _ in range(4):
            number = number * 7919 % 1000003
        numbers[at] = number
    return numbers.sum()


numbers = fill(20_000_000)
print(mix(numbers), numbers[::1000].max(), numbers[-3:])
counts = numpy.bincount(numbers[:5_000_000] % 4096)
print(counts.min(), counts.max())
