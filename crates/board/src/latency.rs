//! How many faults took how long, for each way that faults go.
//!
//! The median and the 99th percentile do not show that there are two kinds of loads, from compressed RAM and from a
//! device. A histogram does, and those of several processes can be added. It has a bucket for each doubling of the
//! time, so it takes only a few words on a board, and reading it ten times a second has no measurable cost.

/// Number of buckets of a histogram.
pub const LATENCY_BUCKETS: usize = 24;

/// Number of bits in the longest time of the first bucket.
const FIRST_BITS: u32 = 9;

/// How many faults took how long: see [`latency_bucket`].
pub type Histogram = [u64; LATENCY_BUCKETS];

/// The way that a fault went: the most expensive step in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum FaultWay {
    /// Zeros were mapped.
    FirstTouch,
    /// A page in limbo was mapped again.
    Rescue,
    /// Contents came from the store.
    Load,
    /// The fault waited for another thread's work.
    Waited,
    /// The fault itself reclaimed memory.
    Reclaimed,
}

impl FaultWay {
    /// All ways, from the cheapest to the most expensive.
    pub const ALL: [Self; 5] = [
        Self::FirstTouch,
        Self::Rescue,
        Self::Load,
        Self::Waited,
        Self::Reclaimed,
    ];
}

/// The number of the bucket in which a fault of `ns` nanoseconds is counted. The first bucket has times below 512 ns,
/// each further one has times up to twice as long, and the last one has all times from 2.1 s on.
///
/// ```
/// use millpond_board::{LATENCY_BUCKETS, latency_bucket, latency_end_ns};
///
/// assert_eq!([0, 511, 512, 1023, 1024].map(latency_bucket), [0, 0, 1, 1, 2]);
/// assert_eq!(latency_bucket(u64::MAX), LATENCY_BUCKETS - 1);
/// assert_eq!(latency_end_ns(latency_bucket(700)), 1024);
/// ```
#[must_use]
pub const fn latency_bucket(ns: u64) -> usize {
    let bits = u64::BITS - ns.leading_zeros();
    let bucket = bits.saturating_sub(FIRST_BITS) as usize;
    if bucket < LATENCY_BUCKETS {
        bucket
    } else {
        LATENCY_BUCKETS - 1
    }
}

/// The upper bound of the times in this bucket, exclusive, in nanoseconds; the last bucket also has longer ones.
#[must_use]
pub const fn latency_end_ns(bucket: usize) -> u64 {
    1 << (FIRST_BITS as usize + bucket)
}
