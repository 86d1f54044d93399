//! The first fill: which folios leave first when memory is full for the first time.
//!
//! Nothing is taken out while memory fills: a program that fits into it should not pay for being watched. So when the
//! first folio has to leave, nothing is known about any folio except when it came. The same holds after memory was
//! given up and has filled again. These folios are the *unproven*: they came while nothing left, and have not been seen
//! in use since. Normally the folio that came first leaves first, but here that is a guess, and it can be the worst
//! one:
//!
//! - A program that reads its input once and continues has finished with the pages that came first.
//! - If a program works on what it built first, or goes round in a loop a little longer than memory, the pages that
//!   came first are in use, and each page that leaves is needed next. For a mix of a loop and two other programs, in
//!   memory for three quarters of it, LRU had 61 misses beyond first touches; choosing victims by arrival had 1164, and
//!   by arrival from the other end 80. (For a sweep up and down it is the other way round: 525 and 2486.)
//!
//! # Which end
//! Both ends are tried, and the end that has cost less gives the victims. The ages of the unproven lie in a row, from
//! the old end, which `edge` has passed, to the young end; so the age in a returning page's shadow tells by which end
//! the page left. As long as
//!
//! ```text
//!     come back by the old end  ≤  come back by the young end + folios / 128
//! ```
//!
//! the old end gives all but one in 32 victims, as LRU would with the same knowledge. Beyond that the young end does,
//! until it has cost as much. So a wrong guess costs twice as much as the better end, and a 128th of memory. (When both
//! ends were equal from the beginning, a sort in memory for three fifths of it had an eighth more misses, as the pages
//! that it wrote last came back late.)
//!
//! A folio that is seen in use is no longer unproven. A folio that was not used in limbo while three eighths of memory
//! left is not in use, whichever end it came from: from then on all folios leave by age.
//!
//! Folios that leave by the leaf also leave by age: out of turn they would leave one by one.
//!
//! # What it costs
//! The cost is a mark in each list of limbo, on the youngest unproven folio, and no take-outs: limbo fills with the
//! credit that evictions earn, as always. Taking out 64 folios for each that leaves, until all have been tested, was
//! tried, and gained nothing.

/// The end of the unproven that gives the next victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The end that came first.
    Old,
    /// The end that came last.
    Young,
}

/// One victim in this many is from the end that is not preferred.
const TURNS: u32 = 32;
/// Memory counts as filled when more than one folio in this many came in while nothing left: fewer may be due to
/// chance.
const FILLED: u32 = 2;
/// One folio of memory in this many may come back by the old end before the young end is preferred.
const MARGIN: u32 = 128;
/// How many sixteenths of memory leave before the rest is considered idle.
const KNOWN: u32 = 6;

/// What one lruvec knows about its unproven folios. See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FirstFill {
    /// Folios that came in since one has left.
    arrived: u32,
    /// When the last folio left.
    left: u32,
    /// The unproven came after this time.
    first: u32,
    /// The unproven came no later than this time.
    full: u32,
    /// Folios that were in memory at `full`.
    folios: u32,
    /// The age of the last folio that left by the old end.
    edge: u32,
    /// How many unproven folios have left.
    gone: u32,
    /// How many unproven folios have come back, by the [`End`] at which they left.
    back: [u32; 2],
    /// Parts of a victim from the young end, in 1/[`TURNS`].
    turn: u32,
}

impl FirstFill {
    /// Notes that a folio has come in.
    pub(crate) fn arrived(&mut self) {
        self.arrived = self.arrived.saturating_add(1);
    }

    /// Notes that `folios` are in memory, and one must leave.
    pub(crate) fn pressed(&mut self, now: u32, folios: u32) {
        if self.arrived > folios / FILLED {
            *self = Self {
                left: now,
                first: self.left,
                full: now,
                folios,
                edge: self.left,
                back: self.back.map(|pages| pages / 2),
                ..Self::default()
            };
        }
    }

    /// Whether a folio of this age came in while nothing left, and was not seen in use since.
    pub(crate) fn has(&self, age: u32) -> bool {
        age.wrapping_sub(self.first).wrapping_sub(1) < self.full.wrapping_sub(self.first)
    }

    /// The end that gives the next victim.
    pub(crate) fn next(&self) -> End {
        match self.turn >= TURNS {
            true => End::Young,
            false => End::Old,
        }
    }

    /// Notes that a folio of this age has left, by the [next](Self::next) end if it is unproven.
    pub(crate) fn left(&mut self, age: u32, now: u32) {
        (self.left, self.arrived) = (now, 0);
        if !self.has(age) {
            return;
        }
        match self.next() {
            End::Old => self.edge = age,
            End::Young => self.turn -= TURNS,
        }
        self.gone += 1;
        let [old, young] = self.back;
        let known = u64::from(self.gone) * 16 > u64::from(self.folios) * u64::from(KNOWN);
        self.turn = match old <= young + self.folios / MARGIN {
            _ if known => 0,
            true => self.turn + 1,
            false => self.turn + TURNS - 1,
        };
    }

    /// Notes that a page has come back that was last seen in use at `age`.
    pub(crate) fn came_back(&mut self, age: u32) {
        if self.has(age) {
            let by_old = age.wrapping_sub(self.first) <= self.edge.wrapping_sub(self.first);
            self.back[if by_old { End::Old } else { End::Young } as usize] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLIOS: u32 = 1280;

    /// The state after memory has filled for the first time, in as many uses as there are folios.
    fn full() -> FirstFill {
        let mut first_fill = FirstFill::default();
        (0..FOLIOS).for_each(|_| first_fill.arrived());
        first_fill.pressed(FOLIOS, FOLIOS);
        first_fill
    }

    /// Makes `n` folios leave; those that leave by the end `bad` come back. Returns how many left by the young end.
    fn evict(first_fill: &mut FirstFill, n: u32, bad: Option<End>) -> u32 {
        let (mut old, mut young) = (first_fill.edge + 1, FOLIOS);
        let mut by_young = 0;
        for _ in 0..n {
            let end = first_fill.next();
            let age = match end {
                End::Old => old,
                End::Young => young,
            };
            match end {
                End::Old => old += 1,
                End::Young => young -= 1,
            }
            by_young += u32::from(end == End::Young);
            first_fill.left(age, FOLIOS);
            if bad == Some(end) {
                first_fill.came_back(age);
            }
        }
        by_young
    }

    #[test]
    fn oldest_folios_leave_first_while_that_costs_nothing() {
        assert_eq!(evict(&mut full(), 320, None), 320 / TURNS - 1);
        assert!(evict(&mut full(), 320, Some(End::Young)) < 320 / TURNS);
    }

    #[test]
    fn refaults_from_the_old_end_switch_to_the_young_end() {
        let by_young = evict(&mut full(), 320, Some(End::Old));
        let tried = 320 - by_young;
        assert!(tried < FOLIOS / MARGIN + 320 / TURNS + 4, "{tried}");
    }

    #[test]
    fn folios_unseen_for_long_are_evicted_by_age() {
        let mut first_fill = full();
        let most = FOLIOS * KNOWN / 16;
        assert!(evict(&mut first_fill, most, Some(End::Old)) > 0);
        let by_young = evict(&mut first_fill, 100, Some(End::Old));
        assert!(by_young <= 1, "{by_young}");
    }

    #[test]
    fn only_folios_that_came_before_any_eviction_are_unproven() {
        let mut first_fill = full();
        assert!(first_fill.has(1) && first_fill.has(FOLIOS));
        assert!(!first_fill.has(0) && !first_fill.has(FOLIOS + 1));
        // One folio leaves for each that comes: nothing has filled.
        for n in 1..=FOLIOS {
            first_fill.arrived();
            first_fill.pressed(FOLIOS + n, FOLIOS);
            first_fill.left(n, FOLIOS + n);
        }
        assert!(first_fill.has(FOLIOS) && !first_fill.has(FOLIOS + 1));
        // Memory is given up and fills again.
        (0..FOLIOS).for_each(|_| first_fill.arrived());
        first_fill.pressed(3 * FOLIOS, FOLIOS);
        assert!(!first_fill.has(2 * FOLIOS) && first_fill.has(2 * FOLIOS + 1));
    }
}
