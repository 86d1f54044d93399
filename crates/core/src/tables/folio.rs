//! Folios: runs of 2^order pages that are brought in, listed and taken out as one.
//!
//! A folio record exists while its pages are in memory or on their way. Its state determines what may be done with it:
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
//! | `Zeroing` | mapped, being zeroed in place | folio | none | is spurious |
//! | `Looking` | mapped, being looked at | folio | none | is spurious |
//! | `Lending` | mapped or in a frame, being copied for an heir | folio | none | waits |
//!
//! Every state but `Resident` and `Limbo` is *in flight*: exactly one command names the folio, and its completion is
//! the only event that changes it. That is the whole concurrency protocol between two commands on the same memory;
//! there is no other lock on a page.

use super::extent::extent;
use crate::addr::{Frame, Order};
use crate::event::{Reclaimer, SlotPart};
use crate::ids::{EntryId, FoldId, FolioId, GroupId, Kind, ListName, NodeId, SlotId};
use std::ops::Range;

/// The state of a folio, which determines what may be done with it; see the [module](self).
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
    Zeroing,
    Looking,
    /// Lending while `Resident`, and `Resident` again afterwards.
    Lending,
    /// Lending while in `Limbo`, and in `Limbo` again afterwards.
    LendingFrame,
}

/// Why the command in progress was given, if the state alone does not tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Errand {
    None,
    /// `TakingOut`: advice asked for it, so the folio goes to limbo's old end.
    PageOut,
    /// `TakingOut`: the folio was lazily freed, so it then waits among the lazily freed to be dropped.
    LazyFree,
    /// `TakingOut`: the folio's contents are not needed; the frame becomes spare.
    Drop,
    /// `TakingOut`: as [`Errand::Drop`], but a folio that cannot be taken out is zapped: its pages must read as
    /// zeros.
    Discard,
    /// `TakingOut`: as [`Errand::Drop`], but the frame goes back to the kernel.
    Trim,
    /// `Saving`, or `TakingOut` of a blank folio: the kind of thread that reclaims, for the counters.
    For(Reclaimer),
    /// `Filling` from several slots.
    Fold(FoldId),
    /// `Filling` from a part of a slot, which the store forgets when the folio is mapped.
    Forget,
    /// `Filling` from another folio, the [lender](Folio::lender).
    Copy,
    /// `Zeroing` a part of the folio.
    FreePart,
    /// `Poisoning`, and `Zapping` afterwards: the folio represents poison, which is not charged as memory.
    Poison,
}

/// A run of a folio's pages, counted from its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Part {
    pub(crate) first: u16,
    pub(crate) pages: u16,
}

const NO_FOLIO: u32 = u32::MAX;
/// The value for no slot. All slots have lower numbers, as there are fewer of them.
const NO_SLOT: SlotId = SlotId(u32::MAX);

/// One folio record. It takes at most 48 bytes, asserted below.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Folio {
    /// The folio's first entry, which determines its address ([`Core::at`](crate::machine::Core)).
    pub(crate) entry: EntryId,
    pub(crate) order: Order,
    pub(crate) state: State,
    pub(crate) list: ListName,
    pub(crate) pins: u8,
    /// Whether a thread waits for the command in progress.
    pub(crate) waited_for: bool,
    /// Whether the folio's mapping does not let it move.
    pub(crate) immovable: bool,
    /// Whether all of the folio was lazily freed and, as far as is known, not used since. For a part of it see
    /// `lazy_part`.
    pub(crate) lazy: bool,
    /// Whether no fault requested the folio: it came in within another one's window.
    pub(crate) ahead: bool,
    /// The node that the folio's memory is on.
    pub(crate) node: NodeId,
    /// The group that the folio's memory is charged to.
    pub(crate) group: GroupId,
    /// The first page of the folio's part of the slot; the slot may be larger than the folio.
    pub(crate) slot_first: u16,
    /// Why the command in progress was given.
    pub(crate) errand: Errand,
    /// The part of the folio that was lazily freed while the rest was not; see `ops/deferred_split.rs`.
    pub(crate) lazy_part: Part,
    /// The slot of the store's copy of these bytes, or [`NO_SLOT`]. In `Filling` it is the slot that they come from.
    slot: SlotId,
    /// The frame in the pool to which the state refers.
    pub(crate) frame: Option<Frame>,
    /// The folio before this one on its list. While the folio is `Saving`, on no list, it is the slot that is being
    /// written.
    pub(crate) prev: u32,
    /// The next folio on its list. While the folio is `Filling` by `Errand::Copy`, on no list, it is the lender.
    pub(crate) next: u32,
    /// When the folio was last seen in use, by the clock of its lruvec.
    pub(crate) age: u32,
    /// For a folio in limbo: when it was taken out. From then on it is known to be idle.
    pub(crate) idle_since: u32,
    /// A set of `ACTIVE`, `REFERENCED`, `WATCHED`, `IN_FILE`, `DIRECT`, `DIRTY` and `AS_READ`.
    marks: u8,
}

const _: () = assert!(size_of::<Folio>() <= 48);

impl State {
    /// Whether folios in this state count as mapped: they are mapped, or on their way in or out.
    pub(crate) fn is_mapped(self) -> bool {
        !matches!(
            self,
            Self::Limbo | Self::Saving | Self::Rescuing | Self::LendingFrame
        )
    }
}

/// The folio is active, or was when it left the active list.
const ACTIVE: u8 = 1;
/// The folio was last seen in use in limbo: it has been used again since it came in.
const REFERENCED: u8 = 2;

/// The folio is one whose use is followed closely. This does not change while the record is in use.
const WATCHED: u8 = 4;

/// The folio's pages are a file's.
const IN_FILE: u8 = 8;
/// The folio's pages are mapped directly from their file's memory; without `IN_FILE`, they are of a private region.
const DIRECT: u8 = 16;
/// The file is known to hold other bytes and could not be written; or, in a private region, the store did not accept
/// them.
const DIRTY: u8 = 32;
/// The folio of a private region was read from the file, and may still be what the file holds.
const AS_READ: u8 = 64;

impl Folio {
    /// The part of the lists of a name that the folio is on; see [`lru`](crate::tables::lru).
    pub(crate) fn part(&self) -> u8 {
        u8::from(self.marks & WATCHED != 0)
    }

    /// The kind of the folio's pages.
    pub(crate) fn kind(&self) -> Kind {
        match (self.marks & IN_FILE != 0, self.marks & DIRECT != 0) {
            (false, false) => Kind::Anonymous,
            (false, true) => Kind::Private,
            (true, false) => Kind::File,
            (true, true) => Kind::Direct,
        }
    }

    pub(crate) fn set_kind(&mut self, kind: Kind) {
        self.marks = self.marks & !(IN_FILE | DIRECT)
            | match kind {
                Kind::Anonymous => 0,
                Kind::Private => DIRECT,
                Kind::File => IN_FILE,
                Kind::Direct => IN_FILE | DIRECT,
            };
    }

    /// Whether a file holds these pages while they are not in memory.
    pub(crate) fn is_in_file(&self) -> bool {
        self.marks & IN_FILE != 0
    }

    /// Whether the pages were read from a file that is never written, and may still be unchanged.
    pub(crate) fn is_as_read(&self) -> bool {
        self.marks & AS_READ != 0
    }

    pub(crate) fn set_as_read(&mut self) {
        self.marks |= AS_READ;
    }

    /// Whether the pages came from a file: they count as a file's.
    pub(crate) fn is_from_file(&self) -> bool {
        self.is_in_file() || self.is_as_read()
    }

    /// Whether the folio can only leave memory by being written.
    pub(crate) fn must_be_written(&self) -> bool {
        match self.is_from_file() {
            true => self.marks & DIRTY != 0,
            false => self.slot().is_none(),
        }
    }

    /// Whether the folio's file refused it when last asked.
    pub(crate) fn is_stranded(&self) -> bool {
        self.is_in_file() && self.marks & DIRTY != 0
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

    /// Copies what is known about the use of `whole` to a folio that is a part of it.
    pub(crate) fn used_like(&mut self, whole: &Self) {
        (self.age, self.idle_since, self.marks) = (whole.age, whole.idle_since, whole.marks);
    }

    /// For a folio that is being copied: the folio that it is copied from. The lender is `Lending` until the copy has
    /// arrived, or has failed.
    pub(crate) fn lender(&self) -> FolioId {
        debug_assert_eq!(self.errand, Errand::Copy);
        FolioId(self.next)
    }

    pub(crate) fn set_lender(&mut self, lender: FolioId) {
        debug_assert!(self.list == ListName::None);
        (self.errand, self.next) = (Errand::Copy, lender.0);
    }

    /// For a folio that is being saved: the slot that is being written.
    pub(crate) fn saved_as(&self) -> SlotId {
        debug_assert_eq!(self.state, State::Saving);
        SlotId(self.prev)
    }

    pub(crate) fn save_as(&mut self, slot: SlotId) {
        debug_assert!(self.state == State::Saving && self.list == ListName::None);
        self.prev = slot.0;
    }

    /// The slot of the store's copy of these bytes, if there is one. In `Filling` it is the slot that they come from.
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

    /// The part of the slot that holds the store's copy of these bytes, if there is one.
    pub(crate) fn backing(&self) -> Option<SlotPart> {
        let part = |slot| SlotPart {
            slot,
            first: self.slot_first,
            order: self.order,
        };
        self.slot().map(part)
    }

    /// For a folio that is being taken out: whether limbo will hold it.
    pub(crate) fn goes_to_limbo(&self) -> bool {
        matches!(self.errand, Errand::None | Errand::PageOut)
    }

    /// Whether the folio's pages count as memory. They do not if it represents poison.
    pub(crate) fn is_charged(&self) -> bool {
        self.errand != Errand::Poison
    }

    /// Whether exactly one command names the folio now.
    pub(crate) fn in_flight(&self) -> bool {
        !matches!(self.state, State::Free | State::Resident | State::Limbo)
    }
}

/// All folio records: an array that never moves, and the list of its free records.
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

    /// Calls `each` with the addresses of each long table.
    pub(crate) fn each_table(&self, each: &mut dyn FnMut(Range<usize>)) {
        each(extent(&self.records));
    }

    /// Whether `n` more records are available.
    pub(crate) fn room(&self, n: u32) -> bool {
        self.in_use as usize + n as usize <= self.records.capacity()
    }

    /// A record for the folio whose first entry is `entry`, or `None` when all are in use.
    pub(crate) fn alloc(&mut self, entry: EntryId, order: Order, state: State) -> Option<FolioId> {
        if !self.room(1) {
            return None;
        }
        let record = Folio {
            entry,
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
            lazy_part: Part::default(),
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

    /// An upper bound of all folios' numbers.
    pub(crate) fn made(&self) -> u32 {
        self.records.len() as u32
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.records.len() * size_of::<Folio>()) as u64
    }
}

/// A folio of an age, for tests.
#[cfg(test)]
pub(crate) fn folio_of_age(age: u32, active: bool) -> Folio {
    use crate::addr::{LEAF_PAGES, PageCount, PageIndex};
    use crate::tables::leaf::LeafTable;

    let mut folios = Folios::new(1);
    let mut leaves = LeafTable::new(PageCount(LEAF_PAGES), 512);
    let entry = leaves.entry_of(PageIndex(0));
    let id = folios.alloc(entry, Order::ZERO, State::Resident).unwrap();
    let folio = folios.get_mut(id);
    folio.age = age;
    folio.set_active(active);
    *folio
}
