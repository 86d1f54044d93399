//! The tables of entries, by their numbers and by the leaves that they serve.

use super::packing::{EMPTY, Entry, KIND_MASK, Packing, SHADOW, ZERO};
use super::past::{Past, PastList};
use super::rows::Rows;
use crate::addr::{LEAF_PAGES, PAGE_SHIFT, PageCount, PageIndex, PageRange};
use crate::ids::{EntryId, SlotId};
use crate::tables::extent::extent;
use std::ops::Range;

/// Maximum size in bytes of a directory (of 256 GiB) that is counted as touched as a whole.
const SHORT_DIRECTORY: u64 = 512 << 10;

/// The value for no table: tables are numbered from one.
pub(super) const NO_TABLE: u32 = 0;

/// The directory and the tables.
#[derive(Debug)]
pub(crate) struct LeafTable {
    pub(super) packing: Packing,
    /// The number of each leaf's table, counted from one; [`NO_TABLE`] if the leaf has none.
    pub(super) directory: Vec<u32>,
    pub(super) rows: Rows,
    /// Number of nonempty entries of each table, including shadows.
    pub(super) used: Vec<u16>,
    pub(super) past: Vec<Past>,
    pub(super) past_lists: Vec<PastList>,
    /// The leaf that each table serves.
    pub(super) serves: Vec<u32>,
    /// Tables that were used before and are empty now.
    pub(super) free: Vec<u32>,
    /// Number of tables ever used: tables with higher numbers never were.
    pub(super) fresh: u32,
}

impl LeafTable {
    /// Tables for an arena with at most `slots` slots.
    pub(crate) fn new(arena: PageCount, slots: u64) -> Self {
        let leaves = (arena.0 / LEAF_PAGES) as usize;
        let slot_bits = u64::BITS - slots.max(2).saturating_sub(1).leading_zeros();
        Self {
            packing: Packing {
                slot_bits: slot_bits.min(u32::BITS),
            },
            directory: vec![NO_TABLE; leaves],
            rows: Rows::new(arena),
            used: vec![0; leaves],
            past: Vec::with_capacity(leaves),
            past_lists: vec![PastList::default()],
            serves: vec![0; leaves],
            free: Vec::with_capacity(leaves),
            fresh: 0,
        }
    }

    /// Calls `each` with the addresses of each long table.
    pub(crate) fn each_table(&self, each: &mut dyn FnMut(Range<usize>)) {
        each(extent(&self.directory));
        self.rows.each_table(each);
        each(extent(&self.used));
        each(extent(&self.past));
        each(extent(&self.serves));
        each(extent(&self.free));
    }

    /// How many bits a shadow may have.
    pub(crate) fn shadow_bits(&self) -> u32 {
        (u64::BITS - self.packing.shadow_shift()).min(u32::BITS)
    }

    /// Makes room for the lists of `owners` lruvecs.
    pub(crate) fn set_owners(&mut self, owners: usize) {
        self.past_lists.resize(owners, PastList::default());
    }

    /// The entry of `page`.
    pub(crate) fn get(&self, page: PageIndex) -> Entry {
        self.packing.unpack(self.bits(page))
    }

    /// The shadow that `page` left behind when it left memory; 0 is none.
    pub(crate) fn shadow(&self, page: PageIndex) -> u32 {
        self.packing.shadow(self.bits(page))
    }

    pub(super) fn bits(&self, page: PageIndex) -> u64 {
        match self.directory[page.leaf() as usize] {
            NO_TABLE => EMPTY,
            table => self.rows.get(Self::index(table, page)),
        }
    }

    /// Makes `entry` the entry of `page`, with no shadow.
    pub(crate) fn set(&mut self, page: PageIndex, entry: Entry) {
        let bits = self.packing.pack(entry);
        self.change_part(PageRange::new(page, PageCount(1)), |_, _| bits);
    }

    /// Makes `entry` the entry of every page of `range`, with no shadow.
    pub(crate) fn fill(&mut self, range: PageRange, entry: Entry) {
        let bits = self.packing.pack(entry);
        self.change(range, |_, _| bits);
    }

    /// Makes the pages of `range` parts of `slot`, from its page `first` on, with no shadow.
    pub(crate) fn set_swapped(&mut self, range: PageRange, slot: SlotId, first: u16) {
        let first = self.packing.pack(Entry::Swapped { slot, index: first });
        let next = self.packing.next_index();
        self.change(range, |n, _| first + u64::from(n) * next);
    }

    /// Whether the pages of `block`, which are in one leaf, are parts of `slot`, from its page `first` on.
    pub(crate) fn is_swapped(&self, block: PageRange, slot: SlotId, first: u16) -> bool {
        let first = self.packing.pack(Entry::Swapped { slot, index: first });
        let next = self.packing.next_index();
        let same =
            |(n, bits): (usize, u64)| self.packing.without_shadow(bits) == first + n as u64 * next;
        self.has_table(block.start) && self.part(block).enumerate().all(same)
    }

    /// How many pages of `block`, which are in one leaf, are zero though touched before. Returns `None` unless every
    /// page of the block reads as zeros and is in no folio.
    pub(crate) fn blank(&self, block: PageRange) -> Option<u32> {
        let mut zeros = 0;
        for bits in self.part(block) {
            match bits & KIND_MASK {
                EMPTY | SHADOW => {}
                ZERO => zeros += 1,
                _ => return None,
            }
        }
        Some(zeros)
    }

    /// How many pages of `block`, which are in one leaf, are zero though touched before.
    pub(crate) fn count_zeros(&self, block: PageRange) -> u32 {
        let entries = self.part(block);
        entries.filter(|bits| bits & KIND_MASK == ZERO).count() as u32
    }

    /// The entries of a part of a leaf; none if the leaf has no table.
    pub(super) fn part(&self, part: PageRange) -> impl Iterator<Item = u64> {
        debug_assert!(is_in_one_leaf(part), "{part} is in several leaves");
        let indices = match self.directory[part.start.leaf() as usize] {
            NO_TABLE => 0..0,
            table => Self::indices(table, part),
        };
        self.rows.entries(indices)
    }

    /// Changes the entries of `range`. `to` gives the new bits of an entry by its number in the range and its old bits.
    /// The counts, and the list that a table is on, are updated once per leaf.
    pub(super) fn change(&mut self, range: PageRange, to: impl Fn(u32, u64) -> u64) {
        let mut rest = range;
        while !rest.is_empty() {
            let in_leaf = LEAF_PAGES - rest.start.0 % LEAF_PAGES;
            let part = PageRange::new(rest.start, PageCount(rest.len.0.min(in_leaf)));
            let done = rest.len.0 - part.len.0;
            self.change_part(part, |n, bits| to(range.len.0 - rest.len.0 + n, bits));
            rest = PageRange::new(part.end(), PageCount(done));
        }
    }

    pub(super) fn change_part(&mut self, part: PageRange, to: impl Fn(u32, u64) -> u64) {
        let leaf = part.start.leaf() as usize;
        let table = match self.directory[leaf] {
            NO_TABLE if (0..part.len.0).all(|n| to(n, EMPTY) == EMPTY) => return,
            NO_TABLE => self.take_table(leaf),
            table => table,
        };
        let was_past = self.holds_past(table);
        let (mut used, mut shadows) = (Change::default(), Change::default());
        self.rows
            .change(Self::indices(table, part), to, |before, bits| {
                used.note(before != EMPTY, bits != EMPTY);
                let is_shadow = |bits: u64| bits & KIND_MASK == SHADOW;
                shadows.note(is_shadow(before), is_shadow(bits));
            });
        let at = table as usize - 1;
        self.used[at] = used.apply(self.used[at]);
        self.past[at].shadows = shadows.apply(self.past[at].shadows);
        match (was_past, self.holds_past(table)) {
            (true, false) => self.remove_past(table),
            (false, true) => self.list_past(table),
            _ => {}
        }
        // A table that was just taken is also empty, until it gets its first entry.
        if self.used[at] == 0 && used.fewer > 0 {
            self.give_table_back(leaf);
        }
    }

    /// Gives the empty table of a leaf back, so that it may serve another leaf.
    pub(super) fn give_table_back(&mut self, leaf: usize) {
        let table = std::mem::replace(&mut self.directory[leaf], NO_TABLE);
        self.free.push(table);
    }

    /// The name of the entry of `page`. Its leaf gets a table if it has none, so the caller must set an entry next.
    pub(crate) fn entry_of(&mut self, page: PageIndex) -> EntryId {
        let leaf = page.leaf() as usize;
        let table = match self.directory[leaf] {
            NO_TABLE => self.take_table(leaf),
            table => table,
        };
        EntryId(Self::index(table, page) as u32)
    }

    /// The page whose entry is `entry` now.
    pub(crate) fn page_at(&self, entry: EntryId) -> PageIndex {
        let leaf = self.serves[(entry.0 / LEAF_PAGES) as usize];
        PageIndex(leaf * LEAF_PAGES + entry.0 % LEAF_PAGES)
    }

    /// Makes the table of the leaf `from`, if it has one, serve the leaf `to` from now on. `to` must have none in
    /// use.
    pub(crate) fn move_leaf(&mut self, from: u32, to: u32) {
        self.drop_past(to);
        debug_assert_eq!(self.directory[to as usize], NO_TABLE);
        let table = std::mem::replace(&mut self.directory[from as usize], NO_TABLE);
        self.directory[to as usize] = table;
        if table != NO_TABLE {
            self.serves[table as usize - 1] = to;
        }
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

    /// Bytes of memory that the system has given to the tables and the directory.
    pub(crate) fn bytes(&self) -> u64 {
        self.rows.bytes(self.fresh)
            + self.directory_bytes()
            + u64::from(self.fresh) * 4
            + u64::from(self.fresh) * size_of::<Past>() as u64
    }

    /// Bytes of the directory that are touched. A short directory is counted as touched as a whole. The directory for a
    /// whole program's addresses takes megabytes, of which each table in use touches one page at most.
    pub(super) fn directory_bytes(&self) -> u64 {
        let all = self.directory.len() as u64 * 4;
        all.min((u64::from(self.fresh) << PAGE_SHIFT).max(SHORT_DIRECTORY))
    }

    /// The leaves in use, with the entries and the shadows counted in each, for checks.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (u32, u16, u16)> + '_ {
        let in_use = |(leaf, &table): (usize, &u32)| {
            let at = (table as usize).checked_sub(1)?;
            Some((leaf as u32, self.used[at], self.past[at].shadows))
        };
        self.directory.iter().enumerate().filter_map(in_use)
    }

    pub(super) fn take_table(&mut self, leaf: usize) -> u32 {
        let table = self.free.pop().unwrap_or_else(|| {
            self.past.push(Past::default());
            self.fresh += 1;
            self.rows.begin(Self::of_table(self.fresh));
            self.fresh
        });
        self.directory[leaf] = table;
        self.serves[table as usize - 1] = leaf as u32;
        table
    }

    pub(super) fn of_table(table: u32) -> Range<usize> {
        let first = (table - 1) as usize * LEAF_PAGES as usize;
        first..first + LEAF_PAGES as usize
    }

    pub(super) fn index(table: u32, page: PageIndex) -> usize {
        Self::of_table(table).start + (page.0 % LEAF_PAGES) as usize
    }

    pub(super) fn indices(table: u32, part: PageRange) -> Range<usize> {
        let first = Self::index(table, part.start);
        first..first + part.len.0 as usize
    }
}

/// The change of a count of entries.
#[derive(Default)]
struct Change {
    fewer: u16,
    more: u16,
}

impl Change {
    pub(super) fn note(&mut self, before: bool, after: bool) {
        self.fewer += u16::from(before);
        self.more += u16::from(after);
    }

    pub(super) fn apply(&self, count: u16) -> u16 {
        count - self.fewer + self.more
    }
}

/// Whether a range, which is not empty, lies in one leaf.
fn is_in_one_leaf(range: PageRange) -> bool {
    range.start.leaf() == PageIndex(range.end().0 - 1).leaf()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::FolioId;
    use proptest::prelude::*;
    use std::collections::HashMap;

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
        fn agrees_with_a_map(ops in prop::collection::vec((0u32..2048, 0u32..8), 1..400)) {
            let mut leaves = LeafTable::new(PageCount(2048), 4096);
            let mut model = HashMap::new();
            for (page, kind) in ops {
                // These changes are more than a page at a time: any range, and a block.
                if kind >= 5 {
                    let len = (page * 7 % 700 + 1).min(2048 - page);
                    let (at, block) = (PageIndex(page), PageIndex(page & !15));
                    if kind == 5 {
                        let slot = SlotId(page);
                        let range = PageRange::new(block, PageCount(16));
                        leaves.set_swapped(range, slot, 3);
                        prop_assert!(leaves.is_swapped(range, slot, 3));
                        let stored = |n: u32| Entry::Swapped { slot, index: 3 + n as u16 };
                        model.extend((0..16).map(|n| (block.0 + n, stored(n))));
                    } else {
                        let entry = [Entry::Zero, Entry::Empty][kind as usize - 6];
                        leaves.fill(PageRange::new(at, PageCount(len)), entry);
                        model.extend((0..len).map(|n| (page + n, entry)));
                    }
                    let range = PageRange::new(block, PageCount(16));
                    let of = |page: PageIndex| model.get(&page.0).copied().unwrap_or(Entry::Empty);
                    let zeros = range.pages().filter(|&page| of(page) == Entry::Zero).count() as u32;
                    let blank = range.pages().all(|page| matches!(of(page), Entry::Zero | Entry::Empty));
                    prop_assert_eq!(leaves.count_zeros(range), zeros);
                    prop_assert_eq!(leaves.blank(range), blank.then_some(zeros));
                    continue;
                }
                let entry = match kind {
                    0 => Entry::Empty,
                    1 => Entry::Folio(FolioId(page)),
                    2 => Entry::Swapped { slot: SlotId(page), index: 3 },
                    3 => Entry::Poisoned,
                    _ => {
                        let at = PageRange::new(PageIndex(page), PageCount(1));
                        leaves.set_shadows(at, page + 1, 0);
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
