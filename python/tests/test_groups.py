"""Groups, pressure, counters and the curve."""

import numpy as np

import millpond

from .support import MIB, PondCase


class Groups(PondCase):
    def test_a_group_keeps_to_its_max(self):
        group = self.pond.group("scan", max="8M")
        numbers = self.pond.zeros(32 * MIB // 8, group=group)
        numbers[:] = 1
        self.assertEqual(float(numbers.sum()), numbers.size)
        stats = group.stats()
        self.assertLessEqual(stats.resident, 8 * MIB)
        self.assertGreater(stats.stored, 16 * MIB)
        self.assertGreater(stats.pgmajfault, 0)
        self.assertGreater(group.pressure().some_total_us, 0)
        self.assertEqual(len(group.pressure().some), 3)
        group.set_limits(max="16M", high="12M")
        self.assertEqual(float(numbers.sum()), numbers.size)

    def test_groups_form_a_tree(self):
        above = self.pond.group("above", low="4M")
        below = self.pond.group("below", parent=above)
        numbers = self.pond.full(MIB, 1, np.uint8, group=below)
        self.assertGreaterEqual(above.stats().usage, MIB)
        with self.assertRaises(millpond.Busy):
            above.remove()
        with self.assertRaisesRegex(millpond.Busy, "above"):
            self.pond.group("above")
        below.remove()
        with self.assertRaises(millpond.Removed):
            below.stats()
        self.assertGreaterEqual(above.stats().usage, MIB)
        millpond.region_of(numbers).set_group(None)
        self.assertEqual(above.stats().usage, 0)
        self.assertRegex(
            repr(above), r"^<millpond.Group 'above': [\d.]+[KM]? in RAM, [\d.]+[KM]? in the store>$"
        )

    def test_invalid_limits_and_groups_are_refused(self):
        for limits, message in [
            (dict(max="1M"), "4 MiB"),
            (dict(min="8M", max="4M"), "min"),
            (dict(min=-1), "a min of -1"),
        ]:
            with self.assertRaisesRegex(millpond.InvalidError, message):
                self.pond.group("g", **limits)
        with self.assertRaises(millpond.InvalidError):
            self.pond.group("a/b")
        with millpond.Pond("16M", delivery="in-thread") as other:
            group = other.group("g")
            with self.assertRaises(millpond.OtherPond):
                self.pond.zeros(1, group=group)
            with self.assertRaises(millpond.OtherPond):
                self.pond.group("below", parent=group)


class Figures(PondCase):
    def test_the_curve_shows_what_more_memory_would_save(self):
        self.assertEqual(self.pond.curve(), [])
        self.assertIsNone(self.pond.avoided("32M"))
        numbers = self.pond.full(48 * MIB // 8, 1.0, folios="0")
        for _ in range(6):
            self.assertEqual(float(numbers.sum()), numbers.size)
        curve = self.pond.curve()
        self.assertEqual([more for more, _ in curve], [8 * MIB, 16 * MIB, 32 * MIB, 64 * MIB])
        shares = [share for _, share in curve]
        self.assertEqual(shares, sorted(shares))
        self.assertGreater(shares[-1], 0.5)
        self.assertLessEqual(shares[-1], 1)
        self.assertEqual(self.pond.avoided("32M"), shares[2])

    def test_counters_by_their_kernel_names(self):
        numbers = self.pond.full(64 * MIB // 8, 1.0)
        self.assertEqual(float(numbers.sum()), numbers.size)
        counters = self.pond.counters()
        self.assertGreater(counters["pgfault"], 0)
        self.assertGreater(counters["pswpout"], 0)
        self.assertIn("workingset_refault_anon", counters)
        stats = self.pond.stats()
        self.assertEqual(stats.pswpout, counters["pswpout"])
        self.assertLessEqual(stats.fault_p50_ns, stats.fault_p99_ns)
        self.assertLessEqual(stats.fault_p99_ns, stats.fault_max_ns)
        self.assertGreater(self.pond.pressure().some_total_us, 0)
        self.assertRegex(
            repr(self.pond),
            r"^<millpond.Pond of 32M: [\d.]+M in RAM, [\d.]+M in the store, \d+ major faults>$",
        )
