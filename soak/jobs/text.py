"""Prints lines of words that look like a language's: text.py MEGABYTES."""
import random
import sys

random.seed(1)
syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
words = ["".join(random.choices(syllables, k=random.randint(1, 4))) for _ in range(20_000)]
weights = [1 / (rank + 1) for rank in range(len(words))]
for _ in range(int(sys.argv[1])):
    line, size = [], 0
    for word in random.choices(words, weights, k=170_000):
        line.append(word)
        size += len(word) + 1
        if len(line) == 12:
            print(" ".join(line))
            line.clear()
