//! Workingset detection: finding out, from faults alone, which pages memory is best spent on.
//!
//! ```text
//!             mapped: use is not seen      limbo: use is seen
//!           +---------------------------+------------------------+
//!  active   | young                     |               old      |---> demoted, or evicted by age
//!           +---------------------------+------------------------+
//!  inactive | young                     |               old      |---> evicted
//!           +---------------------------+------------------------+
//!     ^           ^                              |                        |
//!     |           +---------- rescue ------------+                        v
//!     +---- refault, if it is near <------------------------- shadow in the page's entry
//! ```
//!
//! # What can be known
//! User space cannot read accessed bits. A use of a mapped page is not seen at all; a use of a page in limbo is (a
//! *rescue*, a small fault), and so is the use of a page that has left memory (a *refault*). So a page's history is the
//! list of its faults. Each lruvec has a clock that counts these. The *age* of a folio is the time when it was last
//! seen in use. A mapped folio may have been used later than its age says, at any time while it was mapped; a folio in
//! limbo may not. So the length of limbo determines how much is known, and the length of the mapped part how many uses
//! cost nothing.
//!
//! # Refault distance
//! When a page comes back, we know the time since it was last seen in use: `R = now − age in its shadow`, its *reuse
//! distance*. Memory should hold the pages with the shortest distances. The reuse distances of the pages in memory are
//! not known, but bounded from below: that of a folio that has been idle for a time `I` is at least `I`. The active
//! list holds folios that have proved themselves; its oldest member in limbo was taken out at a time `T`, and has not
//! been used since. So
//!
//! ```text
//!     R < now − T
//! ```
//!
//! means that the returning page is used more often than one that is kept in its place: the page is *activated*. This
//! compares times with times, so it needs no assumption about how many of the faults in between were for different
//! pages.
//!
//! With its age in place of `T`, the oldest active folio would be charged for the time in which its uses were not seen.
//! If memory holds nine tenths of a loop, that is most of the time: the folios in memory are used in each round, but
//! not seen, and each returning page seems to be used more often. With ages, a loop of 3000 pages in memory for 2700
//! missed in 88 of 100 accesses; with `T` it misses in 15, and LIRS, which sees every use, misses in 13. Mapped folios
//! get the benefit of the doubt: if no active folio is in limbo, no returning page is near. (Linux instead counts
//! evictions and activations since the page left, and compares with the size of the active list: an estimate of the
//! same inequality, as Linux has no ages of resident pages.) Limbo's role follows from this: limbo is a part of the
//! list it belongs to, the part where ages are exact. A rescue of an inactive folio is treated like a refault. The
//! folio stayed in memory and so certainly was used in less time than memory turns over, but it deserves the place of
//! the oldest active folio only if it was used in less time than that one has been idle. A rescue of an active folio
//! renews its age.
//!
//! A wrongly activated page takes the place of one that was used less recently, and falls back when it grows old in its
//! turn: the cost is one major fault. A page that is wrongly not activated refaults once more, with a younger shadow.
//!
//! # Which list gives the next victim
//! There are two rules, over the same lists:
//!
//! - *recency*: the older of the two old ends gives the victim. As the ends are ordered by age, this is LRU by observed
//!   uses over all folios, whatever list they are on.
//! - *reuse*: the inactive list's old end gives the victim, and the inactive list has a thirty-second of all folios.
//!   With the inequality above this is LIRS. One-touch scans and loops longer than memory do not reach the active list.
//!
//! Neither is right for all programs: in a loop twice as long as memory, LRU hits nothing and LIRS half; for a growing
//! and shrinking stack LIRS misses nearly twice as often. No threshold tells which program is which, so both rules are
//! tried in miniature (`duel.rs`), on a sample of the folios. The score is the difference of their misses, bounded to a
//! quarter of the seats, so that old merits are forgotten. The rule in force changes when the other is ahead by a
//! twentieth of the seats: a smaller lead would change rules by chance, a larger one would miss short phases. As
//! switching costs nothing by itself (no folio changes lists), a wrong switch costs only the misses until it is undone.
//!
//! When a rule comes into force, its miniature holds the folios that the rule has kept, but real memory holds those
//! that the other rule has left. So the rule of reuse must also prove itself in reality: real misses of watched folios
//! beyond those that LRU would have had (from the first miss under reuse until LRU, back in force, has missed as often
//! as there are seats) are charged to an account that is credited with 2 % of LRU's misses. While the account is
//! overdrawn, the rule of reuse is not in force. This bounds the cost of a wrong guess by 2 % and one account. The
//! cause of a failure may be a phase that is long over, and 2 % pay slowly. So while the miniatures predict that reuse
//! would be better, a sixteenth of the misses that it would have spared is also credited: a large promise that is kept
//! deserves more attempts than a small one.
//!
//! # Watched folios
//! A folio is watched if its place hashes to a certain value: one in 32, but at least a thousand and at most four
//! thousand. If memory has room for less than a thousand, all of them are watched. Watched folios are taken out once a
//! tenth of them is mapped, whatever happens to the others, so that the miniatures see nearly all of their use. If all
//! memory is used at random and half of it is resident, one more access in 64 is such a rescue.
//!
//! The miniatures have as many seats as there are watched folios in memory on average. The actual number goes up and
//! down by chance with each one that leaves, and LIRS cannot tolerate that: each lost seat evicts the folio that has
//! been idle for longest, which in a loop is the one needed next, and each new seat takes in another. A loop four times
//! as long as memory missed in each access whenever not all folios were watched, as the miniature of reuse lost in each
//! round all that it had kept. Nor may the average be far from the sample's part (`sample.rs`) of the folios: if
//! nothing pays for testing the watched folios, they leave, and compared with an LRU of the few remaining seats the
//! rule of reuse seemed to cost nothing while all other folios missed.
//!
//! # Streams
//! The folios that a stream longer than memory leaves behind are treated as older than all others, and the rules do not
//! count them: see `drop_behind.rs`.
//!
//! # When memory fills
//! A folio that came while nothing left was never tested, and may leave by either end: see `first_fill.rs`.
//!
//! # How long limbo is
//! Limbo is as long as its rescues justify, between a minimum length and nine tenths of memory, and never costs more
//! than a part of the cost of major faults. `limbo_share.rs` has the inequalities.
//!
//! # Shadows
//! A page that leaves memory leaves its age, its list, node and group in the spare bits of its entry. `shadow.rs`
//! explains how they are packed, and to which group a shadow belongs after regions and groups have moved.

use crate::ids::Rule;
use crate::limits::WATCHED_MOST;
use crate::policy::curve::Curve;
use crate::policy::duel::Duel;
use crate::policy::first_fill::FirstFill;
use crate::policy::limbo_share::LimboShare;
use crate::policy::sample::{Part, watched_bits};
use crate::policy::streams::Streams;

/// The allowance for each miss of LRU, in the unit of real misses, 1/1024.
const ALLOWED: i32 = 20;
const UNIT: i32 = 1024;
/// The allowance for each miss that the rule of reuse promises to spare while it is not in force, in the same unit.
const PROMISED: i32 = 64;
/// The assumed time since a folio's last use when advice says that it is not needed.
const COLDEST: u32 = 1 << 30;
/// Number of uses that count as recent.
const RECENT: u32 = 1 << 16;

/// The seats of the miniatures are an average over this many uses per seat.
const AVERAGED: u64 = 2;
/// The average is kept in parts of a seat: 2^20 of them are one.
const FINE: u32 = 20;
/// The average is off the present number by at most one part in this many.
const OFF_NOW: u64 = 16;
/// The average is off the sample's part of memory by at most one part in this many, or by [`OFF_FEW`].
const OFF_PART: u32 = 4;
/// Least number of seats by which the average may be off the sample's part. With few and large folios, smaller
/// differences are due to chance.
const OFF_FEW: u32 = 16;

/// The knowledge and the decisions of one lruvec.
#[derive(Debug)]
pub(crate) struct Workingset {
    /// Observed uses.
    clock: u32,
    /// Recent numbers: of observed uses, and of pages that came in.
    recent: [u32; 2],
    duel: Duel,
    /// One folio in two to the power of this is watched.
    bits: u32,
    /// The part of the folios that is watched.
    part: Part,
    /// Watched folios in memory, on average, in parts of one.
    seats: u64,
    pub(crate) curve: Curve,
    rule: Rule,
    /// Misses of recency less misses of reuse, bounded.
    score: i32,
    /// Real misses beyond those of recency, less what is allowed, in 1/[`UNIT`].
    regret: i32,
    /// Real misses that are still attributed to the past rule of reuse.
    recovering: i32,
    pub(crate) limbo: LimboShare,
    pub(crate) streams: Streams,
    pub(crate) first_fill: FirstFill,
}

impl Workingset {
    pub(crate) fn new() -> Self {
        Self {
            clock: 0,
            recent: [0; 2],
            duel: Duel::new(WATCHED_MOST).with_arrival(),
            bits: 0,
            part: Part::default(),
            seats: 0,
            curve: Curve::new(),
            rule: Rule::Recency,
            score: 0,
            regret: 0,
            recovering: 0,
            limbo: LimboShare::default(),
            streams: Streams::default(),
            first_fill: FirstFill::default(),
        }
    }

    pub(crate) fn now(&self) -> u32 {
        self.clock
    }

    /// How much time has passed since `age`.
    pub(crate) fn since(&self, age: u32) -> u32 {
        self.clock.wrapping_sub(age)
    }

    /// An age that is older than any folio's.
    pub(crate) fn coldest(&self) -> u32 {
        self.clock.wrapping_sub(COLDEST)
    }

    /// Whether an age was invented by [`Self::coldest`].
    pub(crate) fn is_coldest(&self, age: u32) -> bool {
        self.since(age) >= COLDEST
    }

    pub(crate) fn rule(&self) -> Rule {
        self.rule
    }

    /// Whether the rule of reuse has kept what it promised.
    pub(crate) fn trusts_reuse(&self) -> bool {
        self.regret <= 0
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.duel.bytes() + self.curve.bytes()
    }

    /// Counts an observed use, and returns its time.
    pub(crate) fn tick(&mut self) -> u32 {
        self.clock = self.clock.wrapping_add(1);
        self.recent[0] += 1;
        if self.recent[0] >= RECENT {
            self.recent = self.recent.map(|count| count / 2);
        }
        self.clock
    }

    /// Notes that `pages` pages are on their way in.
    pub(crate) fn came_in(&mut self, pages: u32) {
        self.recent[1] = self.recent[1].saturating_add(pages);
    }

    /// How many pages come in during `uses` uses, judging by recent ones.
    pub(crate) fn pages_in(&self, uses: u32) -> u64 {
        let [seen, pages] = self.recent.map(u64::from);
        u64::from(uses) * pages / seen.max(1)
    }

    /// Notes the first touch of a folio.
    pub(crate) fn touched_first(&mut self, watched: bool, limit: u32) {
        self.fit_part(limit);
        self.part.touched_first(watched);
    }

    /// Chooses the watched folios again when the budget has changed by much.
    fn fit_part(&mut self, limit: u32) {
        let bits = watched_bits(limit);
        if bits != self.bits {
            (self.bits, self.part) = (bits, Part::default());
        }
    }

    /// How many seats the miniatures have. A watched folio was seen in use just now, and with it `room` of `folios` in
    /// memory are watched.
    pub(crate) fn seats(&mut self, room: u32, folios: u32, limit: u32) -> u32 {
        self.fit_part(limit);
        if self.bits == 0 {
            return room;
        }
        let now = u64::from(room) << FINE;
        let uses = AVERAGED * u64::from(room.max(1));
        let off = now / OFF_NOW;
        let average = self.seats - self.seats / uses + now / uses;
        self.seats = average.clamp(now - off, now + off);
        let part = self.part.of(folios, self.bits);
        let off = (part / OFF_PART).max(OFF_FEW);
        let seats = (self.seats + (1 << (FINE - 1))) >> FINE;
        (seats as u32).clamp(part.saturating_sub(off), part + off)
    }

    /// Notes that a watched folio was seen in use. `room` is how many of them are in memory, this one included.
    pub(crate) fn watched_use(&mut self, key: u32, room: u32, missed: bool) {
        let Some(would) = self.duel.reference(key, room) else {
            return;
        };
        let seats = room as i32;
        let recency = would.recency;
        self.limbo.look(would, self.rule, room, missed);
        let (bound, ahead) = (Duel::bound(room), Duel::ahead(room));
        self.score = would.score(self.score, room);
        if self.rule == Rule::Reuse || self.recovering > 0 {
            self.regret += UNIT * (i32::from(missed) - i32::from(recency));
        }
        let promised = match self.rule {
            Rule::Recency if self.score >= ahead => i32::from(recency) - i32::from(would.reuse),
            _ => 0,
        };
        let paid = ALLOWED * i32::from(recency) + PROMISED * promised;
        self.regret = (self.regret - paid).max(-bound * UNIT);
        self.recovering = match self.rule {
            Rule::Reuse => seats,
            Rule::Recency => self.recovering - i32::from(missed),
        };
        match self.rule {
            Rule::Recency if self.score >= ahead && self.regret <= 0 => self.rule = Rule::Reuse,
            Rule::Reuse if self.regret > 0 => {
                self.rule = Rule::Recency;
                self.score = self.score.min(-ahead);
            }
            Rule::Reuse if self.score <= -ahead => self.rule = Rule::Recency,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{LIMBO_MOST, WATCHED_LEAST};
    use crate::tables::folio::folio_of_age;

    /// A rescued folio is rescued again as often as others are, but by arrival half of the hits would be lost.
    #[test]
    fn limbo_is_long_where_recency_predicts_reuse() {
        let share = |key: &dyn Fn(u32) -> u32| {
            let (cost, least, room) = (256, 32, 1000);
            let mut workingset = Workingset::new();
            for n in 0..40_000 {
                workingset.watched_use(key(n), room, n % 2 == 0);
                workingset
                    .limbo
                    .left_limbo(&folio_of_age(0, false), n % 2 == 0, room, cost, least);
            }
            workingset.limbo.of_part(false, cost, least)
        };
        let zigzag = |n: u32| match (n / 1500).is_multiple_of(2) {
            true => n % 1500,
            false => 1499 - n % 1500,
        };
        assert_eq!(share(&zigzag), LIMBO_MOST);
        assert_eq!(share(&|n| crate::policy::sample::hash(n) % 1500), 32);
    }

    #[test]
    fn the_duel_distinguishes_loops_from_stacks() {
        let run = |keys: &dyn Fn(u32) -> u32| {
            let mut workingset = Workingset::new();
            for n in 0..20_000 {
                workingset.watched_use(keys(n), 100, false);
            }
            workingset.rule()
        };
        assert_eq!(run(&|n| n % 200), Rule::Reuse, "a loop of twice the seats");
        let zigzag = |n: u32| {
            if (n / 200).is_multiple_of(2) {
                n % 200
            } else {
                199 - n % 200
            }
        };
        assert_eq!(run(&zigzag), Rule::Recency, "up and down again");
    }

    /// Half of the folios are watched. The loop is four times as long as memory, and by chance more or less than half
    /// of the folios in memory are watched.
    #[test]
    fn sampling_noise_in_watched_folios_does_not_hide_a_loop() {
        let limit = 2 * WATCHED_LEAST;
        let mut workingset = Workingset::new();
        (0..limit).for_each(|n| workingset.touched_first(n % 2 == 0, limit));
        let mut run = |averaged: bool| {
            for n in 0..40_000 {
                let room = limit / 2 - 38 + crate::policy::sample::hash(n) % 76;
                let seats = match averaged {
                    true => workingset.seats(room, limit, limit),
                    false => room,
                };
                workingset.watched_use(n % (2 * limit), seats, true);
            }
            workingset.rule()
        };
        assert_eq!(run(false), Rule::Recency);
        assert_eq!(run(true), Rule::Reuse);
    }

    #[test]
    fn seats_follow_the_watched_share_within_bounds_despite_noise() {
        let limit = 2 * WATCHED_LEAST;
        let mut workingset = Workingset::new();
        let mut seats = |room: u32| {
            let last = (0..16 * limit)
                .map(|_| workingset.seats(room, limit, limit))
                .last();
            last.unwrap()
        };
        let part = limit / 2;
        assert!(seats(part).abs_diff(part) <= 1);
        assert!(seats(part * 7 / 8).abs_diff(part * 7 / 8) <= 1);
        assert_eq!(
            [seats(part / 2), seats(part * 2)],
            [part - part / 4, part + part / 4]
        );
        // With few folios the part is not known.
        let room = (0..1000).map(|_| workingset.seats(3, 16, limit)).last();
        assert_eq!(room, Some(3));
        // If all folios are watched there is no chance, and the seats are the present number.
        assert_eq!(workingset.seats(400, 500, 500), 400);
    }

    /// A promise of the miniatures that reality does not keep is given up.
    #[test]
    fn a_rule_that_misses_more_than_recency_would_is_overdrawn() {
        let mut workingset = Workingset::new();
        let mut reuse = 0;
        for n in 0..20_000 {
            // The miniature of reuse hits half of this loop, and that of recency none, so the real misses are no worse.
            workingset.watched_use(n % 200, 100, true);
            reuse += u32::from(workingset.rule() == Rule::Reuse);
        }
        assert!(reuse > 19_000, "{reuse}");
        let mut workingset = Workingset::new();
        let mut over = 0;
        for n in 0..40_000_u32 {
            // Both miniatures mostly hit, but there are real misses all the time.
            let key = if n % 4 == 0 {
                1000 + n / 4 % 150
            } else {
                n % 40
            };
            workingset.watched_use(key, 100, true);
            over += u32::from(workingset.rule() == Rule::Reuse);
        }
        assert!(over < 20_000, "{over}");
    }

    /// A rule that failed once and would spare half of all misses now is tried again after fewer misses than 2 % pay
    /// for.
    #[test]
    fn a_large_promise_pays_for_a_failure_sooner() {
        let mut workingset = Workingset::new();
        workingset.regret = 100 * UNIT;
        let until_tried = (0..10_000).find(|n| {
            workingset.watched_use(n % 200, 100, true);
            workingset.rule() == Rule::Reuse
        });
        let alone = 100 * UNIT / ALLOWED;
        let until_tried = until_tried.unwrap() as i32;
        assert!(
            (alone / 5..alone / 2).contains(&until_tried),
            "{until_tried} of {alone}"
        );
    }
}
