//! How long faults take: a histogram for each path that a fault can take.
//!
//! One figure for all faults hides what matters: a first touch of 4 µs, a load of 12 and a fault that had to reclaim
//! for 300 give a median that describes none of them. So each fault is counted under its most expensive part.
//!
//! Recording takes two atomic operations and no lock: a fault may come from anywhere, and a child of a fork finds no
//! lock taken. The buckets are those of HdrHistogram: equally many for each doubling of the time, so that the error is
//! relative. With 64 per doubling the error is 1.6 %, and each path takes 16 KiB of counters. A reader adds up the
//! counts that it finds; a fault recorded at the same time may or may not be included. A word for each path records
//! which doublings have counts, because the figures are published ten times a second: reading all counters of all paths
//! took 0.27 ms each time, and a third of a hundredth of a processor.

use crate::stats::{FaultLatencies, LatencySummary};
use millpond_board::{LATENCY_BUCKETS, latency_bucket};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The path that a fault took.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(usize)]
pub enum FaultPath {
    /// Nothing had to be done: the page had already come in, or another thread brings it in while the faulting thread
    /// sleeps.
    Spurious,
    /// Zeros were mapped.
    FirstTouch,
    /// A folio in limbo was mapped again.
    Rescue,
    /// Contents came from the store.
    Load,
    /// Contents came from a file.
    Read,
    /// The fault waited for another thread's work.
    Waited,
    /// The fault reclaimed.
    Reclaimed,
}

const PATHS: usize = 7;
const ALL: [FaultPath; PATHS] = [
    FaultPath::Spurious,
    FaultPath::FirstTouch,
    FaultPath::Rescue,
    FaultPath::Load,
    FaultPath::Read,
    FaultPath::Waited,
    FaultPath::Reclaimed,
];

/// Buckets for each doubling.
const STEPS: usize = 64;
const STEP_BITS: u32 = STEPS.ilog2();
/// Number of doublings. Longer times (17 s) are counted in the last bucket; the longest time is kept exactly.
const DOUBLINGS: usize = 29;
const BUCKETS: usize = STEPS * DOUBLINGS;
const _: () = assert!(DOUBLINGS <= u32::BITS as usize);

/// The histograms of all paths. See the [module](self).
#[derive(Debug)]
pub struct Latency {
    paths: [Histogram; PATHS],
}

#[derive(Debug)]
struct Histogram {
    buckets: Box<[AtomicU64]>,
    /// A bit for each doubling that has counts.
    used: AtomicU32,
    max: AtomicU64,
}

impl Latency {
    /// Makes empty histograms.
    pub(crate) fn new() -> Self {
        let empty = |_| Histogram {
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            used: AtomicU32::new(0),
            max: AtomicU64::new(0),
        };
        Self {
            paths: ALL.map(empty),
        }
    }

    /// Records a fault of this path that took `ns` nanoseconds.
    pub fn record(&self, path: FaultPath, ns: u64) {
        let one = &self.paths[path as usize];
        let at = bucket(ns);
        let doubling = 1 << (at / STEPS);
        if one.used.load(Relaxed) & doubling == 0 {
            one.used.fetch_or(doubling, Relaxed);
        }
        one.buckets[at].fetch_add(1, Relaxed);
        if one.max.load(Relaxed) < ns {
            one.max.fetch_max(ns, Relaxed);
        }
    }

    /// Forgets all faults.
    pub fn clear(&self) {
        for one in &self.paths {
            one.max.store(0, Relaxed);
            one.used.store(0, Relaxed);
            for count in &one.buckets {
                count.store(0, Relaxed);
            }
        }
    }

    /// The figures of all faults together.
    pub fn summary(&self) -> LatencySummary {
        summary(&self.paths)
    }

    /// The figures of each path.
    pub fn by_path(&self) -> FaultLatencies {
        let of = |path| summary(std::slice::from_ref(&self.paths[path as usize]));
        FaultLatencies {
            spurious: of(FaultPath::Spurious),
            first_touch: of(FaultPath::FirstTouch),
            rescue: of(FaultPath::Rescue),
            load: of(FaultPath::Load),
            read: of(FaultPath::Read),
            waited: of(FaultPath::Waited),
            reclaimed: of(FaultPath::Reclaimed),
        }
    }
}

/// The counts of one path since the last look.
#[derive(Debug)]
pub struct Recent {
    path: FaultPath,
    looked: Box<[u64]>,
    /// Room for the present counts: the looking thread may not allocate.
    now: Box<[u64]>,
}

impl Recent {
    /// Counts from the first fault on.
    pub fn new(path: FaultPath) -> Self {
        let [looked, now] = [(); 2].map(|()| {
            let mut counts: Box<[u64]> = vec![0; BUCKETS].into();
            // The counts are written now, so that their memory is taken now. Otherwise the first look, a tick later,
            // would take unplanned memory.
            std::hint::black_box(&mut counts).fill(0);
            counts
        });
        Self { path, looked, now }
    }

    /// The median of the faults since the last reported median, in nanoseconds, once there are `least` faults.
    pub fn median(&mut self, latency: &Latency, least: u64) -> Option<u64> {
        let buckets = &latency.paths[self.path as usize].buckets;
        for (now, bucket) in self.now.iter_mut().zip(buckets) {
            *now = bucket.load(Relaxed);
        }
        let since = |i: usize| self.now[i].saturating_sub(self.looked[i]);
        let count = (0..BUCKETS).map(since).sum();
        if count < least {
            return None;
        }
        let median = quantile(count, 50, 0..BUCKETS, since);
        std::mem::swap(&mut self.looked, &mut self.now);
        median
    }
}

fn summary(paths: &[Histogram]) -> LatencySummary {
    let in_bucket =
        |i: usize| -> u64 { paths.iter().map(|one| one.buckets[i].load(Relaxed)).sum() };
    let used = paths
        .iter()
        .fold(0, |all, one| all | one.used.load(Relaxed));
    let count = buckets(used).map(in_bucket).sum::<u64>();
    let max_ns = paths.iter().map(|one| one.max.load(Relaxed)).max();
    let max_ns = max_ns.unwrap_or(0);
    // Faults between counting and reading may have moved the rank beyond the last bucket.
    let quantile = |percent: u64| {
        quantile(count, percent, buckets(used), in_bucket).map_or(max_ns, |ns| ns.min(max_ns))
    };
    let (mut histogram, mut total_ns) = ([0; LATENCY_BUCKETS], 0u64);
    for i in buckets(used) {
        let faults = in_bucket(i);
        histogram[latency_bucket(last_of(i))] += faults;
        total_ns = total_ns.saturating_add(faults.saturating_mul(middle_of(i).min(max_ns)));
    }
    LatencySummary {
        count,
        p50_ns: quantile(50),
        p99_ns: quantile(99),
        max_ns,
        total_ns,
        histogram,
    }
}

/// The buckets of the doublings whose bits are set in `used`, in order.
fn buckets(used: u32) -> impl Iterator<Item = usize> {
    let doublings = (0..DOUBLINGS).filter(move |doubling| used >> doubling & 1 != 0);
    doublings.flat_map(|doubling| doubling * STEPS..(doubling + 1) * STEPS)
}

/// The time that `percent` of `count` faults, which are in `buckets`, did not exceed.
fn quantile(
    count: u64,
    percent: u64,
    mut buckets: impl Iterator<Item = usize>,
    in_bucket: impl Fn(usize) -> u64,
) -> Option<u64> {
    let rank = (count * percent).div_ceil(100).max(1);
    let mut seen = 0;
    let at = buckets.find(|&i| {
        seen += in_bucket(i);
        seen >= rank
    });
    at.map(last_of)
}

fn bucket(ns: u64) -> usize {
    let shift = (ns | STEPS as u64).ilog2() - STEP_BITS;
    let step = (ns >> shift) as usize;
    (shift as usize * STEPS + step).min(BUCKETS - 1)
}

/// The longest time that the bucket counts.
fn last_of(bucket: usize) -> u64 {
    let shift = (bucket / STEPS).saturating_sub(1);
    let step = (bucket - shift * STEPS) as u64;
    ((step + 1) << shift) - 1
}

/// The time in the middle of the bucket, from which all faults in it differ by at most a 128th.
fn middle_of(bucket: usize) -> u64 {
    let first = bucket
        .checked_sub(1)
        .map_or(0, |before| last_of(before) + 1);
    first + (last_of(bucket) - first) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_of_a_time_is_accurate_within_a_64th() {
        let mut last = 0;
        for ns in (0..5000).chain((1..1000).map(|n| n * 7919)) {
            let at = bucket(ns);
            assert!(at >= last || ns == 7919, "{ns}");
            last = at;
            let end = last_of(at);
            assert!(end >= ns && end - ns <= ns / 64, "{ns} is counted as {end}");
            assert_eq!(bucket(end), at);
            assert_eq!(bucket(end + 1), at + 1);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert!(last_of(BUCKETS - 1) > 17_000_000_000);
    }

    #[test]
    fn quantiles_are_per_path_and_the_summary_covers_all_paths() {
        let latency = Latency::new();
        for ns in 1..=1000 {
            latency.record(FaultPath::FirstTouch, ns * 10);
        }
        for _ in 0..1000 {
            latency.record(FaultPath::Load, 1_000_000);
        }
        latency.record(FaultPath::Reclaimed, 60_000_000_000);
        let by = latency.by_path();
        assert_eq!(by.first_touch.count, 1000);
        assert!((5000..5100).contains(&by.first_touch.p50_ns), "{by:?}");
        assert!((9900..10_000).contains(&by.first_touch.p99_ns), "{by:?}");
        assert_eq!(by.first_touch.max_ns, 10_000);
        assert_eq!((by.load.p50_ns, by.load.max_ns), (1_000_000, 1_000_000));
        assert_eq!(by.reclaimed.max_ns, 60_000_000_000);
        assert_eq!(by.waited, LatencySummary::default());
        let near = |is: u64, wanted: u64| is.abs_diff(wanted) <= wanted / 128;
        assert!(near(by.first_touch.total_ns, 5_005_000), "{by:?}");
        assert!(near(by.load.total_ns, 1_000_000_000), "{by:?}");
        // Times of 10 to 510 ns, 520 to 1,020, and so on in doublings.
        assert_eq!(by.first_touch.histogram[..5], [51, 51, 102, 205, 410]);
        assert_eq!(by.first_touch.histogram[5], 181);
        assert_eq!(by.load.histogram[latency_bucket(1_000_000)], 1000);
        assert_eq!(by.reclaimed.histogram[LATENCY_BUCKETS - 1], 1);
        let all = latency.summary();
        assert_eq!((all.count, all.max_ns), (2001, 60_000_000_000));
        assert_eq!(all.histogram.iter().sum::<u64>(), 2001);
        assert!((1_000_000..1_016_000).contains(&all.p50_ns), "{all:?}");
        latency.clear();
        assert_eq!(latency.summary(), LatencySummary::default());
    }

    #[test]
    fn a_recent_median_covers_only_faults_since_the_last_one() {
        let latency = Latency::new();
        let mut recent = Recent::new(FaultPath::Load);
        let mut after = |ns: u64, faults: u64| {
            for _ in 0..faults {
                latency.record(FaultPath::Load, ns);
            }
            recent.median(&latency, 10)
        };
        let near = |found: Option<u64>, ns: u64| found.is_some_and(|it| it.abs_diff(ns) <= ns / 64);
        assert_eq!(after(1000, 9), None);
        assert!(near(after(1000, 1), 1000));
        // These faults are fewer than in the past, and slower.
        assert_eq!(after(9000, 4), None);
        assert!(near(after(9000, 6), 9000));
        assert_eq!(after(1, 0), None);
    }
}
