//! Workingset detection: which pages memory is best spent on, from faults alone.
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
//! No accessed bit can be read here. A use of a mapped page is not seen at all; a use of a page in limbo is (a *rescue*,
//! a small fault), and so is the use of what has left memory (a *refault*). So a page's history is the list of its
//! faults. Each lruvec has a clock that counts these. The *age* of a folio is the time when it was last seen in use. A
//! mapped folio may have been used later than its age says, by as much as it has been mapped; a folio in limbo
//! not. So the length of limbo is how much is known, and the length of the mapped part is how much need not be paid for.
//!
//! # Refault distance
//! Of a page that comes back we know the time since it was last seen in use: `R = now − age in its shadow`, its *reuse distance*.
//! Memory should hold what has the shortest ones. The reuse distances of what it does hold are not known, but bounded
//! from below: a folio that has been idle for a time `I` has at least `I`. The active list holds what has proved itself; its oldest
//! member that is in limbo was taken out at a time `T`, and has not been wanted since. So
//!
//! ```text
//!     R < now − T
//! ```
//!
//! means that the page that comes back is used more often than one that is kept in its place: it is *activated*. Times are
//! compared with times, so that nothing need be assumed about how many of the faults in between were for different pages.
//!
//! With its age in place of `T` the folio would be charged with the time in which its uses were not seen. In memory for nine tenths of a
//! loop that is most of the time: what is kept is used in each round, nobody sees it, and each page that comes back seems to be used more often.
//! A loop of 3000 pages in memory for 2700 was missed in 88 of 100 accesses that way; now it is in 15, where LIRS, which sees all, is in 13. What
//! is mapped is given the benefit of the doubt: where no active folio is in limbo, nothing that comes back is near.
//! (Linux counts evictions and activations since the page left instead, and compares with the size of the active list:
//! an estimate of the same inequality, for want of an age of what is resident.) Limbo's place in this follows: it is a part of the
//! list it belongs to, the part where ages are exact. A rescue of an inactive folio is judged like a refault. It stayed in
//! memory and so certainly was used in less time than memory turns over, but only if it was used in less than
//! the oldest active one has been idle is it worth that one's place. A rescue of an active one renews its age.
//!
//! If a page is activated wrongly, it takes the place of one that was used less lately than it, and falls back when it grows
//! old in its turn: one major fault. If one is wrongly not activated, it refaults once more, with a younger shadow.
//!
//! # Which list gives the next victim
//! Two rules, over the same lists:
//!
//! - *recency*: the older of the two old ends. As the ends are ordered by age this is LRU over all folios that are seen,
//!   whatever list they are on.
//! - *reuse*: the inactive list's old end, while the inactive list keeps to a thirty-second of all. With the inequality above this is
//!   LIRS. One-touch scans and loops longer than memory do not reach the active list.
//!
//! Neither is right for all programs: of a loop twice as long as memory, LRU hits nothing and LIRS half; for a growing
//! and shrinking stack LIRS misses nearly twice as often. No threshold tells which is which, so both are tried in miniature
//! (`duel.rs`), on a sample of the folios. The score is the difference of their misses, bounded to a quarter of the
//! seats, so that old merits are forgotten; the rule in force changes when the other is ahead by a twentieth
//! of the seats: less would change with chance, more would miss short phases. As switching costs nothing by itself (no
//! folio changes lists by it) a wrong switch costs the misses until it is undone.
//!
//! Miniatures start with what they hold; real memory holds what the other rule left. So the rule of reuse must also prove itself
//! in reality: real misses of watched folios beyond those that LRU would have had (from the first miss under reuse until LRU,
//! back in force, has missed as often as there are seats) are charged to an account that is credited with 2 % of LRU's misses. Overdrawn, it
//! ends the rule of reuse until it is paid back. This bounds what the guess can cost by 2 % and one account. A failure may have had its
//! reason in a phase that is long over, and 2 % pay slowly. So while the miniatures say that reuse would be better, a sixteenth of what it would have
//! spared is credited as well: a promise that is kept is worth more tries than one that is small.
//!
//! # Who is watched
//! Folios whose place hashes to a certain value: one in 32, but a thousand where that is more, and not more than four thousand. All of
//! them where memory has room for less than a thousand. They are taken out when a tenth of them is mapped, whatever the
//! others do, so that the miniatures see nearly all of their use. If all memory is used at random and half of it is resident, one
//! access in 64 is such a rescue more.
//!
//! # Streams
//! What a stream longer than memory leaves behind is taken for older than all others, and the rules do not hear of it: see
//! `drop_behind.rs`.
//!
//! # When memory fills
//! What came while nothing left was never looked at, and may leave by either end: see `unproven.rs`.
//!
//! # How long limbo is
//! A rescue costs 4 to 6 µs, a major fault from compressed RAM 6, from a file 60 to 100. What does a rescue buy? That one folio, known to
//! have been used since it came in, stays in place of the next in line. That is worth something if such a folio is more likely to be used again than
//! one that was not: with `h₁` the share of the watched folios that are rescued from limbo again after they were rescued once, and `h₀`
//! the share of the others that are, and with a major fault as dear as `C` rescues ([`Config::refault_cost`]),
//!
//! ```text
//!     C · (h₁ − h₀) > 1
//! ```
//!
//! says that limbo is worth its rescues. It is not all that they buy: of a sweep up and down each folio is as likely to be rescued as any other, and
//! yet a memory that does not see the uses throws out by arrival what is wanted next. What looking spares as a whole is known from the watched folios:
//! beside the two rules a cache of the same seats that goes by arrival is simulated, and with `b` its misses beyond those
//! of the rule in force, and `r` the rescues of watched folios (both of late: two for each of them),
//!
//! ```text
//!     C · b > r
//! ```
//!
//! says that limbo is worth it, too. If either holds, limbo's share of memory grows by a quarter, up to nine tenths; if not, it shrinks by a fifth,
//! down to [`Config::limbo_share`]. It is asked again after so many rescues, not after so much time: limbo that nobody rescues
//! from costs nothing, and a scan that passes proves nothing. Random use of everything has `h₁ = h₀` and `b = 0`, and limbo becomes short.
//!
//! Before the first answer there is only `C`: as `h₁ − h₀` is at most one, the first inequality cannot hold for `C` below 1, and for 2 it is as likely as not.
//! So limbo begins at nine tenths where a major fault costs more than two rescues, and at its least where not, until rescues have told. Begun at nine tenths
//! with compressed RAM, in memory that was just filled by folios of 2 MiB the answer came after half of 100,000 random reads: 6,000 rescues of pages and 580 of
//! these folios, which are touched again as soon as they are in limbo, for 900 and 170.
//!
//! These are averages. In any case limbo may cost no more than a part of what major faults cost, a quarter where one is as cheap as a rescue and seven
//! sixteenths where it costs 16: each page that leaves memory earns the right to take out `1 + C/4` to `1 + 7C/16` others, and without it nobody is taken
//! out to fill limbo. Watched folios have an account of their own, of 18 for each time that as many pages have left as there is one of them among, and less
//! where major faults are cheap: to 3 if one costs no more than a rescue, for beside other threads a page that is taken out by itself costs as much
//! as three of these. Not for each of them that has left: in memory
//! for 99 % of a sweep none of them ever did, so nobody looked at them, they stayed for that reason, and all others made room for them.
//! And each is paid for in full, in advance if need be: with take-outs of 64 pages at most in the account, four watched folios of 2 MiB in memory for 256 MiB were
//! always in limbo, for whoever is taken out with one page earned costs 511 more. In use as they were, they said of all others that these
//! had been idle for longer than the active list's oldest, and nothing that came back was activated. Nor do pages pay that leave to make room
//! for a window: 500 of them stand for one fault, and watched folios that were taken out one by one would break the windows of the next lap. As many pay as have come in
//! by themselves.
//!
//! Where that account is empty the watched folios go with all others, by age, and these pay. Otherwise they would stay because nobody pays: of a stream that
//! fills memory by windows no page comes by itself, so while it went past, all other folios left and the watched ones piled up, to three quarters of
//! memory and more. A set that came after it had the rest, and was missed 1.4 times a page instead of once.
//!
//! (With a quarter in any case limbo ran dry where memory holds nearly all that is used: few evictions, and more rescues than these pay for; then all
//! was mapped and went by arrival, until a whole loop had been missed and paid for another while. Zipf beside a loop, in memory for nine
//! tenths: 1.70 times what LRU misses, now 1.07. A half buys no more.) So
//! where nothing is evicted nothing is taken out either, and a loop inside of memory costs nothing.
//!
//! # Shadows
//! A shadow is what fits into the spare bits of a page's entry (`leaf/packing.rs`): that there is one; whether the page was active (*workingset*, for
//! `workingset_restore`); node and group; and the age, without its `bucket_order` lowest bits, modulo 2^`timestamp_bits`. The bits are shared
//! out when the core is built ([`ShadowLayout`]). Ages must reach as far as reuse distances that can matter: the oldest
//! active folio's idle time, which is a few times the faults that memory turns over in. `max_order` is the logarithm of that, four times the
//! limit; what the timestamp lacks in bits the buckets make up for. A distance beyond 2^(`timestamp_bits` + `bucket_order`) looks like a
//! short one, and its page is activated for nothing; so bits that are left over go to the timestamp, up to 64 times as far. A shadow of another node or group means nothing by this lruvec's clock, and is not looked at.
//!
//! # Whose shadow it is
//! A region can be moved to another group, and a group that is removed leaves its regions to its parent; then its number is used again. A shadow from before
//! must not be judged by the lists of whoever has the region, or the number, now. Moving passes each entry anyway
//! (`hand_over` in `ops/charge.rs`), and shadows are forgotten there: by another clock an age says nothing. So since an entry was last
//! passed its group has changed in one way only, to the parent, and each of these groups lies at another depth of the tree. *The depth names the group*: it is the present one's exactly if
//! nothing was removed since. That takes three bits, is never mistaken, and removing a group need not look for what it has left behind.
//! (A number of the group itself would take eight, and be used again.) What leaves memory on a removed group's account leaves no shadow.
//!
//! A page whose contents were dropped under pressure leaves a shadow, too, in an entry of its own. Tables of entries that hold nothing else are
//! bounded: an lruvec with `n` pages keeps `n/256` of them, 16 bytes a page. A shadow is of use while its page could have
//! been held, so more of them than there are pages rarely tell anything; a table with one entry in two has `n` shadows for `n` pages. The oldest are dropped
//! first (`workingset_nodereclaim`).
//!
//! [`Config::refault_cost`]: crate::Config::refault_cost
//! [`Config::limbo_share`]: crate::Config::limbo_share

use crate::curve::Curve;
use crate::drop_behind::Streams;
use crate::duel::{Duel, Misses, is_sampled, sample_bits};
use crate::folio::Folio;
use crate::group::NodeId;
use crate::limits::{
    LIMBO_MOST, MAX_GROUP_DEPTH, MAX_NODES, RESCUES_LEAST, RESCUES_MOST, SHADOW_BITS_LEAST,
    WATCHED_FOLIOS, WATCHED_LEAST, WATCHED_MOST, WATCHED_SHARE,
};
use crate::unproven::Unproven;
use std::fmt;

/// A sixteenth of a take-out, or of a rescue: what costs and credits are counted in.
pub const SIXTEENTH: u32 = 16;
/// Take-outs of watched pages that are earned when as many pages have left as one of them is watched among.
/// The least, where a major fault is as cheap as a rescue, …
const WATCHED_PACE: u32 = 3;
/// … and how many more where one costs as much as [`DEAR`].
const WATCHED_MORE: u32 = 15;
/// Pages wanted by themselves that are remembered, until so many have left.
const ALONE_MOST: u32 = 128;
/// What limbo may cost, in sixteenths of what major faults do: the least, …
const LIMBO_COST: u32 = 4;
/// … and how many more where one costs as much as [`DEAR`].
const LIMBO_MORE: u32 = 3;
/// A major fault that is likely to be worth more than a rescue, while nothing is known.
const LIKELY: u32 = 2 * SIXTEENTH;
/// A major fault that is dear, in sixteenths of a rescue.
const DEAR: u32 = 16 * SIXTEENTH;
/// Credit for more take-outs than this is forgotten, in sixteenths.
const CREDIT_MOST: i32 = 64 * SIXTEENTH as i32;
/// Real misses are counted in 1/1024, and this much is allowed for each of LRU's.
const ALLOWED: i32 = 20;
const UNIT: i32 = 1024;
/// Of each miss that the rule of reuse promises to spare while it is not in force, so much is allowed, too.
const PROMISED: i32 = 64;
/// So many rescues a watched folio are of late.
const LATELY: i32 = 2;
/// How long ago a folio is taken to have been used that advice says is not needed.
const COLDEST: u32 = 1 << 30;
/// How many uses are of late.
const RECENT: u32 = 1 << 16;

/// How the bits of a shadow are shared out. Printed as `timestamp_bits=… max_order=… bucket_order=…`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShadowLayout {
    node_bits: u32,
    /// Bits of the age.
    pub timestamp_bits: u32,
    /// Logarithm of the longest distance that should be told from shorter ones.
    pub max_order: u32,
    /// Logarithm of the distances that are not told apart.
    pub bucket_order: u32,
}

impl fmt::Display for ShadowLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "timestamp_bits={} max_order={} bucket_order={}",
            self.timestamp_bits, self.max_order, self.bucket_order
        )
    }
}

/// What a page has left behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shadow {
    pub(crate) workingset: bool,
    age: u32,
}

/// There is a shadow, the page was active, and a bit of age: with fewer no distance can be told.
const FIXED_BITS: u32 = 2;
/// What the depth of a group needs.
const DEPTH_BITS: u32 = MAX_GROUP_DEPTH.ilog2();

const _: () = assert!(MAX_GROUP_DEPTH.is_power_of_two());
const _: () = assert!(
    FIXED_BITS + DEPTH_BITS + MAX_NODES.ilog2() < SHADOW_BITS_LEAST as u32 - 1,
    "the age has bits in the narrowest shadow, too"
);
/// Where there are bits enough, this much more than the longest distance is told: what looks short because it is so long
/// that the age has come round would be activated for nothing.
const FURTHER_ORDER: u32 = 6;

impl ShadowLayout {
    /// The layout for shadows of `bits` bits, at least 12, in a budget of `limit` pages on `nodes` nodes.
    pub(crate) fn new(bits: u32, limit: u32, nodes: u8) -> Self {
        let node_bits = u32::from(nodes).next_power_of_two().ilog2();
        let max_order = (limit.max(2) - 1).ilog2() + 1 + 2;
        let left = bits - FIXED_BITS - node_bits - DEPTH_BITS;
        let timestamp_bits = left.min(max_order + FURTHER_ORDER);
        Self {
            node_bits,
            timestamp_bits,
            max_order,
            bucket_order: max_order.saturating_sub(timestamp_bits),
        }
    }

    fn mask(bits: u32) -> u32 {
        ((1_u64 << bits) - 1) as u32
    }

    /// The shadow of a folio that leaves; its group lies at this `depth`.
    pub(crate) fn pack(&self, folio: &Folio, depth: u8) -> u32 {
        let age = folio.age >> self.bucket_order & Self::mask(self.timestamp_bits);
        let bits = age << DEPTH_BITS | u32::from(depth);
        let bits = bits << self.node_bits | u32::from(folio.node.0);
        bits << FIXED_BITS | u32::from(folio.is_active()) << 1 | 1
    }

    /// The shadow in these bits, if it is one that a page of its present group, at this `depth`, and this node has left.
    pub(crate) fn unpack(&self, bits: u32, depth: u8, node: NodeId) -> Option<Shadow> {
        let own = Some((depth, node));
        (self.whose(bits) == own).then_some(Shadow {
            workingset: bits & 2 != 0,
            age: bits >> (FIXED_BITS + self.node_bits + DEPTH_BITS),
        })
    }

    /// The depth of the group, and the node, that left the shadow in these bits.
    pub(crate) fn whose(&self, bits: u32) -> Option<(u8, NodeId)> {
        let rest = bits >> FIXED_BITS;
        let node = NodeId((rest & Self::mask(self.node_bits)) as u8);
        let depth = (rest >> self.node_bits & Self::mask(DEPTH_BITS)) as u8;
        (bits & 1 != 0).then_some((depth, node))
    }

    /// How long ago that was by a clock that shows `now`.
    pub(crate) fn distance(&self, shadow: Shadow, now: u32) -> u32 {
        let buckets = (now >> self.bucket_order).wrapping_sub(shadow.age);
        (buckets & Self::mask(self.timestamp_bits)) << self.bucket_order
    }
}

/// Which list gives the next victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// The one whose oldest folio is older.
    Recency,
    /// The inactive one.
    Reuse,
}

/// How folios of one class have left limbo.
#[derive(Clone, Copy, Debug, Default)]
struct Exits {
    rescued: u32,
    evicted: u32,
}

/// What one lruvec knows and wants.
#[derive(Debug)]
pub(crate) struct Workingset {
    /// Uses that were seen.
    clock: u32,
    /// Of late: uses that were seen, and pages that came in.
    recent: [u32; 2],
    duel: Duel,
    pub(crate) curve: Curve,
    rule: Rule,
    /// Misses of recency less misses of reuse, bounded.
    score: i32,
    /// Real misses beyond those of recency, less what is allowed, in 1/[`UNIT`].
    regret: i32,
    /// Real misses until the past rule of reuse is no excuse any more.
    recovering: i32,
    /// Of limbo, in 1/1024 of what is not watched, as soon as rescues have told.
    share: Option<u32>,
    /// Of watched folios: those not referenced before, those referenced.
    exits: [Exits; 2],
    /// Misses of watched folios in a cache that never looks, beyond those of the rule in force.
    blind: i32,
    /// What looking at them has cost: rescues.
    looked: i32,
    /// Take-outs that have been earned, in sixteenths, by part. Below zero is what watched folios have had in advance.
    credit: [i32; 2],
    /// Parts of a sixteenth of a watched page's take-out that have been earned.
    owed: u32,
    /// Pages that were wanted by themselves and came in for which none has left yet.
    alone: u32,
    pub(crate) streams: Streams,
    pub(crate) unproven: Unproven,
}

impl Workingset {
    pub(crate) fn new() -> Self {
        Self {
            clock: 0,
            recent: [0; 2],
            duel: Duel::new(WATCHED_MOST).with_arrival(),
            curve: Curve::new(),
            rule: Rule::Recency,
            score: 0,
            regret: 0,
            recovering: 0,
            share: None,
            exits: [Exits::default(); 2],
            blind: 0,
            looked: 0,
            credit: [0; 2],
            owed: 0,
            alone: 0,
            streams: Streams::default(),
            unproven: Unproven::default(),
        }
    }

    pub(crate) fn now(&self) -> u32 {
        self.clock
    }

    /// How long ago `age` was.
    pub(crate) fn since(&self, age: u32) -> u32 {
        self.clock.wrapping_sub(age)
    }

    /// An age that is older than any other.
    pub(crate) fn coldest(&self) -> u32 {
        self.clock.wrapping_sub(COLDEST)
    }

    /// Whether an age was made up by [`Self::coldest`].
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

    /// A folio was seen in use: the time of that.
    pub(crate) fn tick(&mut self) -> u32 {
        self.clock = self.clock.wrapping_add(1);
        self.recent[0] += 1;
        if self.recent[0] >= RECENT {
            self.recent = self.recent.map(|count| count / 2);
        }
        self.clock
    }

    /// So many pages are on their way in.
    pub(crate) fn came_in(&mut self, pages: u32) {
        self.recent[1] = self.recent[1].saturating_add(pages);
    }

    /// How many pages come in during so many uses, going by those of late.
    pub(crate) fn pages_in(&self, uses: u32) -> u64 {
        let [seen, pages] = self.recent.map(u64::from);
        u64::from(uses) * pages / seen.max(1)
    }

    /// Limbo's share of a part of the folios, in 1/1024; `cost` is that of a major fault, in sixteenths of a rescue's, and `least` is what
    /// is configured.
    pub(crate) fn limbo_share(&self, watched: bool, cost: u32, least: u32) -> u32 {
        match watched {
            true => LIMBO_MOST.max(least),
            false => self.share(cost, least).max(least),
        }
    }

    /// The same of what is not watched: what rescues have told, or what is likely.
    fn share(&self, cost: u32, least: u32) -> u32 {
        self.share.unwrap_or(match cost > LIKELY {
            true => LIMBO_MOST,
            false => least,
        })
    }

    /// A watched folio was seen in use. `room` is how many of them are in memory, this one included.
    pub(crate) fn watched_use(&mut self, key: u32, room: u32, missed: bool) {
        let Some(would) = self.duel.reference(key, room) else {
            return;
        };
        let seats = room as i32;
        let recency = would.recency;
        self.look(would, room, missed);
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

    /// Keeps the account of what looking at the watched folios costs, and what it spares.
    fn look(&mut self, would: Misses, room: u32, missed: bool) {
        self.blind += i32::from(would.arrival) - i32::from(would.under(self.rule));
        self.looked += i32::from(!missed);
        if self.looked > LATELY * room as i32 {
            (self.blind, self.looked) = (self.blind / 2, self.looked / 2);
        }
    }

    /// A watched folio left limbo. `cost` is that of a major fault, in sixteenths of a rescue's.
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
        let known_stay = gain * i64::from(cost) > i64::from(SIXTEENTH) * all(new) * all(known);
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

    /// A page has come back by itself, not as a part of a window.
    pub(crate) fn came_alone(&mut self) {
        self.alone = (self.alone + 1).min(ALONE_MOST);
    }

    /// Pages are leaving memory: others may be taken out.
    pub(crate) fn earn(&mut self, pages: u32, cost: u32) {
        self.add_credit(pages.saturating_mul(pace(cost)), false);
    }

    /// The same for watched ones, in a budget of `limit` pages. Whoever leaves earns their part of it: were it only the watched ones, they would
    /// not be looked at while others leave, and these would be known better.
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

    /// So many pages were taken out. Of what is not watched the last folio may be larger than what had been earned.
    pub(crate) fn spend(&mut self, pages: u32, watched: bool) {
        let credit = &mut self.credit[usize::from(watched)];
        let left = credit.saturating_sub_unsigned(pages.saturating_mul(SIXTEENTH));
        *credit = if watched { left } else { left.max(0) };
    }
}

/// How many pages may be taken out for each that leaves memory, in sixteenths; `cost` is that of a major fault.
pub(crate) fn pace(cost: u32) -> u32 {
    let share = LIMBO_COST * DEAR + LIMBO_MORE * cost.min(DEAR);
    SIXTEENTH + share * cost / (16 * DEAR)
}

/// The same for watched ones, each time that as many pages have left as one of them is watched among.
fn watched_pace(cost: u32) -> u32 {
    let dear = cost.min(DEAR);
    WATCHED_PACE * SIXTEENTH + WATCHED_MORE * SIXTEENTH * dear / DEAR
}

/// Whether a folio whose first page's entry has this number is watched, in a budget of `limit` pages.
pub(crate) fn is_watched(key: u32, limit: u32) -> bool {
    is_sampled(key, watched_bits(limit))
}

/// One folio in two to the power of this is watched.
fn watched_bits(limit: u32) -> u32 {
    let want = (limit / WATCHED_SHARE).clamp(WATCHED_LEAST, WATCHED_FOLIOS);
    sample_bits(limit, want)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{LEAF_PAGES, Order, PageCount, PageIndex};
    use crate::folio::{Folios, State};
    use crate::leaf::LeafTable;

    fn folio(age: u32, active: bool) -> Folio {
        let mut folios = Folios::new(1);
        let mut leaves = LeafTable::new(PageCount(LEAF_PAGES), 512);
        let place = leaves.place_of(PageIndex(0));
        let id = folios.alloc(place, Order::ZERO, State::Resident).unwrap();
        let folio = folios.get_mut(id);
        folio.age = age;
        folio.set_active(active);
        *folio
    }

    #[test]
    fn the_layout_says_how_bits_are_shared_out() {
        // A budget of 1 GiB in 64 GiB of addresses: 25 bits of slot number leave 27.
        let wide = ShadowLayout::new(27, 1 << 18, 1);
        assert_eq!(
            wide.to_string(),
            "timestamp_bits=22 max_order=20 bucket_order=0"
        );
        let sixteen = ShadowLayout::new(16, 1 << 18, 2);
        assert_eq!(
            sixteen.to_string(),
            "timestamp_bits=10 max_order=20 bucket_order=10"
        );
        let narrow = ShadowLayout::new(12, 1 << 16, 1);
        assert_eq!(
            narrow.to_string(),
            "timestamp_bits=7 max_order=18 bucket_order=11"
        );
        // No more than ages that come round after 64 times as much as must be told.
        assert_eq!(
            ShadowLayout::new(32, 4096, 1).to_string(),
            "timestamp_bits=20 max_order=14 bucket_order=0"
        );
    }

    #[test]
    fn distances_survive_packing_but_for_their_bucket() {
        for bits in [12, 16, 20, 27, 32] {
            let layout = ShadowLayout::new(bits, 1 << 16, 1);
            let bucket = 1_u32 << layout.bucket_order;
            for (age, since) in [
                (0_u32, 0_u32),
                (5, 70_000),
                (u32::MAX - 100, 200),
                (1 << 31, 1000),
            ] {
                let shadow = layout.pack(&folio(age, true), 0);
                assert!(u64::from(shadow) < 1 << bits);
                let found = layout.unpack(shadow, 0, NodeId(0)).unwrap();
                assert!(found.workingset);
                let distance = layout.distance(found, age.wrapping_add(since));
                assert!(
                    distance.abs_diff(since) <= bucket,
                    "{bits}: {since} became {distance}"
                );
            }
        }
    }

    #[test]
    fn what_another_group_or_node_left_says_nothing() {
        let layout = ShadowLayout::new(27, 1 << 16, 4);
        let mut left = folio(7, false);
        left.node = NodeId(2);
        let shadow = layout.pack(&left, 3);
        assert_eq!(layout.whose(shadow), Some((3, NodeId(2))));
        assert!(layout.unpack(shadow, 3, NodeId(2)).is_some());
        assert_eq!(layout.unpack(shadow, 2, NodeId(2)), None);
        assert_eq!(layout.unpack(shadow, 3, NodeId(1)), None);
        assert_eq!(layout.unpack(0, 0, NodeId(0)), None);
    }

    /// Random use: who was rescued is rescued again as often as others are, and limbo becomes short.
    #[test]
    fn limbo_is_as_long_as_its_rescues_are_worth() {
        let least = 32;
        let mut known = folio(0, false);
        known.set_referenced();
        let new = folio(0, false);
        let go = |cost: u32, rescued_of_known: u32, rescued_of_new: u32| {
            let mut workingset = Workingset::new();
            for n in 0..20_000 {
                workingset.left_limbo(&known, n % 10 < rescued_of_known, 1024, cost, least);
                workingset.left_limbo(&new, n % 10 < rescued_of_new, 1024, cost, least);
            }
            workingset.limbo_share(false, cost, least)
        };
        assert_eq!(go(256, 5, 5), least);
        assert_eq!(go(256, 5, 2), LIMBO_MOST);
        assert_eq!(go(20, 5, 2), least);
        assert_eq!(go(20, 10, 1), LIMBO_MOST, "found out, from least on");
        // Nobody is rescued: nothing is known, and nothing is spent. It is what is likely by the cost.
        assert_eq!(go(256, 0, 0), LIMBO_MOST);
        assert_eq!(go(20, 0, 0), least);
    }

    /// Who was rescued is rescued again as often as others are, but by arrival half of the hits would be lost.
    #[test]
    fn limbo_is_long_where_the_order_of_uses_tells_what_is_wanted() {
        let share = |key: &dyn Fn(u32) -> u32| {
            let (cost, least, room) = (256, 32, 1000);
            let mut workingset = Workingset::new();
            for n in 0..40_000 {
                workingset.watched_use(key(n), room, n % 2 == 0);
                workingset.left_limbo(&folio(0, false), n % 2 == 0, room, cost, least);
            }
            workingset.limbo_share(false, cost, least)
        };
        let zigzag = |n: u32| match (n / 1500).is_multiple_of(2) {
            true => n % 1500,
            false => 1499 - n % 1500,
        };
        assert_eq!(share(&zigzag), LIMBO_MOST);
        assert_eq!(share(&|n| crate::duel::hash(n) % 1500), 32);
    }

    #[test]
    fn the_duel_tells_loops_from_stacks() {
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

    /// A watched folio of a leaf costs as much as it has pages, not as much as was there to pay for it.
    #[test]
    fn a_large_watched_folio_is_paid_for_in_full() {
        let (limit, leaf) = (1 << 16, LEAF_PAGES);
        let mut workingset = Workingset::new();
        let earn_one = |workingset: &mut Workingset| {
            let evictions = (1..100_000_u32).find(|_| {
                workingset.came_alone();
                workingset.earn_watched(1, limit, DEAR);
                workingset.earned(true) > 0
            });
            evictions.unwrap()
        };
        let first = earn_one(&mut workingset);
        workingset.spend(1, true);
        let second = earn_one(&mut workingset);
        assert!(second.abs_diff(first) <= 1, "{first}, then {second}");
        workingset.spend(leaf, true);
        let after_leaf = earn_one(&mut workingset);
        assert!(after_leaf >= leaf * (first - 1), "{after_leaf} and {first}");
    }

    /// A stream that comes in by windows does not pay for watched folios to be taken out of its next lap.
    #[test]
    fn what_leaves_for_a_window_earns_no_look_at_others() {
        let limit = 1 << 16;
        let mut workingset = Workingset::new();
        workingset.earn_watched(1 << 20, limit, DEAR);
        assert_eq!(workingset.earned(true), 0);
        workingset.came_alone();
        workingset.came_alone();
        workingset.earn_watched(1 << 20, limit, DEAR);
        let looks = 2 * (WATCHED_PACE + WATCHED_MORE) / 32;
        assert_eq!(workingset.earned(true), looks);
        // What filled memory does not pay for all that leaves later.
        (0..1 << 20).for_each(|_| workingset.came_alone());
        workingset.earn_watched(1 << 20, limit, DEAR);
        workingset.spend(workingset.earned(true), true);
        workingset.earn_watched(1 << 20, limit, DEAR);
        assert_eq!(workingset.earned(true), 0);
    }

    /// What the miniatures promise and reality does not keep is given up.
    #[test]
    fn a_rule_that_misses_more_than_recency_would_is_overdrawn() {
        let mut workingset = Workingset::new();
        let mut reuse = 0;
        for n in 0..20_000 {
            // The miniature of reuse hits half of this loop, that of recency nothing; so nothing real is worse.
            workingset.watched_use(n % 200, 100, true);
            reuse += u32::from(workingset.rule() == Rule::Reuse);
        }
        assert!(reuse > 19_000, "{reuse}");
        let mut workingset = Workingset::new();
        let mut over = 0;
        for n in 0..40_000_u32 {
            // Mostly hits for both, but real misses all the time.
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

    /// What failed once and would spare half of all misses now is tried again after fewer of them than 2 % pay for.
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
