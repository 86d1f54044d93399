//! How long faults take, as a histogram.

use crate::driver::lock::{Rank, Ranked};
use crate::stats::LatencySummary;
use hdrhistogram::Histogram;

/// From 128 ns to a minute, two significant digits; recording never allocates.
#[derive(Debug)]
pub(crate) struct Latency {
    histogram: Ranked<Histogram<u64>>,
}

const LOWEST_NS: u64 = 128;
const HIGHEST_NS: u64 = 60_000_000_000;

impl Latency {
    pub(crate) fn new() -> Self {
        let histogram =
            Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, 2).expect("the bounds are in order");
        Self {
            histogram: Ranked::new(Rank::Figures, histogram),
        }
    }

    pub(crate) fn record(&self, ns: u64) {
        self.histogram.lock().saturating_record(ns);
    }

    pub(crate) fn clear(&self) {
        self.histogram.lock().clear();
    }

    pub(crate) fn summary(&self) -> LatencySummary {
        let histogram = self.histogram.lock();
        LatencySummary {
            count: histogram.len(),
            p50_ns: histogram.value_at_quantile(0.5),
            p99_ns: histogram.value_at_quantile(0.99),
            max_ns: histogram.max(),
        }
    }
}
