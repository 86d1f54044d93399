"""Writes a file of weather stations' measurements, the same on every machine: make_measurements.py FILE MEGABYTES"""

import random
import sys

STATIONS = 200
WORDS = ["calm", "breeze", "gusts", "rain", "hail", "fog", "clear sky", "snow showers"]

path, megabytes = sys.argv[1], int(sys.argv[2])
source = random.Random(1)
notes = [" then ".join(source.choices(WORDS, k=9)) for _ in range(1000)]
wanted = megabytes << 20
written = second = 0
with open(path, "w", encoding="ascii", buffering=1 << 20) as file:
    while written < wanted:
        second += 7
        number = source.getrandbits(62)
        station, tenths, humidity, note = number % STATIONS, number >> 8 & 0x1FF, number >> 20 & 63, number >> 30
        written += file.write(
            f"S{station:03};{tenths / 10 - 15:.1f};{humidity + 30};{second:012};{notes[note % 1000]};{number:016x}\n"
        )
