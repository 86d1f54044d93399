"""Tests of `compare`: bounds hold at their edge, what is not a number meets nothing, and what was not measured is left out.

    python3 -m unittest discover .ci
"""

import importlib.machinery
import importlib.util
import math
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True

PATH = pathlib.Path(__file__).parent / "compare"
LOADER = importlib.machinery.SourceFileLoader("compare", str(PATH))
compare = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare", LOADER))
LOADER.exec_module(compare)


def report(name, **parts):
    return {"schema": f"millpond-bench-{name}/2", "order": "adaptive"} | parts


def part(medians, **ratios):
    """A part with a side for each of the medians; a ratio's name is figure, side and other side, joined by `__`."""
    rows = []
    for name, times in ratios.items():
        figure, ours, against = name.split("__")
        rows.append({"figure": figure, "ours": ours, "against": against, "times": times})
    sides = [{"side": side, "median": median, "rounds": [median]} for side, median in medians.items()]
    return {"sides": sides, "ratios": rows}


def judged(one):
    """Whether each figure is met, by its name."""
    return {what: compare.is_met(value, bound, wanted) for what, value, bound, wanted in compare.compare(one)}


class Compare(unittest.TestCase):
    def test_bounds_hold_at_their_edge(self):
        self.assertTrue(compare.is_met(2.0, "at least", 2) and not compare.is_met(1.99, "at least", 2))
        self.assertTrue(compare.is_met(2.0, "at most", 2) and not compare.is_met(2.01, "at most", 2))
        self.assertFalse(compare.is_met(math.nan, "at least", 2) or compare.is_met(math.nan, "at most", 2))

    def test_unmeasured_part_is_omitted_and_null_ratio_fails(self):
        self.assertEqual(judged(report("folio", touch=None)), {})
        touch = part({}, page__adaptive__kernel=3.0, page__adaptive__kernel_huge=0.5)
        self.assertEqual(list(judged(report("folio", touch=touch)).values()), [True, False])
        touch = part({}, page__adaptive__kernel=None)
        self.assertEqual(list(judged(report("folio", touch=touch)).values()), [False])

    def test_two_threads_are_judged_with_direct_delivery_only(self):
        def ratio(who, figure, times):
            ours, one = ({"who": who, "threads": threads} for threads in (2, 1))
            return {"figure": figure, "ours": ours, "against": one, "times": times}

        ratios = [ratio("direct", "fault", 1.5), ratio("direct", "page", 1.0), ratio("handler", "fault", 1.0)]
        found = judged(report("threads", random={"ratios": ratios}))
        self.assertEqual(list(found.values()), [False])

    def test_programs_are_judged_for_each_share(self):
        def one(share, mean, over):
            return {
                "share": share,
                "over_equal": mean,
                "largest": mean,
                "largest_of": "sort",
                "over_budget": over,
                "millpond_failed": [],
            }

        found = judged(report("programs", sums=[one(2, 0.9, []), one(4, None, ["gcc"])]))
        self.assertEqual(list(found.values()), [True, True, True, True, False, True])

    def test_program_that_fits_may_take_five_percent_longer_and_two_while_dormant(self):
        fits = part(
            {"direct": {"store_bytes": 0}},
            seconds__direct__plain=0.96,
            seconds__from_start__plain=0.96,
            seconds__handler__plain=0.9,
        )
        found = judged(report("fits", http=fits))
        self.assertEqual(sorted(found.values()), [False, False, True, True])

    def test_set_that_never_becomes_steady_fails_its_target(self):
        def met(faults, steady):
            shift = part({"millpond": {"faults_over_set": faults, "steady_after": steady}})
            return list(judged(report("workingset", shift=shift)).values())

        self.assertEqual((met(1.1, 2), met(1.3, 2), met(0.5, None)), ([True], [False], [False]))

    def test_excess_reads_are_judged_relative_to_reads_without_freeing(self):
        def met(lazy, eager, keep):
            medians = {"lazy_free": lazy, "discard": eager, "keep": keep}
            sides = {side: {"pswpin": reads, "pages_touched": 10_000} for side, reads in medians.items()}
            return list(judged(report("lazyfree", workers=part(sides))).values())

        self.assertEqual(met(5, 10, 100), [True, True])
        self.assertEqual(met(11, 10, 100), [True, True])
        self.assertEqual(met(12, 10, 100), [False, True])
        self.assertEqual(met(0, 0, 0), [False, True], "nothing was in the store")
        self.assertEqual(met(21, 21, 100), [True, False])

    def test_each_offset_is_compared_with_both_kernel_methods(self):
        medians = {"from_0": {"move": 2.0}, "from_4096": {"move": 4.0}, "half_stored": {"move": 3.0}}
        ratios = {
            "move__from_0__kernel": 1.5,
            "move__from_0__kernel_misaligned": 15.0,
            "move__from_4096__kernel": 0.75,
            "move__from_4096__kernel_misaligned": 7.5,
        }
        met = judged(report("remap", move=part(medians, **ratios)))
        self.assertEqual(list(met.values()), [True, True, False, False, False])

    def test_a_single_long_wait_fails(self):
        wait = {"longest_mmap": 11_000.0, "longest_fault": 1.0}
        ratios = {"blocked__free_async__kernel": 1111.0, "cpu__free_async__kernel": 0.9}
        met = judged(report("free", blocked=part({"free_async": wait}, **ratios)))
        self.assertEqual(list(met.values()), [True, False, False, True])


if __name__ == "__main__":
    unittest.main()
