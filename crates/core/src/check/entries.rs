//! Checks of the entries of leaf tables: against folios and slots, their counts, and the shadows among them.

use crate::addr::{LEAF_PAGES, PageIndex};
use crate::check::ensure;
use crate::ids::Kind;
use crate::machine::Core;
use crate::tables::folio::State;
use crate::tables::leaf::Entry;
use crate::tables::lru::Lruvecs;
use std::collections::HashSet;

impl Core {
    /// Checks that entries agree with folios and slots, and counts with entries. Returns how many entries name each
    /// slot.
    pub(super) fn check_entries(&self) -> Result<Vec<u32>, String> {
        let mut by_slot = vec![0; self.slots.made()];
        let (mut held, mut zeros) = (0, 0);
        for (leaf, used, shadows) in self.leaves.tables() {
            let (mut counted, mut past) = (0, 0);
            for page in (leaf * LEAF_PAGES..(leaf + 1) * LEAF_PAGES).map(PageIndex) {
                let entry = self.leaves.get(page);
                let is_past = entry == Entry::Empty && self.leaves.shadow(page) != 0;
                counted += u16::from(entry != Entry::Empty || is_past);
                past += u16::from(is_past);
                held += u32::from(entry != Entry::Empty);
                self.check_shadow(page)?;
                self.check_entry(page, entry)?;
                match entry {
                    Entry::Swapped { slot, .. } => by_slot[slot.0 as usize] += 1,
                    Entry::Zero => zeros += 1,
                    Entry::Folio(_) | Entry::Empty | Entry::Poisoned => {}
                }
            }
            ensure!(
                counted == used,
                "leaf {leaf} counts {used} entries, has {counted}"
            );
            ensure!(
                past == shadows,
                "leaf {leaf} counts {shadows} shadows, has {past}"
            );
            ensure!(
                self.leaves.is_past(leaf) == (past > 0 && past == counted),
                "leaf {leaf} of {counted} entries and {past} shadows is taken for another kind"
            );
        }
        self.check_shadows()?;
        ensure!(
            zeros == self.zeros,
            "{} pages are said to be zero, {zeros} are",
            self.zeros
        );
        ensure!(
            held == self.held,
            "{} pages are said to be held, {held} are",
            self.held
        );
        Ok(by_slot)
    }

    /// Checks that a page that has an entry is in a region that can have it, and in the folio or slot that it names.
    fn check_entry(&self, page: PageIndex, entry: Entry) -> Result<(), String> {
        ensure!(
            entry == Entry::Empty || self.regions.of(page).is_some(),
            "{page} is outside all regions"
        );
        ensure!(
            !matches!(entry, Entry::Zero | Entry::Swapped { .. }) || self.has_slots(page),
            "{page} is a file's, yet {entry:?}"
        );
        match entry {
            Entry::Folio(id) => {
                let folio = self.folios.get(id);
                ensure!(folio.state != State::Free, "{page} names free folio {id:?}");
                ensure!(
                    self.at(id).contains(page),
                    "{page} is not in its folio {}",
                    self.at(id)
                );
            }
            Entry::Swapped { slot, index } => {
                let order = self.slots.get(slot).order;
                ensure!(
                    u32::from(index) < order.pages().0,
                    "{page} is page {index} of a smaller slot"
                );
                ensure!(
                    page.0 % order.pages().0 == u32::from(index),
                    "{page} lies askew in its slot"
                );
            }
            Entry::Zero | Entry::Empty | Entry::Poisoned => {}
        }
        Ok(())
    }

    /// Checks that a page's shadow belongs to the page's group, or to a group that was removed since from below that
    /// one.
    fn check_shadow(&self, page: PageIndex) -> Result<(), String> {
        let Some((depth, node)) = self.shadows.whose(self.leaves.shadow(page)) else {
            return Ok(());
        };
        ensure!(
            self.regions.of(page).is_some() && node.0 < self.config.nodes,
            "{page} has left a shadow outside all regions, or on no node: {node:?}"
        );
        ensure!(
            self.regions
                .of(page)
                .is_none_or(|region| region.kind != Kind::Direct),
            "{page} is mapped straight from where its file is, and left a shadow"
        );
        let group = self.group_of(page);
        ensure!(
            depth >= self.groups.depth(group),
            "{page} of {group:?} has left a shadow as a page of a group at depth {depth}"
        );
        Ok(())
    }

    /// Checks that each leaf that holds only shadows is on the list of its lruvec, once, and inside a region, and that
    /// no leaf with shadows is charged to a group that no longer exists.
    fn check_shadows(&self) -> Result<(), String> {
        let mut listed = HashSet::new();
        for (vec, _) in self.lru.iter() {
            let index = Lruvecs::index(vec);
            let before = listed.len();
            for leaf in self.leaves.past_leaves(index) {
                ensure!(
                    self.leaves.is_past(leaf) && listed.insert(leaf),
                    "leaf {leaf} is listed for its shadows, and should not be"
                );
                ensure!(
                    self.regions.of(PageIndex(leaf * LEAF_PAGES)).is_some(),
                    "leaf {leaf} holds shadows outside all regions"
                );
            }
            ensure!(
                (listed.len() - before) as u32 == self.leaves.past_tables(index),
                "{vec:?} counts {} tables of shadows, has {}",
                self.leaves.past_tables(index),
                listed.len() - before
            );
        }
        for (vec, _) in self.lru.iter() {
            let group = self.lru.group(vec);
            let mut in_use = self.groups.iter().map(|(id, _)| id);
            ensure!(
                in_use.any(|id| id == group) || self.leaves.past_tables(Lruvecs::index(vec)) == 0,
                "{group:?} is gone, but keeps tables of shadows"
            );
        }
        let all = self
            .leaves
            .tables()
            .filter(|&(leaf, _, _)| self.leaves.is_past(leaf));
        ensure!(
            all.count() == listed.len(),
            "tables that hold shadows only are not listed"
        );
        Ok(())
    }
}
