"""The package and a program that uses it pass mypy's strictest check.

The test needs mypy and a numpy that has types. Without these it says so.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

from .support import PACKAGE


class Types(unittest.TestCase):
    def mypy(self, *arguments):
        if importlib.util.find_spec("mypy") is None:
            reason = f"no mypy for {sys.executable}: pip install mypy"
            print(f"skipped: {reason}", file=sys.stderr)
            self.skipTest(reason)
        with tempfile.TemporaryDirectory() as cache:
            return subprocess.run(
                [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, *arguments],
                env={**os.environ, "MYPYPATH": str(PACKAGE.parent)},
                capture_output=True,
                text=True,
                timeout=300,
            )

    def test_the_package_and_its_use_pass_type_checking(self):
        use = PACKAGE.parent / "tests" / "typed_use.py"
        checked = self.mypy(str(PACKAGE), str(use))
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def test_wrong_use_fails_type_checking(self):
        wrong = {
            "millpond.Pond(ram=None)": "arg-type",
            'millpond.Pond("1G").zeros(3, order="K")': "arg-type",
            'millpond.Pond("1G").gropu("a")': "attr-defined",
            "x: str = millpond.Pond('1G').stats().ram": "assignment",
        }
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "wrong.py")
            with open(path, "w") as file:
                file.write("import millpond\n\n" + "\n".join(wrong) + "\n")
            checked = self.mypy(path)
        for line, code in enumerate(wrong.values(), 3):
            self.assertRegex(checked.stdout, rf"wrong.py:{line}: error: .*\[{code}\]")
