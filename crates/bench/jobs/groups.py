"""Groups random numbers, and sums each group: groups.py NUMBERS"""

import random
import sys

source = random.Random(3)
groups = {}
for _ in range(int(sys.argv[1])):
    number = source.getrandbits(40)
    groups.setdefault(number % 5003, []).append(number)
print(sum(sorted(group)[len(group) // 2] for group in groups.values()))
