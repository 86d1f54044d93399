"""Python objects that a forked child reads and replaces, while its parent keeps its own."""

import os
import sys

COUNT = 5_000
small = [bytes([number % 251]) * 1000 for number in range(COUNT)]
buffers = [bytearray(bytes([number % 251]) * (1 << 16)) for number in range(350)]
reader, writer = os.pipe()
child = os.fork()
if not child:
    for number in range(0, COUNT, 7):
        small[number] = b"child"
    buffers[0][::4096] = b"c" * 16
    os.write(writer, b"%d %d" % (sum(len(one) for one in small), sum(buffer[8192] for buffer in buffers)))
    os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), os.read(reader, 100).decode())
print(sum(len(one) for one in small), all(buffer[4096] == number % 251 for number, buffer in enumerate(buffers)))
sys.stdout.flush()
os._exit(0)
