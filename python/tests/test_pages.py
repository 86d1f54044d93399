"""The Python of the README and of the guide runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from .support import PACKAGE

ROOT = PACKAGE.parent.parent
PAGES = ["README.md", "docs/guide/src/python.md"]


def snippets(page: Path) -> list[str]:
    """Returns the blocks of Python in a page."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@unittest.skipUnless((ROOT / PAGES[0]).exists(), "the pages are not beside an installed package")
class Pages(unittest.TestCase):
    def test_each_snippet_runs(self) -> None:
        for page in PAGES:
            found = snippets(ROOT / page)
            self.assertTrue(found, f"{page} has no Python")
            for text in found:
                with tempfile.TemporaryDirectory() as place:
                    ran = subprocess.run(
                        [sys.executable, "-c", text], cwd=place, capture_output=True, text=True, timeout=300
                    )
                self.assertEqual(ran.returncode, 0, f"{page}: {ran.stderr}")
