"""Tests of the repository that are carried into the machines: the preload's C programs, and suites of real memory.

The calls of the tests in crates/preload/tests say which C program is run, with which arguments, and what is expected of
it, so a program that is added there is carried without a word here. Tests that do more than one such call are left out.
"""

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import debian

TESTS = debian.ROOT / "crates" / "preload" / "tests"
TEST = re.compile(r"#\[test\]\nfn \w+\(\) \{\n(.*?)\n\}\n", re.DOTALL)
CALL = re.compile(r'\b(is_right|prints_the_same(?:_by_handler)?)\("(\w+)"((?:, (?:&\[[^]]*\]|"[^"]*"))*)')
LOOP = re.compile(r"for (\w+) in \[([^]]*)\]")
# The budget of these tests (`RAM` in common/mod.rs), and how long a race is, in seconds.
BUDGET, RACE = 32 << 20, "1"
WITHIN = 100
PREFIX, SUITE = "C: ", "suite: "


def words(listed: str, loops: dict[str, list[str]]) -> list[list[str]]:
    """The lists of arguments that a list in Rust stands for, of which a loop has several."""
    several: list[list[str]] = [[]]
    for word in filter(None, (word.strip() for word in listed.split(","))):
        literal = re.fullmatch(r'"([^"]*)"', word)
        choices = [RACE] if word == "&seconds()" else [literal[1]] if literal else loops.get(word, [])
        several = [[*before, choice] for before in several for choice in choices]
    return several


def calls() -> list[dict]:
    """The programs that the tests run: file, arguments, the compiler's, what is expected, the ways that can do it."""
    found = []
    for file in sorted(TESTS.glob("*.rs")):
        for body in TEST.findall(file.read_text()):
            loops = {name: re.findall(r'"([^"]*)"', several) for name, several in LOOP.findall(body)}
            ways = ["direct", "protections"] if file.name.startswith("direct") else ["handler", "direct", "protections"]
            if "by_handler" in body:
                ways = ["handler"]
            for how, name, rest in CALL.findall(body):
                lists = re.findall(r"&\[([^]]*)\]", rest)
                more = next((words(listed, {})[0] for listed in lists[1:] if '"-' in listed), [])
                for arguments in words(lists[0] if lists else "", loops):
                    found.append({"name": name, "arguments": arguments, "flags": more, "same": how != "is_right", "ways": ways})
    return found


def compiled(tree: Path, wanted: list[dict]) -> Path:
    """Compiles the programs with the root file system's own compiler, so that they find their C library. Kept."""
    sources = sorted((TESTS / "c").iterdir())
    content = b"".join(source.name.encode() + source.read_bytes() for source in sources) + repr(wanted).encode()
    kept = debian.KEPT / f"programs-{hashlib.sha256(content).hexdigest()[:12]}"
    if kept.exists():
        return kept
    inside = tree / "tmp" / kept.name
    shutil.rmtree(inside, ignore_errors=True)
    shutil.copytree(TESTS / "c", inside)
    try:
        for name, flags in {one["name"]: one["flags"] for one in wanted}.items():
            options = ["-O1", "-fno-builtin", "-pthread", "-w"]
            debian.command("chroot", tree, "gcc", *options, "-o", f"/tmp/{kept.name}/{name}", f"/tmp/{kept.name}/{name}.c", *flags)
        for source in sources:
            (inside / source.name).unlink()
        shutil.move(inside, kept)
    finally:
        shutil.rmtree(inside, ignore_errors=True)
    return kept


def programs(tree: Path, disk: Path) -> dict[str, dict]:
    """Puts the C programs onto the disk, and returns them as programs of the matrix."""
    wanted = calls()
    shutil.copytree(compiled(tree, wanted), disk / "c")
    named = {}
    for one in wanted:
        name = PREFIX + " ".join([one["name"], *one["arguments"]])
        named[name] = {"command": [f"/jobs/c/{one['name']}", *one["arguments"]], "within": WITHIN, "budget": BUDGET,
                       "expects": "same" if one["same"] else "right", "ways": one["ways"]}
    return named


def suites(disk: Path) -> dict[str, dict]:
    """Builds the test binaries of the crates that work on real memory, and puts them onto the disk."""
    if not shutil.which("cargo"):
        raise debian.Unavailable("no cargo, so no suites")
    built = ["cargo", "test", "--release", "--no-run", "--workspace", "--exclude", "millpond-remote", "--message-format", "json"]
    ended = subprocess.run(built, cwd=debian.ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if ended.returncode:
        raise debian.Unavailable(f"the suites do not build: {' '.join(built)}")
    (disk / "suites").mkdir()
    named = {}
    for line in ended.stdout.splitlines():
        message = json.loads(line)
        if not message.get("executable") or not message.get("profile", {}).get("test"):
            continue
        crate = Path(message["manifest_path"]).parent.name
        if crate not in ("mmu", "millpond"):
            continue
        name = f"{crate}-{message['target']['name']}"
        shutil.copy(message["executable"], disk / "suites" / name)
        subprocess.run(["strip", "--strip-debug", disk / "suites" / name], check=False)
        named[SUITE + name] = {"command": [f"/jobs/suites/{name}", "--test-threads=1"], "within": 900, "alone": True, "whole": True}
    return named
