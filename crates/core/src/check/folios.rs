//! Checks of folio records: what each state admits, and which group is charged for them.

use crate::addr::{LEAF_PAGES, PageIndex};
use crate::check::ensure;
use crate::ids::{FolioId, GroupId, VecId};
use crate::machine::Core;
use crate::tables::folio::{Errand, Folio, State};
use crate::tables::leaf::Entry;
use std::collections::HashMap;

/// The sums over the records of all folios, in pages unless stated otherwise.
#[derive(Default)]
struct Sums {
    mapped: u32,
    limbo: u32,
    taking_out: HashMap<VecId, u32>,
    lazy_limbo: u32,
    lazy_mapped: u32,
    lazy_leaving: u32,
    lazy_parts: u32,
    pins: u32,
    /// Folios in flight.
    flights: u32,
}

impl Core {
    /// Checks that every folio owns all its entries and is listed where its state says, and that the page counts add
    /// up.
    pub(super) fn check_folios(&self) -> Result<(), String> {
        let mut sums = Sums::default();
        for (id, folio) in self.folios.iter() {
            self.check_entries_of(id, folio)?;
            self.check_kind_of(id, folio)?;
            check_freed_in_part(id, folio)?;
            self.check_list_of(id, folio)?;
            self.add_folio(&mut sums, folio);
        }
        self.check_charges()?;
        self.check_sums(&sums)
    }

    /// Checks that a folio lies at a multiple of its size and owns all its entries.
    fn check_entries_of(&self, id: FolioId, folio: &Folio) -> Result<(), String> {
        let at = self.at(id);
        ensure!(
            at.start.0.is_multiple_of(folio.order.pages().0),
            "{id:?} at {at} is not aligned"
        );
        for page in at.pages() {
            ensure!(
                self.leaves.get(page) == Entry::Folio(id),
                "{page} does not name its folio {id:?}"
            );
        }
        Ok(())
    }

    /// Checks that a folio is of the kind of its region, and has only what its kind can have.
    fn check_kind_of(&self, id: FolioId, folio: &Folio) -> Result<(), String> {
        let at = self.at(id);
        let kind = self.regions.of(at.start).map(|region| region.kind);
        ensure!(
            kind == Some(folio.kind()),
            "{id:?} at {at} is {:?}, its region {kind:?}",
            folio.kind()
        );
        ensure!(
            !folio.is_from_file()
                || folio.slot().is_none() && !folio.lazy && folio.lazy_part.pages == 0,
            "{id:?} is a file's, yet has a slot or was lazily freed"
        );
        Ok(())
    }

    fn add_folio(&self, sums: &mut Sums, folio: &Folio) {
        let pages = folio.order.pages().0;
        match folio.state {
            State::Limbo | State::Saving | State::Rescuing | State::LendingFrame => {
                sums.limbo += pages;
            }
            State::TakingOut => {
                if folio.goes_to_limbo() {
                    *sums.taking_out.entry(self.lru.of(folio)).or_default() += pages;
                }
                sums.mapped += pages;
            }
            _ if folio.errand == Errand::Poison => {}
            _ => sums.mapped += pages,
        }
        if folio.lazy {
            match folio.state.is_mapped() {
                true => sums.lazy_mapped += pages,
                false => sums.lazy_limbo += pages,
            }
            sums.lazy_leaving += pages * u32::from(folio.state == State::TakingOut);
        }
        if folio.state != State::Zeroing {
            sums.lazy_mapped += u32::from(folio.lazy_part.pages);
            sums.lazy_parts += u32::from(folio.lazy_part.pages);
        }
        sums.pins += u32::from(folio.pins);
        sums.flights += u32::from(folio.in_flight());
    }

    /// Checks that the core's counts match the sums of the records.
    fn check_sums(&self, sums: &Sums) -> Result<(), String> {
        for (vec, lists) in self.lru.iter() {
            let found = sums.taking_out.get(&vec).copied().unwrap_or(0);
            ensure!(
                found == lists.taking_out,
                "take-outs of {vec:?}: said {}, are {found}",
                lists.taking_out
            );
        }
        for (what, said, found) in [
            ("pages mapped", self.mapped, sums.mapped),
            ("pages in limbo", self.limbo, sums.limbo),
            (
                "pages lazily freed in limbo",
                self.lazy_limbo,
                sums.lazy_limbo,
            ),
            (
                "pages lazily freed and mapped",
                self.lazy_mapped,
                sums.lazy_mapped,
            ),
            (
                "pages lazily freed in parts",
                self.lazy_parts,
                sums.lazy_parts,
            ),
            (
                "pages lazily freed and leaving",
                self.lazy_leaving,
                sums.lazy_leaving,
            ),
            ("pins in force", self.pins, sums.pins),
            ("commands that are out", self.flights, sums.flights),
        ] {
            ensure!(said == found, "{what}: said {said}, are {found}");
        }
        Ok(())
    }

    /// Checks that the charge of a group is that of its folios and of the groups below it, and that it holds its
    /// regions' entries.
    pub(super) fn check_charges(&self) -> Result<(), String> {
        let mut found: HashMap<GroupId, [u32; 7]> = HashMap::new();
        // A folio that represents poison is charged to no group: its group does not wait for it.
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
                (false, State::Zeroing) => 0,
                (false, _) => u32::from(folio.lazy_part.pages),
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

/// Checks that a partly freed folio is mapped, was not freed as a whole and has no pins, and that the part lies inside
/// it.
fn check_freed_in_part(id: FolioId, folio: &Folio) -> Result<(), String> {
    let pages = folio.order.pages().0;
    let part = folio.lazy_part;
    ensure!(
        part.pages == 0 || !folio.lazy && folio.state.is_mapped() && folio.pins == 0,
        "{id:?}, {:?} with {} pins, was freed in part",
        folio.state,
        folio.pins
    );
    ensure!(
        u32::from(part.first) + u32::from(part.pages) <= pages,
        "{id:?} of {pages} pages was freed in {part:?}"
    );
    Ok(())
}
