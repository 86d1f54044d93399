//! The entries of the tables, in rows. A table has only the rows that hold something.
//!
//! A program may touch a byte in each 2 MiB: hash tables with holes, sparse matrices, arenas of allocators. When every
//! table took 4 KiB, 20,000 such bytes, which are 80 MB natively, took 90 MB of tables, in a budget of 32.
//!
//! An entry keeps its *index*, which is the number of its table and its place in the table, whatever row holds it:
//! folios name the index, and a table that is assigned to another leaf takes its rows along.

use super::packing::EMPTY;
use crate::addr::{LEAF_PAGES, PageCount};
use crate::tables::extent::extent;
use std::ops::Range;

/// Entries of a row. Rows of 64 would make the tables of densely used memory larger than they may be (8 bytes a mapped
/// page and 48 a resident folio), by 0.2 %.
const ROW: usize = 128;
/// Number of rows of a full table.
const OF_TABLE: usize = LEAF_PAGES as usize / ROW;
/// The value for no row: rows are numbered from one.
const NONE: u32 = 0;

/// The rows of all tables.
#[derive(Debug)]
pub(super) struct Rows {
    entries: Vec<u64>,
    /// For each row that a table may have, the row that it has, or [`NONE`]: an absent row is empty.
    places: Vec<u32>,
    /// Number of nonempty entries of each row, by the row's number less one.
    used: Vec<u8>,
    /// Rows that were used before and are empty now.
    free: Vec<u32>,
    /// Number of rows ever used: rows with higher numbers never were.
    fresh: u32,
}

impl Rows {
    pub(super) fn new(arena: PageCount) -> Self {
        let most = arena.0 as usize / ROW;
        Self {
            entries: vec![EMPTY; arena.0 as usize],
            places: vec![NONE; most],
            used: vec![0; most],
            free: Vec::with_capacity(most),
            fresh: 0,
        }
    }

    /// Calls `each` with the addresses of each long table.
    pub(super) fn each_table(&self, each: &mut dyn FnMut(Range<usize>)) {
        each(extent(&self.entries));
        each(extent(&self.places));
        each(extent(&self.used));
        each(extent(&self.free));
    }

    /// Begins a table with these indices, which was never used.
    ///
    /// New memory is written before it is read: reading memory that was never written maps the kernel's page of zeros,
    /// and when the first write replaces that page, all processors that run the program are interrupted.
    pub(super) fn begin(&mut self, table: Range<usize>) {
        self.places[table.start / ROW..table.end / ROW].fill(NONE);
    }

    /// The bits of the entry with this index.
    #[inline]
    pub(super) fn get(&self, index: usize) -> u64 {
        match self.places[index / ROW] {
            NONE => EMPTY,
            row => self.entries[first_of(row) + index % ROW],
        }
    }

    /// The bits of the entries with these indices, in order.
    pub(super) fn entries(&self, indices: Range<usize>) -> impl Iterator<Item = u64> {
        indices.map(|index| self.get(index))
    }

    /// Changes entries. `to` gives the new bits of an entry by its number in the range and its old bits; `note` gets
    /// both, except for entries in rows that are absent and stay absent.
    pub(super) fn change(
        &mut self,
        indices: Range<usize>,
        to: impl Fn(u32, u64) -> u64,
        mut note: impl FnMut(u64, u64),
    ) {
        let mut start = indices.start;
        while start < indices.end {
            let end = indices.end.min((start / ROW + 1) * ROW);
            let number = (start - indices.start) as u32;
            self.change_one(start..end, |n, bits| to(number + n, bits), &mut note);
            start = end;
        }
    }

    fn change_one(
        &mut self,
        indices: Range<usize>,
        to: impl Fn(u32, u64) -> u64,
        note: &mut impl FnMut(u64, u64),
    ) {
        let place = indices.start / ROW;
        let len = indices.len();
        let row = match self.places[place] {
            NONE if (0..len).all(|n| to(n as u32, EMPTY) == EMPTY) => return,
            NONE => self.take(place),
            row => row,
        };
        let first = first_of(row) + indices.start % ROW;
        let used = &mut self.used[row as usize - 1];
        for (n, entry) in self.entries[first..first + len].iter_mut().enumerate() {
            let bits = to(n as u32, *entry);
            let before = std::mem::replace(entry, bits);
            *used = *used + u8::from(bits != EMPTY) - u8::from(before != EMPTY);
            note(before, bits);
        }
        if *used == 0 {
            self.places[place] = NONE;
            self.free.push(row);
        }
    }

    fn take(&mut self, place: usize) -> u32 {
        let row = self.free.pop().unwrap_or_else(|| {
            self.fresh += 1;
            // As in `begin`.
            let first = first_of(self.fresh);
            self.entries[first..first + ROW].fill(EMPTY);
            self.used[self.fresh as usize - 1] = 0;
            self.fresh
        });
        self.places[place] = row;
        row
    }

    /// Bytes of memory that the system has given to the rows of this many tables.
    pub(super) fn bytes(&self, tables: u32) -> u64 {
        let of_row = ROW * size_of::<u64>() + size_of::<u8>();
        let of_table = OF_TABLE * size_of::<u32>();
        u64::from(self.fresh) * of_row as u64 + u64::from(tables) * of_table as u64
    }
}

fn first_of(row: u32) -> usize {
    (row as usize - 1) * ROW
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Isolated pages have a row each, and a row that became empty is reused.
    #[test]
    fn memory_of_a_table_follows_its_contents() {
        let mut rows = Rows::new(PageCount(8 * LEAF_PAGES));
        let leaf = LEAF_PAGES as usize;
        for table in 0..8 {
            rows.change(table * leaf + 70..table * leaf + 71, |_, _| 9, |_, _| {});
        }
        assert_eq!(rows.fresh, 8);
        assert!(rows.bytes(8) < 8 * 1200);
        rows.change(70..71, |_, _| EMPTY, |_, _| {});
        rows.change(300..301, |_, _| 7, |_, _| {});
        assert_eq!(rows.fresh, 8);
        assert_eq!(
            (rows.get(70), rows.get(300), rows.get(301)),
            (EMPTY, 7, EMPTY)
        );
        assert_eq!(rows.get(leaf + 70), 9);
    }

    /// A change that leaves all entries empty takes no row, and one across rows numbers its entries throughout.
    #[test]
    fn a_change_crosses_rows() {
        let mut rows = Rows::new(PageCount(LEAF_PAGES));
        rows.change(0..512, |_, bits| bits, |_, _| panic!("nothing was there"));
        assert_eq!(rows.fresh, 0);
        rows.change(60..200, |n, _| u64::from(n) + 1, |_, _| {});
        assert!(rows.entries(60..200).eq(1..=140));
        assert_eq!(
            rows.entries(0..512).filter(|&bits| bits != EMPTY).count(),
            140
        );
        rows.change(0..512, |_, _| EMPTY, |_, _| {});
        assert_eq!(rows.free.len(), rows.fresh as usize);
    }
}
