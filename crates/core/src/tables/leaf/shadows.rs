//! Shadows of pages that left memory, and the tables that hold only shadows.

use super::packing::EMPTY;
use super::table::{LeafTable, NO_TABLE};
use crate::addr::{LEAF_PAGES, PageRange};
use std::ops::Range;

impl LeafTable {
    /// Stores a shadow at pages of one leaf that are not in memory. `owner` is the lruvec that is charged for it.
    pub(crate) fn set_shadows(&mut self, range: PageRange, shadow: u32, owner: usize) {
        let listed = self.past_lists.len();
        debug_assert!(owner < listed, "lruvec {owner} of {listed}");
        let packing = self.packing;
        self.change(range, |_, bits| packing.with_shadow(bits, shadow));
        let table = self.directory[range.start.leaf() as usize];
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

    /// Forgets the shadows of the pages of `range`, a part of a leaf.
    pub(crate) fn forget_shadows(&mut self, range: PageRange) {
        if range.len.0 == LEAF_PAGES {
            self.drop_past(range.start.leaf());
        }
        if range.is_empty() || !self.has_table(range.start) {
            return;
        }
        let packing = self.packing;
        self.change(range, |_, bits| packing.with_shadow(bits, 0));
    }

    /// Charges the tables of the lruvecs `from` to their counterparts, the lruvecs from `to` on. A table that holds
    /// only shadows is emptied. At most `most` tables are examined, starting with the one at `at`. Returns where to
    /// continue, or `None` at the end.
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

    /// Whether a table holds only shadows.
    pub(super) fn holds_past(&self, table: u32) -> bool {
        let (used, shadows) = (
            self.used[table as usize - 1],
            self.past[table as usize - 1].shadows,
        );
        shadows > 0 && shadows == used
    }

    pub(super) fn list_past(&mut self, table: u32) {
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

    pub(super) fn remove_past(&mut self, table: u32) {
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

    /// How many tables of the lruvec `owner` hold only shadows.
    pub(crate) fn past_tables(&self, owner: usize) -> u32 {
        self.past_lists.get(owner).map_or(0, |list| list.len)
    }

    /// Forgets the shadows of the table that has waited longest on this lruvec's list. Returns false if there is none.
    pub(crate) fn drop_oldest_past(&mut self, owner: usize) -> bool {
        let table = self.past_lists[owner].oldest;
        if table == NO_TABLE {
            return false;
        }
        self.drop_past(self.serves[table as usize - 1]);
        true
    }

    /// Forgets the shadows of a leaf that holds only shadows, and gives its table back.
    pub(crate) fn drop_past(&mut self, leaf: u32) {
        let table = self.directory[leaf as usize];
        if table == NO_TABLE || !self.holds_past(table) {
            return;
        }
        self.remove_past(table);
        self.rows
            .change(Self::of_table(table), |_, _| EMPTY, |_, _| {});
        (
            self.used[table as usize - 1],
            self.past[table as usize - 1].shadows,
        ) = (0, 0);
        self.give_table_back(leaf as usize);
    }

    /// The leaves on a lruvec's list of those that hold only shadows, oldest first, for checks.
    pub(crate) fn past_leaves(&self, owner: usize) -> impl Iterator<Item = u32> + '_ {
        let some = |table: u32| (table != NO_TABLE).then_some(table);
        let younger = move |&table: &u32| some(self.past[table as usize - 1].younger);
        let tables = std::iter::successors(some(self.past_lists[owner].oldest), younger);
        tables.map(|table| self.serves[table as usize - 1])
    }

    /// Whether a leaf holds only shadows, for checks.
    pub(crate) fn is_past(&self, leaf: u32) -> bool {
        let table = self.directory[leaf as usize];
        table != NO_TABLE && self.holds_past(table)
    }
}
