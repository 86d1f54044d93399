//! The cost of a major fault, measured against the cost of finding a page in limbo.
//!
//! Limbo's length follows from an inequality with that ratio in it ([`limbo_share`](millpond_core)'s essay), and the
//! kind of store determines the ratio only roughly: a file may be on a disk or in a page cache, and a page read alone
//! does not cost the same as a folio of sixteen. The driver times each fault by the path that it took, so the ratio is
//! known: the median of loads over the median of rescues. Medians are used because in a mean, a thread that was
//! descheduled in between would outweigh a thousand others. They are of recent faults because a disk that has become
//! slow at noon has thousands of quick loads in its past.
//!
//! Both times begin when the manager learns of a fault. The program's cost before that, for a signal or for reaching
//! the handler's thread and returning, is the same for both and often the larger part, so it is added to both. (Without
//! it redis in a quarter of its memory, with a handler's thread, took 345,000 rescues and 31 s; with it 285,000 and 24
//! s.)
//!
//! A load that had to reclaim first is not counted. Its own path costs the same as another load's, and the cost of
//! reclaim falls on any fault that brings a page in, from limbo or from the store, so it would be counted on one side
//! only.
//!
//! The core is told the ratio when it differs by a quarter from the last one reported: limbo's length need not follow
//! every fluctuation, and an error of up to a quarter costs less than a step of limbo's length.

use crate::state::latency::{FaultPath, Latency, Recent};
use millpond_core::limits::REFAULT_COST_MOST;
use millpond_mmu::Delivery;

/// Number of faults of each path needed for a median.
const LEAST: u64 = 64;
/// Time until the manager learns of a fault, and until the program runs again, in nanoseconds: the `latency` example of
/// `millpond-mmu` has 4 and 7 µs for a fault that takes one to be resolved.
const BY_SIGNAL: u64 = 3000;
const BY_HANDLER: u64 = 6000;
/// Cost of a rescue: the core's costs are in sixteenths of it.
const RESCUE: u64 = 16;

/// The initially assumed cost of a file's page, as in the core ([`Config::file_cost`](millpond_core::Config)).
const FILE_AT_FIRST: u32 = 256;

/// The measured cost of a refault, from the store and from files. See the [module](self).
#[derive(Debug)]
pub struct RefaultCost {
    store: Cost,
    file: Cost,
    rescue: Recent,
    /// Median of recent rescues, in nanoseconds.
    rescue_ns: Option<u64>,
    /// Time of the delivery, which the medians do not include.
    delivery_ns: u64,
}

/// The cost of the faults of one path.
#[derive(Debug)]
struct Cost {
    recent: Recent,
    /// Their recent median, in nanoseconds.
    ns: Option<u64>,
    /// Cost that the core was told last, in sixteenths of a rescue.
    told: u32,
}

/// The costs that the core should be told now, in sixteenths of a rescue; `None` if it need not be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Measured {
    /// Cost of a page in the store.
    pub store: Option<u32>,
    /// Cost of a page in a file.
    pub file: Option<u32>,
}

impl RefaultCost {
    /// Begins with `told` sixteenths of a rescue for a page in the store, which the core assumes.
    pub fn new(told: u32, delivery: Delivery) -> Self {
        Self {
            store: Cost::new(FaultPath::Load, told),
            file: Cost::new(FaultPath::Read, FILE_AT_FIRST),
            rescue: Recent::new(FaultPath::Rescue),
            rescue_ns: None,
            delivery_ns: match delivery {
                Delivery::InThread | Delivery::Direct => BY_SIGNAL,
                Delivery::Handler => BY_HANDLER,
            },
        }
    }

    /// Median time of recent loads from the store, in nanoseconds.
    pub fn load_ns(&self) -> Option<u64> {
        self.store.ns
    }

    /// The costs that the core should be told now.
    pub fn measure(&mut self, latency: &Latency) -> Measured {
        self.rescue_ns = self.rescue.median(latency, LEAST).or(self.rescue_ns);
        let (rescue, delivery) = (self.rescue_ns, self.delivery_ns);
        Measured {
            store: self.store.measure(latency, rescue, delivery),
            file: self.file.measure(latency, rescue, delivery),
        }
    }
}

impl Cost {
    fn new(path: FaultPath, told: u32) -> Self {
        Self {
            recent: Recent::new(path),
            ns: None,
            told,
        }
    }

    fn measure(&mut self, latency: &Latency, rescue: Option<u64>, delivery: u64) -> Option<u32> {
        self.ns = self.recent.median(latency, LEAST).or(self.ns);
        let (ns, rescue) = self.ns.zip(rescue)?;
        let cost = RESCUE * (ns + delivery) / (rescue + delivery);
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
    fn cost_is_reported_to_the_core_when_off_by_a_quarter() {
        let latency = Latency::new();
        let mut cost = RefaultCost::new(256, Delivery::InThread);
        record(&latency, FaultPath::Load, 7000, 100);
        record(&latency, FaultPath::Rescue, 2000, 10);
        assert_eq!(
            cost.measure(&latency),
            Measured::default(),
            "too few rescues to say"
        );
        record(&latency, FaultPath::Rescue, 2000, 60);
        let told = cost.measure(&latency).store.unwrap();
        assert!((31..=33).contains(&told), "{told}");
        // Loads are slightly more expensive: that is not worth reporting.
        record(&latency, FaultPath::Load, 8500, 100);
        assert_eq!(cost.measure(&latency), Measured::default());
        // The disk has become slow. Rescues count as before, though there were none.
        record(&latency, FaultPath::Load, 77_000, 64);
        let told = cost.measure(&latency).store.unwrap();
        assert!((252..=260).contains(&told), "{told}");
        record(&latency, FaultPath::Load, 80_000_000, 64);
        assert_eq!(cost.measure(&latency).store, Some(REFAULT_COST_MOST));
    }

    #[test]
    fn a_file_has_a_cost_of_its_own() {
        let latency = Latency::new();
        let mut cost = RefaultCost::new(20, Delivery::InThread);
        record(&latency, FaultPath::Load, 3000, 100);
        record(&latency, FaultPath::Rescue, 2000, 100);
        record(&latency, FaultPath::Read, 500_000, 100);
        let Measured { store, file } = cost.measure(&latency);
        assert_eq!(store, None, "19 is as good as 20");
        assert!(
            file.is_some_and(|file| (1590..=1640).contains(&file)),
            "{file:?}"
        );
        // The next files lie in memory.
        record(&latency, FaultPath::Read, 7000, 100);
        let file = cost.measure(&latency).file;
        assert!(
            file.is_some_and(|file| (31..=33).contains(&file)),
            "{file:?}"
        );
    }
}
