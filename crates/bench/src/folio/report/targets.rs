//! The targets for folios of any size, and the figures that were reached.

use crate::folio::report::parts::FolioParts;
use crate::folio::side::Side;
use crate::folio::{header, latency};
use crate::order::BenchOrder;
use crate::target::{Bound, Target};

/// All targets, as far as the parts were measured.
#[must_use]
pub fn targets(order: BenchOrder, parts: &FolioParts) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut push = |what: String, value: Option<f64>, bound, wanted| {
        targets.extend(value.map(|value| Target::new(what, value, bound, wanted)));
    };
    let (ours, huge) = (Side::Ours(order), Side::fixed(9));
    if let Some(swap) = &parts.swap {
        for (phase, wanted) in [
            ("fill", 6.0),
            ("sequential", 6.0),
            ("verify", 6.0),
            ("random", 1.5),
        ] {
            let what = format!("swap, {phase}: times faster than kernel zram swap");
            let value = swap.ratio(phase, ours, Side::Kernel);
            push(what, value, Bound::AtLeast, wanted);
        }
        let came = swap.median(ours).and_then(|ours| ours.random_brought_in);
        push(
            "swap, random: pages brought in unasked, as a part of those asked for".to_owned(),
            came.map(|came| came.unasked()),
            Bound::AtMost,
            0.05,
        );
    }
    if let Some(mix) = &parts.mix {
        push(
            "mix: times faster than kernel zram swap".to_owned(),
            mix.ratio("mixed", ours, Side::Kernel),
            Bound::AtLeast,
            2.0,
        );
    }
    if let Some(touch) = &parts.touch {
        for (side, kernel, wanted, against) in [
            (ours, Side::Kernel, 3.0, "pages of 4 KiB"),
            (ours, Side::KernelHuge, 0.7, "huge pages"),
            (huge, Side::KernelHuge, 1.0, "huge pages"),
        ] {
            let what = format!("touch at {side}: times faster than the kernel's {against}");
            push(
                what,
                touch.ratio("page", side, kernel),
                Bound::AtLeast,
                wanted,
            );
        }
    }
    if let Some(sparse) = &parts.sparse {
        let resident = |side| sparse.median(side).map(|median| median.rss_bytes as f64);
        let value = resident(ours).zip(resident(Side::fixed(0)));
        push(
            "sparse: resident over that at order 0".to_owned(),
            value.map(|(ours, zero)| ours / zero),
            Bound::AtMost,
            1.1,
        );
    }
    if let Some(header) = &parts.header {
        for lazy_purge in [true, false] {
            let of = |order| {
                let order = Some(order);
                let run = header::Run { order, lazy_purge };
                header.median(run).map(|median| median.round)
            };
            let purge = if lazy_purge { "lazy" } else { "eager" };
            let value = of(order).zip(of(BenchOrder(millpond::Order::ZERO.into())));
            push(
                format!("header, {purge} purge: time over that at order 0"),
                value.map(|(ours, zero)| ours / zero),
                Bound::AtMost,
                1.2,
            );
        }
    }
    if let Some(snapshot) = &parts.snapshot {
        push(
            "snapshot: milliseconds blocked".to_owned(),
            snapshot.median(ours).map(|median| median.blocked / 1000.0),
            Bound::AtMost,
            2.0,
        );
        push(
            "snapshot: writing a shared page, times that of a fork's child".to_owned(),
            snapshot.ratio("page", ours, Side::Kernel).map(f64::recip),
            Bound::AtMost,
            1.5,
        );
    }
    for side in parts.latency.iter().flat_map(|latency| &latency.sides) {
        let latency::Outcome {
            program, manager, ..
        } = side.measured.median;
        let run = side.side;
        for (times, whose) in [(program, "program"), (manager, "manager")] {
            push(
                format!("latency at {run}: p99 over p50, by the {whose}'s clock"),
                Some(times.spread()),
                Bound::AtMost,
                4.0,
            );
        }
    }
    targets
}
