//! Folios: runs of 2^order pages that are brought in, listed and taken out as one.
//!
//! A folio record exists while its pages are in memory or on their way. Its state says who may do what:
//!
//! | state | contents are | entries | list | a fault here |
//! | --- | --- | --- | --- | --- |
//! | `Filling` | being made (zeroed or loaded) | folio | none | waits |
//! | `Resident` | mapped | folio | active, inactive or unevictable | is spurious |
//! | `TakingOut` | mapped until the MMU captures them | folio | none | waits |
//! | `Limbo` | in a frame, unmapped | folio | limbo | rescues it |
//! | `Saving` | in a frame, being written | folio | none | waits |
//! | `Rescuing` | in a frame, being mapped again | folio | none | waits |
//! | `Zapping` | being dropped | folio | none | waits |
//! | `Poisoning` | lost, and being marked as such | folio | none | waits |
//! | `Clearing` | mapped, being zeroed in place | folio | none | is spurious |
//! | `Looking` | mapped, being looked at | folio | none | is spurious |
//! | `Lending` | mapped or in a frame, being copied for an heir | folio | none | waits |
//!
//! Every state but `Resident` and `Limbo` is *in flight*: exactly one command names the folio, and its completion is
//! the only event that changes it. That is the whole concurrency protocol between two commands about the same
//! memory; there is no other lock on a page.

use crate::addr::{Frame, Order};
use crate::event::{Reclaimer, SlotPart};
use crate::ids::{FoldId, FolioId, GroupId, Kind, ListName, NodeId, Place, SlotId};

/// Who may do what with a folio; see the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Free,
    Filling,
    Resident,
    TakingOut,
    Limbo,
    Saving,
    Rescuing,
    Zapping,
    Poisoning,
    Clearing,
    Looking,
    /// From `Resident`, and back.
    Lending,
    /// From `Limbo`, and back.
    LendingFrame,
}

/// Why the command under way was given, where its state alone does not tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Errand {
    None,
    /// `TakingOut`: asked for by advice, so it goes to limbo's old end.
    PageOut,
    /// `TakingOut`: lazily freed, so it waits among its like to be dropped.
    LazyFree,
    /// `TakingOut`: its contents are not wanted; the frame becomes spare.
    Drop,
    /// `TakingOut`: the same, but if it cannot be taken out it is zapped: its pages must read as zeros.
    Discard,
    /// `TakingOut`: the same, and the frame goes back to the kernel.
    Trim,
    /// `Saving`, or `TakingOut` of what is blank: on whose behalf, for the counters.
    For(Reclaimer),
    /// `Filling` from several slots.
    Fold(FoldId),
    /// `Filling` from another folio, the [lender](Folio::lender).
    Copy,
    /// `Clearing` a part of it.
    FreePart,
    /// `Poisoning`, and `Zapping` afterwards: it stands for poison, which is not charged as memory.
    Poison,
}

/// A run of a folio's pages, counted from its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Part {
    pub(crate) first: u16,
    pub(crate) pages: u16,
}

const NO_FOLIO: u32 = u32::MAX;
/// There are fewer slots than that: an arena has fewer pages.
const NO_SLOT: SlotId = SlotId(u32::MAX);

/// One record. At most 48 bytes, asserted below.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Folio {
    /// Its first entry: from there its address is known ([`Core::at`](crate::machine::Core)).
    pub(crate) place: Place,
    pub(crate) order: Order,
    pub(crate) state: State,
    pub(crate) list: ListName,
    pub(crate) pins: u8,
    /// Somebody waits for the command under way.
    pub(crate) waited_for: bool,
    /// Its mapping does not let it move.
    pub(crate) immovable: bool,
    /// Lazily freed and, as far as is known, not used since. All of it; for a part see `freed`.
    pub(crate) lazy: bool,
    /// Nobody asked for it: it comes with the window of another.
    pub(crate) ahead: bool,
    /// Where its memory is.
    pub(crate) node: NodeId,
    /// Whom its memory is charged to.
    pub(crate) group: GroupId,
    /// The first page of the slot that is meant; it may be a part of a larger one.
    pub(crate) slot_first: u16,
    /// Why the command under way was given.
    pub(crate) errand: Errand,
    /// The part of it that was freed while the rest was not; see `ops/deferred_split.rs`.
    pub(crate) freed: Part,
    /// The store's copy of these bytes, or [`NO_SLOT`]. In `Filling`, where they come from.
    slot: SlotId,
    /// The frame in the pool that the state speaks of.
    pub(crate) frame: Option<Frame>,
    /// The one before it on its list; the name for what is being written while it is `Saving`, on no list.
    pub(crate) prev: u32,
    /// The next on its list; the lender while it is `Filling` by `Errand::Copy`, on no list.
    pub(crate) next: u32,
    /// When it was last seen in use, by the clock of its lruvec.
    pub(crate) age: u32,
    /// In limbo: when it was taken out. From then on it is known to be idle.
    pub(crate) idle_since: u32,
    /// `ACTIVE`, `REFERENCED`, `WATCHED`, `IN_FILE`, `DIRECT`, `DIRTY`.
    marks: u8,
}

const _: () = assert!(size_of::<Folio>() <= 48);

impl State {
    /// Whether folios in this state count as mapped: they are, or are on their way in or out.
    pub(crate) fn is_mapped(self) -> bool {
        !matches!(
            self,
            Self::Limbo | Self::Saving | Self::Rescuing | Self::LendingFrame
        )
    }
}

/// It is active, or comes from there.
const ACTIVE: u8 = 1;
/// It was last seen in use in limbo: it has been used again since it came in.
const REFERENCED: u8 = 2;

/// It is one of those whose use is followed closely; this does not change while the record is in use.
const WATCHED: u8 = 4;

/// It is a page of a file, …
const IN_FILE: u8 = 8;
/// … mapped straight from where that is.
const DIRECT: u8 = 16;
/// The file is known to hold something else, and could not be written.
const DIRTY: u8 = 32;

impl Folio {
    /// Which of the lists of a name it is on; see [`lru`](crate::tables::lru).
    pub(crate) fn part(&self) -> u8 {
        u8::from(self.marks & WATCHED != 0)
    }

    /// What its pages are.
    pub(crate) fn kind(&self) -> Kind {
        match (self.marks & IN_FILE != 0, self.marks & DIRECT != 0) {
            (false, _) => Kind::Anonymous,
            (true, false) => Kind::File,
            (true, true) => Kind::Direct,
        }
    }

    pub(crate) fn set_kind(&mut self, kind: Kind) {
        self.marks = self.marks & !(IN_FILE | DIRECT)
            | match kind {
                Kind::Anonymous => 0,
                Kind::File => IN_FILE,
                Kind::Direct => IN_FILE | DIRECT,
            };
    }

    /// Whether a file holds these pages while they are not in memory.
    pub(crate) fn is_in_file(&self) -> bool {
        self.marks & IN_FILE != 0
    }

    /// Whether nothing but a write can make it leave memory.
    pub(crate) fn must_be_written(&self) -> bool {
        match self.is_in_file() {
            true => self.marks & DIRTY != 0,
            false => self.slot().is_none(),
        }
    }

    pub(crate) fn set_dirty(&mut self) {
        self.marks |= DIRTY;
    }

    pub(crate) fn set_watched(&mut self, watched: bool) {
        self.marks = self.marks & !WATCHED | if watched { WATCHED } else { 0 };
    }

    pub(crate) fn is_active(&self) -> bool {
        self.marks & ACTIVE != 0
    }

    pub(crate) fn set_active(&mut self, active: bool) {
        self.marks = self.marks & !ACTIVE | if active { ACTIVE } else { 0 };
    }

    pub(crate) fn is_referenced(&self) -> bool {
        self.marks & REFERENCED != 0
    }

    pub(crate) fn set_referenced(&mut self) {
        self.marks |= REFERENCED;
    }

    /// What is known of its use is known of a part of it, too.
    pub(crate) fn used_like(&mut self, whole: &Self) {
        (self.age, self.idle_since, self.marks) = (whole.age, whole.idle_since, whole.marks);
    }

    /// Of a folio being copied: what from. It is `Lending` until this one has arrived, or has not.
    pub(crate) fn lender(&self) -> FolioId {
        debug_assert_eq!(self.errand, Errand::Copy);
        FolioId(self.next)
    }

    pub(crate) fn set_lender(&mut self, lender: FolioId) {
        debug_assert!(self.list == ListName::None);
        (self.errand, self.next) = (Errand::Copy, lender.0);
    }

    /// Of a folio being saved: the name for what is being written.
    pub(crate) fn saved_as(&self) -> SlotId {
        debug_assert_eq!(self.state, State::Saving);
        SlotId(self.prev)
    }

    pub(crate) fn save_as(&mut self, slot: SlotId) {
        debug_assert!(self.state == State::Saving && self.list == ListName::None);
        self.prev = slot.0;
    }

    /// The slot of the store's copy of these bytes, if there is one. In `Filling`, where they come from.
    pub(crate) fn slot(&self) -> Option<SlotId> {
        (self.slot != NO_SLOT).then_some(self.slot)
    }

    pub(crate) fn take_slot(&mut self) -> Option<SlotId> {
        let slot = self.slot();
        self.slot = NO_SLOT;
        slot
    }

    pub(crate) fn set_slot(&mut self, slot: Option<SlotId>) {
        self.slot = slot.unwrap_or(NO_SLOT);
    }

    /// The same, as it may be a part of that slot.
    pub(crate) fn backing(&self) -> Option<SlotPart> {
        let part = |slot| SlotPart {
            slot,
            first: self.slot_first,
            order: self.order,
        };
        self.slot().map(part)
    }

    /// Of a folio being taken out: whether limbo will hold it.
    pub(crate) fn goes_to_limbo(&self) -> bool {
        matches!(self.errand, Errand::None | Errand::PageOut)
    }

    /// Whether its pages count as memory: not when it stands for poison.
    pub(crate) fn is_charged(&self) -> bool {
        self.errand != Errand::Poison
    }

    /// Whether exactly one command names it now.
    pub(crate) fn in_flight(&self) -> bool {
        !matches!(self.state, State::Free | State::Resident | State::Limbo)
    }
}

/// All folio records: an array that never moves, and its free ones.
#[derive(Debug)]
pub(crate) struct Folios {
    records: Vec<Folio>,
    first_free: u32,
    in_use: u32,
}

impl Folios {
    pub(crate) fn new(records: u32) -> Self {
        Self {
            records: Vec::with_capacity(records as usize),
            first_free: NO_FOLIO,
            in_use: 0,
        }
    }

    /// Whether `n` more records can be had.
    pub(crate) fn room(&self, n: u32) -> bool {
        self.in_use as usize + n as usize <= self.records.capacity()
    }

    /// A record for the folio at `place`, or `None` when all are in use.
    pub(crate) fn alloc(&mut self, place: Place, order: Order, state: State) -> Option<FolioId> {
        if !self.room(1) {
            return None;
        }
        let record = Folio {
            place,
            order,
            state,
            list: ListName::None,
            pins: 0,
            waited_for: false,
            immovable: false,
            lazy: false,
            ahead: false,
            node: NodeId::default(),
            group: GroupId::ROOT,
            slot_first: 0,
            errand: Errand::None,
            freed: Part::default(),
            slot: NO_SLOT,
            frame: None,
            prev: NO_FOLIO,
            next: NO_FOLIO,
            age: 0,
            idle_since: 0,
            marks: 0,
        };
        let id = if self.first_free == NO_FOLIO {
            self.records.push(record);
            FolioId(self.records.len() as u32 - 1)
        } else {
            let id = FolioId(self.first_free);
            self.first_free = self.get(id).next;
            *self.get_mut(id) = record;
            id
        };
        self.in_use += 1;
        Some(id)
    }

    pub(crate) fn release(&mut self, id: FolioId) {
        let next = self.first_free;
        let folio = self.get_mut(id);
        debug_assert!(folio.list == ListName::None, "a listed folio was released");
        folio.state = State::Free;
        folio.next = next;
        self.first_free = id.0;
        self.in_use -= 1;
    }

    pub(crate) fn get(&self, id: FolioId) -> &Folio {
        &self.records[id.0 as usize]
    }

    pub(crate) fn get_mut(&mut self, id: FolioId) -> &mut Folio {
        &mut self.records[id.0 as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (FolioId, &Folio)> {
        let number = |(i, folio): (usize, _)| (FolioId(i as u32), folio);
        self.records
            .iter()
            .enumerate()
            .map(number)
            .filter(|(_, folio)| folio.state != State::Free)
    }

    /// All numbers of folios are below this.
    pub(crate) fn made(&self) -> u32 {
        self.records.len() as u32
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.records.len() * size_of::<Folio>()) as u64
    }
}

/// A folio as tests of ages want one.
#[cfg(test)]
pub(crate) fn folio_of_age(age: u32, active: bool) -> Folio {
    use crate::addr::{LEAF_PAGES, PageCount, PageIndex};
    use crate::tables::leaf::LeafTable;

    let mut folios = Folios::new(1);
    let mut leaves = LeafTable::new(PageCount(LEAF_PAGES), 512);
    let place = leaves.place_of(PageIndex(0));
    let id = folios.alloc(place, Order::ZERO, State::Resident).unwrap();
    let folio = folios.get_mut(id);
    folio.age = age;
    folio.set_active(active);
    *folio
}
