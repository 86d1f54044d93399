//! Small folios leave by the leaf.
//!
//! A take-out interrupts every processor that runs the program: 10 µs for one page or for a run of neighbours. Pages
//! brought in by random accesses have no neighbours, so in a batch of single pages each page costs an interruption, and
//! if two threads run this exceeds all other costs together. But the kernel can move all entries of a page table at
//! once: 256 pages of a leaf in a hundredth of the time of 256 moves (`mmu/src/uffd/leaf.rs`).
//!
//! So when the next victim is a folio in a leaf that has many of them, the leaf leaves as a whole: one command, one
//! answer, and a frame for each page, which has the same place in a block of frames as the page has in the leaf. Larger
//! folios among them are split first if the region's orders are adaptive. In a region whose folios all have a size that
//! the program requested, larger folios stay, and so does their leaf.
//!
//! # Leaves that may leave as a whole
//! All mapped folios of the leaf leave with it, so none of them may have a reason to stay: no pins, no folio that was
//! lazily freed or cannot move, nothing in flight, no poison, nothing that a snapshot shares. No stream may stand in
//! the leaf, as it would request the rest of the leaf next. And some of the leaf should be due: the victim is the
//! oldest folio; of the others one in four has been idle for a quarter of the oldest one's time, and half are inactive.
//! That suffices, because a folio that left too early shows in limbo, where it is rescued at half the price of a
//! take-out by itself, and then is young: a leaf whose pages are all in use leaves once, and stays for as long as that
//! is remembered.
//!
//! The leaf of each victim is considered, not only that of the first victim of a batch: by their ages the next victim
//! lies in another leaf. And if an examined leaf has to stay, the event ends, and the reclaiming thread checks whether
//! more memory is needed. In an earlier version the event continued with a batch and the next leaf, and the next, until
//! no leaf was left to examine; thousands of pages left for one that was needed, and the working set with them.
//!
//! But limbo is short where it gains nothing, and a folio that is not used again there soon is gone. So a watched
//! folio, which is tested long before it is due, takes no others along. When it did, and half of a leaf could be young
//! and a quarter active, sets that had just come in left memory: a set of nine tenths of memory that replaced another,
//! during a scan, never stayed, and had 13 misses per page in 20 turns (`millpond/tests/working_sets.rs`). Now such a
//! set stays at once, with one fault per page. The price is that watched pages leave one by one again.
//!
//! # For a stream
//! For a stream that needs all of a leaf, the part in memory is evicted, due or not
//! ([`evict_leaf`](crate::ops::evict_leaf)). Folios that left for a stream do not stay in limbo: the same events go on
//! to save them, and also the folios of the leaf that were already in limbo.
//!
//! # In steps
//! A leaf has up to 512 folios; examining one and taking it off its list cost a tenth of a microsecond each. A fault
//! that waits for the core should not wait for all of them, so each event handles [`LEAF_STEP`] folios and asks to be
//! sent again: the leaf is *looked at*, then its folios *begin* to leave, then the command goes out, and when that is
//! answered they are *told*. What was seen while looking may be out of date by the time the folios begin, so each folio
//! is checked once more, and a single folio that has to stay sends all of them back.
//!
//! # While a leaf is leaving
//! From the moment that the first folio begins to leave, no other operation asks for any of them: they are
//! [`TakingOut`](crate::tables::folio::State::TakingOut). Pages that are *not* in memory must stay away, too: a page
//! mapped in the meantime would be moved along unnoticed. So faults in the leaf wait ([`Core::waits_for_leaf`]).
//! Nothing else is needed, because everything that maps a page begins with a fault.

use crate::addr::{Frame, LEAF_PAGES, Order, PageIndex, PageRange};
use crate::command::{Command, Commands};
use crate::event::{Outcome, Reclaimer, Reply};
use crate::ids::{FolioId, Kind, ListName, VecId};
use crate::leaf_pages::LeafPages;
use crate::limits::{
    ANSWER_COMMANDS, LEAF_OUT_LEAST, LEAF_OUT_SHARE, LEAF_STEP, LOAD_RESERVE, RECLAIM_BATCH,
};
use crate::machine::Core;
use crate::tables::folio::{Errand, Folio, State};
use crate::tables::leaf::Entry;
use crate::tables::leaving::{LeavingLeaf, Seen, Stage, may_leave};
use crate::tables::lru::{UNWATCHED, WATCHED};

/// A folio is young if it has been idle for less than the oldest folio's time divided by this.
const YOUNG: u32 = 4;
/// After this many failed take-outs in a row, no leaf is tried any more.
const FAILURES: u32 = 8;

/// What a leaving leaf has at an index.
enum Found {
    /// No mapped folio, up to the index given.
    Absent(u32),
    /// A folio that may leave.
    Folio(FolioId, PageRange),
    /// A folio or page that has to stay.
    Stays,
}

impl Core {
    /// Schedules the leaf of a due victim to be examined next, if that may be worthwhile. Returns whether it is.
    pub(crate) fn consider_leaf(&mut self, victim: FolioId) -> bool {
        let oldest = *self.folios.get(victim);
        let start = PageRange::block(self.at(victim).start, Order::MAX).start;
        if !may_leave(&oldest)
            || !self.may_take_leaf(start)
            || self.leaving.is_refused(start)
            || self.trends.stands_in(start)
        {
            return false;
        }
        let splits = self.may_split(start);
        if !splits && oldest.order > Order::ZERO {
            return false;
        }
        let vec = self.lru.of(&oldest);
        let seen = Seen {
            young_below: self.idle_of_oldest(vec, &oldest) / YOUNG,
            ..Seen::default()
        };
        self.look_at(start, vec, splits, false, seen);
        true
    }

    /// Whether nothing is known to prevent taking a leaf out, without examining its contents.
    pub(crate) fn may_take_leaf(&self, start: PageIndex) -> bool {
        let known = |leaf: &LeavingLeaf| leaf.start == start;
        self.leaving.allowed
            && !self.leaving.leaves.is_full()
            && !self.leaving.leaves.iter().any(known)
            && self.stands_alone(start)
    }

    /// Begins to take out a leaf that [may be taken](Self::may_take_leaf), for a stream that needs all of it. The leaf
    /// then moves on to the store.
    pub(crate) fn take_leaf_for_stream(&mut self, start: PageIndex, vec: VecId) {
        self.look_at(start, vec, true, true, Seen::default());
    }

    fn look_at(
        &mut self,
        start: PageIndex,
        vec: VecId,
        splits: bool,
        for_stream: bool,
        seen: Seen,
    ) {
        self.leaving.leaves.push(LeavingLeaf {
            start,
            vec,
            splits,
            frame: Frame::new(Order::ZERO, 0),
            pages: LeafPages::NONE,
            left: LeafPages::NONE,
            waited_for: false,
            for_stream,
            stage: Stage::IsLookedAt(0, seen),
        });
    }

    /// How long the oldest mapped folio has been idle: the victim's time, unless active or watched folios are older.
    /// Folios that a stream has left behind do not count.
    fn idle_of_oldest(&self, vec: VecId, victim: &Folio) -> u32 {
        let workingset = &self.lru.get(vec).workingset;
        let oldest = self.next_for_limbo(vec, &[UNWATCHED, WATCHED]);
        let age = oldest.map(|id| self.folios.get(id).age);
        let age = age.filter(|&age| !workingset.is_coldest(age));
        workingset.now().wrapping_sub(age.unwrap_or(victim.age))
    }

    /// The start of the leaf being examined.
    pub(crate) fn leaf_to_look_at(&self) -> Option<PageIndex> {
        let is_looked_at = |leaf: &&LeavingLeaf| matches!(leaf.stage, Stage::IsLookedAt(..));
        let leaf = self.leaving.leaves.iter().find(is_looked_at);
        leaf.map(|leaf| leaf.start)
    }

    /// Continues a leaf that was begun. Returns `None` if there is none. [`Reply::More`] asks for the event again.
    pub(crate) fn go_on_with_leaf(&mut self, by: Reclaimer, out: &mut Commands) -> Option<Reply> {
        let own = |leaf: &LeavingLeaf| !leaf.is_the_drivers();
        let number = self.leaving.leaves.iter().position(own)?;
        let leaf = self.leaving.leaves[number];
        let more = Reply::More { from: leaf.start };
        match leaf.stage {
            Stage::IsLookedAt(index, seen) => {
                if !self.look_at_leaf(number, index, seen) {
                    return Some(Reply::Done);
                }
            }
            Stage::Begins(index) => {
                if self.begin_leaf(number, index, by, out) {
                    return Some(Reply::Done);
                }
            }
            Stage::GoesBack => {
                self.end_leaf(number, false, out);
            }
            Stage::Saves(index) => {
                if self.save_leaf(number, index, by, out) {
                    return Some(Reply::Done);
                }
            }
            Stage::Out | Stage::Answered => unreachable!("the driver goes on with it"),
        }
        Some(more)
    }

    /// Examines some more of a leaf. When all of it was seen, the leaf begins to leave, or stays. Returns false when it
    /// stays.
    fn look_at_leaf(&mut self, number: usize, mut index: u32, mut seen: Seen) -> bool {
        let leaf = self.leaving.leaves[number];
        let workingset = &self.lru.get(leaf.vec).workingset;
        let mut stays = false;
        for _ in 0..LEAF_STEP {
            match self.found(&leaf, index) {
                Found::Absent(next) => index = next,
                Found::Stays => {
                    stays = true;
                    break;
                }
                Found::Folio(id, at) => {
                    let folio = self.folios.get(id);
                    let idle = workingset.now().wrapping_sub(folio.age);
                    let is_young = !workingset.is_coldest(folio.age) && idle < seen.young_below;
                    seen.folios += 1;
                    seen.pages += at.len.0;
                    seen.active += if folio.is_active() { at.len.0 } else { 0 };
                    seen.young += if is_young { at.len.0 } else { 0 };
                    index = at.end().0 - leaf.start.0;
                }
            }
        }
        if !stays && index < LEAF_PAGES {
            self.leaving.leaves[number].stage = Stage::IsLookedAt(index, seen);
            return true;
        }
        if leaf.for_stream && seen.folios == 0 && !stays {
            // All folios of the leaf are in limbo.
            self.leaving.leaves[number].stage = Stage::Saves(0);
            return true;
        }
        let due = 2 * seen.active <= seen.pages && 4 * seen.young <= 3 * seen.pages;
        let worth = seen.folios >= LEAF_OUT_LEAST && seen.pages <= self.limit / LEAF_OUT_SHARE;
        let node = self.lru.node(leaf.vec);
        let leaves = !stays && (leaf.for_stream || due && worth);
        let frame = leaves
            .then(|| self.frames.take_block(node, LOAD_RESERVE))
            .flatten();
        match frame {
            Some(frame) => {
                let leaf = &mut self.leaving.leaves[number];
                (leaf.frame, leaf.stage) = (frame, Stage::Begins(0));
            }
            None => {
                self.leaving.leaves.swap_remove(number);
                self.leaving.refuse(leaf.start);
            }
        }
        frame.is_some()
    }

    /// Starts the leaving of some more folios of a leaf. Returns true once all of them have begun and the command is
    /// out.
    fn begin_leaf(
        &mut self,
        number: usize,
        mut index: u32,
        by: Reclaimer,
        out: &mut Commands,
    ) -> bool {
        let mut leaf = self.leaving.leaves[number];
        let mut stays = !self.stands_alone(leaf.start);
        for _ in 0..LEAF_STEP {
            if stays || index >= LEAF_PAGES {
                break;
            }
            match self.found(&leaf, index) {
                Found::Absent(next) => index = next,
                Found::Folio(_, at) if self.folios.room(at.len.0) => {
                    for page in at.pages() {
                        self.begin_page(&mut leaf, page, by, out);
                    }
                    index = at.end().0 - leaf.start.0;
                }
                Found::Folio(..) | Found::Stays => stays = true,
            }
        }
        leaf.stage = match () {
            () if stays => Stage::GoesBack,
            () if index < LEAF_PAGES => Stage::Begins(index),
            () if leaf.pages.is_empty() => Stage::GoesBack,
            () => Stage::Out,
        };
        self.leaving.leaves[number] = leaf;
        if !matches!(leaf.stage, Stage::Out) {
            return false;
        }
        out.push_leaf(
            PageRange::block(leaf.start, Order::MAX),
            leaf.frame,
            leaf.pages,
        );
        true
    }

    /// Splits a page off a folio that may leave, and starts its leaving.
    fn begin_page(
        &mut self,
        leaf: &mut LeavingLeaf,
        page: PageIndex,
        by: Reclaimer,
        out: &mut Commands,
    ) {
        // The pages before this one are already split off, so a split behind it makes it a folio of its own.
        if let Some(next) = self.folio_of(page)
            && self.folios.get(next).order > Order::ZERO
        {
            let split = self.split_at(next, page.plus(1), out);
            debug_assert!(split, "there was room for all pieces");
        }
        let id = self.folio_of(page).expect("a page that leaves is mapped");
        leaf.pages.add(page);
        leaf.left.add(page);
        self.count_scan(id, by);
        self.unlist(id);
        self.begin(id, State::TakingOut);
        self.folios.get_mut(id).frame = Some(leaf.frame(page.0 % LEAF_PAGES));
        self.lruvec_of(id).taking_out += 1;
    }

    /// What the leaf has at an index.
    fn found(&self, leaf: &LeavingLeaf, index: u32) -> Found {
        let end = (index + LEAF_STEP).min(LEAF_PAGES);
        for index in index..end {
            let id = match self.leaves.get(leaf.start.plus(index)) {
                Entry::Empty | Entry::Zero | Entry::Swapped { .. } => continue,
                Entry::Poisoned => return Found::Stays,
                Entry::Folio(id) => id,
            };
            let (folio, at) = (self.folios.get(id), self.at(id));
            return match folio.state {
                State::Limbo | State::Saving => Found::Absent(index + at.len.0),
                _ if index > 0 && at.start != leaf.start.plus(index) => Found::Stays,
                State::Resident if leaf.takes(folio) && self.lru.of(folio) == leaf.vec => {
                    Found::Folio(id, at)
                }
                _ => Found::Stays,
            };
        }
        Found::Absent(end)
    }

    /// Whether a leaf lies inside one region of anonymous memory that shares nothing and is not changing groups.
    fn stands_alone(&self, start: PageIndex) -> bool {
        let leaf = PageRange::block(start, Order::MAX);
        self.regions.of(start).is_some_and(|region| {
            let shared = region.base.is_some() || region.heirs > 0;
            let moves = region.leaving.is_some();
            !shared && !moves && region.kind == Kind::Anonymous && region.range.covers(leaf)
        })
    }

    /// Notes how the take-out of a leaf went.
    pub(crate) fn leaf_taken_out(
        &mut self,
        at: PageRange,
        taken: bool,
        out: &mut Commands,
    ) -> Reply {
        let is_it = |leaf: &LeavingLeaf| leaf.start == at.start && leaf.is_the_drivers();
        let number = self.leaving.leaves.iter().position(is_it);
        let number = number.expect("the driver answers for a leaf that is leaving");
        if let Stage::Out = self.leaving.leaves[number].stage {
            self.leaving.leaves[number].stage = Stage::Answered;
            let failures = &mut self.leaving.failures;
            *failures = if taken { 0 } else { *failures + 1 };
            self.leaving.allowed &= *failures < FAILURES;
        }
        match self.end_leaf(number, taken, out) {
            true => Reply::Done,
            false => Reply::More { from: at.start },
        }
    }

    /// Tells some more of a leaf's folios the result of the take-out. Returns true when all have been told.
    fn end_leaf(&mut self, number: usize, taken: bool, out: &mut Commands) -> bool {
        let leaf = self.leaving.leaves[number];
        for index in leaf.left.iter().take(LEAF_STEP as usize) {
            let page = leaf.start.plus(index);
            if out.room() <= ANSWER_COMMANDS {
                return false;
            }
            self.leaving.leaves[number].left.remove(page);
            let id = self.folio_of(page).expect("a page that leaves has a folio");
            match taken {
                true => {
                    self.complete(id, Outcome::TakenOut, out);
                }
                false => self.comes_back(id, out),
            }
        }
        let leaf = self.leaving.leaves[number];
        if !leaf.left.is_empty() || out.room() <= ANSWER_COMMANDS {
            return false;
        }
        for index in (0..LEAF_PAGES).filter(|&index| !leaf.pages.has(index)) {
            self.frames.now_hole(leaf.frame(index));
        }
        match taken {
            true => self.stat.takeout_leaf += u64::from(leaf.pages.len()),
            false => {
                self.stat.takeout_leaf_stayed += u64::from(leaf.pages.len());
                self.leaving.refuse(leaf.start);
            }
        }
        match taken && leaf.for_stream {
            true => self.leaving.leaves[number].stage = Stage::Saves(0),
            false => {
                self.leaving.leaves.swap_remove(number);
            }
        }
        if leaf.waited_for {
            let at = PageRange::block(leaf.start, Order::MAX);
            out.push(Command::Wake { at });
        }
        true
    }

    /// Saves some more of a leaf that has left for a stream. Returns true when all of it is saved, or no more can be.
    fn save_leaf(
        &mut self,
        number: usize,
        mut index: u32,
        by: Reclaimer,
        out: &mut Commands,
    ) -> bool {
        let LeavingLeaf { start, vec, .. } = self.leaving.leaves[number];
        while index < LEAF_PAGES && out.len() < RECLAIM_BATCH {
            let page = start.plus(index);
            index += 1;
            let Some(id) = self.folio_of(page) else {
                continue;
            };
            let folio = *self.folios.get(id);
            index = self.at(id).end().0 - start.0;
            if folio.state != State::Limbo || folio.lazy || self.lru.of(&folio) != vec {
                continue;
            }
            self.count_scan(id, by);
            self.unlist(id);
            if self.waits_for_room(&folio) || !self.evict(id, by, out) {
                self.list_old(id, ListName::Limbo);
                self.leaving.leaves.swap_remove(number);
                return true;
            }
        }
        if index < LEAF_PAGES {
            self.leaving.leaves[number].stage = Stage::Saves(index);
            return false;
        }
        self.stat.leaf_evicted += 1;
        self.leaving.leaves.swap_remove(number);
        true
    }

    /// Restores a folio that had begun to leave but stays: it is where it was, and nothing was learnt about its use.
    fn comes_back(&mut self, id: FolioId, out: &mut Commands) {
        let folio = *self.folios.get(id);
        if folio.errand != Errand::None {
            self.complete(id, Outcome::TakeOutBusy, out);
            return;
        }
        self.flights -= 1;
        self.stays(id, self.list_of(id));
        if std::mem::take(&mut self.folios.get_mut(id).waited_for) {
            out.push(Command::Wake { at: self.at(id) });
        }
    }

    /// Whether a fault at `page` has to wait, because its leaf is leaving.
    pub(crate) fn waits_for_leaf(&mut self, page: PageIndex) -> bool {
        let mut leaves = self.leaving.leaves.iter_mut();
        let leaf = leaves.find(|leaf| leaf.holds_up(page));
        leaf.map(|leaf| leaf.waited_for = true).is_some()
    }

    /// Whether a place of the pool is in the block of a leaf that is leaving.
    pub(crate) fn leaves_to(&self, frame: Frame) -> bool {
        let begun = |leaf: &&LeavingLeaf| leaf.has_begun();
        self.leaving.leaves.iter().filter(begun).any(|leaf| {
            let places = leaf.frame.index()..leaf.frame.index() + LEAF_PAGES;
            frame.order() == Order::ZERO && places.contains(&frame.index())
        })
    }
}
