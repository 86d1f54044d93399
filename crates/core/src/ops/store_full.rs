//! A full store: all of its room is used before memory exceeds the limit.
//!
//! A page that came back keeps its slot, so that it can leave again without being written. Memory and the store then
//! hold it twice. That is a good bargain while the store has room, but makes a program fail when it has none: of 111
//! MiB that circulated through a store of 99, all ended in memory, because each page that was written to needed a
//! second slot and found none.
//!
//! *A folio that comes in gives its slot up* while the store is close to full. Linux does the same once swap is half
//! full (`vm_swap_full`, `folio_free_swap`). The core does not know how much room a store has, only how much it held
//! when it last refused: from then on the store is *tight* while it holds more than three quarters of that.
//!
//! *A folio in memory gives its slot up* as a last resort: a sweep goes over the records, some of them in each batch of
//! reclaim. There is no sweep if no folio has kept its slot since the last one.
//!
//! *Room opens the store.* While the store refuses, nothing new is offered, and folios that must be written wait in
//! limbo. As soon as the store has forgotten as many pages as it last refused, it is asked again. An early version
//! asked it once a second, and a later one at each page that it forgot; then nine folios were refused for each page
//! that was loaded.
//!
//! *RAM is worth more.* If the driver finds that copies cost more RAM than they are worth
//! ([`Event::KeepCopies`](crate::Event::KeepCopies)), folios that come in give their slots up as if the store were
//! close to full, and a sweep takes the slots of mapped folios that nobody else needs.
//!
//! *When to give up.* Each list in limbo counts the folios that may leave without a write. If there are none, and the
//! sweep has reached its end, a fault is served above the limit.
//!
//! *Files* that accept nothing do not block the store: only the pages that wait for them stay
//! ([`file`](crate::ops::file)). They too may leave no choice but to exceed the limit.
//!
//! If the guess is wrong, and the store is larger than it seemed, a folio that came in costs one more write when it
//! leaves.

use crate::command::Commands;
use crate::event::{Reply, SlotPart};
use crate::ids::{FolioId, GroupId, ListName, SlotId, VecId};
use crate::limits::{ANSWER_COMMANDS, LOAD_RESERVE, MAX_COMMANDS, SLOT_SWEEP};
use crate::machine::Core;
use crate::tables::folio::{Folio, State};
use crate::tables::lru::{Lruvec, UNWATCHED, WATCHED};

impl Core {
    /// Notes that a slot was filled.
    pub(crate) fn slot_saved(&mut self, slot: SlotId) {
        self.slots.saved(slot);
        self.room.took(self.slots.pages());
    }

    /// Notes that the store accepted nothing: the folio stays in limbo. A full store has compared first, so the slot
    /// from which the folio was loaded is stale; giving it up makes room.
    pub(crate) fn not_saved(&mut self, id: FolioId, folio: &Folio, full: bool, out: &mut Commands) {
        self.slots.cancel(folio.saved_as());
        self.stat.store_failed += 1;
        self.store_blocked = true;
        self.room.full = full;
        if full {
            self.room.full_at = self.slots.pages().max(1);
            self.room.wanted = folio.order.pages().0;
        }
        let record = self.folios.get_mut(id);
        record.state = State::Limbo;
        if folio.is_as_read() {
            // The store is only asked to hold a folio that differs from what was read.
            record.set_dirty();
        }
        if full && self.disown_slot(id, out) {
            self.list_old(id, ListName::Limbo);
        } else {
            // Another folio may fit where this one does not.
            self.waits(id);
        }
    }

    /// Puts aside a folio that is in limbo, on no list now, and that the store does not accept. It goes behind all that
    /// may still leave.
    pub(crate) fn waits(&mut self, id: FolioId) {
        let age = self.lruvec_of(id).workingset.now();
        self.folios.get_mut(id).age = age;
        self.list(id, ListName::Limbo);
    }

    /// Lets the store be asked again.
    pub(crate) fn open_store(&mut self) {
        self.store_blocked = false;
        self.room.full = false;
    }

    /// Notes that the store has forgotten this many pages, and may have room for something else.
    pub(crate) fn room_came(&mut self, pages: u32) {
        self.room.wanted = self.room.wanted.saturating_sub(pages);
        if self.room.full && self.room.wanted == 0 {
            self.open_store();
        }
    }

    /// Whether a mapped folio may not also have a copy in the store: the store has hardly any room, or RAM is worth
    /// more. In the second case watched folios keep their copies, to show what the copies of the others would save.
    pub(crate) fn is_held_once(&self, id: FolioId) -> bool {
        let is_watched = || self.is_watched_at(self.folios.get(id).entry);
        self.room.is_tight(self.slots.pages()) || self.room.once && !is_watched()
    }

    /// Whether this part of a slot has a single holder while others need the rest. The store can be told to forget the
    /// part; a slot that nobody needs is released.
    pub(crate) fn is_own_part(&self, part: SlotPart) -> bool {
        let slot = self.slots.get(part.slot);
        slot.live > part.order.pages().0 && self.slots.is_exclusive(part.slot)
    }

    /// Whether giving up a mapped folio's slot saves RAM: nobody else needs the slot.
    fn is_worth_giving_up(&self, id: FolioId) -> bool {
        let pages = |part: SlotPart| part.order.pages().0;
        let backing = self.folios.get(id).backing();
        backing.is_some_and(|part| self.slots.get(part.slot).live == pages(part))
    }

    /// Decides whether folios that come back keep their slots from now on; if not, mapped folios gradually give theirs
    /// up.
    pub(crate) fn keep_copies(&mut self, keep: bool) -> Reply {
        self.room.once = !keep;
        if !keep {
            self.room.sweep = self.folios.made();
        }
        Reply::Done
    }

    /// Whether folios that come back keep their slots, according to [`Event::KeepCopies`](crate::Event::KeepCopies).
    #[must_use]
    pub fn keeps_copies(&self) -> bool {
        !self.room.once
    }

    /// Notes that the store has forgotten the copy from which a folio was loaded.
    pub(crate) fn was_forgotten(&mut self, id: FolioId, out: &mut Commands) {
        self.disown_slot(id, out);
        self.room_came(self.folios.get(id).order.pages().0);
    }

    /// Decides whether a folio that is mapped from now on keeps its slot.
    pub(crate) fn may_keep_slot(&mut self, id: FolioId, out: &mut Commands) {
        let is_tight = self.room.is_tight(self.slots.pages());
        if is_tight || self.is_held_once(id) && self.is_worth_giving_up(id) {
            self.disown_slot(id, out);
        } else {
            self.keeps_slot(id);
        }
    }

    /// Notes that a folio is mapped, and keeps its slot if it has one.
    pub(crate) fn keeps_slot(&mut self, id: FolioId) {
        self.room.held_twice |= self.folios.get(id).slot().is_some();
    }

    /// Gives up slots of mapped folios, as many as a batch has room for. Returns whether there were any, or may be
    /// more.
    pub(crate) fn give_slots_up(&mut self, out: &mut Commands) -> bool {
        if !self.room.full {
            return false;
        }
        if self.room.sweep == 0 && std::mem::take(&mut self.room.held_twice) {
            self.room.sweep = self.folios.made();
        }
        let gave = self.sweep_slots(MAX_COMMANDS - ANSWER_COMMANDS, out);
        // Folios that were mapped behind the position of a running sweep are left to the next one.
        gave || self.room.sweep > 0 || self.room.held_twice
    }

    /// Continues a sweep, until there are `most` commands. Returns whether a slot was given up.
    pub(crate) fn sweep_slots(&mut self, most: usize, out: &mut Commands) -> bool {
        let mut gave = false;
        for _ in 0..SLOT_SWEEP {
            if self.room.sweep == 0 || out.len() >= most {
                break;
            }
            self.room.sweep -= 1;
            let id = FolioId(self.room.sweep);
            let folio = self.folios.get(id);
            if folio.state != State::Resident || folio.is_in_file() {
                continue;
            }
            let is_to_go = self.is_held_once(id) && self.is_worth_giving_up(id);
            match self.room.full || is_to_go {
                true => gave |= self.disown_slot(id, out),
                false => self.keeps_slot(id),
            }
        }
        gave
    }

    /// Whether a store or files that accept nothing leave no choice but to serve a fault of `scope` above the limit.
    pub(crate) fn store_ends_it(&mut self, scope: GroupId, out: &mut Commands) -> bool {
        if !(self.store_blocked || self.files_blocked) || self.releasing > 0 {
            return false;
        }
        let below = |vec| self.groups.is_below(self.lru.group(vec), scope);
        let may_leave =
            |(vec, lists): (VecId, &Lruvec)| below(vec) && self.something_leaves(vec, lists);
        !self.lru.iter().any(may_leave) && !self.give_slots_up(out)
    }

    /// Whether something of a lruvec may leave limbo, or enter it and leave then.
    fn something_leaves(&self, vec: VecId, lists: &Lruvec) -> bool {
        if self.store_blocked {
            let is_offered = !self.files_blocked && lists.stranded() > 0;
            return is_offered || lists.oldest_beside_unchanged().is_some();
        }
        // Folios in limbo that wait for their file may occupy all places to which the next one could be taken out.
        let comes_out = |id: FolioId| {
            let (order, node) = (self.folios.get(id).order, self.folios.get(id).node);
            self.frames.holes(order, node) > LOAD_RESERVE || self.frames.has_spare_on(order, node)
        };
        let next = || self.next_for_limbo(vec, &[UNWATCHED, WATCHED]);
        let is_moving = !self.is_quiet() || lists.taking_out > 0;
        is_moving
            || lists.oldest_beside_stranded().is_some()
            || !lists.is_stuck() && next().is_some_and(comes_out)
    }

    /// Number of mapped folios that have a slot, for checks. There are none while the store is full and a fault exceeds
    /// the limit.
    #[must_use]
    pub fn held_twice(&self) -> usize {
        let twice = |folio: &Folio| {
            folio.state == State::Resident && !folio.is_in_file() && folio.slot().is_some()
        };
        self.folios.iter().filter(|(_, folio)| twice(folio)).count()
    }

    /// Whether the store refused for lack of room, and has not been asked since.
    #[must_use]
    pub fn store_full(&self) -> bool {
        self.room.full
    }
}
