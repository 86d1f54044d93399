//! Checks of folio records: what each state admits, and which group is charged for them.

use crate::addr::{LEAF_PAGES, PageIndex};
use crate::check::ensure;
use crate::ids::{FolioId, GroupId};
use crate::machine::Core;
use crate::tables::folio::{Errand, Folio, State};
use crate::tables::leaf::Entry;
use std::collections::HashMap;

impl Core {
    /// Checks that every folio owns all its entries and is listed where its state says, and that the page counts add
    /// up.
    pub(super) fn check_folios(&self) -> Result<(), String> {
        let (mut mapped, mut limbo, mut pins, mut flights) = (0, 0, 0, 0);
        let mut taking_out = HashMap::<_, u32>::new();
        let (mut lazy, mut lazy_leaving, mut lazy_parts) = ([0, 0], 0, 0);
        for (id, folio) in self.folios.iter() {
            let pages = folio.order.pages().0;
            let at = self.at(id);
            ensure!(
                at.start.0.is_multiple_of(pages),
                "{id:?} at {at} is not aligned"
            );
            for page in at.pages() {
                ensure!(
                    self.leaves.get(page) == Entry::Folio(id),
                    "{page} does not name its folio {id:?}"
                );
            }
            match folio.state {
                State::Limbo | State::Saving | State::Rescuing | State::LendingFrame => {
                    limbo += pages;
                }
                State::TakingOut => {
                    if folio.goes_to_limbo() {
                        *taking_out.entry(self.lru.of(folio)).or_default() += pages;
                    }
                    mapped += pages;
                }
                _ if folio.errand == Errand::Poison => {}
                _ => mapped += pages,
            }
            if folio.lazy {
                lazy[usize::from(folio.state.is_mapped())] += pages;
                lazy_leaving += if folio.state == State::TakingOut {
                    pages
                } else {
                    0
                };
            }
            if folio.state != State::Clearing {
                lazy[1] += u32::from(folio.freed.pages);
                lazy_parts += u32::from(folio.freed.pages);
            }
            let freed = folio.freed;
            ensure!(
                freed.pages == 0 || !folio.lazy && folio.state.is_mapped() && folio.pins == 0,
                "{id:?}, {:?} with {} pins, was freed in part",
                folio.state,
                folio.pins
            );
            ensure!(
                u32::from(freed.first) + u32::from(freed.pages) <= pages,
                "{id:?} of {pages} pages was freed in {freed:?}"
            );
            let kind = self.regions.of(at.start).map(|region| region.kind);
            ensure!(
                kind == Some(folio.kind()),
                "{id:?} at {at} is {:?}, its region {kind:?}",
                folio.kind()
            );
            ensure!(
                !folio.is_in_file()
                    || folio.slot().is_none() && !folio.lazy && folio.freed.pages == 0,
                "{id:?} is a file's, yet has a slot or was lazily freed"
            );
            pins += u32::from(folio.pins);
            flights += u32::from(folio.in_flight());
            self.check_list_of(id, folio)?;
        }
        ensure!(
            mapped == self.mapped,
            "{} pages are said to be mapped, {mapped} are",
            self.mapped
        );
        ensure!(
            limbo == self.limbo,
            "{} pages are said to be in limbo, {limbo} are",
            self.limbo
        );
        self.check_charges()?;
        for (vec, lists) in self.lru.iter() {
            let found = taking_out.get(&vec).copied().unwrap_or(0);
            ensure!(
                found == lists.taking_out,
                "take-outs of {vec:?}: said {}, are {found}",
                lists.taking_out
            );
        }
        ensure!(
            lazy == [self.lazy_limbo, self.lazy_mapped],
            "lazily freed (in limbo, mapped): said [{}, {}], are {lazy:?}",
            self.lazy_limbo,
            self.lazy_mapped
        );
        ensure!(
            lazy_parts == self.lazy_parts,
            "lazily freed in parts: said {}, are {lazy_parts}",
            self.lazy_parts
        );
        ensure!(
            lazy_leaving == self.lazy_leaving,
            "lazily freed and leaving: said {}, are {lazy_leaving}",
            self.lazy_leaving
        );
        ensure!(
            pins == self.pins,
            "{} pins are said to be in force, {pins} are",
            self.pins
        );
        ensure!(
            flights == self.flights,
            "{} commands are said to be out, {flights} are",
            self.flights
        );
        Ok(())
    }

    /// Checks that the charge of a group is that of its folios and of the groups below it, and that it holds its
    /// regions' entries.
    pub(super) fn check_charges(&self) -> Result<(), String> {
        let mut found: HashMap<GroupId, [u32; 7]> = HashMap::new();
        // A folio that stands for poison is charged to no group: its group does not wait for it.
        let charged = |(_, folio): &(FolioId, &Folio)| folio.is_charged();
        for (id, folio) in self.folios.iter().filter(charged) {
            let pages = folio.order.pages().0;
            let at = self.at(id).start;
            ensure!(
                self.group_of(at) == folio.group || self.groups.is_dying(folio.group),
                "{id:?} is {:?}'s, its region {:?}'s",
                folio.group,
                self.group_of(at)
            );
            let limbo = !folio.state.is_mapped();
            found.entry(folio.group).or_default()[usize::from(limbo)] += pages;
            let lazy = match (folio.lazy, folio.state) {
                (true, _) => pages,
                (false, State::Clearing) => 0,
                (false, _) => u32::from(folio.freed.pages),
            };
            let leaves = folio.lazy && folio.state == State::TakingOut;
            for group in self.groups.path(folio.group) {
                let sums = found.entry(group).or_default();
                sums[2] += pages;
                sums[3] += lazy;
                sums[4] += pages * u32::from(leaves);
            }
        }
        for (leaf, _, _) in self.leaves.tables() {
            for page in (leaf * LEAF_PAGES..(leaf + 1) * LEAF_PAGES).map(PageIndex) {
                let entry = self.leaves.get(page);
                let sums = found.entry(self.group_of(page)).or_default();
                sums[5] += u32::from(entry != Entry::Empty);
                sums[6] += u32::from(entry == Entry::Zero);
            }
        }
        let mut groups = 0;
        for (id, group) in self.groups.iter() {
            let said = [
                group.mapped,
                group.limbo,
                group.usage(),
                group.lazy,
                group.lazy_leaving,
                group.held,
                group.zeros,
            ];
            let sums = found.remove(&id).unwrap_or_default();
            ensure!(
                said == sums,
                "{id:?}: (mapped, in limbo, charged, lazily freed, leaving, held, zeros) said {said:?}, are {sums:?}"
            );
            groups += 1;
        }
        ensure!(
            groups > 0 && found.is_empty(),
            "unused groups have {found:?}"
        );
        self.groups.check()
    }
}
