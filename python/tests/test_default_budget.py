"""A pond that is opened with nothing but a budget keeps that budget, whatever the data are."""

import tempfile
import unittest
from pathlib import Path

from .support import python

RANDOM_NUMBERS = """
import millpond, numpy as np
from pathlib import Path

MIB = 1 << 20
RAM, DATA, SLACK = 32 * MIB, 160 * MIB, 4 * MIB

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

# The program's own memory is in use before its resident set is read for the first time.
piece, equal = np.ones(MIB // 8), np.ones(MIB // 8, dtype=bool)

def pieces():
    random = np.random.default_rng(28)
    for start in range(0, DATA // 8, MIB // 8):
        random.random(out=piece)
        yield slice(start, start + MIB // 8)

next(pieces())
before, most = resident(), 0
pond = millpond.Pond(RAM)
data = pond.zeros(DATA // 8)
for part in pieces():
    data[part] = piece
    most = max(most, resident() - before)
for part in pieces():
    assert np.equal(data[part], piece, out=equal).all(), f"what lies at {part} is wrong"
    most = max(most, resident() - before)
peak = pond.stats().peak
print(f"resident {most}, peak {peak} of {RAM}")
assert RAM // 2 < most <= RAM + SLACK, f"{most} resident of {RAM}"
assert peak <= RAM + SLACK, f"a peak of {peak} of {RAM}"
"""

WITHOUT_A_FILE = """
import millpond, os

os.environ["TMPDIR"] = {directory!r}
with millpond.Pond("32M"{store}) as pond:
    data = pond.zeros(64 << 20, dtype="u1")
    data[:] = 7
    assert (data == 7).all()
"""


class DefaultBudget(unittest.TestCase):
    def test_random_numbers_stay_within_the_default_budget(self):
        run = python(RANDOM_NUMBERS)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_missing_store_directory_falls_back_to_ram_with_one_message(self):
        with tempfile.TemporaryDirectory() as scratch:
            missing = str(Path(scratch) / "missing")
            for store in ["", ', store="auto"']:
                with self.subTest(store=store):
                    run = python(WITHOUT_A_FILE.format(directory=missing, store=store))
                    self.assertEqual(run.returncode, 0, run.stderr)
                    [line] = run.stderr.splitlines()
                    self.assertIn("compressed RAM alone", line)
                    self.assertIn(missing, line)
                    self.assertIn("set TMPDIR to a directory on a disk", line)
