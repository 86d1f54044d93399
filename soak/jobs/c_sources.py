"""Writes C sources that call each other, here: c_sources.py FILES FUNCTIONS."""
import random
import sys

random.seed(9)
files, functions = int(sys.argv[1]), int(sys.argv[2])
names = [f"f{file}_{number}" for file in range(files) for number in range(functions)]
for file in range(files):
    with open(f"part{file}.c", "w") as source:
        print("".join(f"unsigned {name}(unsigned);" for name in names), file=source)
        for number in range(functions):
            position = file * functions + number
            calls = [random.choice(names[:position]) for _ in range(2)] if position else []
            body = "".join(f"if ((x >> {random.randrange(8)}) % 97 == {n}) x ^= {call}(x / 3 + {n});" for n, call in enumerate(calls))
            loop = f"for (unsigned i = 0; i < x % {random.randrange(3, 17)}; i++) x = x * {random.randrange(3, 999)} + i;"
            print(f"unsigned f{file}_{number}(unsigned x) {{ {body} {loop} return x; }}", file=source)
with open("main.c", "w") as source:
    print('#include <stdio.h>', file=source)
    print("".join(f"unsigned {name}(unsigned);" for name in names), file=source)
    print("int main(void) { unsigned s = 1;", "".join(f"s = s * 31 + {name}(s);" for name in names[::7]), 'printf("%u\\n", s); }', file=source)
