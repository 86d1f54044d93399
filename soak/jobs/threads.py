"""Six threads that build, sort and forget lists of strings, and wait for each other by queues: threads.py ITEMS."""
import hashlib
import queue
import sys
import threading

items, threads = int(sys.argv[1]), 6
queues = [queue.Queue(maxsize=8) for _ in range(threads)]
digests = [None] * threads


def work(me):
    digest = hashlib.sha256()
    kept = {}
    for step in range(8):
        strings = sorted(f"{(n * 7919 + me * 31 + step) % 1_000_003:07d} of thread {me}, " * 20 for n in range(items))
        kept[step] = strings[:: step + 1]
        queues[(me + 1) % threads].put(strings[step])
        digest.update(queues[me].get().encode())
        digest.update("".join(kept.pop(step - 4, [])).encode())
    digest.update("".join(sum(kept.values(), [])).encode())
    digests[me] = digest.hexdigest()


running = [threading.Thread(target=work, args=(me,)) for me in range(threads)]
for one in running:
    one.start()
for one in running:
    one.join()
print("\n".join(digests))
