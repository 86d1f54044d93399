//! Limbo's share: how long limbo is, and how much that may cost.
//!
//! Limbo is the part of memory whose use is observed, through rescues (`workingset.rs`). A longer limbo knows more and
//! costs more.
//!
//! # What a rescue buys
//! A rescue costs 4 to 6 µs, a major fault from compressed RAM 6, from a file 60 to 100. With a rescue, a folio that is
//! known to have been used since it came in stays in place of the next victim. That is worth something if such a folio
//! is more likely to be used again than one that was not rescued. Let `h₁` be the share of the watched folios that are
//! rescued from limbo again after they were rescued once, `h₀` the share of the others that are rescued, and let a
//! major fault cost as much as `C` rescues ([`Config::refault_cost`]). Then
//!
//! ```text
//!     (C − 1) · (h₁ − h₀) > 1
//! ```
//!
//! means that limbo is worth its rescues. A kept folio does not save a whole major fault, as its next use is a rescue
//! if limbo is long. (An earlier version assumed a whole one. With compressed RAM the gain then was just above its
//! price while limbo was short, and below it when limbo had grown; so limbo's length oscillated for a list of pointers
//! and its objects, and neither length found the order of uses.) This is not all that rescues buy: in a sweep up and
//! down each folio is as likely to be rescued as any other, and yet a memory that does not see the uses evicts by
//! arrival the folios that are needed next. The total number of misses that observing uses saves is known from the
//! watched folios: in addition to the two rules, a cache with the same seats that evicts by arrival is simulated. With
//! `b` its misses beyond those of the rule in force, and `r` the rescues of watched folios (both recent: about two
//! rescues for each of them),
//!
//! ```text
//!     C · b > r
//! ```
//!
//! also means that limbo is worth its cost. If either holds, limbo's share of memory grows by a quarter, up to nine
//! tenths; if not, it shrinks by a fifth, down to [`Config::limbo_share`]. The share is reconsidered after a number of
//! rescues, not after a time: a limbo without rescues costs nothing, and a passing scan proves nothing. Random use of
//! all memory has `h₁ = h₀` and `b = 0`, and limbo becomes short.
//!
//! # Before the first answer
//! Before the first answer only `C` is known: as `h₁ − h₀` is at most one, the first inequality cannot hold for `C` up
//! to 2. So until rescues give an answer, limbo begins at nine tenths if a major fault costs more than two rescues, and
//! otherwise at its minimum. When it began at nine tenths with compressed RAM too, in memory that was just filled with
//! folios of 2 MiB, the answer came after half of 100,000 random reads. There were 6,000 rescues of pages and 580 of
//! these folios, which are touched again as soon as they are in limbo; with the present beginning there are 900 and
//! 170.
//!
//! # What it may cost
//! These inequalities are about averages. In any case limbo may cost no more than a part of the cost of major faults, a
//! quarter if one is as cheap as a rescue and seven sixteenths if it costs 16: each page that leaves memory earns the
//! right to take out `1 + C/4` to `1 + 7C/16` others, and without that right no folio is taken out to fill limbo.
//!
//! Watched folios have their own account. If one page in *n* is watched, each *n* pages that leave earn 18 take-outs.
//! They earn fewer if major faults are cheap, down to 3 if one costs no more than a rescue, because while other threads
//! run, a page that is taken out by itself costs as much as three rescues. Not only watched pages count: in memory for
//! 99 % of a sweep no watched folio ever left, so none was tested, for that reason they stayed, and all others made
//! room for them. And each watched folio is paid for in full, in advance if need be: with take-outs of at most 64 pages
//! in the account, four watched folios of 2 MiB in memory for 256 MiB were always in limbo, because a folio that is
//! taken out with one page earned costs 511 more. They were in use, and so by their ages all others had been idle for
//! longer than the active list's oldest, and no returning page was activated. Nor do pages count that leave to make
//! room for a window: 500 of them correspond to one fault, and watched folios taken out one by one would break the
//! windows of the next lap. As many pages count as have come in by themselves.
//!
//! When that account is empty, the watched folios leave with all others, by age, and the others' account pays.
//! Otherwise they would stay because nothing pays for them: no page of a stream that fills memory by windows comes in
//! by itself, so while the stream passed, all other folios left and the watched ones accumulated, to three quarters of
//! memory and more. A set that came after the stream had only the rest, and missed 1.4 times a page instead of once.
//!
//! (With a quarter in all cases, limbo ran empty when memory held nearly all the pages in use: there were few
//! evictions, and more rescues than these paid for. Then everything was mapped and left by arrival, until a whole loop
//! had missed and had paid for another while. Zipf together with a loop, in memory for nine tenths, had 1.70 times the
//! misses of LRU, and now has 1.07. A half gains no more.) So if nothing is evicted, nothing is taken out, and a loop
//! that fits in memory costs nothing.
//!
//! [`Config::refault_cost`]: crate::Config::refault_cost
//! [`Config::limbo_share`]: crate::Config::limbo_share

use crate::ids::Rule;
use crate::limits::{LIMBO_MOST, RESCUES_LEAST, RESCUES_MOST};
use crate::policy::duel::Misses;
use crate::policy::sample::watched_bits;
use crate::tables::folio::Folio;

/// A take-out, or a rescue, in the unit of costs and credits, which is a sixteenth of it.
pub(crate) const SIXTEENTH: u32 = 16;
/// Minimum number of take-outs of watched pages earned by *n* leaving pages, if one page in *n* is watched. It applies
/// if a major fault is as cheap as a rescue.
const WATCHED_PACE: u32 = 3;
/// How many more take-outs are earned if a major fault costs as much as [`DEAR`].
const WATCHED_MORE: u32 = 15;
/// Maximum number of pages that have come in by themselves and are remembered until that many have left.
const ALONE_MOST: u32 = 128;
/// The lowest bound of limbo's cost, in sixteenths of the cost of major faults.
const LIMBO_COST: u32 = 4;
/// How many more sixteenths it may cost if a major fault costs as much as [`DEAR`].
const LIMBO_MORE: u32 = 3;
/// The cost above which a major fault is likely to be worth more than a rescue, while nothing is known.
const LIKELY: u32 = 2 * SIXTEENTH;
/// The cost of an expensive major fault, in sixteenths of a rescue.
const DEAR: u32 = 16 * SIXTEENTH;
/// Credit for more take-outs than this is forgotten, in sixteenths.
const CREDIT_MOST: i32 = 64 * SIXTEENTH as i32;
/// Rescues per watched folio that count as recent.
const LATELY: i32 = 2;

/// How many folios of one class have left limbo, by the way they left.
#[derive(Clone, Copy, Debug, Default)]
struct Exits {
    rescued: u32,
    evicted: u32,
}

/// The cost and the worth of one lruvec's limbo.
#[derive(Debug, Default)]
pub(crate) struct LimboShare {
    /// Limbo's share of the folios that are not watched, in 1/1024. It is known once rescues have given an answer.
    share: Option<u32>,
    /// The exits of watched folios: those not referenced before, then those referenced.
    exits: [Exits; 2],
    /// Misses of watched folios in a cache that observes no uses, beyond those of the rule in force.
    blind: i32,
    /// The cost of testing the watched folios, in rescues.
    looked: i32,
    /// Take-outs that have been earned, in sixteenths: for the folios not watched, then for the watched ones. Below
    /// zero, watched folios have been taken out in advance.
    credit: [i32; 2],
    /// Parts of a sixteenth of a watched page's take-out that have been earned.
    owed: u32,
    /// Pages that came in by themselves and for which no page has left yet.
    alone: u32,
}

impl LimboShare {
    /// Limbo's share of the watched folios or of the others, in 1/1024. `cost` is that of a major fault, in sixteenths
    /// of a rescue's, and `least` is the configured share.
    pub(crate) fn of_part(&self, watched: bool, cost: u32, least: u32) -> u32 {
        match watched {
            true => LIMBO_MOST.max(least),
            false => self.share(cost, least).max(least),
        }
    }

    /// Limbo's share of the folios that are not watched: the one that rescues have determined, or else the likely one.
    fn share(&self, cost: u32, least: u32) -> u32 {
        self.share.unwrap_or(match cost > LIKELY {
            true => LIMBO_MOST,
            false => least,
        })
    }

    /// Records the cost of testing the watched folios, and the misses that this saves under the rule in force.
    pub(crate) fn look(&mut self, would: Misses, rule: Rule, room: u32, missed: bool) {
        self.blind += i32::from(would.arrival) - i32::from(would.under(rule));
        self.looked += i32::from(!missed);
        if self.looked > LATELY * room as i32 {
            (self.blind, self.looked) = (self.blind / 2, self.looked / 2);
        }
    }

    /// Notes that a watched folio left limbo. `cost` is that of a major fault, in sixteenths of a rescue's.
    pub(crate) fn left_limbo(
        &mut self,
        folio: &Folio,
        rescued: bool,
        room: u32,
        cost: u32,
        least: u32,
    ) {
        let exits = &mut self.exits[usize::from(folio.is_referenced())];
        exits.rescued += u32::from(rescued);
        exits.evicted += u32::from(!rescued);
        let [new, known] = self.exits;
        if new.rescued + known.rescued < (room / 8).clamp(RESCUES_LEAST, RESCUES_MOST) {
            return;
        }
        let all = |exits: Exits| i64::from(exits.rescued + exits.evicted).max(1);
        let gain = i64::from(known.rescued) * all(new) - i64::from(new.rescued) * all(known);
        let spares = i64::from(cost) - i64::from(SIXTEENTH);
        let known_stay = gain * spares > i64::from(SIXTEENTH) * all(new) * all(known);
        let spared = i64::from(self.blind) * i64::from(cost);
        let worth = known_stay || spared > i64::from(SIXTEENTH) * i64::from(self.looked);
        let share = self.share(cost, least);
        self.share = Some(match worth {
            true => (share * 5 / 4 + 1).min(LIMBO_MOST),
            false => (share * 4 / 5).max(least),
        });
        self.exits = [new, known].map(|exits| Exits {
            rescued: exits.rescued / 2,
            evicted: exits.evicted / 2,
        });
    }

    /// Notes that a page has come back by itself, not as a part of a window.
    pub(crate) fn came_alone(&mut self) {
        self.alone = (self.alone + 1).min(ALONE_MOST);
    }

    /// Earns take-outs for pages that are leaving memory.
    pub(crate) fn earn(&mut self, pages: u32, cost: u32) {
        self.add_credit(pages.saturating_mul(pace(cost)), false);
    }

    /// Earns take-outs of watched pages for pages that are leaving memory, in a budget of `limit` pages. Every page
    /// that leaves earns its part of a take-out. If only the watched ones did, they would not be tested while others
    /// leave, and more would be known about the others.
    pub(crate) fn earn_watched(&mut self, pages: u32, limit: u32, cost: u32) {
        let bits = watched_bits(limit);
        let pages = pages.min(self.alone);
        self.alone -= pages;
        self.owed += pages * watched_pace(cost);
        self.add_credit(self.owed >> bits, true);
        self.owed &= (1 << bits) - 1;
    }

    fn add_credit(&mut self, sixteenths: u32, watched: bool) {
        let credit = &mut self.credit[usize::from(watched)];
        *credit = credit.saturating_add_unsigned(sixteenths).min(CREDIT_MOST);
    }

    /// How many pages may be taken out.
    pub(crate) fn earned(&self, watched: bool) -> u32 {
        self.credit[usize::from(watched)].max(0).cast_unsigned() / SIXTEENTH
    }

    /// Pays for `pages` pages that were taken out. The last unwatched folio may be larger than the earned number.
    pub(crate) fn spend(&mut self, pages: u32, watched: bool) {
        let credit = &mut self.credit[usize::from(watched)];
        let left = credit.saturating_sub_unsigned(pages.saturating_mul(SIXTEENTH));
        *credit = if watched { left } else { left.max(0) };
    }
}

/// How many pages may be taken out for each page that leaves memory, in sixteenths. `cost` is that of a major fault.
pub(crate) fn pace(cost: u32) -> u32 {
    let share = LIMBO_COST * DEAR + LIMBO_MORE * cost.min(DEAR);
    SIXTEENTH + share * cost / (16 * DEAR)
}

/// How many watched pages may be taken out for *n* leaving pages, if one page in *n* is watched, in sixteenths.
fn watched_pace(cost: u32) -> u32 {
    let dear = cost.min(DEAR);
    WATCHED_PACE * SIXTEENTH + WATCHED_MORE * SIXTEENTH * dear / DEAR
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::LEAF_PAGES;
    use crate::tables::folio::folio_of_age;

    /// With random use, rescued folios are rescued again as often as others are, and limbo becomes short.
    #[test]
    fn length_of_limbo_follows_the_worth_of_its_rescues() {
        let least = 32;
        let mut known = folio_of_age(0, false);
        known.set_referenced();
        let new = folio_of_age(0, false);
        let go = |cost: u32, rescued_of_known: u32, rescued_of_new: u32| {
            let mut limbo = LimboShare::default();
            for n in 0..20_000 {
                limbo.left_limbo(&known, n % 10 < rescued_of_known, 1024, cost, least);
                limbo.left_limbo(&new, n % 10 < rescued_of_new, 1024, cost, least);
            }
            limbo.of_part(false, cost, least)
        };
        assert_eq!(go(256, 5, 5), least);
        assert_eq!(go(256, 5, 2), LIMBO_MOST);
        assert_eq!(go(20, 5, 2), least);
        assert_eq!(go(20, 10, 1), least, "no rescue buys its price");
        assert_eq!(go(36, 10, 1), LIMBO_MOST);
        assert_eq!(go(32, 10, 1), least);
        // No folio is rescued: nothing is known, and nothing is spent. The share is the likely one for the cost.
        assert_eq!(go(256, 0, 0), LIMBO_MOST);
        assert_eq!(go(20, 0, 0), least);
    }

    /// A watched folio of a leaf costs as much as it has pages, not as much as was available to pay for it.
    #[test]
    fn a_large_watched_folio_is_paid_for_in_full() {
        let (limit, leaf) = (1 << 16, LEAF_PAGES);
        let mut limbo = LimboShare::default();
        let earn_one = |limbo: &mut LimboShare| {
            let evictions = (1..100_000_u32).find(|_| {
                limbo.came_alone();
                limbo.earn_watched(1, limit, DEAR);
                limbo.earned(true) > 0
            });
            evictions.unwrap()
        };
        let first = earn_one(&mut limbo);
        limbo.spend(1, true);
        let second = earn_one(&mut limbo);
        assert!(second.abs_diff(first) <= 1, "{first}, then {second}");
        limbo.spend(leaf, true);
        let after_leaf = earn_one(&mut limbo);
        assert!(after_leaf >= leaf * (first - 1), "{after_leaf} and {first}");
    }

    /// A stream that comes in by windows does not pay for watched folios to be taken out of its next lap.
    #[test]
    fn evictions_for_a_window_earn_no_looks_at_watched_folios() {
        let limit = 1 << 16;
        let mut limbo = LimboShare::default();
        limbo.earn_watched(1 << 20, limit, DEAR);
        assert_eq!(limbo.earned(true), 0);
        limbo.came_alone();
        limbo.came_alone();
        limbo.earn_watched(1 << 20, limit, DEAR);
        let looks = 2 * (WATCHED_PACE + WATCHED_MORE) / 32;
        assert_eq!(limbo.earned(true), looks);
        // The pages that filled memory do not pay for everything that leaves later.
        (0..1 << 20).for_each(|_| limbo.came_alone());
        limbo.earn_watched(1 << 20, limit, DEAR);
        limbo.spend(limbo.earned(true), true);
        limbo.earn_watched(1 << 20, limit, DEAR);
        assert_eq!(limbo.earned(true), 0);
    }
}
