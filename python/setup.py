"""Builds the wheel: the package, the shared library that it calls, and the command `millpond`.

setuptools-rust builds three crates of the workspace around this directory (in a source distribution:
of the directory `rust` in it). The package calls its library through ctypes, so one wheel serves
every Python 3 of an architecture: it is tagged py3-none-<platform>.

| file in the wheel | installed as |
| --- | --- |
| millpond/libmillpond.so | beside the package's modules |
| scripts/millpond | the command, in the environment's bin |
| data/lib/millpond/libmillpond_preload.so | where the command finds it from its bin |

MILLPOND_BUILT names a directory in which all three lie already, as `cargo xtask dist` has it; then
nothing is built. SETUPTOOLS_RUST_CARGO_PROFILE chooses cargo's profile.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.sdist import sdist
from setuptools_rust import Binding, RustBin, RustExtension
from setuptools_rust.build import build_rust

HERE = Path(__file__).resolve().parent
WORKSPACE = HERE / "rust" if (HERE / "rust").is_dir() else HERE.parent
PRELOAD = Path("build", "preload", "libmillpond_preload.so")
# The licences of the crates in the programs. `cargo xtask dist` puts them there.
NOTICES = Path("build", "THIRD-PARTY")
# The crates that the three are made from.
CRATES = (
    "board capi cli core driver embed guard millpond mmu preload replay store sync".split()
)
# Cargo's names of the three files.
BUILT = {
    "millpond": "millpond",
    "millpond.libmillpond": "libmillpond_capi.so",
    "libmillpond_preload": "libmillpond_preload.so",
}


def manifest(crate: str) -> str:
    """Returns the path of a crate's manifest."""
    path = WORKSPACE / "crates" / crate / "Cargo.toml"
    if not path.exists():
        raise SystemExit(
            f"millpond: there is no {path}: install from a checkout, as in `pip install ./python`, "
            "from a source distribution, or from a wheel"
        )
    return os.path.relpath(path, HERE)


def library(name: str, crate: str) -> RustExtension:
    """Returns a shared library without a binding to Python."""
    return RustExtension(name, manifest(crate), binding=Binding.NoBinding, debug=False)


class BuildRust(build_rust):
    """Gives the libraries their plain names, and takes what is built already."""

    def build_extension(self, ext: RustExtension):
        built = os.environ.get("MILLPOND_BUILT")
        if not built:
            return super().build_extension(ext)
        # The modules have the shape of those that the parent class answers: a name and a path.
        modules, artifact_dir = [], None
        for name in ext.target.values() if isinstance(ext, RustBin) else [ext.name]:
            modules.append((name, str(Path(built, BUILT[name]).resolve())))
        return modules, artifact_dir

    def get_dylib_ext_path(self, ext: RustExtension, target_fname: str) -> str:
        if target_fname == "libmillpond_preload":
            return str(HERE / PRELOAD)
        # An editable install finds the library where cargo puts it. A copy beside the modules would
        # come before that one and grow old.
        unused = HERE / "build" / "editable"
        directory = unused if self.inplace else self.get_finalized_command("build_ext").build_lib
        return str(Path(directory, *target_fname.split(".")).with_suffix(".so"))


class PlainWheel(bdist_wheel):
    """Tags the wheel for any Python 3 on this architecture."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class WithRust(sdist):
    """Puts the crates into the source distribution, which builds where cargo is."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        rust = Path(base_dir, "rust")
        unused = shutil.ignore_patterns("tests", "target", "examples", "__pycache__")
        for crate in CRATES:
            shutil.copytree(
                WORKSPACE / "crates" / crate, rust / "crates" / crate, ignore=unused
            )
        for name in ("Cargo.toml", "Cargo.lock", "LICENSE-MIT", "LICENSE-APACHE"):
            shutil.copyfile(WORKSPACE / name, rust / name)


setup(
    cmdclass={"build_rust": BuildRust, "bdist_wheel": PlainWheel, "sdist": WithRust},
    rust_extensions=[
        RustBin("millpond", path=manifest("cli"), debug=False),
        library("millpond.libmillpond", "capi"),
        library("libmillpond_preload", "preload"),
    ],
    data_files=[
        ("lib/millpond", [str(PRELOAD)]),
        ("share/doc/millpond", [str(NOTICES)] if NOTICES.exists() else []),
    ],
)
