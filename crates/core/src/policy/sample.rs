//! The sampled part of all folios.
//!
//! A sample of one folio in 64, chosen by hash, has a little more or less than a 64th of them. A miniature with seats
//! for exactly a 64th would miss where memory does not, whenever the program's set just fits. So the sample's actual
//! part is counted, among the folios that were touched for the first time. A page that is freed and touched again is
//! counted again, and a few such pages could produce any part, so the part is bounded by an eighth more or less than
//! its nominal value.

use crate::limits::{WATCHED_FOLIOS, WATCHED_LEAST, WATCHED_SHARE};

/// A sample's part of the folios is assumed to be off by at most one in this many.
const OFF_MOST: u64 = 8;
/// Folios of the sample that are counted in advance, so that the first few do not determine its part.
const GRANTED: u64 = 8;
/// Most first touches that are remembered.
const RECENT: u32 = 1 << 24;

/// The part of the folios that one sample has. See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    /// First touches: of sampled folios, then of all folios.
    first: [u32; 2],
}

impl Part {
    /// Whether any first touch was counted.
    pub(crate) fn is_known(self) -> bool {
        self.first[1] > 0
    }

    pub(crate) fn touched_first(&mut self, sampled: bool) {
        self.first[0] += u32::from(sampled);
        self.first[1] += 1;
        if self.first[1] >= RECENT {
            self.first = self.first.map(|count| count / 2);
        }
    }

    /// How many of `folios` folios are in the sample of one in two to the power of `bits`.
    pub(crate) fn of(self, folios: u32, bits: u32) -> u32 {
        let [sampled, all] = self.first.map(u64::from);
        let (sampled, all) = (sampled + GRANTED, all + (GRANTED << bits));
        let part = u64::from(folios) * sampled / all;
        let expected = u64::from(folios >> bits);
        let off = expected / OFF_MOST;
        part.clamp(expected - off, expected + off).max(1) as u32
    }
}

/// A number with all bits of `key` in its upper ones.
pub(crate) fn hash(key: u32) -> u32 {
    let mut hash = key.wrapping_mul(0x9E37_79B1);
    hash ^= hash >> 15;
    hash = hash.wrapping_mul(0x85EB_CA6B);
    hash ^ hash >> 13
}

/// Whether a folio whose first page's entry has this number is watched, in a budget of `limit` pages.
pub(crate) fn is_watched(key: u32, limit: u32) -> bool {
    is_sampled(key, watched_bits(limit))
}

/// One folio in two to the power of this is watched.
pub(crate) fn watched_bits(limit: u32) -> u32 {
    let want = (limit / WATCHED_SHARE).clamp(WATCHED_LEAST, WATCHED_FOLIOS);
    sample_bits(limit, want)
}

/// Whether a folio with this `key` is in the sample of one in two to the power of `bits`. A folio in a smaller sample
/// is also in the larger ones.
pub(crate) fn is_sampled(key: u32, bits: u32) -> bool {
    bits == 0 || hash(key) >> (32 - bits) == 0
}

/// The power of two of a sample of at most `want` folios in a memory of `limit` pages: one folio in two to the power of
/// this is sampled.
pub(crate) fn sample_bits(limit: u32, want: u32) -> u32 {
    limit.max(1).div_ceil(want).next_power_of_two().ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampled_part_stays_within_an_eighth_of_the_expected_value() {
        let part = |sampled: u32, all: u32| {
            let mut part = Part::default();
            (0..all).for_each(|n| part.touched_first(n < sampled));
            part.of(1600, 4)
        };
        assert_eq!(part(0, 0), 100, "nothing is known");
        assert_eq!(part(950, 16_000), 95);
        assert_eq!([part(0, 16_000), part(16_000, 16_000)], [88, 112]);
    }
}
