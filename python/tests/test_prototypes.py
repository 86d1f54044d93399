"""The structures, functions and numbers of the header are those that ctypes is told.

The C compiler gives the values, and the header's own text the names of functions.
"""

import re
import shutil
import subprocess
import tempfile
import unittest
from ctypes import sizeof
from pathlib import Path

from millpond import _errors, _prototypes

from .support import HEADER

STRUCTURES = {
    "millpond_options": _prototypes.Options,
    "millpond_stats": _prototypes.Stats,
    "millpond_region_stats": _prototypes.RegionStatsStruct,
    "millpond_range": _prototypes.Range,
    "millpond_limits": _prototypes.Limits,
    "millpond_group_stats": _prototypes.GroupStatsStruct,
    "millpond_pressure": _prototypes.PressureStruct,
}


def expected() -> dict[str, int]:
    """Returns C expressions, and the values that the package has for them."""
    found = {}
    for name, kind in STRUCTURES.items():
        found[f"sizeof(struct {name})"] = sizeof(kind)
        for field, _ in kind._fields_:
            place = getattr(kind, field)
            found[f"offsetof(struct {name}, {field})"] = place.offset
            found[f"sizeof(((struct {name} *)0)->{field})"] = place.size
    for word, number in _prototypes.ADVICE.items():
        found[f"MILLPOND_{word.upper()}"] = number
    for flag in (
        "STORE_OUTSIDE_BUDGET",
        "COVER_PROCESS",
        "ABORT_WHEN_FULL",
        "ENCRYPT",
        "BACKGROUND_ALWAYS",
        "BACKGROUND_NEVER",
    ):
        found[f"MILLPOND_{flag}"] = getattr(_prototypes, flag)
    return found


def without_comments() -> str:
    return re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)


@unittest.skipUnless(HEADER.exists(), "the C header is not here: the package is not in a checkout")
class Prototypes(unittest.TestCase):
    @unittest.skipUnless(shutil.which("cc"), "there is no C compiler (cc) to ask")
    def test_layouts_match_the_compilers(self):
        ours = expected()
        lines = "".join(f'    printf("%zu\\n", (size_t)({what}));\n' for what in ours)
        includes = f'#include "{HEADER}"\n#include <stdio.h>\n'
        program = f"{includes}int main(void) {{\n{lines}    return 0;\n}}\n"
        with tempfile.TemporaryDirectory() as place:
            source, binary = Path(place, "layout.c"), Path(place, "layout")
            source.write_text(program)
            subprocess.run(["cc", "-o", binary, source], check=True)
            printed = subprocess.run([binary], check=True, capture_output=True, text=True).stdout
        theirs = dict(zip(ours, map(int, printed.split())))
        self.assertEqual(theirs, ours)

    def test_every_function_and_structure_is_declared(self):
        text = without_comments()
        functions = set(re.findall(r"\b(millpond_\w+)\((?!\*)", text))
        self.assertEqual(functions, set(_prototypes.FUNCTIONS))
        structures = set(re.findall(r"struct (millpond_\w+) \{", text))
        self.assertEqual(structures, set(STRUCTURES))

    def test_declared_argument_counts_match_the_header(self):
        text = without_comments()
        for name, (_, arguments) in _prototypes.FUNCTIONS.items():
            declared = re.search(rf"\b{name}\((.*?)\);", text, re.DOTALL)[1]
            # The parameters of a function pointer are not arguments of the function itself.
            declared = re.sub(r"\(\*\w+\)\(.*?\)", "", declared, flags=re.DOTALL)
            count = 0 if declared == "void" else declared.count(",") + 1
            with self.subTest(function=name):
                self.assertEqual(len(arguments), count)

    def test_every_status_has_a_class(self):
        text = without_comments()
        block = re.search(r"enum millpond_status \{(.*?)\}", text, re.DOTALL)[1]
        numbers = {int(number) for number in re.findall(r"= (\d+)", block)} - {0}
        self.assertEqual(numbers, set(_errors.BY_STATUS))
