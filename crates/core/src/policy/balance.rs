//! The balance: how much of the memory that leaves is anonymous, and how much belongs to files.
//!
//! Pages of both kinds share one budget, but not the price of a mistake. An anonymous page that comes back is read from
//! the store, 6 µs where that is compressed RAM; a page of a file is read from wherever the file is, 60 to 100 µs from
//! a disk and more from far away. And the kinds are used differently: files are often read once, the heap over and
//! over. So a single list of both, ordered by age, would evict expensive pages in favour of cheap ones. Each kind has
//! its own lists, on which ages decide as before ([`workingset`](crate::policy::workingset)), and this file decides
//! which kind's turn it is.
//!
//! # Derivation
//! Let `x` pages be taken from anonymous memory in some period and `y` from files. The later cost of that is
//! `C_a·r_a(x) + C_f·r_f(y)`, with `C` the price of a refault and `r` the number of refaults that follow. For a given
//! sum the cost is lowest where the next page costs the same on both sides:
//!
//! ```text
//!     C_a · r_a'(x) = C_f · r_f'(y)
//! ```
//!
//! The slopes are not known, but the prices recently paid are: each refault adds its price to its kind's *cost*. The
//! kind that has cost more is spared, in proportion, until it no longer costs more:
//!
//! ```text
//!     pressure on anonymous = cost of files / cost of both        and the other way round
//! ```
//!
//! A kind gives a share of its own pages, not a number: its share of all the pages, times its pressure. With equal
//! costs, or none, both lose the same share of their pages. (Linux's `get_scan_count` with `anon_cost` and `file_cost`
//! does the same with different bounds: its pressures stay between one third and two thirds.)
//!
//! *Recently* is measured by cost: when both costs together exceed the price of a quarter of the pages in memory, both
//! are halved. So the balance follows a changing program within one turnover of memory, and the ratio rests on hundreds
//! of refaults.
//!
//! # When it is wrong
//! No pressure goes below an eighth or above seven eighths. A kind that is never scanned cannot show that it has become
//! idle; with an eighth of the pressure the idle pages of the expensive kind leave eight times as slowly, which costs
//! that much memory for a while, and no refault. Prices that are wrong by a factor shift the balance by at most that
//! factor. If memory has only one kind, none of this applies.
//!
//! # Turns
//! A batch takes folios one at a time, and kinds in turn. Each kind has a clock that a victim advances by its pages
//! divided by the pages that the kind should give. The kind whose clock is behind is next. A kind that has nothing to
//! give does not fall behind by more than a thirty-second of its pages, so that it need not make up for more later.
//!
//! Pages mapped directly from the memory that holds their file ([`Kind::Direct`](crate::Kind)) are files' pages here,
//! but cost nothing when they come back: there is nothing to read. They leave no shadow, so they are never refaults,
//! and they do not add to the cost of files.

use crate::ids::{ANON, FILE, KINDS};

/// The unit of pressures: they are in 1/1024.
const ALL: u64 = 1024;
/// Least pressure on a kind.
const LEAST: u64 = ALL / 8;
/// The distance that a clock moves when all pages of a kind were taken under all of the pressure.
const TURN: u64 = 1 << 20;
/// Maximum distance by which a clock may be behind.
const LAG: u64 = TURN / 32;

/// The recent cost of refaults, and the clocks of the turns. Both are by kind: [`ANON`], [`FILE`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Balance {
    cost: [u64; KINDS],
    clock: [u64; KINDS],
}

impl Balance {
    /// Notes that `pages` pages have come back, at this price each. There are `all` pages in memory, and the more
    /// expensive kind has the price `most`.
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

    /// The kind whose turn it is, if both have something to give.
    pub(crate) fn next(&self) -> usize {
        match self.clock[FILE] < self.clock[ANON] {
            true => FILE,
            false => ANON,
        }
    }

    /// Notes that pages of one kind are on their way out. `sizes` are the pages in memory, by kind.
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

    /// How many of `pages` pages that leave are anonymous.
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
    fn the_dearer_kind_gives_less_but_not_nothing() {
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
    fn old_costs_are_forgotten() {
        let mut balance = Balance::default();
        balance.note_cost(ANON, 900, 256, 4000, 256);
        for _ in 0..4000 {
            balance.note_cost(FILE, 1, 256, 4000, 256);
        }
        assert_eq!(balance.pressure(FILE), LEAST);
    }

    #[test]
    fn debt_of_a_kind_that_could_not_give_is_bounded() {
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

    /// A kind that has memory to itself has no turns to wait for.
    #[test]
    fn no_turns_are_counted_for_a_kind_without_company() {
        let mut balance = Balance::default();
        balance.gave(ANON, 500, [1000, 0]);
        assert_eq!(balance.next(), ANON);
        balance.gave(FILE, 500, [0, 1000]);
        assert_eq!(balance.clock, [0, 0]);
    }
}
