"""The verdicts of the matrix of kernels, and what it carries of the preload's tests."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "kernels.d"))

import carried  # noqa: E402
import matrix  # noqa: E402
import verdict  # noqa: E402

RIGHT = {"status": 0, "seconds": 3.0, "out": "", "out_sum": "a", "err": "", "err_sum": "b", "peak": 20 << 20, "walked": 0,
         "waited": 19 << 20, "group": 0, "left": [], "largest": "python3", "budget": 20 << 20}
NATIVE = {"status": 0, "seconds": 1.5, "out": "", "err": "", "out_sum": "a", "err_sum": "b"}


def judged(may_refuse=False, expects="all", native=NATIVE, **differs):
    row = verdict.Row("6.1", "root", "python3", "direct", "")
    return verdict.judge(row, native, RIGHT | differs, may_refuse, expects)


class Verdicts(unittest.TestCase):
    def test_same_output_within_the_budget_is_right(self):
        row = judged()
        self.assertEqual((row.verdict, row.peak, row.slower), ("right", 1.0, 2.0))

    def test_each_kind_of_wrong_is_named(self):
        for differs, says in (
            ({"status": 1}, "status 1"), ({"out_sum": "c"}, "prints something else"), ({"err_sum": "c"}, "complains"),
            ({"waited": 21 << 20}, "over its budget"), ({"left": ["sh"]}, "leaves sh behind"), ({"hung": True}, "has not ended"),
        ):
            row = judged(**differs)
            self.assertTrue(row.is_wrong and says in row.verdict, row.verdict)

    def test_refusal_is_right_only_if_allowed_and_with_a_remedy(self):
        refused = {"status": verdict.REFUSED, "err": "millpond: userfaultfd is refused: sudo sysctl vm.unprivileged_userfaultfd=1\n"}
        self.assertEqual(judged(may_refuse=True, **refused).verdict, "refused")
        self.assertIn("WRONG: refused", judged(**refused).verdict)
        forbidden = "millpond: no: start the kernel with proc_mem.force_override=always\n"
        self.assertEqual(judged(may_refuse=True, status=verdict.REFUSED, err=forbidden).verdict, "refused")
        self.assertIn("without a way out", judged(may_refuse=True, status=verdict.REFUSED, err="millpond: no\n").verdict)

    def test_refusal_is_allowed_if_the_kernel_forbids_closed_memory_writes(self):
        root, contained = matrix.Setting("root"), matrix.Setting("contained", user=True, filter=True)
        for setting, way, forces, may in (
            (root, "protections", True, False), (root, "protections", False, True), (root, "direct", False, False),
            (contained, "direct", True, False), (contained, "direct", False, True),
        ):
            self.assertEqual(setting.may_refuse(way, forces), may, (setting.name, way, forces))

    def test_program_that_fails_natively_is_not_judged(self):
        self.assertTrue(judged(native=NATIVE | {"status": 1}, status=1).verdict.startswith("skipped"))

    def test_wrong_doctor_result_is_reported(self):
        said = {"": {"run works": True, "handler": True, "direct": True}}
        rows = [verdict.Row("6.1", "root", "sort", "handler", "refused"), verdict.Row("6.1", "root", "sort", "direct", "right")]
        self.assertEqual(len(verdict.untrue(said, rows)), 1)


class Carried(unittest.TestCase):
    def test_calls_in_preload_tests_are_found_with_loops_and_durations(self):
        found = {(one["name"], *one["arguments"]) for one in carried.calls()}
        self.assertLess({("errno_table",), ("arenas", "3"), ("racing_maps", carried.RACE)}, found)


if __name__ == "__main__":
    unittest.main()
