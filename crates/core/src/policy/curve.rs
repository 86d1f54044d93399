//! The curve of refaults against memory tells how many major faults more memory would have saved.
//!
//! # Why not a histogram of distances
//! A returning page was last used so long ago that memory has turned over since. The extra memory that would have kept
//! it seems to follow from two times: how long ago the page was used, and how long ago the oldest page in memory was
//! used. A histogram of that would be the curve for all sizes. It is not, for two reasons. How far memory must reach
//! back to hold a page depends on how many *different* pages came in the meantime, which a time does not tell. And more
//! memory does not only keep older pages: under the rule of reuse a loop twice as long as memory misses once for each
//! page that does not fit, while all of its pages are equally old when they come back. Compared with replays of fifteen
//! traces with more memory, such a histogram was off by more than a tenth of the major faults in 96 of 162 predictions,
//! and by up to six tenths. With distances among the pages that had left instead of times, which the core does not
//! have, it would have been off in 54.
//!
//! # What is done instead
//! The question is put to caches in miniature, like the question of which rule is better (`duel.rs`): a cache of 1/64
//! of the seats under 1/64 of the addresses, chosen by hash, misses as often as the whole, and
//!
//! ```text
//!     misses in a miniature of 5/4 of memory
//!     -------------------------------------- = the share of major faults that is left with a quarter more
//!         misses in a miniature of memory
//! ```
//!
//! Chance and the sample's peculiarities have the same effect above and below the line. So there is a miniature of
//! memory as it is and one of each size in [`MORE`]. Each has both rules and follows the one that misses less, as
//! memory does. The rule of reuse must also prove itself in reality: if memory has found that it does not keep its
//! promise, a larger memory would not have followed it either. A miss counts if the page was in memory before: the
//! first touch of a page misses in any size.
//!
//! # How many seats
//! Memory has seats for folios, and a miniature has seats for the sampled part (`sample.rs`) of them. (Counting the
//! sampled folios in memory would be wrong: watched folios are seen in use more often than others, and stay.)
//!
//! Folios that come in with a requested one count as used, since they are expected to be. If a window of eight were
//! only one use of its first page, seven eighths of memory would hold folios unknown to the miniature.
//!
//! # What it costs
//! 128 to 256 of the folios for which memory has room are sampled. (With four times as many, 134 of 162 predictions
//! came within a tenth; with this sample it was 137 then, and is 146 now.) A reference to one of these goes through
//! five miniatures. Each has up to four seats of 24 bytes for each folio that it has room for, so all of them take 270
//! KB: those of the root group from the beginning, so that a budget is not reduced later, those of other groups as
//! folios come. (If the budget is for the whole process, the size of the tables is checked as it grows, and all of them
//! grow as folios come: a process that ends at once saves 60 page faults.) The budget may change: the sample is chosen
//! again when it would be twice as large as it should be, or less than a quarter. The miniatures then begin empty, and
//! their misses are not counted until they have filled, or until so many uses that a set which never fills them has
//! been seen. (When only uses were counted, a program was without a curve for ten seconds after compressed RAM had
//! taken a third of its frames, and the curve decides whether compressed RAM gets more.)
//!
//! # When it is wrong
//! The curve promises the result of the better of two rules that see each use. Memory does not see all uses: it falls
//! behind if it holds nearly all the pages in use, because then few faults show which these are. In that case it
//! achieves less than the curve promises.

use crate::ids::Rule;
use crate::limits::{CURVE_FOLIOS, WATCHED_LEAST};
use crate::policy::duel::Duel;
use crate::policy::sample::{Part, is_sampled, sample_bits};

/// The simulated sizes of memory, as quarters of the present size added to it. The first is the present size.
pub const MORE: [u32; SIZES] = [0, 1, 2, 4, 8];
/// A sample is kept even if it is smaller by up to this many powers of two than a new choice would be: a new one tells
/// nothing until its miniatures have filled.
const COARSER: u32 = 2;
/// Number of simulated sizes of memory.
pub const SIZES: usize = 5;

// Every sampled folio is watched.
const _: () = assert!(CURVE_FOLIOS <= WATCHED_LEAST);

/// A cache that simulates both rules, and the rule that it follows.
#[derive(Debug)]
struct Miniature {
    duel: Duel,
    score: i32,
    rule: Rule,
}

impl Miniature {
    fn new(more: u32) -> Self {
        Self {
            duel: Duel::new(seats(CURVE_FOLIOS + CURVE_FOLIOS / 4, more)),
            score: 0,
            rule: Rule::Recency,
        }
    }

    fn clear(&mut self) {
        self.duel.clear();
        (self.score, self.rule) = (0, Rule::Recency);
    }

    /// Whether a use of `key` misses. It is not known when the tables are full. The rule of reuse is only followed
    /// while it is `trusted`.
    fn misses(&mut self, key: u32, room: u32, trusted: bool) -> Option<bool> {
        let would = self.duel.reference(key, room)?;
        let missed = would.under(self.rule);
        self.score = would.score(self.score, room);
        let ahead = Duel::ahead(room);
        if trusted && self.score >= ahead {
            self.rule = Rule::Reuse;
        } else if !trusted || self.score <= -ahead {
            self.rule = Rule::Recency;
        }
        Some(missed)
    }
}

/// The misses that one lruvec would have in memory of other sizes. See the [module](self).
#[derive(Debug)]
pub(crate) struct Curve {
    miniatures: [Miniature; SIZES],
    /// One folio in two to the power of this is sampled.
    bits: u32,
    part: Part,
    /// References until misses count.
    warming: u32,
}

/// An observed use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// The use of a folio that was never used before.
    First,
    /// The use of a folio that is in memory, or has been.
    Again,
}

impl Curve {
    pub(crate) fn new() -> Self {
        Self {
            miniatures: MORE.map(Miniature::new),
            bits: 0,
            part: Part::default(),
            warming: 0,
        }
    }

    /// Makes all seats now, so that the tables take all the memory that they will ever take.
    pub(crate) fn fill(&mut self) {
        self.miniatures.iter_mut().for_each(|one| one.duel.fill());
    }

    /// Notes that a folio was seen in use, in memory of `limit` pages. Returns whether the folio is in the sample, so
    /// that [`Self::used`] must be called.
    pub(crate) fn follows(&mut self, key: u32, what: Use, limit: u32) -> bool {
        self.fit_sample(limit);
        let sampled = is_sampled(key, self.bits);
        if what == Use::First {
            self.part.touched_first(sampled);
        }
        sampled
    }

    /// Notes that a folio of the sample was seen in use; `folios` are in memory, including this one. Memory itself may
    /// follow the rule of reuse if that is `trusted`. Returns which miniatures missed, if the folio was in memory
    /// before and the miniatures have filled.
    pub(crate) fn used(
        &mut self,
        key: u32,
        what: Use,
        folios: u32,
        trusted: bool,
    ) -> Option<[bool; SIZES]> {
        let room = self.seats_for(folios);
        let mut missed = [false; SIZES];
        for ((missed, miniature), more) in missed.iter_mut().zip(&mut self.miniatures).zip(MORE) {
            *missed = miniature
                .misses(key, seats(room, more), trusted)
                .unwrap_or(false);
        }
        if self.warming > 0 {
            let full = |(one, more): (&Miniature, u32)| one.duel.is_full(seats(room, more));
            let filled = self.miniatures.iter().zip(MORE).all(full);
            self.warming = if filled { 0 } else { self.warming - 1 };
            return None;
        }
        (what == Use::Again).then_some(missed)
    }

    pub(crate) fn is_bounded(&self) -> bool {
        self.miniatures.iter().all(|one| one.duel.is_bounded())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.miniatures.iter().map(|one| one.duel.bytes()).sum()
    }

    /// Chooses the sample again if it would be far too small or too large.
    fn fit_sample(&mut self, limit: u32) {
        let fitting = sample_bits(limit, CURVE_FOLIOS);
        if (fitting..=fitting + COARSER).contains(&self.bits) {
            return;
        }
        self.bits = fitting;
        if !self.part.is_known() {
            return;
        }
        self.miniatures.iter_mut().for_each(Miniature::clear);
        self.part = Part::default();
        self.warming = 4 * seats(CURVE_FOLIOS, MORE[SIZES - 1]);
    }

    /// How many of `folios` folios are in the sample.
    fn seats_for(&self, folios: u32) -> u32 {
        self.part.of(folios, self.bits)
    }
}

/// `room` seats and `more` quarters of them.
fn seats(room: u32, more: u32) -> u32 {
    room + room * more / 4
}

/// The share of major faults, 0 to 1, that would not have happened with `more` pages beyond the `limit` that there was;
/// `None` while none of the sampled faults has happened. `counts` are
/// [`VmStat::refaults_at`](crate::VmStat::refaults_at). Between two sizes the share is assumed to rise linearly. Beyond
/// the largest size it is the share at that size, and may really be higher.
///
/// ```
/// use millpond_core::policy::curve;
///
/// // 80 refaults in 4000 pages, 40 in 5000, none in 8000.
/// let counts = [80, 40, 20, 0, 0];
/// assert_eq!(curve::avoided(&counts, 4000, 1000), Some(0.5));
/// assert_eq!(curve::avoided(&counts, 4000, 500), Some(0.25));
/// assert_eq!(curve::avoided(&counts, 4000, 4000), Some(1.0));
/// assert_eq!(curve::avoided(&[0; 5], 4000, 4000), None);
/// ```
#[must_use]
pub fn avoided(counts: &[u64; SIZES], limit: u64, more: u64) -> Option<f64> {
    if counts[0] == 0 {
        return None;
    }
    let share = |n: usize| 1.0 - counts[n] as f64 / counts[0] as f64;
    let (mut last_at, mut last) = (0.0, 0.0_f64);
    for (n, quarters) in MORE.into_iter().enumerate().skip(1) {
        let at = limit as f64 * f64::from(quarters) / 4.0;
        // More memory may be worse, by chance or by a rule of replacement; nobody has to use it.
        let next = share(n).max(last);
        if (more as f64) < at {
            return Some(last + (next - last) * (more as f64 - last_at) / (at - last_at));
        }
        (last_at, last) = (at, next);
    }
    Some(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::sample::hash;

    fn used(
        curve: &mut Curve,
        key: u32,
        what: Use,
        folios: u32,
        limit: u32,
    ) -> Option<[bool; SIZES]> {
        let follows = curve.follows(key, what, limit);
        follows.then(|| curve.used(key, what, folios, true))?
    }

    /// The counts for uses of `keys` in memory of `room` folios, as the core would have them: a key that was seen
    /// before is used again.
    fn counts(keys: impl Iterator<Item = u32>, room: u32, limit: u32) -> [u64; SIZES] {
        let mut curve = Curve::new();
        let mut seen = std::collections::HashSet::new();
        let mut counts = [0; SIZES];
        for key in keys {
            let what = match seen.insert(key) {
                true => Use::First,
                false => Use::Again,
            };
            let folios = room.min(seen.len() as u32);
            if let Some(missed) = used(&mut curve, key, what, folios, limit) {
                for (count, missed) in counts.iter_mut().zip(missed) {
                    *count += u64::from(missed);
                }
            }
        }
        counts
    }

    #[test]
    fn misses_of_a_loop_fall_by_the_part_that_fits() {
        let counts = counts((0..100_000).map(|n| n % 400), 200, 200);
        for (more, want) in [(25, 0.125), (50, 0.25), (100, 0.5), (200, 1.0)] {
            let share = avoided(&counts, 200, more).unwrap();
            assert!((share - want).abs() < 0.06, "{more} more: {share}");
        }
    }

    /// A sample of one in 32 tells the share of all misses, for random use of 64,000 pages with a quarter of them in
    /// memory.
    #[test]
    fn a_sample_predicts_the_share_of_all_misses() {
        let keys = (0..600_000_u32).map(|n| hash(n) % 64_000);
        let counts = counts(keys, 16_000, 16_000);
        assert!(counts[0] > 1000 && counts[0] < 100_000, "{counts:?}");
        for (more, want) in [(4000, 1.0 / 12.0), (8000, 1.0 / 6.0), (16_000, 1.0 / 3.0)] {
            let share = avoided(&counts, 16_000, more).unwrap();
            assert!((share - want).abs() < 0.05, "{more} more: {share}");
        }
    }

    /// If few pages come and go, all of them may be sampled, or none.
    #[test]
    fn freeing_and_touching_moves_the_seats_by_at_most_an_eighth() {
        for touched_again in [true, false] {
            let mut curve = Curve::new();
            curve.fit_sample(1 << 16);
            let bits = curve.bits;
            assert!(bits > 0);
            let key = (0..).find(|&key| is_sampled(key, bits) == touched_again);
            for _ in 0..100_000 {
                used(&mut curve, key.unwrap(), Use::First, 50_000, 1 << 16);
            }
            let (seats, expected) = (curve.seats_for(50_000), 50_000 >> bits);
            assert!(seats.abs_diff(expected) <= expected / 8, "{seats}");
        }
    }

    #[test]
    fn the_sample_follows_the_limit_and_counts_nothing_until_it_has_filled() {
        let mut curve = Curve::new();
        let mut counted = 0;
        let mut run = |curve: &mut Curve, folios: u32, limit: u32| {
            let before = counted;
            for n in 0..100_000_u32 {
                let what = match n < 4096 {
                    true => Use::First,
                    false => Use::Again,
                };
                counted += u32::from(used(curve, n % 4096, what, folios, limit).is_some());
            }
            counted - before
        };
        assert!(run(&mut curve, 1000, 4096) > 1000);
        let bits = curve.bits;
        // With a little less memory, or a quarter of it, the sample stays.
        for limit in [3000, 1024] {
            assert!(run(&mut curve, 1000, limit) > 1000 && curve.bits == bits);
        }
        let all = run(&mut curve, 1 << 17, 1 << 18);
        assert!(curve.bits > bits && all == 0, "{all} of the new sample");
        // Miniatures with so few seats fill soon, and then each use counts.
        let all = run(&mut curve, 1000, 1 << 18);
        assert!(all > 100, "{all} of a sample that is full");
    }

    #[test]
    fn seats_stay_within_their_tables_for_every_limit() {
        for limit in (8..32).map(|n| 1_u32 << n).flat_map(|n| [n - 1, n, n + 1]) {
            let bits = sample_bits(limit, CURVE_FOLIOS);
            let sampled = limit >> bits;
            assert!(sampled <= CURVE_FOLIOS, "{sampled} of {limit}");
            assert!(
                bits == 0 || sampled >= CURVE_FOLIOS / 2,
                "{sampled} of {limit}"
            );
        }
    }
}
