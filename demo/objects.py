"""Makes small objects and uses some of them at random: objects.py OBJECTS USED USES"""

import random
import sys

objects, used, uses = map(int, sys.argv[1:])
source = random.Random(1)
made = [(source.random(), source.getrandbits(60)) for _ in range(objects)]
total = 0
for _ in range(uses):
    _, number = made[source.randrange(used)]
    total += number
print(total)
