"""What the results mean, and the table of them."""

import dataclasses
import json
import re
from collections import Counter

# How much more than its budget the largest process of a program may have. The kernel counts by the batch. Less than a
# MiB is no fault of a small budget's, on a machine that is busy with other things; the table says it all the same.
OVER, LITTLE = 1.02, 1 << 20
REFUSED = 125
# What a way out looks like in a message.
WAY_OUT = re.compile(r"sysctl|prlimit|ulimit|docker run|--\w|/dev/userfaultfd|raise|lower|use |give|set |allow|leave|needs|chmod|setfacl|take it out|start the kernel")


@dataclasses.dataclass
class Row:
    """A case, and how it went."""

    kernel: str
    setting: str
    program: str
    way: str
    verdict: str
    peak: float | None = None
    slower: float | None = None
    details: str = ""

    @property
    def is_wrong(self) -> bool:
        return self.verdict.startswith("WRONG")

    def name(self) -> str:
        return f"{self.kernel} / {self.setting} / {self.program} / {self.way}"

    def cells(self) -> list[str]:
        figures = ["" if value is None else f"{value:.2f}" for value in (self.peak, self.slower)]
        return [self.kernel, self.setting, self.program, self.way, self.verdict.split("\n")[0], *figures]


def ended(result: dict) -> str:
    """How a program ended, in words."""
    if result.get("hung"):
        return f"has not ended after {result['seconds']:.0f} s"
    return f"status {result['status']}"


def printed(result: dict) -> str:
    """What a program printed and said, for the details."""
    lines = [*result["out"].splitlines()[-6:], *result["err"].splitlines()[-10:], *result.get("where", "").splitlines()]
    return "\n".join(lines)


def skip(row: Row, native: dict) -> Row:
    """A program that does not end well without a budget says nothing."""
    row.verdict, row.details = f"skipped: natively {ended(native)}", printed(native)
    return row


def judge(row: Row, native: dict, result: dict, may_refuse: bool, expects: str) -> Row:
    """Compares a program under a budget with itself without one.

    `expects` is "all" for output and memory, "same" for the output alone, and "right" where it is enough to end well.
    """
    row.details = printed(result)
    if native["status"] and expects != "right":
        return skip(row, native)
    said = [line for line in result["err"].splitlines() if line.startswith("millpond")]
    if result["status"] == REFUSED and said:
        if not may_refuse:
            row.verdict = f"WRONG: refused: {said[0]}"
        else:
            row.verdict = "refused" if WAY_OUT.search(" ".join(said)) else f"WRONG: refused without a way out: {said[0]}"
        row.details = "\n".join(said)
        return row
    peak = max(result["peak"], result["waited"])
    row.peak = peak / result["budget"]
    row.slower = result["seconds"] / native["seconds"]
    if result.get("hung") or result["status"]:
        row.verdict = f"WRONG: {ended(result)}"
    elif expects == "right" and not result["err"]:
        row.verdict, row.details = "right", ""
    elif expects != "right" and result["out_sum"] != native["out_sum"]:
        row.verdict = "WRONG: prints something else"
    elif result["err_sum"] != native["err_sum"]:
        row.verdict = "WRONG: complains"
    elif expects == "all" and row.peak > OVER and peak - result["budget"] >= LITTLE:
        row.verdict = f"WRONG: over its budget ({result['largest']})"
        row.details = f"{result['budget']} bytes: peak {result['peak']}, mappings walked {result['walked']}, group {result['group']}, report {result.get('report')}"
    elif result["left"]:
        row.verdict = f"WRONG: leaves {', '.join(result['left'])} behind"
    else:
        row.verdict, row.details = "right", ""
    return row


def judge_suite(row: Row, result: dict) -> Row:
    """Reads what a test binary says of its tests."""
    said = re.findall(r"test result: (\w+)\. (\d+) passed; (\d+) failed", result["out"])
    failed = re.findall(r"^    (\S+)$", result["out"], re.MULTILINE)
    if result.get("hung") or result["status"] or not said:
        panics = re.findall(r"panicked at .*\n.*(?:\n +(?:left|right): .*)*", result.get("whole", ""))
        row.verdict = f"WRONG: {ended(result)} {' '.join(dict.fromkeys(failed))}"
        row.details = "\n".join([*panics, printed(result)])
    else:
        row.verdict = f"right: {said[-1][1]} tests"
    return row


def capabilities(result: dict) -> dict[str, bool]:
    """What `millpond doctor` says, by name; empty if it says nothing."""
    try:
        found = json.loads(result["whole"])
    except (ValueError, KeyError):
        return {}
    named = {one["name"]: one["present"] for one in found["capabilities"]}
    return {"run works": found["run_works"], "handler": named.get("userfaultfd", False), "direct": found["direct"] is not None} | named


def untrue(said: dict[str, dict], rows: list[Row]) -> list[str]:
    """What the doctor said of a setting that the programs did not find so."""
    found = []
    for row in rows:
        plain = said.get("uffd" if row.way == "protections" else "")
        claimed = (plain or {}).get("run works" if row.way in ("protections", "auto") else row.way)
        if claimed is None or row.verdict.startswith("skipped"):
            continue
        refused = "refused" in row.verdict
        if claimed == refused:
            found.append(f"{row.name()}: the doctor says it {'works' if claimed else 'does not work'}, and it {'is refused' if refused else 'works'}")
    return found


def gathered(rows: list[Row]) -> list[Row]:
    """The rows, with those of the C programs that are right in one for each way."""
    few: list[Row] = []
    counted = Counter((row.kernel, row.setting, row.way) for row in rows if is_small(row))
    for row in rows:
        if not is_small(row):
            few.append(row)
        elif count := counted.pop((row.kernel, row.setting, row.way), 0):
            few.append(Row(row.kernel, row.setting, f"{count} C programs", row.way, row.verdict))
    return few


def is_small(row: Row) -> bool:
    return row.program.startswith("C: ") and row.verdict == "right"


def table(rows: list[Row]) -> str:
    """The table in Markdown."""
    head = ["kernel", "settings", "program", "way", "verdict", "peak/budget", "time/native"]
    lines = [head, ["---"] * len(head), *(row.cells() for row in gathered(rows))]
    return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines)


def summary(rows: list[Row]) -> str:
    """How many cases went how."""
    counted = Counter(re.split(r"[: ]", row.verdict)[0] for row in rows)
    return ", ".join(f"{count} {word}" for word, count in counted.most_common()) or "no case"
