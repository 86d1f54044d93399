"""Python objects, small ones and buffers, that threads fill and read while another program runs."""

import os
import subprocess
import sys
import threading

SMALL, LARGE, THREADS = 3_000, 400, 2
small = [bytes([number % 251]) * 1000 for number in range(SMALL)]
buffers = [bytearray(1 << 16) for _ in range(LARGE)]
sums = {}


def work(first: int) -> None:
    for number in range(first, LARGE, THREADS):
        buffers[number][::4096] = bytes([number % 251]) * 16
    sums[first] = sum(page[7] for page in small[first::THREADS])


threads = [threading.Thread(target=work, args=(first,)) for first in range(THREADS)]
for thread in threads:
    thread.start()
print(subprocess.run(["/bin/sh", "-c", "echo started"], capture_output=True, text=True).stdout.strip())
for thread in threads:
    thread.join()
print(sorted(sums.items()))
print(all(buffer[-4096] == number % 251 and not buffer[1] for number, buffer in enumerate(buffers)), len(small))
# What is left is the freeing of it all, which takes an emulator longer than everything else.
sys.stdout.flush()
os._exit(0)
