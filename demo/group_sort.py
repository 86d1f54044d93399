"""Groups measurements by station, sorts each station's by temperature, and prints what they say: group_sort.py FILE"""

import hashlib
import sys


def temperature(line):
    return float(line[5 : line.index(b";", 5)])


stations = {}
with open(sys.argv[1], "rb") as file:
    for line in file:
        station = line[:4]
        if station not in stations:
            stations[station] = bytearray()
        stations[station] += line

for station in sorted(stations):
    lines = sorted(stations[station].splitlines(keepends=True), key=temperature)
    stations[station] = b"".join(lines)
    low, middle, high = (temperature(lines[at]) for at in (0, len(lines) // 2, -1))
    print(f"{station.decode()}: {len(lines)} measurements, {low} to {high}, median {middle}")

# Everything once more, in order: the digest is the job's answer.
digest = hashlib.sha256()
for station in sorted(stations):
    digest.update(stations[station])
print("sha256 of all, grouped and sorted:", digest.hexdigest())
