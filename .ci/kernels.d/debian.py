"""Debian's kernels and a root file system, taken by name through apt and kept in target/kernels.

apt runs with lists, sources and a cache of its own, so nothing of this machine's changes. The mirror is the one that
the machine itself uses.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
KEPT = ROOT / "target" / "kernels"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# From the oldest kernel that can be had to the newest. A suite that the mirror has not is left out, and said.
RELEASES = ["bullseye", "bookworm", "trixie"]
SUITES = [suite for release in RELEASES for suite in (release, f"{release}-backports")]
# The small kernel for virtual machines has all that is needed but zswap: virtio, ext4, control groups, zram. The full one
# is a package of another name.
CLOUD = "linux-image-cloud-amd64"
# Of a kernel's package, what it depends on that has its files.
PARTS = re.compile(r"(linux-(?:image|binary|modules)-\d\S*) \(= ([^)]+)\)")

SYSTEM = "bookworm"
PACKAGES = ["python3", "sqlite3", "gcc", "libc6-dev", "redis-server"]
LEFT_OUT = ["usr/share/doc", "usr/share/locale", "usr/share/man", "usr/share/i18n", "var/cache/apt", "var/lib/apt/lists"]


class Unavailable(Exception):
    """A package cannot be had."""


def command(*words, **more) -> subprocess.CompletedProcess:
    """Runs a command for what it prints. What it complains of is in the exception if it fails."""
    ended = subprocess.run([str(word) for word in words], capture_output=True, text=True, **more)
    if ended.returncode:
        last = (ended.stderr.strip() or ended.stdout.strip()).splitlines()[-3:]
        raise Unavailable(f"{words[0]} failed with {ended.returncode}: {' '.join(last)}")
    return ended


def mirror() -> str:
    """The mirror of Debian that this machine names in its own sources."""
    named = []
    for file in sorted([Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]):
        text = file.read_text(errors="replace") if file.is_file() else ""
        named += re.findall(r"^(?:URIs: *|deb (?:\[[^]]*\] )?)(\S+)", text, re.MULTILINE)
    for address in named:
        if address.rstrip("/").endswith("/debian"):
            return address
    raise Unavailable("no source in /etc/apt is a mirror of Debian")


class Apt:
    """apt with a state of its own."""

    def __init__(self) -> None:
        place = KEPT / "apt"
        for name in ("lists/partial", "cache/archives/partial"):
            (place / name).mkdir(parents=True, exist_ok=True)
        self.sources = place / "sources.list"
        self.options = []
        for name, value in {
            "Dir::Etc::sourcelist": self.sources, "Dir::Etc::sourceparts": "-", "Dir::State::lists": place / "lists",
            "Dir::Cache": place / "cache", "APT::Update::Post-Invoke-Success::": "", "APT::Sandbox::User": "root",
            "Acquire::Languages": "none", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
        }.items():
            self.options += ["-o", f"{name}={value}"]

    def update(self) -> list[str]:
        """Fetches the lists of all suites, and returns the suites that the mirror has not."""
        lines = {suite: f"deb [signed-by={KEYRING}] {mirror()} {suite} main" for suite in SUITES}
        missing = []
        while True:
            left = [line for suite, line in lines.items() if suite not in missing]
            self.sources.write_text("\n".join(left) + "\n")
            ended = subprocess.run(["apt-get", *self.options, "update"], capture_output=True, text=True)
            lost = set(re.findall(r"^E: The repository '\S+ (\S+) Release'", ended.stderr, re.MULTILINE)) - {*missing}
            if not ended.returncode:
                return missing
            if not lost:
                raise Unavailable(f"apt-get update: {ended.stderr.strip()[-300:]}")
            missing += sorted(lost)

    def is_old(self) -> bool:
        """Whether the lists are missing, or older than a day."""
        fetched = list((KEPT / "apt" / "lists").glob("*_Packages*"))
        return not fetched or self.sources.stat().st_mtime < time.time() - 86400

    def kernels(self, package: str) -> list[tuple[str, str]]:
        """The versions that a kernel's package has, and where: the newest first."""
        listed = command("apt-cache", *self.options, "madison", package).stdout
        found = re.findall(r"\| *(\S+) \| \S+ ([\w-]+)/main amd64", listed)
        return sorted(set(found), key=lambda one: [int(number) for number in re.findall(r"\d+", one[0])], reverse=True)

    def parts(self, package: str, version: str) -> list[tuple[str, str]]:
        """The packages with the files of a kernel, by the dependencies of its package that has none."""
        shown = command("apt-cache", *self.options, "show", f"{package}={version}").stdout
        depends = "".join(line for line in shown.splitlines() if line.startswith("Depends:"))
        found = [(package, version)]
        for part in PARTS.findall(depends):
            found += self.parts(*part)
        return found

    def download(self, package: str, version: str, place: Path) -> None:
        command("apt-get", *self.options, "download", f"{package}={version}", cwd=place)


def busybox(apt: Apt | None = None) -> Path:
    """A busybox that needs no library, unpacked from its package, which is taken if an `apt` is given. The one that this
    machine has may be another, from which no machine boots."""
    kept = KEPT / "busybox"
    if apt and not kept.exists():
        with tempfile.TemporaryDirectory(dir=KEPT) as place:
            command("apt-get", *apt.options, "download", "busybox-static", cwd=place)
            command("dpkg-deb", "-x", next(Path(place).glob("*.deb")), place)
            shutil.move(next(file for file in Path(place).glob("**/bin/busybox")), kept)
    return kept


class Kernel:
    """A kernel's image and its modules, in a directory."""

    def __init__(self, kind: str, version: str, suite: str) -> None:
        self.kind, self.package, self.suite = kind, version, suite
        self.name = re.match(r"\d+\.\d+", version)[0]
        self.place = KEPT / (f"linux-{version}" if kind == CLOUD else f"{kind}-{version}")

    def take(self, apt: Apt) -> None:
        """Downloads and unpacks the kernel, if that was not done before."""
        if self.place.exists():
            return
        unfinished = self.place.with_name(self.place.name + f".{os.getpid()}")
        unfinished.mkdir(parents=True)
        try:
            for part in dict.fromkeys(apt.parts(self.kind, self.package)):
                apt.download(*part, unfinished)
            for archive in unfinished.glob("*.deb"):
                command("dpkg-deb", "-x", archive, unfinished)
                archive.unlink()
            unfinished.rename(self.place)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    @property
    def image(self) -> Path:
        return next(file for file in self.place.glob("**/vmlinuz*") if file.is_file())

    def modules(self, wanted: list[str]) -> list[tuple[str, bytes]]:
        """The modules of these names and those that they need, in the order in which they can be inserted.

        A name that is not there is built in, or this kernel has nothing of the kind.
        """
        files = {file.name.split(".")[0].replace("-", "_"): file for file in self.place.glob("**/*.ko*")}
        found: dict[str, bytes] = {}

        def add(name: str) -> None:
            if name in found or name not in files:
                return
            code = unpacked(files[name])
            needed = re.search(rb"\0depends=([^\0]*)\0", code)
            for other in (needed[1].decode() if needed else "").split(","):
                add(other.replace("-", "_"))
            found[name] = code

        for name in wanted:
            add(name)
        return list(found.items())


def unpacked(module: Path) -> bytes:
    """The contents of a module, which newer kernels keep compressed."""
    tool = {".xz": "xz", ".zst": "zstd", ".gz": "gzip"}.get(module.suffix)
    if not tool:
        return module.read_bytes()
    return subprocess.run([tool, "-dc", module], capture_output=True, check=True).stdout


def choose(apt: Apt, package: str, names: list[str]) -> tuple[list[Kernel], list[str]]:
    """The kernels of these versions (all, without a name) that a package has, and why others cannot be had."""
    try:
        missing = apt.update() if apt.is_old() else []
    except Unavailable as why:
        # Without a network, what was taken before is there still.
        missing = [str(why)]
    there = apt.kernels(package)
    skipped = [f"the mirror has no {suite}" for suite in missing]
    wanted = names or [*RELEASES, "newest"]
    chosen: dict[str, Kernel] = {}
    for name in wanted:
        fits = [one for one in there if name in ("newest", one[1]) or re.match(rf"{re.escape(name)}[.-]", one[0])]
        if not fits:
            skipped.append(f"kernel {name}: no {package} of it (there are {', '.join(one[0] for one in there)})")
            continue
        kernel = Kernel(package, *fits[0])
        try:
            kernel.take(apt)
        except Unavailable as why:
            skipped.append(f"kernel {name}: {why}")
        else:
            chosen[kernel.package] = kernel
    return list(chosen.values()), skipped


def system() -> tuple[Path, Path]:
    """The root file system of the machines, as a directory and as an image. Made once for what is in it."""
    recipe = hashlib.sha256(repr((SYSTEM, PACKAGES, LEFT_OUT)).encode()).hexdigest()[:12]
    tree, image = KEPT / f"root-{recipe}", KEPT / f"root-{recipe}.ext4"
    if not tree.exists():
        unfinished = tree.with_name(f"root.{os.getpid()}")
        try:
            packages = "--include=" + ",".join(PACKAGES)
            command("debootstrap", "--variant=minbase", packages, SYSTEM, unfinished, mirror())
            for name in LEFT_OUT:
                shutil.rmtree(unfinished / name, ignore_errors=True)
            for name in ("jobs", "sys/fs/cgroup"):
                (unfinished / name).mkdir(parents=True, exist_ok=True)
            unfinished.rename(tree)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    if not image.exists():
        make_image(tree, image, room=1 << 30)
    return tree, image


def make_image(tree: Path, image: Path, room: int) -> None:
    """Makes a file system of a directory, with as much room beside it."""
    size = sum(file.lstat().st_size + 4096 for file in tree.rglob("*"))
    unfinished = image.with_name(f"{image.name}.{os.getpid()}")
    with unfinished.open("wb") as file:
        file.truncate((size * 5 // 4 + room) & -4096)
    try:
        command("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-E", "lazy_itable_init=1", "-d", tree, unfinished)
        unfinished.rename(image)
    finally:
        unfinished.unlink(missing_ok=True)
