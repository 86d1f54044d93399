//! Lazy free: memory that is no longer needed stays where it is until it is needed elsewhere (`MADV_FREE`).
//!
//! # What the caller gets
//! A lazily freed page reads as before, or as zeros. Once it has read as zeros it does so until it is written to; a
//! write keeps the page for good, whatever races with the write. Until memory is short, using the page again costs no
//! allocation and no store access. When memory is short these folios are the first to go, oldest first, and nothing is
//! written.
//!
//! # How a write is noticed
//! The kernel clears the dirty bit of each page and checks it again before it drops the page. User space has no such
//! bit, so a mark must either be impossible to write past unnoticed, or need no watching:
//!
//! - *capture* ([`FreeMode::Shared`], and folios above 64 KiB): the folio is taken out into the frame pool, as for
//!   limbo. Any touch faults and brings it back, which removes the mark. Each page leaves atomically, so a racing write
//!   lands before the capture, or faults. Dropping the folio later is one list operation: the frame is spare at once.
//! - *zeroing* ([`FreeMode::Exclusive`], folios up to 64 KiB): the owner promises that nobody uses the bytes during the
//!   call, so they can be zeroed in place. From then on the memory is as after a fresh fault, and using it again is a
//!   plain store. Whether it *was* used again shows in its bytes: a folio that is still zeros when memory is short is
//!   dropped; any other loses its mark, and nothing else. So the mark itself may come late: an owner that can zero
//!   mapped memory by itself does so, and reports many ranges at once ([`FreeMode::AlreadyZeroed`]).
//!
//! A third mark, write protection, was measured and rejected: freeing and rewriting 64 KiB by 4 KiB pages took 9.8 µs;
//! the kernel takes 6.1, and zeroing 2 (docs/ARCHITECTURE.md). It costs a system call and a TLB shootdown at the mark,
//! and a fault and another shootdown at reuse; and memory that is registered for write protection cannot be moved by
//! its page tables.
//!
//! A page in the store loses its slot at once when it is freed: reading it back would cost more than new zeros.
//!
//! # Where marked folios wait
//! Marked folios wait on a list of their own, which they join at the young end, whatever list they were on: they are
//! not proven cold, but never hot. The list is part of what Linux calls inactive; Linux uses the head of the inactive
//! *file* list, which is scanned before anonymous memory. Reclaim empties this list before it considers any other. A
//! folio on it is either in limbo (captured) or mapped (zeroed). A mapped one gets a quick check before it is taken
//! out, so that a busy allocator's reused memory does not pass through the pool for nothing, and a full check
//! afterwards, when it can no longer be written to.

use crate::addr::{Frame, PageCount, PageIndex, PageRange};
use crate::command::{Command, Commands};
use crate::event::{FreeMode, Refusal, Reply};
use crate::ids::{FolioId, GroupId, ListName};
use crate::limits::{MAX_GROUPS, RECLAIM_BATCH, RECLAIM_SCAN, ZERO_IN_PLACE_PAGES};
use crate::machine::Core;
use crate::ops::walk::Step;
use crate::tables::folio::{Errand, Folio, State};
use crate::tables::leaf::Entry;

impl Core {
    pub(crate) fn lazy_free(
        &mut self,
        range: PageRange,
        mode: FreeMode,
        out: &mut Commands,
    ) -> Reply {
        if self.meets_file(range) {
            return Reply::Refused(Refusal::FileBacked);
        }
        if mode == FreeMode::AlreadyZeroed {
            return self.walk(range, out, |core, page, out| {
                core.mark_zeroed(page, range, out)
            });
        }
        if let (true, Some(page)) = (mode != FreeMode::Stored, self.first_pinned(range)) {
            return Reply::Refused(Refusal::Pinned { page });
        }
        self.walk(range, out, |core, page, out| {
            core.lazy_free_step(page, range, mode, out)
        })
    }

    fn lazy_free_step(
        &mut self,
        page: PageIndex,
        range: PageRange,
        mode: FreeMode,
        out: &mut Commands,
    ) -> Step {
        let id = match self.leaves.get(page) {
            Entry::Empty | Entry::Zero | Entry::Swapped { .. } => {
                self.forget_page(page, out);
                return Step::To(page.plus(1));
            }
            Entry::Poisoned => return self.zap_poison(page, out),
            Entry::Folio(id) if mode == FreeMode::Stored => {
                // A page that is being read may turn out to be lost, or has just done so: a caller that overwrites it
                // must not get that error.
                let at = self.at(id);
                let folio = self.folios.get_mut(id);
                if matches!(folio.state, State::Filling | State::Poisoning) {
                    folio.waited_for = true;
                    return Step::Stop(Reply::Wait { page: at.start });
                }
                return Step::To(at.end());
            }
            Entry::Folio(id) => id,
        };
        if self.free_part(id, range, mode, out) {
            return Step::To(self.at(id).end());
        }
        if let Some(stop) = self.settle_for(id, page, range, out) {
            return stop;
        }
        let (folio, at) = (*self.folios.get(id), self.at(id));
        match folio.state {
            State::Limbo if mode == FreeMode::ReadsZeros => self.discard_limbo(id, out),
            State::Limbo => self.mark_limbo(id, out),
            // The folio's mapping forbids both marks: the folio stays as it is, which the contract allows in every mode
            // but one.
            _ if folio.immovable && mode == FreeMode::ReadsZeros => self.zap(id, out),
            _ if folio.immovable => {}
            _ if mode != FreeMode::Shared && folio.order.pages().0 <= ZERO_IN_PLACE_PAGES => {
                self.start_zeroing(id, out);
            }
            _ if mode == FreeMode::ReadsZeros => self.zap(id, out),
            _ => {
                self.disown_slot(id, out);
                if !self.start_take_out(id, Errand::LazyFree, out) && !out.is_empty() {
                    // The pool is full, and a place in it is being made free.
                    return Step::Stop(Reply::Done);
                }
            }
        }
        Step::To(at.end())
    }

    /// Marks the folio around `page`, which its owner declares to be zeros, if it is mapped and not in use. A wrong
    /// mark costs only a check.
    fn mark_zeroed(&mut self, page: PageIndex, range: PageRange, out: &mut Commands) -> Step {
        let Entry::Folio(id) = self.leaves.get(page) else {
            return Step::To(page.plus(1));
        };
        let (folio, at) = (*self.folios.get(id), self.at(id));
        let usable = folio.state == State::Resident && folio.pins == 0 && !folio.immovable;
        if usable && range.covers(at) {
            self.unlist(id);
            self.unmark(id);
            self.disown_slot(id, out);
            self.mark(id);
        } else if self
            .note_part(id, range, FreeMode::AlreadyZeroed, out)
            .is_some()
        {
            self.part_zeroed(id);
        }
        Step::To(at.end())
    }

    fn start_zeroing(&mut self, id: FolioId, out: &mut Commands) {
        self.unlist(id);
        self.unmark(id);
        self.disown_slot(id, out);
        self.begin(id, State::Zeroing);
        let at = self.at(id);
        out.push(Command::ZeroInPlace {
            folio: id,
            at,
            part: at,
        });
    }

    fn mark_limbo(&mut self, id: FolioId, out: &mut Commands) {
        if !self.folios.get(id).lazy {
            // A list counts the folios that need no write, so a folio gains or loses its slot only while it is on no
            // list.
            self.unlist(id);
            self.disown_slot(id, out);
            self.mark(id);
        }
    }

    /// Gives up the store's copy of the folio, which is no longer needed. Returns whether there was one.
    pub(crate) fn disown_slot(&mut self, id: FolioId, out: &mut Commands) -> bool {
        let folio = self.folios.get_mut(id);
        let pages = folio.order.pages().0;
        let slot = folio.take_slot();
        if let Some(slot) = slot {
            self.drop_slot_pages(slot, pages, out);
        }
        slot.is_some()
    }

    /// Marks a folio that is mapped or in limbo, and on no list, as lazily freed, and counts it as such.
    pub(crate) fn mark(&mut self, id: FolioId) {
        let pages = u64::from(self.folios.get(id).order.pages().0);
        self.count_for(id, |stat| stat.pglazyfree += pages);
        self.await_use(id);
    }

    /// Puts a folio that is mapped or in limbo, and on no list, among the lazily freed.
    pub(crate) fn await_use(&mut self, id: FolioId) {
        let folio = self.folios.get_mut(id);
        let pages = folio.order.pages().0;
        folio.lazy = true;
        let group = folio.group;
        match folio.state.is_mapped() {
            true => self.lazy_mapped += pages,
            false => {
                self.lazy_limbo += pages;
                self.lruvec_of(id).lazy_limbo += pages;
            }
        }
        self.lazy_more(group, pages);
        self.list(id, ListName::LazyFree);
    }

    /// Removes the mark of all or of a part of the folio, if there is one. The caller must then list the folio
    /// elsewhere.
    pub(crate) fn unmark(&mut self, id: FolioId) -> bool {
        self.in_one_piece(id);
        let folio = self.folios.get_mut(id);
        let pages = folio.order.pages().0;
        if !folio.lazy {
            return false;
        }
        folio.lazy = false;
        let (group, leaves) = (folio.group, folio.state == State::TakingOut);
        match folio.state.is_mapped() {
            true => self.lazy_mapped -= pages,
            false => {
                self.lazy_limbo -= pages;
                self.lruvec_of(id).lazy_limbo -= pages;
            }
        }
        self.lazy_less(group, pages);
        if leaves {
            self.lazy_left(group, pages);
        }
        true
    }

    /// Notes that the folio is used again: it is no longer free.
    pub(crate) fn in_use_again(&mut self, id: FolioId) {
        self.stat.pglazyfree_reused += u64::from(self.in_one_piece(id));
        if self.unmark(id) {
            self.stat.pglazyfree_reused += u64::from(self.folios.get(id).order.pages().0);
        }
    }

    /// Notes that the folio was zeroed in place.
    pub(crate) fn zeroed(&mut self, id: FolioId) {
        if self.folios.get(id).errand == Errand::FreePart {
            return self.part_zeroed(id);
        }
        self.folios.get_mut(id).state = State::Resident;
        self.mark(id);
    }

    /// Notes that the folio was checked. It is still mapped.
    pub(crate) fn looked_at(&mut self, id: FolioId, blank: bool) {
        let folio = self.folios.get_mut(id);
        folio.state = State::Resident;
        let list = if folio.lazy {
            ListName::LazyFree
        } else {
            ListName::Inactive
        };
        if blank {
            self.list(id, list);
        } else {
            self.in_use_again(id);
            self.list(id, ListName::Inactive);
        }
    }

    /// Pages that were lazily freed and, as far as is known, not used since.
    #[must_use]
    pub fn lazyfree_pages(&self) -> PageCount {
        PageCount(self.lazy_mapped + self.lazy_limbo)
    }

    /// Lazily freed pages beyond a cap that are not on their way out yet: the maximum over all groups, including the
    /// root.
    #[must_use]
    pub fn lazyfree_over(&self) -> PageCount {
        let groups = self.groups.iter().map(|(_, group)| group.lazyfree_over());
        PageCount(groups.max().unwrap_or(0))
    }

    /// The lazily freed folio of `scope` and the groups below it that goes first: the oldest in the lruvec that has the
    /// most of them.
    fn oldest_lazyfree(&self, scope: GroupId) -> Option<FolioId> {
        let mut most = (0, None);
        for (vec, lists) in self.lru.iter() {
            let pages = lists.pages_of(ListName::LazyFree);
            if pages > most.0 && self.groups.is_below(self.lru.group(vec), scope) {
                most = (pages, lists.oldest_lazyfree());
            }
        }
        most.1
    }

    /// The next lazily freed folio to check. The lruvecs take turns, each for one round of its list.
    fn next_to_look_at(&mut self) -> Option<FolioId> {
        if self.lru.total(ListName::LazyFree) == 0 {
            return None;
        }
        let pages = |core: &Self| core.lru.get(core.recount.at).pages_of(ListName::LazyFree);
        // Folios that have left the list since do not cause others to be checked twice.
        self.recount.left = self.recount.left.min(pages(self));
        while self.recount.left == 0 {
            self.recount.at = self.lru.after(self.recount.at);
            self.recount.left = pages(self);
        }
        let id = self.lru.get(self.recount.at).oldest_lazyfree()?;
        let pages = self.folios.get(id).order.pages().0;
        self.recount.left = self.recount.left.saturating_sub(pages);
        Some(id)
    }

    /// Drops the oldest lazily freed folios of `scope`, and of the groups below it, until `pages` pages are free or on
    /// their way. `errand` is the purpose.
    pub(crate) fn drop_lazyfree(
        &mut self,
        pages: u32,
        errand: Errand,
        scope: GroupId,
        out: &mut Commands,
    ) -> u32 {
        let mut dropped = 0;
        for _ in 0..RECLAIM_SCAN {
            if dropped >= pages || out.len() >= RECLAIM_BATCH {
                break;
            }
            let Some(id) = self.oldest_lazyfree(scope) else {
                match self.split_deferred(scope, out) {
                    true => continue,
                    false => break,
                }
            };
            let folio = *self.folios.get(id);
            let n = folio.order.pages().0;
            if let Errand::For(by) = errand {
                self.count_scan(id, by);
            }
            let given = out.len();
            let leaves = if folio.state == State::Limbo {
                let at = self.at(id);
                let frame = self.drop_limbo(id, out);
                self.lazily_dropped(at, &folio, frame, errand);
                true
            } else {
                self.start_take_out_if_blank(id, errand, out)
            };
            if leaves {
                dropped += n;
            } else if out.len() > given {
                // A place in the pool is being freed for the folio.
                break;
            } else if self.without_a_place(id) && errand == Errand::Trim {
                // The folio no longer counts as lazily freed, which is the aim of a trim.
                dropped += n;
            }
        }
        dropped
    }

    /// Puts aside a mapped folio for which the pool has no place. The lazily freed folios in limbo, which free places,
    /// go first. If there are none, the folio loses its mark, so that nothing waits for memory that cannot be dropped;
    /// it is zeros, and leaves without a write. Returns true if it lost its mark.
    fn without_a_place(&mut self, id: FolioId) -> bool {
        self.unlist(id);
        let makes_way = self.lruvec_of(id).lazy_limbo > 0;
        if makes_way {
            self.list(id, ListName::LazyFree);
        } else {
            self.unmark(id);
            self.list(id, ListName::Inactive);
        }
        !makes_way
    }

    fn start_take_out_if_blank(&mut self, id: FolioId, errand: Errand, out: &mut Commands) -> bool {
        let folio = *self.folios.get(id);
        let Some(frame) = self.hole_for_take_out(id, out) else {
            return false;
        };
        self.unlist(id);
        self.begin(id, State::TakingOut);
        self.lazy_leaves(folio.group, folio.order.pages().0);
        let record = self.folios.get_mut(id);
        record.frame = Some(frame);
        record.errand = errand;
        out.push(Command::TakeOutIfBlank {
            folio: id,
            at: self.at(id),
            frame,
        });
        true
    }

    /// Drops a folio that was captured, and is zeros.
    pub(crate) fn taken_out_blank(&mut self, id: FolioId) {
        self.unmark(id);
        let folio = *self.folios.get(id);
        let at = self.at(id);
        self.forget(at);
        let frame = folio.frame.expect("a take-out has a frame");
        self.lazily_dropped(at, &folio, frame, folio.errand);
        // This comes last: a removed group ceases to exist with the last folio charged to it.
        self.uncharge_mapped(id);
        self.folios.release(id);
    }

    /// Makes the busy frame of a dropped folio spare. It goes to the next fault, or, when the cap is the reason, to the
    /// kernel ([`Core::gather_spare`]). Under pressure the folio's pages leave their shadows.
    fn lazily_dropped(&mut self, at: PageRange, folio: &Folio, frame: Frame, errand: Errand) {
        let (pages, group) = (frame.order().pages().0, folio.group);
        self.count(group, |stat| stat.pglazyfreed += u64::from(pages));
        if let Errand::For(by) = errand {
            self.count_steal(folio, by);
            self.leave_shadows(at, folio);
        }
        self.frames.now_spare(frame);
        if errand == Errand::Trim {
            self.demand.unwanted(pages);
        }
    }

    /// Gives back memory that was kept in place ([`free`](crate::ops::free)) beyond what demand requires.
    pub(crate) fn give_freed_back(&mut self, range: PageRange, out: &mut Commands) -> Reply {
        self.walk(range, out, |core, page, out| {
            let Entry::Folio(id) = core.leaves.get(page) else {
                return Step::To(page.plus(1));
            };
            let (folio, at) = (*core.folios.get(id), core.at(id));
            if matches!(folio.state, State::Looking | State::Zeroing) {
                // The event is not sent again, so it waits for a folio that is only being checked.
                core.folios.get_mut(id).waited_for = true;
                return Step::Stop(Reply::Wait { page: at.start });
            }
            if folio.lazy && range.covers(at) {
                if folio.state == State::Limbo {
                    let frame = core.drop_limbo(id, out);
                    core.lazily_dropped(at, &folio, frame, Errand::Trim);
                } else if folio.state == State::Resident
                    && !core.start_take_out_if_blank(id, Errand::Trim, out)
                    && !out.is_empty()
                {
                    // The pool has no place for the folio until these commands are carried out; perhaps it has none
                    // then, either.
                    return Step::Stop(Reply::Done);
                }
            }
            Step::To(at.end())
        })
    }

    pub(crate) fn trim_lazyfree(&mut self, out: &mut Commands) -> Reply {
        for n in 0..MAX_GROUPS as u16 {
            let group = GroupId(n);
            if !self.groups.is_live(group) || out.len() >= RECLAIM_BATCH {
                continue;
            }
            let over = self.groups.get(group).lazyfree_over();
            self.drop_lazyfree(over, Errand::Trim, group, out);
        }
        Reply::Done
    }

    /// Checks the next batch of lazily freed folios. Each goes to the young end, so a whole round leaves the order
    /// unchanged.
    pub(crate) fn recount_lazyfree(&mut self, left: PageCount, out: &mut Commands) -> Reply {
        let mut seen = 0;
        for _ in 0..RECLAIM_SCAN {
            if seen >= left.0 || out.len() >= RECLAIM_BATCH {
                break;
            }
            // The parts of folios come last, so that a round covers whole folios once and parts once.
            if left.0 - seen <= self.lazy_parts {
                match self.look_at_deferred(out) {
                    Some(pages) => seen += pages,
                    None => break,
                }
                continue;
            }
            let Some(id) = self.next_to_look_at() else {
                break;
            };
            let folio = *self.folios.get(id);
            seen += folio.order.pages().0;
            self.unlist(id);
            if folio.state == State::Limbo {
                self.list(id, ListName::LazyFree);
                continue;
            }
            self.begin(id, State::Looking);
            let at = self.at(id);
            out.push(Command::Look {
                folio: id,
                at,
                part: at,
            });
        }
        Reply::Seen {
            pages: PageCount(seen),
        }
    }

    /// Notes that the quick check before a take-out showed that the folio was used again. It is still mapped.
    pub(crate) fn not_blank(&mut self, id: FolioId) {
        self.in_use_again(id);
        self.stays(id, ListName::Inactive);
    }
}
