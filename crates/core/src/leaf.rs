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
//!
//! What left memory leaves its *shadow* behind: the bits of an entry that its kind has no use for ([`workingset`](crate::workingset)
//! says what they mean). A page in the store, and one that was given up as zeros, have an entry anyway, and its shadow
//! costs nothing. A page whose contents were dropped has nothing but a shadow: its entry reads as empty. A table that
//! holds nothing else is memory spent on the past; it waits on a list of its lruvec, oldest first, to be dropped when
//! there are too many. Who is on these lists follows from the counts of each table alone, and [`LeafTable::set`] and
//! [`LeafTable::set_shadow`] are the only ways to change an entry, so that every path keeps them right.

use crate::addr::{LEAF_PAGES, MAX_ORDER, PageCount, PageIndex, PageRange};
use crate::folio::FolioId;
use crate::swap::SlotId;
use std::ops::Range;

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
const INDEX_BITS: u32 = MAX_ORDER as u32;
const NO_TABLE: u32 = 0;

const EMPTY: u64 = 0;
const FOLIO: u64 = 1;
const SWAPPED: u64 = 2;
const POISONED: u64 = 3;
const ZERO: u64 = 4;
/// Empty, with a shadow.
const SHADOW: u64 = 5;

/// Which bits of an entry are what. From the low end: kind, number of a folio or slot, page of the slot, shadow.
#[derive(Clone, Copy, Debug)]
struct Packing {
    slot_bits: u32,
}

impl Packing {
    fn shadow_shift(self) -> u32 {
        KIND_BITS + self.slot_bits + INDEX_BITS
    }

    fn pack(self, entry: Entry) -> u64 {
        match entry {
            Entry::Empty => EMPTY,
            Entry::Folio(folio) => u64::from(folio.0) << KIND_BITS | FOLIO,
            Entry::Swapped { slot, index } => {
                debug_assert!(u64::from(slot.0) < 1 << self.slot_bits);
                let index = u64::from(index) << (KIND_BITS + self.slot_bits);
                index | u64::from(slot.0) << KIND_BITS | SWAPPED
            }
            Entry::Poisoned => POISONED,
            Entry::Zero => ZERO,
        }
    }

    fn unpack(self, bits: u64) -> Entry {
        let number = bits >> KIND_BITS;
        match bits & KIND_MASK {
            FOLIO => Entry::Folio(FolioId(number as u32)),
            SWAPPED => Entry::Swapped {
                slot: SlotId((number & ((1 << self.slot_bits) - 1)) as u32),
                index: (number >> self.slot_bits & ((1 << INDEX_BITS) - 1)) as u16,
            },
            POISONED => Entry::Poisoned,
            ZERO => Entry::Zero,
            _ => Entry::Empty,
        }
    }

    fn shadow(self, bits: u64) -> u32 {
        match bits & KIND_MASK {
            SWAPPED | ZERO | SHADOW => (bits >> self.shadow_shift()) as u32,
            _ => 0,
        }
    }

    fn with_shadow(self, bits: u64, shadow: u32) -> u64 {
        let rest = bits & ((1 << self.shadow_shift()) - 1);
        let shadow = u64::from(shadow) << self.shadow_shift();
        match bits & KIND_MASK {
            FOLIO | POISONED => bits,
            EMPTY | SHADOW if shadow == 0 => EMPTY,
            EMPTY | SHADOW => shadow | SHADOW,
            _ => rest | shadow,
        }
    }
}

/// Where an entry is: table number less one times 512, and the index in it. It moves with its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place(u32);

impl Place {
    /// The number of the place: no other entry has it at the same time.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// The place `pages` further on, in the same table.
    pub(crate) fn plus(self, pages: u32) -> Self {
        Self(self.0 + pages)
    }
}

/// A table's place among those of its lruvec that hold shadows only.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    /// Entries that are nothing but a shadow.
    shadows: u16,
    /// Whose list it is on, or would be.
    owner: u16,
    younger: u32,
    older: u32,
}

/// Tables that hold shadows only.
#[derive(Clone, Copy, Debug, Default)]
struct PastList {
    youngest: u32,
    oldest: u32,
    len: u32,
}

/// The directory and the tables.
#[derive(Debug)]
pub(crate) struct LeafTable {
    packing: Packing,
    /// Table number plus one for each leaf of the arena; [`NO_TABLE`] where it has none.
    directory: Vec<u32>,
    entries: Vec<u64>,
    /// Entries of each table that are not empty, shadows included.
    used: Vec<u16>,
    past: Vec<Past>,
    past_lists: Vec<PastList>,
    /// The leaf that each table serves.
    serves: Vec<u32>,
    /// Tables that were used before and are empty now.
    free: Vec<u32>,
    /// Tables from here on were never used.
    fresh: u32,
}

impl LeafTable {
    /// Tables for an arena in which there can be `slots` slots.
    pub(crate) fn new(arena: PageCount, slots: u64) -> Self {
        let leaves = (arena.0 / LEAF_PAGES) as usize;
        let slot_bits = u64::BITS - slots.max(2).saturating_sub(1).leading_zeros();
        Self {
            packing: Packing {
                slot_bits: slot_bits.min(u32::BITS),
            },
            directory: vec![NO_TABLE; leaves],
            entries: vec![0; arena.0 as usize],
            used: vec![0; leaves],
            past: vec![Past::default(); leaves],
            past_lists: vec![PastList::default()],
            serves: vec![0; leaves],
            free: Vec::with_capacity(leaves),
            fresh: 0,
        }
    }

    /// How many bits a shadow may have.
    pub(crate) fn shadow_bits(&self) -> u32 {
        (u64::BITS - self.packing.shadow_shift()).min(u32::BITS)
    }

    /// Makes room for the lists of `owners` lruvecs.
    pub(crate) fn set_owners(&mut self, owners: usize) {
        self.past_lists.resize(owners, PastList::default());
    }

    /// What `page` is.
    pub(crate) fn get(&self, page: PageIndex) -> Entry {
        self.packing.unpack(self.bits(page))
    }

    /// What `page` left behind when it left memory; 0 is nothing.
    pub(crate) fn shadow(&self, page: PageIndex) -> u32 {
        self.packing.shadow(self.bits(page))
    }

    fn bits(&self, page: PageIndex) -> u64 {
        match self.directory[page.leaf() as usize] {
            NO_TABLE => EMPTY,
            table => self.entries[Self::place(table, page)],
        }
    }

    /// Makes `page` be `entry`, with no shadow.
    pub(crate) fn set(&mut self, page: PageIndex, entry: Entry) {
        self.set_bits(page, self.packing.pack(entry));
    }

    /// Leaves a shadow at a page that is not in memory. `owner` is the lruvec that is charged with it.
    pub(crate) fn set_shadow(&mut self, page: PageIndex, shadow: u32, owner: usize) {
        let bits = self.packing.with_shadow(self.bits(page), shadow);
        let listed = self.past_lists.len();
        debug_assert!(owner < listed, "lruvec {owner} of {listed}");
        self.set_bits(page, bits);
        let table = self.directory[page.leaf() as usize];
        if table == NO_TABLE {
            return;
        }
        let listed = self.holds_past(table);
        if listed {
            self.remove_past(table);
        }
        self.past[table as usize - 1].owner = owner as u16;
        if listed {
            self.list_past(table);
        }
    }

    /// Forgets what the pages of `range`, a part of a leaf, have left behind.
    pub(crate) fn forget_shadows(&mut self, range: PageRange) {
        if range.len.0 == LEAF_PAGES {
            self.drop_past(range.start.leaf());
        }
        if range.is_empty() || !self.has_table(range.start) {
            return;
        }
        for page in range.pages() {
            let bits = self.bits(page);
            if self.packing.shadow(bits) != 0 {
                self.set_bits(page, self.packing.with_shadow(bits, 0));
            }
        }
    }

    /// Tables that one of the lruvecs `from` is charged with for their shadows are charged to its counterpart of those from `to` on, and what they hold is
    /// forgotten if that is nothing else. `most` tables are looked at, from the one at `at` on. Answers where to go on, `None` at the end.
    pub(crate) fn pass_on(
        &mut self,
        from: Range<usize>,
        to: usize,
        at: u32,
        most: u32,
    ) -> Option<u32> {
        let end = self.fresh.min(at.saturating_add(most));
        for table in at + 1..=end {
            let owner = usize::from(self.past[table as usize - 1].owner);
            if !from.contains(&owner) {
                continue;
            }
            if self.holds_past(table) {
                self.drop_past(self.serves[table as usize - 1]);
            }
            self.past[table as usize - 1].owner = (owner - from.start + to) as u16;
        }
        (end < self.fresh).then_some(end)
    }

    fn set_bits(&mut self, page: PageIndex, bits: u64) {
        let leaf = page.leaf() as usize;
        let table = match self.directory[leaf] {
            NO_TABLE if bits == EMPTY => return,
            NO_TABLE => self.take_table(leaf),
            table => table,
        };
        let place = Self::place(table, page);
        let before = std::mem::replace(&mut self.entries[place], bits);
        let was_past = self.holds_past(table);
        let at = table as usize - 1;
        self.used[at] += u16::from(bits != EMPTY);
        self.used[at] -= u16::from(before != EMPTY);
        let is_shadow = |bits: u64| u16::from(bits & KIND_MASK == SHADOW);
        self.past[at].shadows += is_shadow(bits);
        self.past[at].shadows -= is_shadow(before);
        match (was_past, self.holds_past(table)) {
            (true, false) => self.remove_past(table),
            (false, true) => self.list_past(table),
            _ => {}
        }
        if self.used[at] == 0 && before != EMPTY {
            self.give_table_back(leaf);
        }
    }

    /// The table of a leaf, which holds nothing, may serve another one.
    fn give_table_back(&mut self, leaf: usize) {
        let table = std::mem::replace(&mut self.directory[leaf], NO_TABLE);
        self.free.push(table);
    }

    /// Whether a table holds shadows and nothing else.
    fn holds_past(&self, table: u32) -> bool {
        let (used, shadows) = (
            self.used[table as usize - 1],
            self.past[table as usize - 1].shadows,
        );
        shadows > 0 && shadows == used
    }

    fn list_past(&mut self, table: u32) {
        let owner = usize::from(self.past[table as usize - 1].owner);
        let young = std::mem::replace(&mut self.past_lists[owner].youngest, table);
        let past = &mut self.past[table as usize - 1];
        (past.younger, past.older) = (NO_TABLE, young);
        match young {
            NO_TABLE => self.past_lists[owner].oldest = table,
            young => self.past[young as usize - 1].younger = table,
        }
        self.past_lists[owner].len += 1;
    }

    fn remove_past(&mut self, table: u32) {
        let past = self.past[table as usize - 1];
        let list = &mut self.past_lists[usize::from(past.owner)];
        list.len -= 1;
        match past.older {
            NO_TABLE => list.oldest = past.younger,
            older => self.past[older as usize - 1].younger = past.younger,
        }
        match past.younger {
            NO_TABLE => self.past_lists[usize::from(past.owner)].youngest = past.older,
            younger => self.past[younger as usize - 1].older = past.older,
        }
    }

    /// How many tables of this lruvec hold shadows only.
    pub(crate) fn past_tables(&self, owner: usize) -> u32 {
        self.past_lists.get(owner).map_or(0, |list| list.len)
    }

    /// Forgets the shadows of the table that has waited longest on this lruvec's list. False when there is none.
    pub(crate) fn drop_oldest_past(&mut self, owner: usize) -> bool {
        let table = self.past_lists[owner].oldest;
        if table == NO_TABLE {
            return false;
        }
        self.drop_past(self.serves[table as usize - 1]);
        true
    }

    /// Forgets the shadows of a leaf that holds nothing else, and gives its table back.
    pub(crate) fn drop_past(&mut self, leaf: u32) {
        let table = self.directory[leaf as usize];
        if table == NO_TABLE || !self.holds_past(table) {
            return;
        }
        self.remove_past(table);
        let first = (table - 1) as usize * LEAF_PAGES as usize;
        self.entries[first..first + LEAF_PAGES as usize].fill(EMPTY);
        (
            self.used[table as usize - 1],
            self.past[table as usize - 1].shadows,
        ) = (0, 0);
        self.give_table_back(leaf as usize);
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
        self.drop_past(to);
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

    /// Whether the leaf of `page` holds anything, shadows included.
    pub(crate) fn has_table(&self, page: PageIndex) -> bool {
        self.directory[page.leaf() as usize] != NO_TABLE
    }

    /// Whether the leaf of `page` holds anything but shadows.
    pub(crate) fn leaf_in_use(&self, page: PageIndex) -> bool {
        match self.directory[page.leaf() as usize] {
            NO_TABLE => false,
            table => !self.holds_past(table),
        }
    }

    /// Bytes of memory that tables and directory have been given by the system.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.fresh) * u64::from(LEAF_PAGES) * 8
            + (self.directory.len() + self.fresh as usize) as u64 * 4
            + u64::from(self.fresh) * size_of::<Past>() as u64
    }

    /// The leaves in use, with the entries and the shadows counted in each. For checks.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (u32, u16, u16)> + '_ {
        let in_use = |(leaf, &table): (usize, &u32)| {
            let at = (table as usize).checked_sub(1)?;
            Some((leaf as u32, self.used[at], self.past[at].shadows))
        };
        self.directory.iter().enumerate().filter_map(in_use)
    }

    /// The leaves on a lruvec's list of those that hold shadows only, oldest first. For checks.
    pub(crate) fn past_leaves(&self, owner: usize) -> impl Iterator<Item = u32> + '_ {
        let some = |table: u32| (table != NO_TABLE).then_some(table);
        let younger = move |&table: &u32| some(self.past[table as usize - 1].younger);
        let tables = std::iter::successors(some(self.past_lists[owner].oldest), younger);
        tables.map(|table| self.serves[table as usize - 1])
    }

    /// Whether a leaf holds shadows only. For checks.
    pub(crate) fn is_past(&self, leaf: u32) -> bool {
        let table = self.directory[leaf as usize];
        table != NO_TABLE && self.holds_past(table)
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
            for slot_bits in [32, 25] {
                if matches!(entry, Entry::Swapped { slot, .. } if slot.0 >> 25 != 0)
                    && slot_bits == 25
                {
                    continue;
                }
                let packing = Packing { slot_bits };
                let bits = packing.pack(entry);
                assert_eq!(packing.unpack(bits), entry);
                assert_eq!(packing.shadow(bits), 0);
                let shadow = u32::MAX >> (32 - (64 - packing.shadow_shift()).min(32));
                let shaded = packing.with_shadow(bits, shadow);
                assert_eq!(
                    packing.unpack(shaded),
                    entry,
                    "a shadow changes nothing else"
                );
                let keeps = !matches!(entry, Entry::Folio(_) | Entry::Poisoned);
                assert_eq!(packing.shadow(shaded), if keeps { shadow } else { 0 });
                assert_eq!(packing.with_shadow(shaded, 0), bits);
            }
        }
    }

    #[test]
    fn an_emptied_table_is_used_again() {
        let mut leaves = LeafTable::new(PageCount(4 * LEAF_PAGES), 4096);
        for round in 0..10 {
            let page = PageIndex(round % 4 * LEAF_PAGES + round);
            leaves.set(page, Entry::Poisoned);
            leaves.set(page, Entry::Empty);
        }
        assert_eq!(leaves.fresh, 1);
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(ops in prop::collection::vec((0u32..2048, 0u32..5), 1..400)) {
            let mut leaves = LeafTable::new(PageCount(2048), 4096);
            let mut model = HashMap::new();
            for (page, kind) in ops {
                let entry = match kind {
                    0 => Entry::Empty,
                    1 => Entry::Folio(FolioId(page)),
                    2 => Entry::Swapped { slot: SlotId(page), index: 3 },
                    3 => Entry::Poisoned,
                    _ => {
                        leaves.set_shadow(PageIndex(page), page + 1, 0);
                        let keeps = !matches!(leaves.get(PageIndex(page)), Entry::Folio(_) | Entry::Poisoned);
                        prop_assert_eq!(leaves.shadow(PageIndex(page)), if keeps { page + 1 } else { 0 });
                        continue;
                    }
                };
                leaves.set(PageIndex(page), entry);
                prop_assert_eq!(leaves.shadow(PageIndex(page)), 0);
                model.insert(page, entry);
            }
            let past: Vec<u32> = leaves.past_leaves(0).collect();
            prop_assert_eq!(past.len() as u32, leaves.past_tables(0));
            for leaf in 0..4 {
                let pages = || (leaf * LEAF_PAGES..(leaf + 1) * LEAF_PAGES).map(PageIndex);
                let only = pages().all(|page| leaves.get(page) == Entry::Empty)
                    && pages().any(|page| leaves.shadow(page) != 0);
                prop_assert_eq!(leaves.is_past(leaf), only);
                prop_assert_eq!(past.contains(&leaf), only);
            }
            while leaves.drop_oldest_past(0) {}
            prop_assert_eq!(leaves.past_tables(0), 0);
            for page in 0..2048 {
                let expected = model.get(&page).copied().unwrap_or(Entry::Empty);
                prop_assert_eq!(leaves.get(PageIndex(page)), expected);
            }
        }
    }
}
