"""Work that takes about 96 MiB, of bytes that do not compress. It prints what it has read."""

import hashlib
import os
import random
import sys
import time

MIB = 1 << 20
PAGE = 4096


def block(number):
    """A MiB of bytes that belong to this number."""
    return random.Random(number).randbytes(MIB)


def digest(memory):
    return hashlib.sha256(memory).hexdigest()


def filled(mebibytes, first=0):
    memory = bytearray(mebibytes * MIB)
    for at in range(mebibytes):
        memory[at * MIB : (at + 1) * MIB] = block(first + at)
    return memory


def numbers():
    memory = filled(96)
    print(digest(memory))
    chance = random.Random(1)
    total = 0
    for _ in range(3000):
        at = chance.randrange(len(memory) // PAGE) * PAGE
        total += memory[at] + memory[at + PAGE - 1]
        if chance.random() < 0.1:
            memory[at : at + 8] = at.to_bytes(8, "little")
    print(total, digest(memory))
    # Half of it goes, and other bytes come.
    del memory[: 48 * MIB]
    memory += filled(40, first=1000)
    print(digest(memory))


def children():
    memory = filled(64)
    read, write = os.pipe()
    for child in range(4):
        if os.fork() == 0:
            os.close(read)
            time.sleep(0.1 * child)
            # The parent writes meanwhile. What the child writes is its own.
            seen = [digest(memory)]
            memory[child * MIB : (child + 1) * MIB] = block(5000 + child)
            if os.fork() == 0:
                seen.append(digest(memory))
                os.write(write, (f"grandchild {child} {seen}\n").encode())
                os._exit(0)
            os.wait()
            os.write(write, (f"child {child} {seen}\n").encode())
            os._exit(0)
        for at in range(64):
            memory[at * MIB : at * MIB + PAGE] = bytes([child]) * PAGE
    os.close(write)
    for _ in range(4):
        _, status = os.wait()
        assert status == 0, status
    with os.fdopen(read) as told:
        print("".join(sorted(told)), digest(memory))


def late():
    memory = filled(80)
    with open(sys.argv[2], "w"):
        time.sleep(4)
    print(digest(memory))


{"numbers": numbers, "children": children, "late": late}[sys.argv[1]]()
