//! The refault-distance curve: how many major faults more memory would have spared.
//!
//! A page that comes back was last used so long ago that memory had turned over since. How much more memory would have kept it
//! follows from two times: how long ago it was used, and how long ago the oldest of what is in memory was. What lies
//! between is how much further memory would have had to reach back, and with each miss memory reaches back by
//! one page more ([`pages_missing`](crate::workingset)). A histogram of that by powers of two costs an addition a refault, and
//! its sums are the curve.

/// Buckets of the histogram. Bucket 0 counts refaults that up to one page more would have spared, bucket *n* those that
/// took more than 2^(*n* − 1) pages and up to 2^*n*.
pub const BUCKETS: usize = 32;

/// Counts a refault that `missing` more pages would have spared.
pub(crate) fn count(histogram: &mut [u64; BUCKETS], missing: u32) {
    let bucket = u32::BITS - missing.saturating_sub(1).leading_zeros();
    histogram[(bucket as usize).min(BUCKETS - 1)] += 1;
}

/// How many of the refaults that were counted would not have happened with `more` pages more. Inside of a bucket they are
/// taken to be spread evenly.
///
/// ```
/// use millpond_core::curve;
///
/// let mut histogram = [0; curve::BUCKETS];
/// histogram[3] = 80; // spared by 5 to 8 pages
/// assert_eq!(curve::spared(&histogram, 4), 0);
/// assert_eq!(curve::spared(&histogram, 6), 40);
/// assert_eq!(curve::spared(&histogram, 8), 80);
/// ```
#[must_use]
pub fn spared(histogram: &[u64; BUCKETS], more: u64) -> u64 {
    let share = |(bucket, &count): (usize, &u64)| {
        let high = 1_u64 << bucket;
        let low = if bucket == 0 { 0 } else { high / 2 };
        let inside = more.clamp(low, high) - low;
        (u128::from(count) * u128::from(inside) / u128::from(high - low)) as u64
    };
    histogram.iter().enumerate().map(share).sum()
}
