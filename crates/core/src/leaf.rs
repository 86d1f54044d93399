//! Leaf tables: what each page of the arena is now.
//!
//! A leaf covers 2 MiB by 512 entries of 8 bytes, like the lowest level of a page table. A directory maps the
//! leaves of the arena to the tables in use, so that a range of addresses that nobody touches costs four
//! bytes for each 2 MiB, and so that moving 2 MiB of memory is moving one directory entry: folios name their
//! place in a table, not their address, and each table knows the leaf that it serves.
//!
//! Tables live in one array, sized for the whole arena when the core is built. It comes zeroed from the
//! allocator, which for arrays of this size means address space that the kernel backs on first touch; zero is
//! the empty entry. Giving a page an entry therefore never allocates, and a table that has become empty is the
//! next one to be used again.

use crate::addr::{LEAF_PAGES, PageCount, PageIndex, PageRange};
use crate::folio::FolioId;
use crate::swap::SlotId;

/// What a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Nothing: it reads as zeros, and was never touched or was discarded since.
    Empty,
    /// Part of a folio that is in memory: mapped, in limbo, or on its way.
    Folio(FolioId),
    /// In the store: page `index` of `slot`.
    Swapped {
        /// The slot.
        slot: SlotId,
        /// Which of the slot's pages.
        index: u16,
    },
    /// It was in memory, held nothing but zeros and was given up: as good as empty, but it counts as touched.
    Zero,
    /// Its contents were lost by a failed load. Only a discard changes that.
    Poisoned,
}

const KIND_BITS: u32 = 3;
const KIND_MASK: u64 = (1 << KIND_BITS) - 1;
const INDEX_SHIFT: u32 = 48;
const NO_TABLE: u32 = 0;

impl Entry {
    fn pack(self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Folio(folio) => u64::from(folio.0) << KIND_BITS | 1,
            Self::Swapped { slot, index } => {
                u64::from(index) << INDEX_SHIFT | u64::from(slot.0) << KIND_BITS | 2
            }
            Self::Poisoned => 3,
            Self::Zero => 4,
        }
    }

    fn unpack(bits: u64) -> Self {
        let number = (bits >> KIND_BITS) as u32;
        match bits & KIND_MASK {
            0 => Self::Empty,
            1 => Self::Folio(FolioId(number)),
            2 => Self::Swapped {
                slot: SlotId(number),
                index: (bits >> INDEX_SHIFT) as u16,
            },
            3 => Self::Poisoned,
            _ => Self::Zero,
        }
    }
}

/// Where an entry is: table number less one times 512, and the index in it. It moves with its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place(u32);

impl Place {
    /// The place `pages` further on, in the same table.
    pub(crate) fn plus(self, pages: u32) -> Self {
        Self(self.0 + pages)
    }
}

/// The directory and the tables.
#[derive(Debug)]
pub(crate) struct LeafTable {
    /// Table number plus one for each leaf of the arena; [`NO_TABLE`] where it has none.
    directory: Vec<u32>,
    entries: Vec<u64>,
    /// Entries of each table that are not empty.
    used: Vec<u16>,
    /// The leaf that each table serves.
    serves: Vec<u32>,
    /// Tables that were used before and are empty now.
    free: Vec<u32>,
    /// Tables from here on were never used.
    fresh: u32,
}

impl LeafTable {
    pub(crate) fn new(arena: PageCount) -> Self {
        let leaves = (arena.0 / LEAF_PAGES) as usize;
        Self {
            directory: vec![NO_TABLE; leaves],
            entries: vec![0; arena.0 as usize],
            used: vec![0; leaves],
            serves: vec![0; leaves],
            free: Vec::with_capacity(leaves),
            fresh: 0,
        }
    }

    /// What `page` is.
    pub(crate) fn get(&self, page: PageIndex) -> Entry {
        match self.directory[page.leaf() as usize] {
            NO_TABLE => Entry::Empty,
            table => Entry::unpack(self.entries[Self::place(table, page)]),
        }
    }

    /// Makes `page` be `entry`.
    pub(crate) fn set(&mut self, page: PageIndex, entry: Entry) {
        let leaf = page.leaf() as usize;
        let table = match self.directory[leaf] {
            NO_TABLE if entry == Entry::Empty => return,
            NO_TABLE => self.take_table(leaf),
            table => table,
        };
        let place = Self::place(table, page);
        let was_empty = self.entries[place] == 0;
        self.entries[place] = entry.pack();
        let used = &mut self.used[table as usize - 1];
        match (was_empty, entry == Entry::Empty) {
            (true, false) => *used += 1,
            (false, true) => {
                *used -= 1;
                if *used == 0 {
                    self.directory[leaf] = NO_TABLE;
                    self.free.push(table);
                }
            }
            _ => {}
        }
    }

    /// Where the entry of `page` is. Its leaf gets a table if it has none, so an entry must be given next.
    pub(crate) fn place_of(&mut self, page: PageIndex) -> Place {
        let leaf = page.leaf() as usize;
        let table = match self.directory[leaf] {
            NO_TABLE => self.take_table(leaf),
            table => table,
        };
        Place(Self::place(table, page) as u32)
    }

    /// The page whose entry is at `place` now.
    pub(crate) fn page_at(&self, place: Place) -> PageIndex {
        let leaf = self.serves[(place.0 / LEAF_PAGES) as usize];
        PageIndex(leaf * LEAF_PAGES + place.0 % LEAF_PAGES)
    }

    /// The table of the leaf `from`, if it has one, serves the leaf `to` from now on, which must have none.
    pub(crate) fn move_leaf(&mut self, from: u32, to: u32) {
        debug_assert_eq!(self.directory[to as usize], NO_TABLE);
        let table = std::mem::replace(&mut self.directory[from as usize], NO_TABLE);
        self.directory[to as usize] = table;
        if table != NO_TABLE {
            self.serves[table as usize - 1] = to;
        }
    }

    /// Makes every page of `range` be `entry`.
    pub(crate) fn fill(&mut self, range: PageRange, entry: Entry) {
        for page in range.pages() {
            self.set(page, entry);
        }
    }

    /// How many pages of `range` are zero though touched before, if every page of it reads as zeros and is in no folio.
    pub(crate) fn blank(&self, range: PageRange) -> Option<u32> {
        let mut zeros = 0;
        for page in range.pages() {
            match self.get(page) {
                Entry::Empty => {}
                Entry::Zero => zeros += 1,
                _ => return None,
            }
        }
        Some(zeros)
    }

    /// How many pages of `range` are zero though touched before.
    pub(crate) fn count_zeros(&self, range: PageRange) -> u32 {
        range
            .pages()
            .filter(|&page| self.get(page) == Entry::Zero)
            .count() as u32
    }

    /// Whether the leaf of `page` holds anything at all.
    pub(crate) fn leaf_in_use(&self, page: PageIndex) -> bool {
        self.directory[page.leaf() as usize] != NO_TABLE
    }

    /// Bytes of memory that tables and directory have been given by the system.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.fresh) * u64::from(LEAF_PAGES) * 8
            + (self.directory.len() + self.fresh as usize) as u64 * 4
    }

    /// The leaves in use, with the number of entries counted in each. For checks.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (u32, u16)> + '_ {
        let in_use = |(leaf, &table): (usize, &u32)| {
            (table != NO_TABLE).then(|| (leaf as u32, self.used[table as usize - 1]))
        };
        self.directory.iter().enumerate().filter_map(in_use)
    }

    fn take_table(&mut self, leaf: usize) -> u32 {
        let table = self.free.pop().unwrap_or_else(|| {
            self.fresh += 1;
            self.fresh
        });
        self.directory[leaf] = table;
        self.serves[table as usize - 1] = leaf as u32;
        table
    }

    fn place(table: u32, page: PageIndex) -> usize {
        (table - 1) as usize * LEAF_PAGES as usize + (page.0 % LEAF_PAGES) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn entries_survive_packing() {
        for entry in [
            Entry::Empty,
            Entry::Folio(FolioId(0)),
            Entry::Folio(FolioId(u32::MAX)),
            Entry::Swapped {
                slot: SlotId(u32::MAX),
                index: 511,
            },
            Entry::Swapped {
                slot: SlotId(0),
                index: 0,
            },
            Entry::Poisoned,
            Entry::Zero,
        ] {
            assert_eq!(Entry::unpack(entry.pack()), entry);
        }
    }

    #[test]
    fn an_emptied_table_is_used_again() {
        let mut leaves = LeafTable::new(PageCount(4 * LEAF_PAGES));
        for round in 0..10 {
            let page = PageIndex(round % 4 * LEAF_PAGES + round);
            leaves.set(page, Entry::Poisoned);
            leaves.set(page, Entry::Empty);
        }
        assert_eq!(leaves.fresh, 1);
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(ops in prop::collection::vec((0u32..2048, 0u32..4), 1..400)) {
            let mut leaves = LeafTable::new(PageCount(2048));
            let mut model = HashMap::new();
            for (page, kind) in ops {
                let entry = match kind {
                    0 => Entry::Empty,
                    1 => Entry::Folio(FolioId(page)),
                    2 => Entry::Swapped { slot: SlotId(page), index: 3 },
                    _ => Entry::Poisoned,
                };
                leaves.set(PageIndex(page), entry);
                model.insert(page, entry);
            }
            for page in 0..2048 {
                let expected = model.get(&page).copied().unwrap_or(Entry::Empty);
                prop_assert_eq!(leaves.get(PageIndex(page)), expected);
            }
        }
    }
}
