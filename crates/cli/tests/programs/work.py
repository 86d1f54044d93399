"""Workloads for tests/programs.rs: work.py NAME. Each prints something that it can compute only from right memory."""

import array
import hashlib
import mmap
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

MIB = 1 << 20


def digest(data):
    return hashlib.blake2b(data).hexdigest()[:16]


def pattern(size, seed):
    """Returns bytes that compress a little, different in each page."""
    source = random.Random(seed)
    out = bytearray(size)
    for at in range(0, size, 4096):
        page = source.randbytes(1024) + at.to_bytes(8, "little") * 384
        out[at : at + 4096] = page[: size - at]
    return out


def groups():
    """Partitions numbers into groups and sorts each."""
    source = random.Random(3)
    parts = [array.array("d") for _ in range(64)]
    for _ in range(12):
        block = array.array("Q", source.randbytes(8 * MIB))
        for index, part in enumerate(parts):
            part.extend(map(float, block[index::64]))
    for index, part in enumerate(parts):
        parts[index] = array.array("d", sorted(part))
    for part in parts:
        print(len(part), part[0], part[-1], digest(part))


def threads():
    """Runs four threads, each with memory of its own, and subprocesses and children beside them."""
    seen = {}

    def work(number):
        data = pattern(24 * MIB, number)
        for turn in range(3):
            for at in range(turn, len(data), 4096):
                data[at] ^= 255
        seen[number] = digest(data)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    for turn in range(3):
        print(subprocess.run(["sh", "-c", f"echo {turn} | tr 0-9 a-j"], capture_output=True, text=True).stdout, end="")
    for worker in workers:
        worker.join()
    print(sorted(seen.items()))


def part_digest(number):
    return digest(SHARED[number * 8 * MIB : (number + 1) * 8 * MIB])


def pool():
    """Children of fork read what the parent had made. At a quarter of 64 MiB python3 itself, which is not managed,
    leaves the frames at their floor: a budget of 21 MiB was exceeded by 0.7 to 1.1 MiB."""
    global SHARED
    SHARED = pattern(96 * MIB, 9)
    with multiprocessing.get_context("fork").Pool(2) as workers:
        print(workers.map(part_digest, range(12)))
    print(digest(SHARED))


def rewritten():
    """A child reads all of 96 MiB as they were at the fork, while the parent rewrites them."""
    data = pattern(96 * MIB, 4)
    before = digest(data)
    child = os.fork()
    if child == 0:
        time.sleep(0.05)
        os._exit(0 if digest(data) == before else 1)
    for at in range(0, len(data), 4096):
        data[at : at + 64] = b"\xa5" * 64
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), before, digest(data))


def closed():
    """A daemon's first steps: fork, session, fork, every descriptor closed. Its memory stays its memory."""
    data = pattern(96 * MIB, 5)
    want = digest(data)
    result = tempfile.mktemp()
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.closerange(3, 65536)
        for at in range(0, len(data), 4096):
            data[at] ^= 0
        more = pattern(30 * MIB, 6)
        text = f"{digest(data) == want} {digest(more)}"
        fd = os.open(result + ".new", os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(fd, text.encode())
        os.rename(result + ".new", result)
        os._exit(0)
    os.waitpid(first, 0)
    os.closerange(3, 65536)
    print(digest(data) == want)
    until = time.monotonic() + 60
    while not os.path.exists(result) and time.monotonic() < until:
        time.sleep(0.01)
    with open(result) as file:
        print(file.read())
    os.unlink(result)


def buffers():
    """System calls that read and write memory which is not there."""
    with tempfile.TemporaryFile(buffering=0) as file:
        data = pattern(64 * MIB, 7)
        os.pwrite(file.fileno(), data, 0)
        back = bytearray(64 * MIB)
        view = memoryview(back)
        done = 0
        while done < len(back):
            done += os.preadv(file.fileno(), [view[done : done + 7 * MIB]], done)
        print(back == data, digest(back))
        file.seek(0)
        print(file.readinto(data), data == back)
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        sent = 0
        while sent < len(view):
            sent += os.write(theirs, view[sent : sent + MIB])
        os._exit(0)
    os.close(theirs)
    got = 0
    with open(ours, "rb", buffering=0) as pipe:
        while count := pipe.readinto(memoryview(data)[got:]):
            got += count
    print(os.waitpid(child, 0)[1], got, digest(data))


def grown():
    """A mapping that grows, twice, and shrinks, keeps its bytes, and what is new is zero."""
    mapping = mmap.mmap(-1, 24 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    first = pattern(24 * MIB, 8)
    mapping[:] = bytes(first)
    mapping.resize(48 * MIB)
    print(mapping[: 24 * MIB] == first, not any(mapping[24 * MIB :: 512]))
    mapping[24 * MIB :] = bytes(first)
    mapping.resize(80 * MIB)
    print(mapping[24 * MIB : 48 * MIB] == first, not any(mapping[48 * MIB :: 512]))
    mapping.resize(20 * MIB)
    mapping.resize(30 * MIB)
    print(mapping[: 20 * MIB] == first[: 20 * MIB], not any(mapping[20 * MIB :: 512]))


def segv():
    """Ends by the signal that a wild pointer gives."""
    import ctypes

    data = pattern(40 * MIB, 1)
    print(digest(data), flush=True)
    ctypes.string_at(8)


def term():
    data = pattern(40 * MIB, 1)
    print(digest(data), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)


def seven():
    data = pattern(40 * MIB, 1)
    print(digest(data), digest(data))
    sys.exit(7)


def incompressible():
    """More random bytes than compressed RAM can take under 32 MiB; says so on its own standard error too."""
    blocks = [random.Random(number).randbytes(100_000) for number in range(900)]
    print("filled", file=sys.stderr, flush=True)
    sums = [hashlib.sha256(block).digest() for block in blocks + blocks]
    print(hashlib.sha256(b"".join(sums)).hexdigest())


globals()[sys.argv[1]]()
