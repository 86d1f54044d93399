"""Prints a large C file: functions.py FUNCTIONS"""

import sys

print("#include <stddef.h>\nstruct record { long key; double value; char note[40]; };")
for number in range(int(sys.argv[1])):
    print(
        f"long work_{number}(struct record *records, size_t count) {{\n"
        "    long total = 0;\n"
        "    for (size_t i = 0; i < count; i++) {\n"
        f"        switch ((records[i].key + {number}) % 7) {{\n"
        f"        case 0: total += records[i].key * {number + 3}; break;\n"
        f"        case 1: records[i].value *= {number}.5; total -= (long)records[i].value; break;\n"
        f"        case 2: for (int j = 0; j < 40; j++) total ^= records[i].note[j] << (j % {number % 11 + 2}); break;\n"
        "        default: total += i;\n"
        "        }\n"
        "    }\n"
        "    return total;\n"
        "}"
    )
