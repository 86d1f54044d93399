import numba
import numpy


@numba.njit
def sieve(limit):
    is_prime = numpy.ones(limit, dtype=numpy.uint8)
    is_prime[:2] = 0
    for number in range(2, int(limit**0.5) + 1):
        if is_prime[number]:
            is_prime[number * number :: number] = 0
    return is_prime.sum()


@numba.njit(parallel=True)
def collatz(limit):
    lengths = numpy.zeros(limit, dtype=numpy.int64)
    for start in numba.prange(1, limit):
        number = start
        while number != 1:
            number = number // 2 if number % 2 == 0 else 3 * number + 1
            lengths[start] += 1
    return lengths


print(sieve(150_000_000))
lengths = collatz(600_000)
print(lengths.argmax(), lengths.max(), lengths.sum())
