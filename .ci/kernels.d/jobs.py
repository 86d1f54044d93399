"""The second disk of a machine, made anew for each run: Millpond as it was built, and what is run under it."""

import random
import shutil
import subprocess
from pathlib import Path

import debian
import machine

HERE = Path(__file__).resolve().parent
BUILT = debian.ROOT / "target" / "release"
TABLES = """
create table measured (station integer, value real, note text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
    insert into measured select i * 7919 % 977, i * 0.37, printf('%0500d of station %0500d', i * 31 % 4099, i % 977) from n;
create index by_station on measured (station, value);
select station, count(*), sum(value) from measured group by station order by 3 desc limit 5;
update measured set note = 'changed ' || substr(note, 100) where station % 50 = 0;
select count(*), sum(length(note)), min(note), substr(max(note), 1, 30) from measured;
"""


def lines() -> str:
    """Lines for sort, in no order and the same each time."""
    chance = random.Random(1)
    return "".join(f"{chance.randrange(1 << 40):012d} {number * 7919 % 100_003} a measurement of which more is said here than is worth to be known\n" for number in range(150_000))


def functions() -> str:
    """A C program that takes the compiler some tens of MiB."""
    parts = []
    for number in range(24):
        body = "".join(f"    t[{n}] = t[{(n * 7 + number) % 40}] * {n + number} + (x ^ {n * number}); if (t[{n}] & {n}) x += t[{n}];\n" for n in range(40))
        parts.append(f"int function{number}(int x)\n{{\n    int t[40] = {{0}};\n{body}    return x;\n}}\n")
    return "".join(parts)


def place(tree: Path) -> None:
    """Puts what every machine needs into the directory."""
    built = tree / "millpond"
    built.mkdir(parents=True)
    for name in ("millpond", "libmillpond_preload.so"):
        shutil.copy(BUILT / name, built / name)
        # Symbols for a debugger take most of the file, and nobody looks at them there.
        subprocess.run(["strip", "--strip-debug", built / name], check=False)
    shutil.copy(HERE / "guest.py", tree / "guest.py")
    (tree / "init").write_text(machine.SYSTEM)
    shutil.copytree(HERE / "programs", tree / "programs", ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "programs" / "tables.sql").write_text(TABLES)
    (tree / "programs" / "lines").write_text(lines())
    (tree / "programs" / "functions.c").write_text(functions())
