//! The duel: two miniature caches simulate the uses of a sample of the folios, to find out which rule is better.
//!
//! Which of two replacement rules is better for a program cannot be inferred from the faults under one of them: the
//! rule in force determines which faults occur. So both are simulated, on the watched folios only, each with as many
//! seats as there are watched folios in memory (`workingset.rs` explains how they are counted). That costs a few links
//! per reference and no memory except these tables (24 bytes for each of up to four times as many seats), and it is
//! exact except for the sample's size: a cache of 1/64 of the seats under 1/64 of the addresses, chosen by hash, misses
//! as often as the whole.
//!
//! - *recency* is LRU.
//! - *reuse* is LIRS (Jiang and Zhang, 2002) with a thirty-second of the seats for folios that are on trial. A folio is
//!   kept if the time between its last two uses is shorter than the oldest kept folio has been idle. The rule keeps a
//!   part of a loop that is too long for memory, and lets scans pass. If the past says nothing about the future (a
//!   growing and shrinking stack, a moving set) it holds on to unneeded folios.
//!
//! - *arrival*, for watched folios only, is FIFO: the misses of a memory that sees no uses at all. Nothing follows this
//!   rule; the misses that the others save compared with it are the value of observing uses. It is a ring of two bytes
//!   per seat.
//!
//! The number of seats may decrease, when watched folios leave memory. Then all caches shrink with each reference, even
//! with hits: a cache that holds all of a loop never misses, and would never learn that memory has become too small for
//! it.
//!
//! `workingset.rs` explains which misses are compared, and what follows from them.

use crate::ids::Rule;
use crate::limits::{WATCHED_FOLIOS, WATCHED_MOST};
use crate::policy::sample::hash;
use std::collections::VecDeque;

const NONE: u16 = u16::MAX;
/// Most folios that one reference evicts from a simulated cache, when the cache has become smaller.
const EVICT_MOST: u32 = 8;

const _: () = assert!(seats(WATCHED_MOST) < NONE as usize && WATCHED_FOLIOS <= WATCHED_MOST);

/// Seats for the folios that recency holds, those that reuse holds, and those that reuse remembers: twice as many as it
/// holds.
const fn seats(most: u32) -> usize {
    4 * most as usize + 64
}

/// Lists that a seat can be on.
#[derive(Clone, Copy)]
enum By {
    /// The list of the folios that recency holds.
    Recency,
    /// LIRS's stack: the kept folios, and those that were used since the oldest kept one was.
    Stack,
    /// The list of folios on trial, or the list of remembered ones. A seat is never on both.
    Trial,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reuse {
    Unknown,
    Kept,
    OnTrial,
    Remembered,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    key: u32,
    /// The next seat with the same hash, or the next free seat.
    next: u16,
    links: [(u16, u16); 3],
    in_recency: bool,
    in_arrival: bool,
    on_stack: bool,
    reuse: Reuse,
}

impl Seat {
    const EMPTY: Self = Self {
        key: 0,
        next: NONE,
        links: [(NONE, NONE); 3],
        in_recency: false,
        in_arrival: false,
        on_stack: false,
        reuse: Reuse::Unknown,
    };
}

#[derive(Clone, Copy, Debug)]
struct Chain {
    young: u16,
    old: u16,
    len: u32,
}

impl Chain {
    const EMPTY: Self = Self {
        young: NONE,
        old: NONE,
        len: 0,
    };
}

/// Which caches a reference would have missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Misses {
    pub(crate) recency: bool,
    pub(crate) reuse: bool,
    /// Whether arrival misses; false where that is not [simulated](Duel::with_arrival).
    pub(crate) arrival: bool,
}

impl Misses {
    /// Whether a cache that follows `rule` misses.
    pub(crate) fn under(self, rule: Rule) -> bool {
        match rule {
            Rule::Recency => self.recency,
            Rule::Reuse => self.reuse,
        }
    }

    /// The score after this reference: misses of recency less misses of reuse. It is bounded, so that old merits are
    /// forgotten.
    pub(crate) fn score(self, before: i32, room: u32) -> i32 {
        let bound = Duel::bound(room);
        (before + i32::from(self.recency) - i32::from(self.reuse)).clamp(-bound, bound)
    }
}

/// The caches in miniature; see the [module](self).
#[derive(Debug)]
pub(crate) struct Duel {
    seats: Vec<Seat>,
    buckets: Vec<u16>,
    free: u16,
    recency: Chain,
    stack: Chain,
    trial: Chain,
    remembered: Chain,
    kept: u32,
    /// The seats that arrival holds. It has no capacity where arrival is not simulated.
    queue: VecDeque<u16>,
    /// Most seats of each cache.
    most: u32,
    /// Whether all seats were made at once.
    filled: bool,
}

impl Duel {
    /// Empty caches that have `most` seats at most.
    pub(crate) fn new(most: u32) -> Self {
        let seats = seats(most);
        Self {
            seats: Vec::with_capacity(seats),
            buckets: vec![NONE; seats.next_power_of_two() / 4],
            most,
            filled: false,
            free: NONE,
            recency: Chain::EMPTY,
            stack: Chain::EMPTY,
            trial: Chain::EMPTY,
            remembered: Chain::EMPTY,
            kept: 0,
            queue: VecDeque::new(),
        }
    }

    /// Adds a third cache, which evicts by arrival.
    pub(crate) fn with_arrival(mut self) -> Self {
        self.queue = VecDeque::with_capacity(self.most as usize);
        self
    }

    /// Makes all caches empty again.
    pub(crate) fn clear(&mut self) {
        self.seats.clear();
        self.buckets.fill(NONE);
        self.free = NONE;
        self.recency = Chain::EMPTY;
        self.stack = Chain::EMPTY;
        self.trial = Chain::EMPTY;
        self.remembered = Chain::EMPTY;
        self.kept = 0;
        self.queue.clear();
        if self.filled {
            self.fill();
        }
    }

    /// Makes all seats now, so that the tables take all their memory from the beginning.
    pub(crate) fn fill(&mut self) {
        self.filled = true;
        for at in self.seats.len()..seats(self.most) {
            let next = std::mem::replace(&mut self.free, at as u16);
            self.seats.push(Seat {
                next,
                ..Seat::EMPTY
            });
        }
    }

    /// The highest score; the lowest is its negative.
    pub(crate) fn bound(room: u32) -> i32 {
        (room as i32 / 4).max(8)
    }

    /// The score at which the rule that is ahead is followed.
    pub(crate) fn ahead(room: u32) -> i32 {
        (room as i32 / 20).max(1)
    }

    /// Simulates a use of `key`. All caches have `room` seats now. Returns `None` when the tables are full.
    pub(crate) fn reference(&mut self, key: u32, room: u32) -> Option<Misses> {
        let room = room.clamp(3, self.most);
        let seat = self.seat_of(key)?;
        Some(Misses {
            recency: self.recency(seat, room),
            reuse: self.reuse(seat, room),
            arrival: self.arrival(seat, room),
        })
    }

    /// Whether recency holds as many folios as it has seats when there are `room`.
    pub(crate) fn is_full(&self, room: u32) -> bool {
        self.recency.len >= room.clamp(3, self.most)
    }

    pub(crate) fn bytes(&self) -> u64 {
        let links = self.buckets.len() + self.queue.capacity();
        (self.seats.len() * size_of::<Seat>() + links * size_of::<u16>()) as u64
    }

    /// Whether the caches hold and remember no more than they may.
    pub(crate) fn is_bounded(&self) -> bool {
        self.recency.len <= self.most
            && self.kept + self.trial.len <= self.most
            && self.remembered.len <= 2 * self.most + 1
            && self.queue.len() <= self.most as usize
    }

    fn recency(&mut self, seat: u16, room: u32) -> bool {
        if self.at(seat).in_recency {
            self.remove(By::Recency, seat);
            self.push(By::Recency, seat);
            self.shrink_recency(room);
            return false;
        }
        self.shrink_recency(room - 1);
        self.at_mut(seat).in_recency = true;
        self.push(By::Recency, seat);
        true
    }

    /// Evicts the oldest until `most` are left. A hit does not enlarge a cache, but its number of seats may have
    /// decreased.
    fn shrink_recency(&mut self, most: u32) {
        for _ in 0..EVICT_MOST {
            if self.recency.len <= most {
                break;
            }
            let victim = self.recency.old;
            self.remove(By::Recency, victim);
            self.at_mut(victim).in_recency = false;
            self.free_if_unknown(victim);
        }
    }

    fn arrival(&mut self, seat: u16, room: u32) -> bool {
        if self.queue.capacity() == 0 {
            return false;
        }
        let missed = !self.at(seat).in_arrival;
        for _ in 0..EVICT_MOST {
            if self.queue.len() + usize::from(missed) <= room as usize {
                break;
            }
            let Some(victim) = self.queue.pop_front() else {
                break;
            };
            self.at_mut(victim).in_arrival = false;
            self.free_if_unknown(victim);
        }
        if missed && self.queue.len() < self.most as usize {
            self.queue.push_back(seat);
            self.at_mut(seat).in_arrival = true;
        }
        missed
    }

    fn reuse(&mut self, seat: u16, room: u32) -> bool {
        let keep = room - (room / 32).max(2).min(room - 1);
        match self.at(seat).reuse {
            Reuse::Kept => {
                self.put_on_top(seat);
                self.prune();
                if self.kept + self.trial.len > room {
                    self.make_room(keep);
                }
                false
            }
            Reuse::OnTrial => {
                self.remove(By::Trial, seat);
                if self.at(seat).on_stack {
                    self.keep(seat, keep);
                } else {
                    self.put_on_top(seat);
                    self.push(By::Trial, seat);
                }
                false
            }
            before => {
                for _ in 0..EVICT_MOST {
                    if self.kept + self.trial.len < room {
                        break;
                    }
                    self.make_room(keep);
                }
                if self.at(seat).reuse == Reuse::Remembered {
                    self.forget(seat);
                    self.keep(seat, keep);
                } else if before == Reuse::Unknown && self.kept < keep {
                    self.keep(seat, keep);
                } else {
                    self.put_on_top(seat);
                    self.at_mut(seat).reuse = Reuse::OnTrial;
                    self.push(By::Trial, seat);
                }
                true
            }
        }
    }

    /// Makes room: a folio that is on trial leaves.
    fn make_room(&mut self, keep: u32) {
        if self.trial.len == 0 || self.kept > keep {
            self.put_on_trial();
        }
        self.evict();
    }

    /// Keeps a folio that was used twice while the oldest kept one was not used. That one goes on trial if there are
    /// too many.
    fn keep(&mut self, seat: u16, most: u32) {
        self.put_on_top(seat);
        self.at_mut(seat).reuse = Reuse::Kept;
        self.kept += 1;
        if self.kept > most {
            self.put_on_trial();
        }
    }

    fn put_on_trial(&mut self) {
        self.prune();
        let oldest = self.stack.old;
        if oldest == NONE {
            return;
        }
        self.remove(By::Stack, oldest);
        let seat = self.at_mut(oldest);
        (seat.on_stack, seat.reuse) = (false, Reuse::OnTrial);
        self.kept -= 1;
        self.push(By::Trial, oldest);
        self.prune();
    }

    /// Ends the stack with a kept folio: if a folio older than all kept ones is used again, that proves nothing.
    fn prune(&mut self) {
        while self.stack.old != NONE && self.at(self.stack.old).reuse != Reuse::Kept {
            let seat = self.stack.old;
            self.remove(By::Stack, seat);
            self.at_mut(seat).on_stack = false;
            if self.at(seat).reuse == Reuse::Remembered {
                self.forget(seat);
                self.free_if_unknown(seat);
            }
        }
    }

    /// Evicts the folio that has been on trial for longest. It is remembered while it is on the stack.
    fn evict(&mut self) {
        let victim = self.trial.old;
        if victim == NONE {
            return;
        }
        self.remove(By::Trial, victim);
        if !self.at(victim).on_stack {
            self.at_mut(victim).reuse = Reuse::Unknown;
            self.free_if_unknown(victim);
            return;
        }
        self.at_mut(victim).reuse = Reuse::Remembered;
        self.push(By::Trial, victim);
        if self.remembered.len > 2 * (self.kept + self.trial.len).max(1) {
            let oldest = self.remembered.old;
            self.remove(By::Stack, oldest);
            self.at_mut(oldest).on_stack = false;
            self.forget(oldest);
            self.free_if_unknown(oldest);
        }
    }

    fn forget(&mut self, seat: u16) {
        self.remove(By::Trial, seat);
        self.at_mut(seat).reuse = Reuse::Unknown;
    }

    fn put_on_top(&mut self, seat: u16) {
        if self.at(seat).on_stack {
            self.remove(By::Stack, seat);
        }
        self.at_mut(seat).on_stack = true;
        self.push(By::Stack, seat);
    }

    fn at(&self, seat: u16) -> &Seat {
        &self.seats[usize::from(seat)]
    }

    fn at_mut(&mut self, seat: u16) -> &mut Seat {
        &mut self.seats[usize::from(seat)]
    }

    fn chain(&mut self, by: By, seat: u16) -> &mut Chain {
        match by {
            By::Recency => &mut self.recency,
            By::Stack => &mut self.stack,
            By::Trial if self.at(seat).reuse == Reuse::Remembered => &mut self.remembered,
            By::Trial => &mut self.trial,
        }
    }

    fn push(&mut self, by: By, seat: u16) {
        let chain = self.chain(by, seat);
        let young = std::mem::replace(&mut chain.young, seat);
        chain.len += 1;
        if young == NONE {
            chain.old = seat;
        } else {
            self.at_mut(young).links[by as usize].0 = seat;
        }
        self.at_mut(seat).links[by as usize] = (NONE, young);
    }

    fn remove(&mut self, by: By, seat: u16) {
        let (younger, older) = self.at(seat).links[by as usize];
        let chain = self.chain(by, seat);
        chain.len -= 1;
        if younger == NONE {
            chain.young = older;
        }
        if older == NONE {
            chain.old = younger;
        }
        if younger != NONE {
            self.at_mut(younger).links[by as usize].1 = older;
        }
        if older != NONE {
            self.at_mut(older).links[by as usize].0 = younger;
        }
    }

    fn seat_of(&mut self, key: u32) -> Option<u16> {
        let bucket = self.bucket(key);
        let mut at = self.buckets[bucket];
        while at != NONE {
            if self.at(at).key == key {
                return Some(at);
            }
            at = self.at(at).next;
        }
        let seat = Seat {
            key,
            next: self.buckets[bucket],
            ..Seat::EMPTY
        };
        let at = match self.free {
            NONE if self.seats.len() < seats(self.most) => {
                self.seats.push(seat);
                self.seats.len() as u16 - 1
            }
            NONE => return None,
            free => {
                self.free = self.at(free).next;
                *self.at_mut(free) = seat;
                free
            }
        };
        self.buckets[bucket] = at;
        Some(at)
    }

    fn bucket(&self, key: u32) -> usize {
        // The number of buckets is a power of two. The bucket takes other bits than those that chose the sample.
        hash(key) as usize & (self.buckets.len() - 1)
    }

    /// Frees a seat that no cache uses.
    fn free_if_unknown(&mut self, seat: u16) {
        let gone = *self.at(seat);
        if gone.in_recency || gone.in_arrival || gone.reuse != Reuse::Unknown {
            return;
        }
        let bucket = self.bucket(gone.key);
        if self.buckets[bucket] == seat {
            self.buckets[bucket] = gone.next;
        } else {
            let mut at = self.buckets[bucket];
            while self.at(at).next != seat {
                at = self.at(at).next;
            }
            self.at_mut(at).next = gone.next;
        }
        let free = std::mem::replace(&mut self.free, seat);
        self.at_mut(seat).next = free;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a sweep up and down LRU keeps the pages that come next; with random use no rule does, and arrival is equally
    /// good.
    #[test]
    fn arrival_order_loses_in_a_sweep_and_ties_with_random_use() {
        let misses = |key: &dyn Fn(u32) -> u32| {
            let mut duel = Duel::new(256).with_arrival();
            let mut count = [0, 0];
            for n in 0..20_000 {
                let would = duel.reference(key(n), 200).unwrap();
                count[0] += u32::from(would.recency);
                count[1] += u32::from(would.arrival);
                assert!(duel.is_bounded());
            }
            count
        };
        let [lru, fifo] = misses(&|n| (n % 598).min(598 - n % 598));
        assert!(fifo * 10 > lru * 11, "{fifo} {lru}");
        let [lru, fifo] = misses(&|n| hash(n) % 300);
        assert!(fifo.abs_diff(lru) < lru / 20, "{fifo} {lru}");
    }

    /// The cache holds all of a loop; then there is room for half of it, and LRU misses each time.
    #[test]
    fn a_cache_that_never_misses_shrinks_with_its_seats() {
        let mut duel = Duel::new(256);
        let mut misses = |room: u32| {
            let rounds = (0..2000).map(|n| duel.reference(n % 200, room).unwrap());
            let late: Vec<Misses> = rounds.skip(1000).collect();
            let count = |of: fn(&Misses) -> bool| late.iter().filter(|&would| of(would)).count();
            (count(|would| would.recency), count(|would| would.reuse))
        };
        assert_eq!(misses(200), (0, 0));
        let (recency, reuse) = misses(100);
        assert_eq!(recency, 1000);
        assert!((480..620).contains(&reuse), "{reuse}");
    }
}
