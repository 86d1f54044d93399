"""An emulated machine: boots a kernel with the root file system, and hands on what the guest reports.

The guest (`guest.py`) reads its plan from a raw disk and writes a line of JSON to the second serial port for each thing
that it has to say, so that the kernel's messages on the first port are not in the way. The machine powers itself off.
If it does not, or says nothing for longer than it announced, it is ended.
"""

import contextlib
import ctypes
import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import debian

HERE = Path(__file__).resolve().parent
MODULES = "virtio_pci virtio_blk virtio_console crc32c_generic ext4 lz4 lz4_compress lzo_rle zstd zram".split()
# How long a machine may take to boot, and how much longer than announced it may be silent, in seconds.
BOOT, GRACE = 300, 60
# Everything is in the root file system but what is needed to mount it.
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do insmod /modules/$module || echo "not inserted: $module"; done </modules/order
for disk in vda vdb vdc; do
    tries=0
    until [ -b /dev/$disk ] || [ $tries -ge 50 ]; do sleep 0.1; tries=$((tries + 1)); done
done
mount -t ext4 /dev/vda /root && mount -t ext4 -o ro /dev/vdb /root/jobs || poweroff -f
for place in proc sys dev; do mount --move /$place /root/$place; done
exec switch_root /root /bin/sh /jobs/init
"""
# Process 1 of the machine: it waits for all orphans, which the guest's program would not.
SYSTEM = """#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
python3 /jobs/guest.py
echo o >/proc/sysrq-trigger
sleep 60
"""


class Hung(Exception):
    """The machine did not say anything for longer than it may."""


def initramfs(kernel, place: Path) -> Path:
    """Makes the file system in RAM from which a machine finds its disks."""
    tree = place / f"initramfs-{kernel.package}"
    for name in ("bin", "modules", "proc", "sys", "dev", "root"):
        (tree / name).mkdir(parents=True)
    shutil.copy(debian.busybox(), tree / "bin" / "busybox")
    modules = kernel.modules(MODULES)
    for name, code in modules:
        (tree / "modules" / name).write_bytes(code)
    (tree / "modules" / "order").write_text("".join(f"{name}\n" for name, _ in modules))
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    names = "\n".join(str(file.relative_to(tree)) for file in sorted(tree.rglob("*")))
    image = place / f"initramfs-{kernel.package}.cpio"
    with image.open("wb") as output:
        subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=tree, input=names.encode(), stdout=output, check=True)
    return image


def ends_with_us() -> None:
    """Has the emulator ended by the kernel when this process ends, in whatever way."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    os.setpgid(0, 0)


class Machine:
    """A machine that is on, as a context manager: it is off afterwards."""

    def __init__(self, kernel, disks: list[Path], plan: dict, *, memory="1536M", processors=2, options=(), line="") -> None:
        self.kernel, self.plan, self.disks = kernel, plan, disks
        self.memory, self.processors, self.options, self.line = memory, processors, list(options), line

    def __enter__(self):
        self.resources = contextlib.ExitStack()
        try:
            self.place = Path(self.resources.enter_context(tempfile.TemporaryDirectory(prefix="millpond-machine-", dir="/var/tmp")))
            self.console = self.place / "console"
            self.emulator = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=(self.place / "errors").open("w"),
                preexec_fn=ends_with_us, env={**os.environ, "TMPDIR": str(self.place)},
            )
        except BaseException:
            self.resources.close()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.emulator.kill()
        self.emulator.wait()
        self.emulator.stdout.close()
        self.resources.close()

    def command(self) -> list[str]:
        plan = self.place / "plan"
        text = json.dumps(self.plan).encode()
        plan.write_bytes(text + bytes(-len(text) % 4096))
        words = ["qemu-system-x86_64", "-accel", f"tcg,thread={'multi' if self.processors < 8 else 'single'}", "-cpu", "max", "-m", self.memory]
        words += ["-smp", str(self.processors), "-display", "none", "-monitor", "none", "-nodefaults", "-no-reboot"]
        words += ["-kernel", str(self.kernel.image), "-initrd", str(initramfs(self.kernel, self.place))]
        words += ["-append", f"console=ttyS0 loglevel=5 panic=-1 random.trust_cpu=on {self.line}".strip()]
        words += ["-serial", f"file:{self.console}", "-serial", "stdio"]
        # What a guest writes to its disks is gone with it.
        for disk in [*self.disks, plan]:
            words += ["-drive", f"file={disk},format=raw,if=virtio,snapshot=on,cache=unsafe"]
        return words + self.options

    def messages(self):
        """What the guest says, until the machine is off."""
        until = time.monotonic() + BOOT
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.emulator.stdout, selectors.EVENT_READ)
            while True:
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise Hung(self.last_words())
                more = os.read(self.emulator.stdout.fileno(), 1 << 16)
                if not more:
                    return
                *lines, rest = (rest + more).split(b"\n")
                for line in lines:
                    try:
                        message = json.loads(line)
                    except ValueError:
                        message = {"kind": "noise", "line": line.decode(errors="replace")}
                    until = time.monotonic() + message.get("within", 0) + GRACE
                    yield message

    def last_words(self, lines: int = 12) -> str:
        """The end of what the kernel and the emulator wrote."""
        text = self.console.read_text(errors="replace") if self.console.exists() else ""
        return "\n".join([*text.splitlines()[-lines:], *(self.place / "errors").read_text().splitlines()[-3:]])

    def complaints(self) -> list[str]:
        """What the kernel found wrong with itself, or with a process that it killed."""
        words = ("WARNING:", "BUG:", "Oops", "Call Trace", "invoked oom-killer", "rcu: INFO", "blocked for more than", "Kernel panic")
        text = self.console.read_text(errors="replace") if self.console.exists() else ""
        return [line.strip() for line in text.splitlines() if any(word in line for word in words)]
