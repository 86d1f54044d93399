"""Prints a history of changed files for `git fast-import`: history.py COMMITS."""
import random
import sys

random.seed(10)
files = {f"dir{n % 40}/file{n}": [random.getrandbits(64) for _ in range(150)] for n in range(600)}
for number in range(int(sys.argv[1])):
    print(f"commit refs/heads/main\ncommitter A <a@b.example> {1600000000 + number} +0000\ndata 1\nx")
    for name in random.sample(sorted(files), 8):
        files[name][random.randrange(150)] = random.getrandbits(64)
        text = "\n".join(map(str, files[name]))
        print(f"M 100644 inline {name}\ndata {len(text)}\n{text}")
