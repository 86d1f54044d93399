//! The cost of a major fault, measured against the cost of finding a page in limbo.
//!
//! How long limbo is follows from an inequality with that ratio in it ([`limbo_share`](millpond_core)'s essay), and the
//! kind of store gives the ratio only roughly: a file may be on a disk or in a page cache, and a page that is read
//! alone costs something else than a folio of sixteen. The driver times each fault by the path that it took, so the
//! ratio can be read: the median of loads over the median of rescues. Medians are taken because a thread that was not
//! scheduled in between would count for a thousand others. They are of recent faults because a disk that has become
//! slow at noon has thousands of quick loads in its past.
//!
//! Both times begin when the manager hears of a fault. The cost to the program before that, a signal or the way to the
//! handler's thread and back, is the same for both and often the larger part, so it is added to both. (Without it redis
//! in a quarter of its memory, by a handler's thread, took 345,000 rescues and 31 s; with it 285,000 and 24 s.)
//!
//! A load that had to reclaim first is not counted. Its own way in costs the same as another load's, and the cost of
//! reclaim falls on any fault that brings a page in, from limbo or from the store, so it would be counted on one side
//! alone.
//!
//! The core is told when the ratio is a quarter off the ratio that it was told last: limbo's length need not follow
//! each twitch, and a wrong ratio within a quarter costs less than a step of limbo's length does.

use crate::state::latency::{FaultPath, Latency, Recent};
use millpond_core::limits::REFAULT_COST_MOST;
use millpond_mmu::Delivery;

/// Faults of each path that make a median.
const LEAST: u64 = 64;
/// Time until the manager hears of a fault, and until the program runs again, in nanoseconds: the `latency` example of
/// `millpond-mmu` has 4 and 7 µs for a fault that takes one to be resolved.
const BY_SIGNAL: u64 = 3000;
const BY_HANDLER: u64 = 6000;
/// Cost of a rescue: the core's costs are in sixteenths of it.
const RESCUE: u64 = 16;

/// The measured cost of a refault. See the [module](self).
#[derive(Debug)]
pub struct RefaultCost {
    load: Recent,
    rescue: Recent,
    /// Median of recent loads, in nanoseconds. `rescue_ns` is that of rescues.
    load_ns: Option<u64>,
    rescue_ns: Option<u64>,
    /// Time of the delivery, which is not in the medians.
    delivery_ns: u64,
    /// Cost that the core was told last, in sixteenths of a rescue.
    told: u32,
}

impl RefaultCost {
    /// Begins with `told` sixteenths of a rescue, which the core assumes.
    pub fn new(told: u32, delivery: Delivery) -> Self {
        Self {
            load: Recent::new(FaultPath::Load),
            rescue: Recent::new(FaultPath::Rescue),
            load_ns: None,
            rescue_ns: None,
            delivery_ns: match delivery {
                Delivery::InThread | Delivery::Direct => BY_SIGNAL,
                Delivery::Handler => BY_HANDLER,
            },
            told,
        }
    }

    /// The cost that the core should be told now, in sixteenths of a rescue; `None` when it need not be told.
    pub fn measure(&mut self, latency: &Latency) -> Option<u32> {
        self.load_ns = self.load.median(latency, LEAST).or(self.load_ns);
        self.rescue_ns = self.rescue.median(latency, LEAST).or(self.rescue_ns);
        let (load, rescue) = self.load_ns.zip(self.rescue_ns)?;
        let cost = RESCUE * (load + self.delivery_ns) / (rescue + self.delivery_ns);
        let cost = cost.clamp(1, REFAULT_COST_MOST.into()) as u32;
        if cost.abs_diff(self.told) <= self.told / 4 {
            return None;
        }
        self.told = cost;
        Some(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(latency: &Latency, path: FaultPath, ns: u64, faults: u64) {
        (0..faults).for_each(|_| latency.record(path, ns));
    }

    #[test]
    fn the_core_is_told_when_it_is_a_quarter_off() {
        let latency = Latency::new();
        let mut cost = RefaultCost::new(256, Delivery::InThread);
        record(&latency, FaultPath::Load, 7000, 100);
        record(&latency, FaultPath::Rescue, 2000, 10);
        assert_eq!(cost.measure(&latency), None, "too few rescues to say");
        record(&latency, FaultPath::Rescue, 2000, 60);
        let told = cost.measure(&latency).unwrap();
        assert!((31..=33).contains(&told), "{told}");
        // Loads are a little dearer: that is not worth telling.
        record(&latency, FaultPath::Load, 8500, 100);
        assert_eq!(cost.measure(&latency), None);
        // The disk has become slow. Rescues count as before, though there were none.
        record(&latency, FaultPath::Load, 77_000, 64);
        let told = cost.measure(&latency).unwrap();
        assert!((252..=260).contains(&told), "{told}");
        record(&latency, FaultPath::Load, 80_000_000, 64);
        assert_eq!(cost.measure(&latency), Some(REFAULT_COST_MOST));
    }
}
