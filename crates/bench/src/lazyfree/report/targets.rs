//! The targets for lazy freeing, and the figures that were reached.

use crate::lazyfree::memory::Side;
use crate::lazyfree::report::parts::Parts;
use crate::target::{Bound, Target};

/// All targets, as far as the parts were measured.
#[must_use]
pub fn targets(parts: &Parts) -> Vec<Target> {
    let mut targets = Vec::new();
    if let Some(cycle) = &parts.cycle {
        for pattern in ["interleaved", "phased"] {
            for (ours, kernel, wanted) in [
                (Side::LazyFree, Side::KernelFree, 2.0),
                (Side::LazyFree, Side::KernelDontneed, 10.0),
                (Side::Volatile, Side::KernelFree, 3.0),
            ] {
                if let Some(value) = cycle.ratio(pattern, ours, kernel) {
                    let what = format!("{ours} against {kernel}, {pattern}: times faster");
                    targets.push(Target::new(what, value, Bound::AtLeast, wanted));
                }
            }
        }
    }
    if let Some(workers) = &parts.workers
        && let (Some(lazy), Some(eager), Some(keep)) = (
            workers.median(Side::LazyFree),
            workers.median(Side::Discard),
            workers.median(Side::Keep),
        )
    {
        let more = excess(lazy.pswpin, eager.pswpin, keep.pswpin);
        let share = lazy.pswpin as f64 / lazy.pages_touched as f64;
        let most = |what: &str, value, wanted| {
            Target::new(format!("workers: {what}"), value, Bound::AtMost, wanted)
        };
        targets.extend([
            most(
                "store reads above those of eager freeing, as a part of those without freeing",
                more,
                0.01,
            ),
            most("store reads as a part of the pages touched", share, 0.002),
        ]);
    }
    for order in parts.rss.iter().flat_map(|rss| &rss.orders) {
        targets.push(Target::new(
            format!("rss: error of the reported sizes at order {}", order.order),
            order.measured.median.error,
            Bound::AtMost,
            0.01,
        ));
    }
    targets
}

/// The amount by which `lazy` is above `eager`, as a part of `keep`. It is no part of `eager`, because eager freeing
/// often reads nothing at all, and a part of nothing would make one folio a failure.
fn excess(lazy: u64, eager: u64, keep: u64) -> f64 {
    lazy.saturating_sub(eager) as f64 / keep as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excess_is_a_part_of_what_is_read_without_freeing() {
        assert_eq!((excess(5, 10, 100), excess(11, 10, 100)), (0.0, 0.01));
        assert!(!excess(0, 0, 0).is_finite(), "nothing was in the store");
    }
}
