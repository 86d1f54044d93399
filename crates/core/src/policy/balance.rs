//! How much of what leaves memory is anonymous, and how much is of files.
//!
//! Pages of both kinds share one budget, but not the price of a mistake. An anonymous page that comes back is read from
//! the store, 6 µs where that is compressed RAM; a page of a file from wherever the file is, 60 to 100 from a disk and
//! more from far away. And the kinds are used differently: files are often read once, the heap over and over. So one
//! list of both, ordered by age, would throw out what is dear for what is cheap. Each kind has lists of its own, on
//! which ages decide as before ([`workingset`](crate::policy::workingset)), and here is decided whose turn it is.
//!
//! # Derivation
//! Let `x` pages be taken from anonymous memory in a while and `y` from files. What that costs later is
//! `C_a·r_a(x) + C_f·r_f(y)`, with `C` the price of a refault and `r` how many follow. For a given sum it is least
//! where the next page costs the same on both sides:
//!
//! ```text
//!     C_a · r_a'(x) = C_f · r_f'(y)
//! ```
//!
//! The slopes are not known, but what was paid of late is: each refault adds its price to its kind's *cost*. The kind
//! that has cost more is spared, in proportion, until it does not cost more any more:
//!
//! ```text
//!     pressure on anonymous = cost of files / cost of both        and the other way round
//! ```
//!
//! A kind gives a share of its own pages, not a number: as many of all as it has of all, times its pressure. With equal
//! costs, or none, both lose the same share of their pages. (Linux's `get_scan_count` with `anon_cost` and `file_cost`
//! does the same, but for the bounds: there pressures keep to between one third and two.)
//!
//! *Lately* is what it cost to bring in a quarter of the pages that there are; beyond that both costs are halved. So a
//! program that changes is followed within one turnover of memory, and the ratio rests on hundreds of refaults.
//!
//! # When it is wrong
//! No pressure goes below an eighth or above seven. A kind that is never looked at can not show that it has become
//! idle; with an eighth of the pressure the idle pages of the dear kind leave eight times as slowly, which costs that
//! much memory for a while, and no refault. Prices that are told wrong by a factor shift the balance by at most that.
//! Memory of one kind only is not touched by any of this.
//!
//! # Turns
//! A batch takes folios one at a time, and kinds in turn: each kind has a clock that a victim puts forward by its pages
//! over what the kind is to give, and the one that is behind is next. A kind that has nothing to give does not fall
//! behind by more than a thirty-second of its pages, so that it need not make up for it later.
//!
//! Pages mapped straight from the memory that holds their file ([`Kind::Direct`](crate::Kind)) are files' pages here,
//! but cost nothing when they come back: there is nothing to read. They leave no shadow, so they are never refaults,
//! and they do not add to the cost of files.

use crate::ids::{ANON, FILE, KINDS};

/// Pressures are in 1/1024 …
const ALL: u64 = 1024;
/// … and no kind's is less.
const LEAST: u64 = ALL / 8;
/// What a clock shows when all of a kind was taken with all of the pressure.
const TURN: u64 = 1 << 20;
/// How far a clock may be behind.
const LAG: u64 = TURN / 32;

/// What refaults have cost of late, and whose turn it is. By kind: [`ANON`], [`FILE`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Balance {
    cost: [u64; KINDS],
    clock: [u64; KINDS],
}

impl Balance {
    /// `pages` pages have come back, at this price each. There are `all` pages, and the dearer kind has the price
    /// `most`.
    pub(crate) fn note_cost(&mut self, kind: usize, pages: u32, price: u32, all: u32, most: u32) {
        self.cost[kind] += u64::from(pages) * u64::from(price);
        let lately = (u64::from(all / 4) * u64::from(most)).max(1);
        while self.cost[ANON] + self.cost[FILE] > lately {
            self.cost = self.cost.map(|cost| cost / 2);
        }
    }

    /// The share of all pressure that is on one kind, in 1/1024.
    pub(crate) fn pressure(&self, kind: usize) -> u64 {
        let both = self.cost[ANON] + self.cost[FILE];
        let spared = (ALL * (2 * self.cost[kind] + 1)) / (2 * both + 2);
        (ALL - spared).clamp(LEAST, ALL - LEAST)
    }

    /// Whose turn it is, if both have something to give.
    pub(crate) fn next(&self) -> usize {
        match self.clock[FILE] < self.clock[ANON] {
            true => FILE,
            false => ANON,
        }
    }

    /// Pages of one kind are on their way out; of each kind there are `sizes`.
    pub(crate) fn gave(&mut self, kind: usize, pages: u32, sizes: [u32; KINDS]) {
        let other = 1 - kind;
        if sizes[other] == 0 {
            return;
        }
        let share = u64::from(sizes[kind].max(1)) * self.pressure(kind);
        self.clock[kind] += u64::from(pages) * TURN * ALL / share;
        self.clock[other] = self.clock[other].max(self.clock[kind].saturating_sub(LAG));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of so many pages that leave, how many are anonymous.
    fn anon_of(balance: &mut Balance, sizes: [u32; KINDS], pages: u32) -> u32 {
        let mut anon = 0;
        for _ in 0..pages {
            let kind = balance.next();
            balance.gave(kind, 1, sizes);
            anon += u32::from(kind == ANON);
        }
        anon
    }

    #[test]
    fn without_costs_each_kind_gives_the_same_share_of_its_pages() {
        let anon = anon_of(&mut Balance::default(), [3000, 1000], 1000);
        assert!(anon.abs_diff(750) <= 40, "{anon}");
    }

    #[test]
    fn who_has_cost_more_gives_less_but_not_nothing() {
        for (dear, cheap) in [(ANON, FILE), (FILE, ANON)] {
            let mut balance = Balance::default();
            balance.note_cost(dear, 30, 256, 4000, 256);
            balance.note_cost(cheap, 10, 256, 4000, 256);
            assert!(balance.pressure(dear).abs_diff(ALL / 4) <= 1);
            let anon = anon_of(&mut balance, [1000, 1000], 1000);
            let given = if dear == ANON { anon } else { 1000 - anon };
            assert!(given.abs_diff(250) <= 40, "{given}");
            balance.note_cost(dear, 900, 256, 4000, 256);
            assert_eq!(balance.pressure(dear), LEAST);
            assert_eq!(balance.pressure(cheap), ALL - LEAST);
        }
    }

    #[test]
    fn what_was_paid_long_ago_is_forgotten() {
        let mut balance = Balance::default();
        balance.note_cost(ANON, 900, 256, 4000, 256);
        for _ in 0..4000 {
            balance.note_cost(FILE, 1, 256, 4000, 256);
        }
        assert_eq!(balance.pressure(FILE), LEAST);
    }

    #[test]
    fn a_kind_that_could_not_give_owes_little() {
        let (mut balance, sizes) = (Balance::default(), [1000, 1000]);
        for _ in 0..5000 {
            balance.gave(ANON, 1, sizes);
        }
        let mut in_a_row = 0;
        while balance.next() == FILE {
            balance.gave(FILE, 1, sizes);
            in_a_row += 1;
        }
        assert!(in_a_row <= 1000 / 32, "{in_a_row}");
    }

    /// A kind that nobody else is beside has no turns to wait for.
    #[test]
    fn alone_nothing_is_counted() {
        let mut balance = Balance::default();
        balance.gave(ANON, 500, [1000, 0]);
        assert_eq!(balance.next(), ANON);
        balance.gave(FILE, 500, [0, 1000]);
        assert_eq!(balance.clock, [0, 0]);
    }
}
