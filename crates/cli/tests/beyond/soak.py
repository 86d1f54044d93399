"""Fills so many MiB with bytes that do not compress, reads them in order and at random, changes some, and reads all again.

It ends with status 1, and says where, when it reads other bytes than it has written.
"""

import random
import sys
import time

BLOCK = 1 << 16
# Reads at random. Each is a request or more.
PLACES = 500
# Every so many bytes one is changed, so that every other page is.
STEP = 8000


def block(number):
    return random.Random(number).randbytes(BLOCK)


def changed(number):
    """The block after the change."""
    there = bytearray(block(number))
    start = number * BLOCK
    for at in range(-start % STEP, BLOCK, STEP):
        there[at] ^= 1
    return there


def lap(memory, expected, what):
    for number in range(len(memory) // BLOCK):
        at = number * BLOCK
        if memory[at : at + BLOCK] != expected(number):
            sys.exit(f"{what}: other bytes at {at}")
    passed(what)


def passed(what):
    print(f"{what} after {time.monotonic() - begun:.0f} s", flush=True)


begun = time.monotonic()
blocks = int(sys.argv[1]) * (1 << 20) // BLOCK
memory = bytearray(blocks * BLOCK)
for number in range(blocks):
    memory[number * BLOCK : (number + 1) * BLOCK] = block(number)
passed("filled")
lap(memory, block, "read in order")
chance = random.Random(1)
for _ in range(PLACES):
    number, inside = chance.randrange(blocks), chance.randrange(BLOCK)
    if memory[number * BLOCK + inside] != block(number)[inside]:
        sys.exit(f"read at random: another byte at {number * BLOCK + inside}")
passed("read at random")
for at in range(0, len(memory), STEP):
    memory[at] ^= 1
lap(memory, changed, "changed and read again")
