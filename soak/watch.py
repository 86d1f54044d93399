"""One command, run to its end or to its bound: what it printed, how it ended, and what its whole tree of processes had
in RAM at most.

The one who watches is the reaper of what the tree leaves behind, so that every process below it is found by its parents,
a daemon's too, and is ended by its number. A process that is not ended would hold its memory, its port and the directory
of the next run.

The peak is the highest sum of resident sets that a look every hundredth of a second saw. Pages that processes share
count for each of them, which makes the budget of a tree that forks more generous than it sounds: it is the measure that
`ps` shows to whoever chooses a budget. A single process that ends between two looks has its kernel's own mark.
"""

import ctypes
import glob
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
PR_SET_CHILD_SUBREAPER = 36
# How long what is left of a tree may take to end by itself, in seconds.
GRACE = 3.0


@dataclass
class Ended:
    """How a command ended."""

    status: int
    seconds: float
    peak: int
    output: bytes
    errors: str
    # What was left of the tree when the command itself had ended, and after the time of grace.
    left: list[str]
    # Whether it went on being served faults when the bound came.
    slow: bool = False
    # Where each thread stood, if a bound came first.
    hung: str = ""


def become_reaper() -> None:
    """Orphans below this process become its children."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def tree() -> list[int]:
    """All processes below this one, without the dead that nobody has asked for: none is missed that changes its parent
    meanwhile."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            state, parent = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state not in "ZX":
            parents.setdefault(int(parent), []).append(int(entry))
    found, queue = [], [os.getpid()]
    while queue:
        below = parents.get(queue.pop(), [])
        found += below
        queue += below
    return found


def quick_tree(process: int) -> list[int]:
    """What is below a process, found without a look at all others of the machine."""
    below = []
    for thread in glob.glob(f"/proc/{process}/task/*/children"):
        try:
            children = [int(child) for child in Path(thread).read_text().split()]
        except OSError:
            continue
        for child in children:
            below += [child, *quick_tree(child)]
    return below


def resident(process: int) -> int:
    """Bytes that a process has in RAM; none if it is gone."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def describe(process: int) -> str:
    """Name, state and where in the kernel each thread of a process waits."""
    lines = []
    for thread in sorted(Path(f"/proc/{process}/task").glob("*"), key=lambda path: int(path.name)):
        try:
            name, _, rest = (thread / "stat").read_text().partition("(")[2].rpartition(")")
            where = (thread / "wchan").read_text()
            stack = (thread / "stack").read_text().split("\n")[:6] if os.access(thread / "stack", os.R_OK) else []
        except OSError:
            continue
        calls = " < ".join(line.split()[-1].partition("+")[0] for line in stack if line)
        lines.append(f"  {process}/{thread.name} {name} {rest.split()[0]} {where} {calls}")
    return "\n".join(lines)


def end_all() -> None:
    """Ends every process below this one, also those that are started meanwhile."""
    while below := tree():
        for process in below:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap()
        time.sleep(0.02)
    reap()


def reap() -> None:
    """Takes note of children that have ended, whoever left them here."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def goes_on(faults) -> bool:
    """Whether any process below this one is served faults: `faults` counts those of a process since its start. A program
    that computes for five seconds without a fault is not taken for one that hangs."""
    first = sum(map(faults, tree()))
    for _ in range(5):
        time.sleep(1)
        if sum(map(faults, tree())) > first:
            return True
    return False


def run(
    command: list[str], directory: Path, environment: dict[str, str], bound: float, slow_times: float, faults
) -> Ended:
    """Runs a command in a directory, with its output and complaints beside that. One that goes on being served faults
    when the bound comes (see `goes_on`) may take `slow_times` as long; where all threads stand is kept if it is ended."""
    output, errors = directory.with_suffix(".out"), directory.with_suffix(".err")
    slow, hung, peak, begin = False, "", 0, time.monotonic()
    with output.open("wb") as out, errors.open("wb") as err:
        child = subprocess.Popen(command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        status = usage = None
        while status is None:
            process, raw, usage = os.wait4(child.pid, os.WNOHANG)
            if process:
                status = os.waitstatus_to_exitcode(raw)
                break
            peak = max(peak, sum(map(resident, quick_tree(os.getpid()))))
            if time.monotonic() - begin > bound and not slow and goes_on(faults):
                slow, bound = True, bound * slow_times
            elif time.monotonic() - begin > bound:
                hung = "\n".join(map(describe, tree()))
                end_all()
                status = -signal.SIGKILL
            time.sleep(0.01)
    child.returncode = status
    seconds = time.monotonic() - begin
    left = [] if hung else leftovers()
    end_all()
    if usage:
        peak = max(peak, usage.ru_maxrss * 1024)
    complaints = errors.read_bytes().decode(errors="replace")
    return Ended(status, seconds, peak, output.read_bytes(), complaints, left, slow, hung)


def leftovers() -> list[str]:
    """What does not end by itself of what the command has left."""
    until = time.monotonic() + GRACE
    while tree() and time.monotonic() < until:
        reap()
        time.sleep(0.02)
    return [describe(process) for process in tree()]
