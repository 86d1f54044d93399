//! Whole-state invariants, for the simulator and for tests. docs/INVARIANTS.md says each in a sentence.

use crate::addr::{LEAF_PAGES, PageIndex};
use crate::folio::{Errand, Folio, FolioId, ListName, State};
use crate::frames::Place;
use crate::group::GroupId;
use crate::leaf::Entry;
use crate::lru::{ANON, EVICTABLE, FILE, KINDS, List, Lruvecs, UNWATCHED, VecId, WATCHED, kind_of};
use crate::machine::Core;
use crate::region::Kind;
use crate::swap::SlotState;
use std::collections::{HashMap, HashSet};

/// What a page is, seen from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageState {
    /// Reads as zeros.
    Empty,
    /// Mapped.
    Resident,
    /// On its way: a fault waits.
    InFlight,
    /// In RAM, not mapped.
    Limbo,
    /// Lazily freed and not known to be used since.
    LazyFree {
        /// Mapped, or in limbo.
        mapped: bool,
    },
    /// In the store.
    Swapped,
    /// In a snapshot's base: it is copied, or its slot shared, when it is touched.
    Inherited,
    /// Lost.
    Poisoned,
}

macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err(format!($($message)+));
        }
    };
}

impl Core {
    /// What `page` is.
    #[must_use]
    pub fn page_state(&self, page: PageIndex) -> PageState {
        match self.leaves.get(page) {
            Entry::Empty if self.inherited(page).is_some() => PageState::Inherited,
            Entry::Empty | Entry::Zero => PageState::Empty,
            Entry::Swapped { .. } => PageState::Swapped,
            Entry::Poisoned => PageState::Poisoned,
            Entry::Folio(id) => match self.folios.get(id).state {
                state @ (State::Resident | State::Limbo) if self.folios.get(id).lazy => {
                    PageState::LazyFree {
                        mapped: state.is_mapped(),
                    }
                }
                State::Resident if self.is_in_freed_part(id, page) => {
                    PageState::LazyFree { mapped: true }
                }
                State::Resident => PageState::Resident,
                State::Limbo => PageState::Limbo,
                _ => PageState::InFlight,
            },
        }
    }

    /// Whether faults at `page` wait because its leaf leaves as a whole.
    #[must_use]
    pub fn is_leaving(&self, page: PageIndex) -> bool {
        self.leaving.holds_up(page)
    }

    /// The folio that `page` is in.
    #[must_use]
    pub fn folio_of(&self, page: PageIndex) -> Option<FolioId> {
        match self.leaves.get(page) {
            Entry::Folio(id) => Some(id),
            _ => None,
        }
    }

    /// Pages of folios that are in flight now: by as much the frames may exceed the limit.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.folios
            .iter()
            .filter(|(_, f)| f.in_flight())
            .map(|(_, f)| f.order.pages().0)
            .sum()
    }

    /// Whether the state makes sense as a whole. Takes time in proportion to it.
    ///
    /// # Errors
    /// The first invariant that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        let by_slot = self.check_entries()?;
        self.check_folios()?;
        self.check_lists()?;
        self.check_frames()?;
        self.check_slots(by_slot)?;
        self.check_bases()
    }

    /// Heirs are counted, and in no circle; who copies has a lender of its own.
    fn check_bases(&self) -> Result<(), String> {
        let mut heirs: HashMap<_, u32> = HashMap::new();
        for (id, region) in self.regions.iter() {
            let Some(base) = region.base else { continue };
            let Some(found) = self.regions.get(base) else {
                return Err(format!("{id:?} inherits from {base:?}, which is gone"));
            };
            ensure!(
                found.heirs > 0,
                "{id:?} inherits from {base:?}, which has no heirs"
            );
            *heirs.entry(base).or_insert(0) += 1;
            let (mut at, mut steps) = (Some(base), 0);
            while let Some(next) = at {
                ensure!(next != id && steps < 1 << 20, "{id:?} inherits from itself");
                at = self.regions.get(next).and_then(|region| region.base);
                steps += 1;
            }
        }
        for (id, region) in self.regions.iter() {
            let found = heirs.get(&id).copied().unwrap_or(0);
            ensure!(
                found == region.heirs,
                "{id:?} counts {} heirs, has {found}",
                region.heirs
            );
        }
        let lent = |folio: &Folio| matches!(folio.state, State::Lending | State::LendingFrame);
        let mut lenders: Vec<_> = self
            .folios
            .iter()
            .filter(|(_, f)| lent(f))
            .map(|(id, _)| id)
            .collect();
        for (id, folio) in self.folios.iter() {
            if folio.state == State::Filling && folio.errand == Errand::Copy {
                let Some(found) = lenders.iter().position(|&lender| lender == folio.lender())
                else {
                    return Err(format!("{id:?} is copied from nobody"));
                };
                lenders.swap_remove(found);
            }
        }
        ensure!(lenders.is_empty(), "{lenders:?} are lent to nobody");
        Ok(())
    }

    /// Entries agree with folios and slots; counts agree with entries. Returns how many entries name each slot.
    fn check_entries(&self) -> Result<Vec<u32>, String> {
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
                ensure!(
                    entry == Entry::Empty || self.regions.of(page).is_some(),
                    "{page} is outside all regions"
                );
                self.check_shadow(page)?;
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
                        by_slot[slot.0 as usize] += 1;
                    }
                    Entry::Zero => zeros += 1,
                    Entry::Empty | Entry::Poisoned => {}
                }
                ensure!(
                    !matches!(entry, Entry::Zero | Entry::Swapped { .. }) || !self.is_of_file(page),
                    "{page} is a file's, yet {entry:?}"
                );
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

    /// What a page has left behind is its group's, or that of one that was removed since from below it.
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

    /// Leaves that hold shadows only wait on the list of their lruvec, each once, inside of regions; no leaf with shadows is charged to a group
    /// that is gone.
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

    /// Every folio owns all its entries, is listed where its state says, and the page counts add up.
    fn check_folios(&self) -> Result<(), String> {
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

    /// What is charged to a group is what its folios are, and those of the groups below it; what it holds, its regions' entries.
    fn check_charges(&self) -> Result<(), String> {
        let mut found: HashMap<GroupId, [u32; 7]> = HashMap::new();
        // What stands for poison is charged to nobody: its group does not wait for it.
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

    fn check_list_of(&self, id: FolioId, folio: &Folio) -> Result<(), String> {
        let stuck = folio.pins > 0 || folio.immovable;
        let right = match (folio.state, folio.list) {
            (State::Resident, ListName::Unevictable) => stuck && !folio.lazy,
            (State::Resident, ListName::Active | ListName::Inactive) => !stuck && !folio.lazy,
            (State::Limbo, ListName::Limbo | ListName::LimboActive) => !folio.lazy,
            (State::Resident | State::Limbo, ListName::LazyFree) => folio.lazy && !stuck,
            (State::Resident | State::Limbo, _) => false,
            (_, list) => list == ListName::None,
        };
        ensure!(
            right,
            "{id:?}, {:?} with {} pins, is on list {:?}",
            folio.state,
            folio.pins,
            folio.list
        );
        let active = match folio.list {
            ListName::Active | ListName::LimboActive => folio.is_active(),
            ListName::Inactive | ListName::Limbo => !folio.is_active(),
            _ => true,
        };
        ensure!(
            active,
            "{id:?} on {:?} is taken for another kind",
            folio.list
        );
        ensure!(
            !folio.lazy || folio.slot().is_none(),
            "{id:?} was lazily freed, but keeps a slot"
        );
        ensure!(
            folio.pins == 0 || folio.state == State::Resident,
            "pinned {id:?} is {:?}",
            folio.state
        );
        Ok(())
    }

    fn check_lists(&self) -> Result<(), String> {
        let in_part = |folio: &Folio| folio.freed.pages > 0 && folio.state != State::Clearing;
        let in_parts = || self.folios.iter().filter(|(_, folio)| in_part(folio));
        ensure!(
            in_parts().all(|(id, _)| self.deferred.contains(&id))
                && in_parts().count() == self.deferred.len(),
            "not just the folios that were freed in part wait to be split: {:?}",
            self.deferred
        );
        let mut listed = 0;
        let mut totals = [[0; KINDS]; ListName::ALL.len()];
        for (vec, lists) in self.lru.iter() {
            ensure!(
                lists.workingset.curve.is_bounded(),
                "a miniature of {vec:?} holds more than it has seats"
            );
            let mut marked = ListName::ALL.iter().flat_map(|&name| {
                let marks = lists.lists(name).filter_map(List::youngest_marked);
                marks.map(move |id| (name, id))
            });
            ensure!(
                marked.all(|(name, id)| self.folios.get(id).list == name),
                "a mark of {vec:?} is on a folio that has left its list"
            );
            let sizes = [ANON, FILE].map(|kind| {
                let pages = EVICTABLE.map(|name| lists.pages_in(name, kind));
                pages.into_iter().sum::<u32>()
            });
            ensure!(
                sizes == lists.sizes(),
                "{vec:?} counts {:?} pages, has {sizes:?}",
                lists.sizes()
            );
            let all: u32 = ListName::ALL.map(|name| lists.pages_of(name)).iter().sum();
            ensure!(
                all == lists.pages(),
                "{vec:?} counts {} pages, has {all}",
                lists.pages()
            );
            for &name in ListName::ALL.iter().skip(1) {
                for kind in [ANON, FILE] {
                    for part in [UNWATCHED, WATCHED] {
                        let list = lists.list(name, kind, part);
                        listed += self.check_list(vec, list, name, kind)?;
                        totals[name as usize][kind] += list.pages();
                    }
                }
            }
        }
        for name in ListName::ALL {
            let said = [ANON, FILE].map(|kind| self.lru.total_in(name, kind));
            ensure!(
                totals[name as usize] == said,
                "all of {name:?} count {said:?} pages, have {:?}",
                totals[name as usize]
            );
        }
        let should = self
            .folios
            .iter()
            .filter(|(_, folio)| folio.list != ListName::None)
            .count();
        ensure!(
            listed == should,
            "{should} folios say they are listed, {listed} are found on lists"
        );
        Ok(())
    }

    fn check_list(
        &self,
        vec: VecId,
        list: &List,
        name: ListName,
        kind: usize,
    ) -> Result<usize, String> {
        let (mut pages, mut folios, mut at) = (0, 0, list.oldest());
        while let Some(id) = at {
            let folio = self.folios.get(id);
            ensure!(
                folio.list == name,
                "{id:?} on {name:?} says {:?}",
                folio.list
            );
            ensure!(
                self.lru.of(folio) == vec,
                "{id:?} of {:?}, {:?} is on {name:?} of {vec:?}",
                folio.group,
                folio.node
            );
            let of_all = matches!(name, ListName::LazyFree | ListName::Unevictable);
            ensure!(
                of_all || kind_of(folio) == kind,
                "{id:?}, {:?}, is on {name:?} of another kind",
                folio.kind()
            );
            pages += folio.order.pages().0;
            folios += 1;
            at = list.younger(&self.folios, id);
        }
        ensure!(
            pages == list.pages(),
            "{name:?} counts {} pages, has {pages}",
            list.pages()
        );
        ensure!(
            folios == list.folios() as usize,
            "{name:?} counts {} folios, has {folios}",
            list.folios()
        );
        Ok(folios)
    }

    /// Busy places are those that folios name, each once.
    fn check_frames(&self) -> Result<(), String> {
        let mut named = Vec::new();
        for (id, folio) in self.folios.iter() {
            let Some(frame) = folio.frame else {
                let has_none = matches!(
                    folio.state,
                    State::Resident
                        | State::Zapping
                        | State::Filling
                        | State::Clearing
                        | State::Looking
                        | State::Lending
                );
                ensure!(has_none, "{id:?} is {:?} without a frame", folio.state);
                continue;
            };
            ensure!(
                folio.state != State::Resident,
                "resident {id:?} keeps frame {frame}"
            );
            ensure!(
                frame.order() == folio.order,
                "{id:?} of {:?} names frame {frame}",
                folio.order
            );
            ensure!(
                self.frames.node_of(frame) == folio.node,
                "{id:?} of {:?} names frame {frame} of another node",
                folio.node
            );
            ensure!(
                self.frames.place(frame) == Some(Place::Busy),
                "{id:?} names idle frame {frame}"
            );
            named.push(frame);
        }
        named.sort_unstable();
        if let Some(twice) = named.windows(2).find(|two| two[0] == two[1]) {
            return Err(format!("frame {} is named twice", twice[0]));
        }
        for frame in self.frames.busy() {
            ensure!(
                named.binary_search(&frame).is_ok() || self.leaves_to(frame),
                "frame {frame} is busy for nobody"
            );
        }
        Ok(())
    }

    /// Each slot's live pages are the entries that name it, or the folio that it backs or fills.
    fn check_slots(&self, mut live: Vec<u32>) -> Result<(), String> {
        let mut folds = 0;
        for (id, folio) in self.folios.iter() {
            if let Some(slot) = folio.slot() {
                live[slot.0 as usize] += folio.order.pages().0;
                let (pages, first) = (folio.order.pages().0, u32::from(folio.slot_first));
                ensure!(
                    first % pages == 0 && first + pages <= self.slots.get(slot).order.pages().0,
                    "{id:?} is backed by {pages} pages from page {first} of {slot:?}, which has no such part"
                );
            }
            if let Errand::Fold(fold) = folio.errand {
                for part in self.folds.get(fold).as_slice() {
                    if let Some(slot) = part.slot {
                        live[slot.0 as usize] += u32::from(part.pages);
                    }
                }
                folds += 1;
            }
            if folio.state == State::Saving && !folio.is_in_file() {
                let slot = folio.saved_as();
                ensure!(
                    self.slots.get(slot).state == SlotState::Saving,
                    "{slot:?} of {id:?} is not being saved"
                );
            }
        }
        ensure!(
            folds == self.folds.len(),
            "{} folds are kept, {folds} are under way",
            self.folds.len()
        );
        for (id, slot) in self.slots.iter() {
            let found = std::mem::take(&mut live[id.0 as usize]);
            let said = if slot.state == SlotState::Held {
                slot.live
            } else {
                0
            };
            ensure!(
                found == said,
                "{id:?}, {:?}, counts {said} live pages, has {found}",
                slot.state
            );
            ensure!(
                slot.state != SlotState::Held || said > 0,
                "{id:?} is held for nobody"
            );
        }
        let releasing = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.state == SlotState::Releasing)
            .count();
        ensure!(
            releasing == self.releasing as usize,
            "releases: said {}, are {releasing}",
            self.releasing
        );
        if let Some(free) = live.iter().position(|&pages| pages > 0) {
            return Err(format!("free slot {free} is named"));
        }
        Ok(())
    }
}
