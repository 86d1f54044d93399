"""A build of the workspace and a build of its tests are of the same crates.

Cargo chooses the features of a crate for all that a command builds. If a test asks for one that nothing else does, the
crate, and all that is built on it, is built once for the command and once more for the tests: five minutes of CI. What
tests ask of shared crates is therefore asked for in `crates/xtask/Cargo.toml`, too.
"""

import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def features(edges):
    """The features of each package that a build along these edges has, in all combinations."""
    lines = subprocess.run(
        ["cargo", "tree", "--workspace", "--exclude", "millpond-remote", "--edges", edges,
         "--prefix", "none", "--no-dedupe", "--format", "{p}|{f}"],
        cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines()
    found = {}
    for line in filter(None, lines):
        # What refers to itself by its tests' dependencies is marked, and cut short.
        package, _, chosen = line.removesuffix(" (*)").partition("|")
        found.setdefault(package.removesuffix(" (proc-macro)"), set()).add(chosen)
    return found


class Features(unittest.TestCase):
    def test_build_and_tests_use_the_same_features_of_each_crate(self):
        built, tested = features("normal,build"), features("normal,build,dev")
        differ = {package: (built[package], tested[package])
                  for package in built if built[package] != tested.get(package)}
        self.assertEqual(differ, {}, "ask for these features in crates/xtask/Cargo.toml")


if __name__ == "__main__":
    unittest.main()
