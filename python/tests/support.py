"""Helpers that several test modules use."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
import warnings
from pathlib import Path
from typing import Callable

import millpond

MIB = 1 << 20

PACKAGE = Path(millpond.__file__).resolve().parent

HEADER = PACKAGE.parent.parent / "crates" / "capi" / "include" / "millpond.h"


class PondCase(unittest.TestCase):
    """A test with a pond of 32 MiB, whose store is compressed RAM and then a file."""

    def setUp(self) -> None:
        self.pond = millpond.Pond("32M")
        self.addCleanup(self.pond.close)


def in_child(act: Callable[[], object]) -> int:
    """Runs `act` in a forked child, and returns how it ended: 0, 1 for an exception, or -signal."""
    with warnings.catch_warnings():
        # A pond has threads, and Python warns of forking beside threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            act()
            os._exit(0)
        except BaseException as error:
            sys.stderr.write(f"in the child: {error!r}\n")
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def python(program: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs a program in a process of its own, with the package that is tested."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    return subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )
