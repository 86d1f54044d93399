"""What runs in an emulated machine: the cases of a plan, each in a control group of its own and looked at from outside.

Standard library of Python 3 only. Each line that is written to the second serial port is an object of JSON; `kind` says
what it is. `within` is how many seconds may pass until the next one.
"""

import contextlib
import ctypes
import fcntl
import hashlib
import json
import mmap
import os
import platform
import pwd
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import termios
import time
import tty
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
LIBRARY_PLACE = "/jobs/millpond"
MILLPOND = f"{LIBRARY_PLACE}/millpond"
USER = "nobody"
# How many bytes of what a program printed are reported.
SHOWN = 4000
# How many times its native time a program may take under a budget.
SLOW = 25
# How many times that it may take if it used this share of a processor meanwhile: this machine may have little of the host.
PATIENT, BUSY = 3, 0.1
# A process is looked at this often, in seconds, and all of its mappings are walked every so many looks.
LOOK, WALK = 0.1, 5


class Port:
    """The serial port to the host."""

    def __init__(self) -> None:
        self.file = os.open("/dev/ttyS1", os.O_RDWR | os.O_NOCTTY)
        tty.setraw(self.file, termios.TCSANOW)

    def say(self, kind: str, **what) -> None:
        line = json.dumps({"kind": kind, **what}).encode() + b"\n"
        while line:
            line = line[os.write(self.file, line):]


def refuse_userfaultfd() -> None:
    """Answers EPERM to userfaultfd from now on, as the profiles of containers do."""
    load, equal, give = 0x20, 0x15, 0x06
    number, allow, refuse = 323, 0x7FFF0000, 0x00050000 | 1
    program = [(load, 0, 0, 0), (equal, 0, 1, number), (give, 0, 0, refuse), (give, 0, 0, allow)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    filters = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    set_no_new_privs, set_seccomp, filter_mode = 38, 22, 2
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(set_no_new_privs, 1, 0, 0, 0) or library.prctl(set_seccomp, filter_mode, filters, 0, 0):
        raise OSError(ctypes.get_errno(), "the filter is refused")


class Group:
    """A control group for a case."""

    def __init__(self, limit: int | None) -> None:
        self.place = GROUPS / "case"
        self.place.mkdir(exist_ok=True)
        if limit:
            (self.place / "memory.max").write_text(str(limit))

    def members(self) -> list[int]:
        return [int(pid) for pid in (self.place / "cgroup.procs").read_text().split()]

    def read(self, name: str) -> str:
        with contextlib.suppress(OSError):
            return (self.place / name).read_text()
        return ""

    def end(self) -> list[str]:
        """Kills what is left, and returns its names."""
        left = []
        for _ in range(100):
            members = self.members()
            if not members:
                break
            for pid in members:
                with contextlib.suppress(OSError):
                    left.append(Path(f"/proc/{pid}/comm").read_text().strip())
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        with contextlib.suppress(OSError):
            self.place.rmdir()
        return sorted(set(left))


class Peaks:
    """The most memory that a process of a group had, other than Millpond's supervisor, as the kernel tells others."""

    def __init__(self) -> None:
        self.kept, self.walked, self.looks, self.name = 0, 0, 0, ""

    def look(self, group: Group) -> None:
        self.looks += 1
        for pid in group.members():
            with contextlib.suppress(OSError, ValueError, IndexError):
                if os.readlink(f"/proc/{pid}/exe") == MILLPOND:
                    continue
                status = Path(f"/proc/{pid}/status").read_text()
                kept = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024 if "VmHWM" in status else 0
                # Between fork and exec it is a copy of whoever started it.
                if kept > self.kept and Path(f"/proc/{pid}/comm").read_text().strip() != "python3 guest":
                    self.kept, self.name = kept, status.split(None, 2)[1]
                if self.looks % WALK == 0:
                    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                    self.walked = max(self.walked, int(re.search(r"Rss:\s+(\d+)", rollup)[1]) * 1024)


def start(case: dict, group: Group, place: Path, files) -> subprocess.Popen:
    """Starts the command of a case, as the user and with the filter that it asks for."""
    account = pwd.getpwnam(case.get("user", "root"))
    os.chown(place, account.pw_uid, account.pw_gid)
    entry = os.open(group.place / "cgroup.procs", os.O_WRONLY)

    def become() -> None:
        os.write(entry, b"0")
        os.close(entry)
        os.setsid()
        if account.pw_uid:
            os.setgroups([])
            os.setresgid(*[account.pw_gid] * 3)
            os.setresuid(*[account.pw_uid] * 3)
        if case.get("filter"):
            refuse_userfaultfd()

    environment = {"PATH": f"{LIBRARY_PLACE}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C.UTF-8", "HOME": str(place)}
    try:
        return subprocess.Popen(
            case["command"], cwd=place, env=environment | case.get("environment", {}), stdin=subprocess.DEVNULL,
            stdout=files[0], stderr=files[1], preexec_fn=become,
        )
    finally:
        os.close(entry)


def run(case: dict, limit: int | None = None) -> dict:
    """Runs a command to its end, and returns how it went."""
    place = Path(tempfile.mkdtemp(prefix="case-", dir="/var/tmp"))
    group, peaks = Group(limit), Peaks()
    with tempfile.TemporaryFile(dir="/var/tmp") as out, tempfile.TemporaryFile(dir="/var/tmp") as err:
        began = time.monotonic()
        process = start(case, group, place, (out, err))
        hung = False
        next_look, until, before = began, began + case["within"], 0.0
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            now = time.monotonic()
            if pid:
                break
            if now > until and not hung and now < began + PATIENT * case["within"] and worked(group) > before + BUSY * case["within"]:
                # It is slow, and works.
                until, before = now + case["within"], worked(group)
            if now > until and not hung:
                hung = True
                where = stacks(group)
                for member in group.members():
                    with contextlib.suppress(OSError):
                        os.kill(member, signal.SIGKILL)
            if now >= next_look:
                peaks.look(group)
                next_look = time.monotonic() + LOOK
            time.sleep(0.01)
        process.returncode = os.waitstatus_to_exitcode(status)
        result = {"status": process.returncode, "seconds": now - began, "processor": usage.ru_utime + usage.ru_stime}
        result |= {"peak": peaks.kept, "walked": peaks.walked, "largest": peaks.name, "waited": usage.ru_maxrss * 1024}
        result |= {"group": int(group.read("memory.peak") or 0), "left": group.end()}
        if hung:
            result |= {"hung": True, "where": where}
        for name, file in (("out", out), ("err", err)):
            file.seek(0)
            text = file.read()
            result[name] = text[-SHOWN:].decode(errors="replace")
            if case.get("whole") and name == "out":
                result["whole"] = text.decode(errors="replace")
            result[f"{name}_sum"] = hashlib.sha256(text).hexdigest()[:16]
    reports = list(place.glob("report.json"))
    if reports:
        with contextlib.suppress(ValueError):
            result["report"] = {name: value for name, value in json.loads(reports[0].read_text()).items() if name.endswith("_bytes")}
    shutil.rmtree(place, ignore_errors=True)
    return result


def worked(group: Group) -> float:
    """The seconds of a processor that a group has used."""
    return int(re.search(r"usage_usec (\d+)", group.read("cpu.stat"))[1]) / 1e6


def stacks(group: Group) -> str:
    """Where the threads of a group wait in the kernel."""
    found = []
    for pid in group.members():
        with contextlib.suppress(OSError):
            for thread in sorted(Path(f"/proc/{pid}/task").iterdir()):
                waits = (thread / "stack").read_text().split("\n")[0] if (thread / "stack").exists() else ""
                state = re.search(r"State:\s+(\S)", (thread / "status").read_text())[1]
                found.append(f"{pid}/{thread.name} {(thread / 'comm').read_text().strip()} {state} {waits}")
    return "\n".join(found[:40])


def budget(native: dict, share: float) -> int:
    """The budget of a program that had this peak by itself: a share of it, and the least that Millpond takes at least."""
    return max(16 << 20, int(native["waited"] * share) & -(1 << 20))


class Settings:
    """What is set for some cases, and afterwards as it was."""

    def __init__(self, setting: dict) -> None:
        self.setting, self.before = setting, {}

    def __enter__(self) -> list[str]:
        failed = []
        for name, value in self.setting.get("writes", {}).items():
            try:
                now = Path(name).read_text().strip()
                chosen = re.search(r"\[(\S+)\]", now)
                self.before[name] = chosen[1] if chosen else now
                Path(name).write_text(value)
            except OSError as why:
                failed.append(f"{name}: {why.strerror}")
        for line in self.setting.get("commands", []):
            ended = subprocess.run(["sh", "-ec", line], capture_output=True, text=True)
            if ended.returncode:
                failed.append(f"{line}: {ended.stderr.strip()[-200:]}")
        return failed

    def __exit__(self, *_) -> None:
        for line in self.setting.get("afterwards", []):
            subprocess.run(["sh", "-ec", line], capture_output=True)
        for name, value in reversed(self.before.items()):
            with contextlib.suppress(OSError):
                Path(name).write_text(value)


def under(case: dict, way: dict, size: int) -> dict:
    """The case of a command under a budget."""
    front = [MILLPOND, "run", "--ram", str(size), "--report", "./report.json", *way["options"], "--"]
    environment = case.get("environment", {}) | way.get("environment", {})
    return case | {"command": [*front, *case["command"]], "environment": environment}


def programs(port: Port, setting: dict, names: dict, plan: dict) -> None:
    """Runs programs natively and then in each way."""
    for program in setting["programs"]:
        case = plan["programs"][program] | names
        within = case["within"]
        port.say("begin", setting=setting["name"], program=program, way="natively", within=PATIENT * within)
        native = run(case)
        if case.get("alone"):
            port.say("alone", setting=setting["name"], program=program, **native)
            continue
        port.say("native", setting=setting["name"], program=program, **native)
        if native.get("hung"):
            continue
        size = case.get("budget") or budget(native, case.get("share", 0.5))
        # Natively the time is that of an emulator, too: what is longer than this hangs, or is of no use.
        within = case["within"] = int(max(within, SLOW * native["seconds"]))
        for way in setting["ways"][program]:
            port.say("begin", setting=setting["name"], program=program, way=way, within=PATIENT * within)
            limit = int(size * setting["limit"]) + (16 << 20) if setting.get("limit") else None
            port.say("result", setting=setting["name"], program=program, way=way, budget=size, **run(under(case, plan["ways"][way], size), limit))


def doctor(port: Port, setting: dict, names: dict) -> None:
    """What `millpond doctor` says here."""
    for mask in ("", "uffd"):
        case = names | {"command": [MILLPOND, "doctor", "--json"], "within": 60, "whole": True}
        case["environment"] = {"MILLPOND_MASK": mask} if mask else {}
        port.say("doctor", setting=setting["name"], mask=mask, within=PATIENT * 60, **run(case))


def forces() -> bool:
    """Whether this kernel lets a process write to its own memory that is not open for writing (`proc_mem.force_override`)."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    page = libc.mmap(None, ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, ctypes.c_long(0))
    with open("/proc/self/mem", "r+b", buffering=0) as memory, contextlib.suppress(OSError):
        return os.pwrite(memory.fileno(), b"x", page) == 1
    return False


def loopback() -> None:
    """Has the interface for the machine itself be up, without which no address of it can be sent to."""
    up = struct.pack("16sh22x", b"lo", 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, up)


def main() -> None:
    """Runs the plan."""
    port = Port()
    try:
        Path("/proc/self/comm").write_text("python3 guest")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        text = Path("/dev/vdc").read_bytes().rstrip(b"\0")
        plan = json.loads(text)
        (GROUPS / "cgroup.subtree_control").write_text("+memory")
        os.chmod("/var/tmp", 0o1777)
        loopback()
        meminfo = Path("/proc/meminfo").read_text()
        port.say("up", kernel=platform.release(), processors=os.cpu_count(), memory=int(re.search(r"MemTotal:\s+(\d+)", meminfo)[1]), forces=forces())
        for setting in plan["settings"]:
            names = {"user": USER if setting.get("user") else "root", "filter": bool(setting.get("filter"))}
            with Settings(setting) as failed:
                port.say("setting", setting=setting["name"], failed=failed)
                if failed:
                    continue
                doctor(port, setting, names)
                programs(port, setting, names, plan)
        if "shell" in plan:
            port.say("begin", within=PATIENT * plan["shell"]["within"])
            port.say("shell", **run(plan["shell"] | {"whole": True}))
        port.say("end")
    except BaseException as why:
        port.say("broken", why=repr(why))
        raise


if __name__ == "__main__":
    main()
