"""Prints a table of measurements as CSV: records.py ROWS."""
import random
import sys

random.seed(2)
print("id,station,day,value,note")
for number in range(int(sys.argv[1])):
    station, day, value = random.randrange(500), random.randrange(3650), random.randrange(1_000_000)
    print(f"{number},s{station},{day},{value},note {value % 977} of {station}")
