"""Runs one command to its end or to its bound, and keeps its output, how it ended, and the most RAM of its whole tree
of processes.

The watching process is the reaper of processes that the tree leaves behind. So it finds every process below it by its
parents, a daemon's too, and ends it by its number. A process that is not ended would hold its memory, its port and the
directory of the next run.

The peak is the highest sum of resident sets, read every hundredth of a second. Pages that processes share count for
each of them, so the budget of a tree that forks is more generous than it sounds. It is the measure that `ps` shows,
from which a user chooses a budget. For a process that ends between two looks the peak is the one that the kernel keeps.
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
# How long processes that the command has left behind may take to end by themselves, in seconds.
GRACE = 3.0


@dataclass
class Ended:
    """How a command ended."""

    status: int
    seconds: float
    peak: int
    output: bytes
    errors: str
    # Processes of the tree that were left after the command had ended and the time of grace was over.
    left: list[str]
    # Whether the command was still being served faults when the bound came.
    slow: bool = False
    # The state of each thread, if the bound came before the end.
    hung: str = ""


def become_reaper() -> None:
    """Orphans below this process become its children."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def tree() -> list[int]:
    """Returns all processes below this one, without those that have ended and were not waited for. A process that
    changes its parent meanwhile is not missed."""
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
    """Returns the processes below a process, without a look at all others of the machine."""
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
    """Returns the bytes that a process has in RAM, or 0 if it is gone."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def describe(process: int) -> str:
    """Returns the name and the state of each thread of a process, and where in the kernel it waits."""
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
    """Waits for children that have ended, whichever process has left them."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def goes_on(faults) -> bool:
    """Returns whether any process below this one is served faults. `faults` counts the faults of a process since its
    start. A program that computes for five seconds without a fault is not taken for one that hangs."""
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
    """Returns the processes that the command has left and that do not end by themselves."""
    until = time.monotonic() + GRACE
    while tree() and time.monotonic() < until:
        reap()
        time.sleep(0.02)
    return [describe(process) for process in tree()]
