"""Builds the shared library of the checkout around this directory, and puts it into the package.

The package calls the library through ctypes, so one wheel serves every Python 3 of an architecture:
the wheel is tagged py3-none-linux_<arch>. The library is built from the source beside the package
and not looked for elsewhere, since the package and the library must be of one version.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

WORKSPACE = Path(__file__).resolve().parent.parent


class BuildWithLibrary(build_py):
    """Copies the package's modules, and the library beside them."""

    def run(self) -> None:
        super().run()
        if not (WORKSPACE / "crates" / "capi" / "Cargo.toml").exists():
            raise SystemExit(
                "millpond: the Rust workspace is not around this directory: install from a "
                "checkout, as in `pip install ./python`"
            )
        subprocess.run(
            ["cargo", "build", "--release", "-p", "millpond-capi"], cwd=WORKSPACE, check=True
        )
        # An editable install needs no copy: it finds the library where cargo puts it.
        if not self.editable_mode:
            target = WORKSPACE / os.environ.get("CARGO_TARGET_DIR", "target")
            built = target / "release" / "libmillpond_capi.so"
            shutil.copyfile(built, Path(self.build_lib, "millpond", "libmillpond.so"))


class PlainWheel(bdist_wheel):
    """Tags the wheel for any Python 3 on this architecture."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class WithLibrary(Distribution):
    """Declares that the distribution has binary code, although it has no extension module."""

    def has_ext_modules(self) -> bool:
        return True


setup(
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlainWheel},
    distclass=WithLibrary,
)
