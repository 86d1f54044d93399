//! Completions: the driver has carried out a command, or could not.
//!
//! Each in-flight state of a folio admits certain outcomes. Any other outcome means that the driver has mixed up two
//! commands; it stops the program before data is lost.

use crate::addr::{Frame, PageRange};
use crate::command::{Command, Commands};
use crate::event::{Outcome, Reply};
use crate::ids::{FolioId, Kind, ListName, SlotId};
use crate::machine::Core;
use crate::tables::folio::{Errand, Folio, State};
use crate::tables::leaf::Entry;

impl Core {
    pub(crate) fn complete(&mut self, id: FolioId, outcome: Outcome, out: &mut Commands) -> Reply {
        let folio = *self.folios.get(id);
        let at = self.at(id);
        self.flights -= u32::from(folio.in_flight());
        match folio.state {
            State::Filling => self.filling_ended(id, outcome, out),
            State::Rescuing => self.rescuing_ended(id, outcome, out),
            State::TakingOut => self.taking_out_ended(id, &folio, outcome, out),
            State::Saving => self.saving_ended(id, &folio, outcome, out),
            State::Zeroing if outcome == Outcome::Zeroed => self.zeroed(id),
            State::Looking => match outcome {
                Outcome::Blank => self.looked_at(id, true),
                Outcome::Written => self.looked_at(id, false),
                _ => lost_count(id, &folio, outcome),
            },
            State::Poisoning if outcome == Outcome::Poisoned => {
                self.leaves.fill(at, Entry::Poisoned);
                self.folios.release(id);
            }
            State::Zapping if outcome == Outcome::Zapped => {
                if let Some(slot) = folio.slot() {
                    self.drop_slot_pages(slot, folio.order.pages().0, out);
                }
                self.zapped(id, &folio);
            }
            _ => lost_count(id, &folio, outcome),
        }
        // Threads keep waiting for a folio that is in flight again.
        let goes_on = matches!(
            (folio.state, self.folios.get(id).state),
            (State::TakingOut, State::Zapping) | (State::Filling, State::Poisoning)
        );
        if goes_on {
            self.folios.get_mut(id).waited_for = folio.waited_for;
            return Reply::Done;
        }
        // The record may already be free, so the copy tells whether a thread waited for it.
        if self.waited_for(id, &folio) {
            self.folios.get_mut(id).waited_for = false;
            out.push(Command::Wake { at });
        }
        Reply::Done
    }

    fn filling_ended(&mut self, id: FolioId, outcome: Outcome, out: &mut Commands) {
        match outcome {
            Outcome::Installed { frame_kept } => self.filled(id, frame_kept, out),
            Outcome::InstallSplit { frame_kept } | Outcome::InstallGone { frame_kept } => {
                self.not_filled(id, frame_kept, out);
            }
            Outcome::LoadFailed { frame_kept } => self.load_failed(id, frame_kept, out),
            _ => lost_count(id, self.folios.get(id), outcome),
        }
    }

    fn rescuing_ended(&mut self, id: FolioId, outcome: Outcome, out: &mut Commands) {
        match outcome {
            Outcome::Installed { frame_kept } => self.rescued(id, frame_kept, out),
            Outcome::InstallSplit { .. } | Outcome::InstallGone { .. } => {
                self.folios.get_mut(id).state = State::Limbo;
                self.list(id, ListName::Limbo);
            }
            _ => lost_count(id, self.folios.get(id), outcome),
        }
    }

    fn taking_out_ended(
        &mut self,
        id: FolioId,
        folio: &Folio,
        outcome: Outcome,
        out: &mut Commands,
    ) {
        match outcome {
            Outcome::TakenOut => {
                self.has_left(id);
                self.taken_out(id, out);
            }
            Outcome::TakenOutBlank => {
                self.has_left(id);
                self.taken_out_blank(id);
            }
            Outcome::Written => self.not_blank(id),
            Outcome::TakeOutBusy | Outcome::TakeOutImmovable if folio.errand == Errand::Discard => {
                self.stays(id, ListName::Inactive);
                self.zap(id, out);
            }
            Outcome::TakeOutBusy => self.is_busy(id, out),
            Outcome::TakeOutImmovable => self.immovable(id, out),
            _ => lost_count(id, folio, outcome),
        }
    }

    fn saving_ended(&mut self, id: FolioId, folio: &Folio, outcome: Outcome, out: &mut Commands) {
        if folio.is_in_file() {
            self.written_back(id, folio, outcome);
            return;
        }
        let pages = folio.order.pages().0;
        match outcome {
            Outcome::Stored => {
                let slot = folio.saved_as();
                self.slot_saved(slot);
                if let Some(previous) = folio.slot() {
                    self.drop_slot_pages(previous, pages, out);
                }
                self.count(folio.group, |stat| stat.pswpout += u64::from(pages));
                self.evicted(id, folio, Some((slot, 0)));
            }
            Outcome::Unchanged => {
                self.cancel_save(folio);
                self.stat.pswpout_unchanged += u64::from(pages);
                if folio.is_as_read() {
                    self.forget(self.at(id));
                    self.gone(id, folio);
                    return;
                }
                let backing = folio.slot().map(|slot| (slot, folio.slot_first));
                self.evicted(id, folio, backing);
            }
            Outcome::AllZero => {
                self.cancel_save(folio);
                if let Some(previous) = folio.slot() {
                    self.drop_slot_pages(previous, pages, out);
                }
                self.stat.pswpout_zero += u64::from(pages);
                self.evicted(id, folio, None);
            }
            Outcome::StoreFull | Outcome::StoreFailed => {
                self.not_saved(id, folio, outcome == Outcome::StoreFull, out);
            }
            _ => lost_count(id, folio, outcome),
        }
    }

    fn waited_for(&self, id: FolioId, before: &Folio) -> bool {
        before.waited_for
            || (self.folios.get(id).state != State::Free && self.folios.get(id).waited_for)
    }

    fn filled(&mut self, id: FolioId, frame_kept: bool, out: &mut Commands) {
        let folio = *self.folios.get(id);
        let pages = folio.order.pages().0;
        self.settle_frame(folio.frame, frame_kept);
        if folio.frame.is_some() {
            self.copied.came_in(folio.order, frame_kept);
        }
        let major = match folio.errand {
            Errand::Fold(_) => true,
            Errand::Copy => false,
            _ => {
                let reads = folio.kind() == Kind::File || folio.is_as_read();
                folio.slot().is_some() || reads
            }
        };
        if !folio.ahead {
            self.count(folio.group, |stat| {
                stat.pgfault += 1;
                stat.pgmajfault += u64::from(major);
            });
        }
        match (folio.errand, folio.slot()) {
            (Errand::Copy, _) => {
                self.stat.snapshot_copy += u64::from(pages);
                self.given_back(folio.lender(), out);
            }
            (Errand::Fold(fold), _) => {
                self.stat.folio_fold += 1;
                let parts = self.folds.take(fold);
                for part in parts.as_slice() {
                    let pages = u32::from(part.pages);
                    match part.slot {
                        Some(slot) => {
                            self.count(folio.group, |stat| stat.pswpin += u64::from(pages));
                            self.drop_slot_pages(slot, pages, out);
                        }
                        None => self.stat.pgzero += u64::from(pages),
                    }
                }
            }
            (_, Some(_)) => self.count(folio.group, |stat| stat.pswpin += u64::from(pages)),
            _ if folio.is_from_file() => {
                self.count(folio.group, |stat| stat.pgpgin += u64::from(pages))
            }
            (_, None) => self.stat.pgzero += u64::from(pages),
        }
        let list = self.list_of(id);
        self.now_resident(id, list);
        match folio.errand {
            Errand::Forget => self.was_forgotten(id, out),
            _ => self.may_keep_slot(id, out),
        }
        self.trim(out);
    }

    fn rescued(&mut self, id: FolioId, frame_kept: bool, out: &mut Commands) {
        let folio = *self.folios.get(id);
        let pages = folio.order.pages().0;
        self.settle_frame(folio.frame, frame_kept);
        self.copied.came_in(folio.order, frame_kept);
        self.now_mapped(id);
        self.count(folio.group, |stat| {
            stat.pgfault += 1;
            stat.limbo_rescue += u64::from(pages);
        });
        let list = self.list_of(id);
        self.now_resident(id, list);
        self.may_keep_slot(id, out);
        self.trim(out);
    }

    /// The list that a folio belongs on once it is mapped.
    pub(crate) fn list_of(&self, id: FolioId) -> ListName {
        match self.folios.get(id).is_active() {
            true => ListName::Active,
            false => ListName::Inactive,
        }
    }

    pub(crate) fn now_resident(&mut self, id: FolioId, list: ListName) {
        let folio = self.folios.get_mut(id);
        folio.state = State::Resident;
        folio.frame = None;
        folio.errand = Errand::None;
        folio.ahead = false;
        self.list(id, list);
    }

    /// Settles the frame from which a folio came in: it is spare if its pages were copied, and a hole if they were
    /// moved.
    fn settle_frame(&mut self, frame: Option<Frame>, kept: bool) {
        match frame {
            Some(frame) if kept => self.frames.now_spare(frame),
            Some(frame) => self.frames.now_hole(frame),
            None => {}
        }
    }

    /// Pages of frames beyond the limit.
    pub(crate) fn over_limit(&self) -> u32 {
        self.frames_in_use().saturating_sub(self.limit)
    }

    /// Gives spare frames beyond the limit back to the kernel. Frames exceed the limit because copied folios leave
    /// their frames behind, and because the driver lowers the limit by the amount that the store needs.
    pub(crate) fn trim(&mut self, out: &mut Commands) {
        let over = self.over_limit();
        if over > 0 && self.frames.spare_pages() > 0 {
            self.drain(over, out);
        }
    }

    /// Restores the entries of a folio that could not be filled.
    fn not_filled(&mut self, id: FolioId, frame_kept: bool, out: &mut Commands) {
        let folio = *self.folios.get(id);
        match (folio.errand, folio.slot()) {
            (Errand::Fold(fold), _) => {
                let parts = self.folds.take(fold);
                for (part, at) in parts.places(self.at(id)) {
                    match part.slot {
                        Some(slot) => self.leaves.set_swapped(at, slot, part.first),
                        None => self.forget(at),
                    }
                }
            }
            (Errand::Copy, _) => self.not_copied(id, out),
            (_, Some(slot)) => self.leaves.set_swapped(self.at(id), slot, folio.slot_first),
            // An empty entry would mean the file's page.
            (_, None) if folio.kind() == Kind::Private && !folio.is_as_read() => {
                let at = self.at(id);
                self.leaves.fill(at, Entry::Zero);
                self.more_zeros(at.start, at.len.0);
            }
            (_, None) => self.forget(self.at(id)),
        }
        self.give_up_filling(id, &folio, frame_kept, out);
    }

    /// Notes that a folio's contents could not be loaded and are lost. Its pages stay in flight until they are marked
    /// as lost, so that a discard of them waits. Otherwise the mark could hit pages that another fault has brought in
    /// there since.
    fn load_failed(&mut self, id: FolioId, frame_kept: bool, out: &mut Commands) {
        self.stat.load_failed += 1;
        let at = self.at(id);
        let folio = self.folios.get_mut(id);
        let (slot, frame) = (folio.take_slot(), folio.frame.take());
        if let Some(slot) = slot {
            self.drop_slot_pages(slot, at.len.0, out);
        }
        self.settle_frame(frame, frame_kept);
        self.uncharge_mapped(id);
        let group = self.group_of(at.start);
        self.folios.get_mut(id).group = group;
        self.begin_poison(id, out);
        self.trim(out);
    }

    /// Starts to mark the pages of a folio as lost. The folio is charged to no group.
    pub(crate) fn begin_poison(&mut self, id: FolioId, out: &mut Commands) {
        let at = self.at(id);
        let folio = self.folios.get_mut(id);
        (folio.errand, folio.state) = (Errand::Poison, State::Poisoning);
        self.flights += 1;
        out.push(Command::Poison { folio: id, at });
    }

    fn give_up_filling(
        &mut self,
        id: FolioId,
        folio: &Folio,
        frame_kept: bool,
        out: &mut Commands,
    ) {
        self.settle_frame(folio.frame, frame_kept);
        self.uncharge_mapped(id);
        self.folios.release(id);
        self.trim(out);
    }

    fn taken_out(&mut self, id: FolioId, out: &mut Commands) {
        // A folio that was presumed to be zeros and is not has been used again.
        self.in_use_again(id);
        let folio = *self.folios.get(id);
        let pages = folio.order.pages().0;
        if folio.goes_to_limbo() {
            self.lruvec_of(id).taking_out -= pages;
        }
        self.now_limbo(id);
        let now = self.lruvec_of(id).workingset.now();
        let record = self.folios.get_mut(id);
        record.idle_since = now;
        record.state = State::Limbo;
        record.errand = Errand::None;
        match folio.errand {
            Errand::PageOut => {
                self.make_coldest(id);
                self.list_old(id, ListName::Limbo);
            }
            Errand::LazyFree => self.mark(id),
            Errand::Drop | Errand::Discard => self.discard_limbo(id, out),
            _ if self.is_coldest(id) => self.list_old(id, ListName::Limbo),
            _ => self.list(id, ListName::Limbo),
        }
    }

    /// Notes that a take-out did not happen: the hole is free again and the folio is listed.
    pub(crate) fn stays(&mut self, id: FolioId, list: ListName) {
        self.unmark(id);
        let folio = *self.folios.get(id);
        if folio.goes_to_limbo() {
            self.lruvec_of(id).taking_out -= folio.order.pages().0;
        }
        self.frames
            .now_hole(folio.frame.expect("a take-out has a frame"));
        self.now_resident(id, list);
        self.keeps_slot(id);
    }

    /// The mapping forbids a take-out. A large folio may straddle two mappings, so each of its pages is tried by
    /// itself. A single page waits on the unevictable list for [`Event::Protected`](crate::Event::Protected).
    fn immovable(&mut self, id: FolioId, out: &mut Commands) {
        let folio = *self.folios.get(id);
        self.stat.takeout_immovable += 1;
        self.stays(id, ListName::Active);
        if folio.order.get() > 0 && self.folios.room(folio.order.pages().0) {
            for page in self.at(id).pages().skip(1) {
                if let Entry::Folio(piece) = self.leaves.get(page) {
                    self.split_at(piece, page, out);
                }
            }
        } else {
            self.unlist(id);
            self.folios.get_mut(id).immovable = true;
            self.list(id, ListName::Unevictable);
        }
    }

    fn cancel_save(&mut self, folio: &Folio) {
        self.slots.cancel(folio.saved_as());
    }

    /// Notes that the folio has left memory: its pages are zeros, or in a slot from this page of the slot on.
    fn evicted(&mut self, id: FolioId, folio: &Folio, to: Option<(SlotId, u16)>) {
        let at = self.at(id);
        match to {
            Some((slot, first)) => self.leaves.set_swapped(at, slot, first),
            None => {
                self.leaves.fill(at, Entry::Zero);
                self.more_zeros(at.start, at.len.0);
            }
        }
        self.gone(id, folio);
    }

    /// Releases a folio that was saved. Its entries already point to its contents.
    pub(crate) fn gone(&mut self, id: FolioId, folio: &Folio) {
        self.count_exit(folio, false);
        self.leave_shadows(self.at(id), folio);
        if let Errand::For(by) = folio.errand {
            self.count_steal(folio, by);
        }
        self.uncharge_limbo(id);
        self.frames
            .now_spare(folio.frame.expect("a folio being saved has a frame"));
        self.folios.release(id);
    }

    /// Releases a mapped folio that was dropped.
    pub(crate) fn zapped(&mut self, id: FolioId, folio: &Folio) {
        let pages = folio.order.pages().0;
        if folio.is_charged() {
            self.uncharge_mapped(id);
        }
        self.stat.pgdiscard += u64::from(pages);
        self.forget(self.at(id));
        self.folios.release(id);
    }

    /// Makes the pages of `range` empty. They no longer inherit anything.
    pub(crate) fn forget(&mut self, range: PageRange) {
        self.leaves.fill(range, Entry::Empty);
        let hidden = self.hide_inherited(range);
        self.let_go(range.start, range.len.0 - hidden);
        self.more_zeros(range.start, hidden);
    }

    pub(crate) fn frame_freed(&mut self, frame: Frame) -> Reply {
        assert!(
            self.frames.drained(frame),
            "frame {frame} was freed, but not asked to be"
        );
        Reply::Done
    }

    pub(crate) fn slot_released(&mut self, slot: SlotId) -> Reply {
        let pages = self.slots.get(slot).order.pages().0;
        assert!(
            self.slots.released(slot),
            "{slot:?} was released, but not asked to be"
        );
        self.releasing -= 1;
        self.room_came(pages);
        Reply::Done
    }
}

/// Stops the program at an outcome that a folio's state does not admit.
fn lost_count(id: FolioId, folio: &Folio, outcome: Outcome) -> ! {
    panic!(
        "{outcome:?} for {id:?}, which is {:?}: the driver lost count",
        folio.state
    )
}
