"""What is run in the machines: programs, the ways in which faults are served, and settings."""

import dataclasses

# A command without Millpond, the seconds that it may take at least, and the share of its peak that is its budget, if it
# is not a half.
PROGRAMS = {
    "python3": {"command": ["python3", "/jobs/programs/objects.py"], "within": 100},
    "python3, fork": {"command": ["python3", "/jobs/programs/forks.py"], "within": 100},
    "sqlite3": {"command": ["sqlite3", ":memory:", ".read /jobs/programs/tables.sql"], "within": 100},
    "sort": {"command": ["sh", "-c", "sort --parallel=2 /jobs/programs/lines | sha256sum"], "within": 100},
    # Of these a third and a half of the memory are code.
    "redis": {"command": ["sh", "/jobs/programs/redis.sh"], "within": 200, "share": 0.75},
    "gcc": {"command": ["sh", "-c", "gcc -O1 -c -o out.o /jobs/programs/functions.c && sha256sum out.o"], "within": 300, "share": 0.75},
}
WAYS = {
    "handler": {"options": ["--delivery", "handler"]},
    "direct": {"options": ["--delivery", "direct"]},
    "protections": {"options": [], "environment": {"MILLPOND_MASK": "uffd"}},
    "auto": {"options": []},
}
SERVED = ["handler", "direct", "protections"]
# What the quick mode keeps.
FEW = ["python3", "sqlite3"]
SOME = ["python3", "python3, fork", "sqlite3"]

HUGE = "/sys/kernel/mm/transparent_hugepage/enabled"
UNPRIVILEGED = "/proc/sys/vm/unprivileged_userfaultfd"


@dataclasses.dataclass
class Setting:
    """What is set in a machine that is on, and what is run then."""

    name: str
    writes: dict[str, str] = dataclasses.field(default_factory=dict)
    commands: list[str] = dataclasses.field(default_factory=list)
    afterwards: list[str] = dataclasses.field(default_factory=list)
    # Another user than root, and a filter that refuses userfaultfd.
    user: bool = False
    filter: bool = False
    # The limit of the control group over the budget, as a factor, with 16 MiB for the rest of what runs.
    limit: float | None = None
    programs: list[str] = dataclasses.field(default_factory=lambda: list(PROGRAMS))
    # The ways in which the kernel's rules leave Millpond nothing but a refusal.
    refuses: tuple[str, ...] = ()

    def may_refuse(self, way: str, forces: bool) -> bool:
        """Whether the kernel's rules leave Millpond nothing else. Where a process may not write to its own closed memory
        (Debian's kernels from 7 on), faults cannot be served without a userfaultfd, of which a filter leaves a user none."""
        return way in self.refuses or not forces and (way == "protections" or way == "direct" and self.user and self.filter)

    def plan(self) -> dict:
        """What the guest is told."""
        kept = ("name", "writes", "commands", "afterwards", "user", "filter", "limit")
        return {name: getattr(self, name) for name in kept}


@dataclasses.dataclass
class Boot:
    """A machine, and the settings for which it is on."""

    name: str
    settings: list[Setting]
    memory: str = "1536M"
    processors: int = 2
    options: tuple[str, ...] = ()
    line: str = ""
    # Kernels before this version do not have it.
    since: tuple[int, int] = (0, 0)
    # Programs that are not in the list of all.
    programs: dict[str, dict] = dataclasses.field(default_factory=dict)


MAIN = [
    Setting("root", {HUGE: "madvise"}),
    Setting("huge pages always", {HUGE: "always"}, programs=[name for name in PROGRAMS if name != "gcc"]),
    Setting("a control group's limit", {HUGE: "madvise"}, limit=1.3, programs=SOME),
]
RIGHTS = [
    Setting("a user", {UNPRIVILEGED: "0"}, user=True, programs=SOME, refuses=("handler",)),
    Setting("a user, userfaultfd allowed", {UNPRIVILEGED: "1"}, user=True, programs=SOME),
    Setting("userfaultfd refused by a filter", filter=True, programs=SOME, refuses=("handler",)),
    Setting("the same for a user", {UNPRIVILEGED: "0"}, user=True, filter=True, programs=SOME, refuses=("handler",)),
]
SWAP = "truncate -s 0 /swap && chmod 600 /swap && fallocate -l 256M /swap && mkswap /swap && swapon /swap"
ZRAM = "echo 256M >/sys/block/zram0/disksize && mkswap /dev/zram0 && swapon -p 9 /dev/zram0"
SWAPPY = "/proc/sys/vm/swappiness"
OVERCOMMIT = "/proc/sys/vm/overcommit_memory"
MAPPINGS = "/proc/sys/vm/max_map_count"
TRACE = "/proc/sys/kernel/yama/ptrace_scope"


def tuned(name: str, *more, **named) -> Setting:
    """A setting of the machine, under which few programs run."""
    return Setting(name, *more, programs=named.pop("programs", FEW), **named)


TUNED = [
    tuned("overcommit 1", {OVERCOMMIT: "1"}),
    tuned("overcommit 2", {OVERCOMMIT: "2"}),
    tuned("overcommit 2, a user", {OVERCOMMIT: "2"}, user=True, refuses=("handler",)),
    tuned("65530 mappings", {MAPPINGS: "65530"}),
    tuned("8192 mappings", {MAPPINGS: "8192"}),
    tuned("hidden processes", commands=["mount -o remount,hidepid=2 /proc"], afterwards=["mount -o remount,hidepid=0 /proc"],
          user=True, refuses=("handler",)),
    tuned("merged pages", {"/sys/kernel/mm/ksm/run": "1", "/sys/kernel/mm/ksm/pages_to_scan": "1000"}),
    tuned("swap in a file", {SWAPPY: "100"}, [SWAP], ["swapoff /swap; rm /swap"], limit=1.1),
    tuned("swap in zram", {SWAPPY: "200"}, [ZRAM], ["swapoff /dev/zram0; echo 1 >/sys/block/zram0/reset"], limit=1.1),
    tuned("zswap", {"/sys/module/zswap/parameters/enabled": "1", SWAPPY: "100"}, [SWAP], ["swapoff /swap; rm /swap"], limit=1.1),
    tuned("ptrace_scope 1", {TRACE: "1"}, user=True, refuses=("handler",)),
    tuned("ptrace_scope 2", {TRACE: "2"}, user=True, refuses=("handler",)),
    # This one cannot be taken back, so it is the last.
    tuned("ptrace_scope 3", {TRACE: "3"}, user=True, refuses=("handler",)),
]
NODES = ("-object", "memory-backend-ram,id=first,size=768M", "-object", "memory-backend-ram,id=second,size=768M",
         "-numa", "node,memdev=first,cpus=0", "-numa", "node,memdev=second,cpus=1")
BOOTS = [
    Boot("plain", MAIN),
    # One processor takes an emulator a third of the time, and rights and limits do not depend on their number.
    Boot("rights", RIGHTS, processors=1),
    Boot("tuned", TUNED, processors=1),
    Boot("one processor", [tuned("one processor")], processors=1),
    Boot("64 processors", [tuned("64 processors", programs=["sqlite3"])], processors=64, memory="3G"),
    Boot("512 MiB", [tuned("512 MiB", programs=list(PROGRAMS))], memory="512M"),
    Boot("two nodes", [tuned("two nodes")], options=NODES),
    # Newer kernels of Debian need to be asked for it.
    Boot("/proc/self/mem forced", [tuned("/proc/self/mem forced"), tuned("forced, by a filter", filter=True, user=True, refuses=("handler",))],
         processors=1, line="proc_mem.force_override=always", since=(6, 12)),
    Boot("/proc/self/mem never forced", [tuned("/proc/self/mem never forced", refuses=("protections",)),
         tuned("never forced, by a filter", filter=True, refuses=("handler", "direct", "protections"))],
         processors=1, line="proc_mem.force_override=never", since=(6, 12)),
]
# A machine of two processors and one of one.
QUICK = [
    Boot("plain", [dataclasses.replace(MAIN[0], programs=["sqlite3"])]),
    Boot("rights", [dataclasses.replace(setting, programs=["python3"]) for setting in (RIGHTS[0], RIGHTS[2])], processors=1),
]
