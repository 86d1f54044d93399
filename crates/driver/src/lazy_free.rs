//! Lazily freed memory and volatile ranges: carries out the decisions of the core and the book.
//!
//! Marking a volatile range takes the book's lock and nothing else: no system call, no signal mask, no gate. This is
//! sound because no reclaiming thread waits for that lock. A signal handler of the program may interrupt the marking
//! thread, touch managed memory and have to reclaim: then it finds the lock taken and continues without it.

use crate::driver::Driver;
use crate::memory::Memory;
use crate::signals::SignalsBlocked;
use millpond_core::tables::volatile::{VolatileBook, VolatileRefusal};
use millpond_core::{Commands, Event, FreeMode, PageCount, PageRange, Refusal, Reply};
use millpond_sync::Held;
use millpond_sync::atomic::Ordering;

/// The fate of a volatile range's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "purged contents are gone"]
pub enum Contents {
    /// The contents are unchanged.
    Survived,
    /// The contents were dropped: the range reads as zeros.
    Purged,
}

/// Number of times that a reclaiming thread tries the book of volatile ranges: some microseconds.
const BOOK_TRIES: u32 = 200;

impl<M: Memory> Driver<M> {
    /// Lazily frees all of `ranges`, taking the lock once as far as the commands fit in one list.
    pub fn lazy_free(&self, ranges: &[PageRange], mode: FreeMode) -> Result<(), Refusal> {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        let mut commands = Commands::new();
        let mut rest = ranges.iter().copied();
        let mut next = rest.next();
        let mut core = self.lock();
        if mode != FreeMode::Stored
            && let Some(page) = ranges.iter().find_map(|&range| core.first_pinned(range))
        {
            return Err(Refusal::Pinned { page });
        }
        while let Some(range) = next {
            let reply = core.handle(Event::LazyFree { range, mode }, &mut commands);
            match reply {
                Reply::Done => {
                    next = rest.next();
                    continue;
                }
                Reply::More { from } => {
                    next = Some(range.tail(from));
                }
                Reply::Wait { .. } if commands.is_empty() => {
                    core = self.wait_settled(core);
                    continue;
                }
                Reply::Wait { .. } | Reply::NeedsResident { .. } => {}
                Reply::Refused(refusal) => {
                    drop(core);
                    self.carry_out(&mut commands);
                    return Err(refusal);
                }
                other => unreachable!("{other:?} is no answer to a lazy free"),
            }
            drop(core);
            self.carry_out(&mut commands);
            if let Reply::NeedsResident { page } = reply {
                self.bring_in_first(page)?;
            }
            core = self.lock();
        }
        drop(core);
        self.carry_out(&mut commands);
        self.trim_lazyfree();
        Ok(())
    }

    /// Drops lazily freed memory beyond the cap.
    pub fn trim_lazyfree(&self) {
        let mut commands = Commands::new();
        let mut trimmed = false;
        loop {
            {
                let mut core = self.lock();
                let over = core.lazyfree_over();
                if over == PageCount::ZERO {
                    break;
                }
                core.handle(Event::TrimLazyFree, &mut commands);
                // Captured folios are dropped without a command. The other folios are on their way on other threads.
                if commands.is_empty() && core.lazyfree_over() == over {
                    break;
                }
                trimmed = true;
            }
            self.carry_out(&mut commands);
        }
        if trimmed {
            self.give_spare_frames_back();
        }
    }

    /// Checks all lazily freed memory that could have been written to unnoticed. The call takes time in proportion to
    /// that memory.
    pub fn recount_lazyfree(&self) {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        if self.mark_lazy_batch_inside() {
            self.trim_lazyfree();
        }
        let mut commands = Commands::new();
        let mut left = self.lock().stats().nr_lazyfree as u32;
        while left > 0 {
            let event = Event::RecountLazyFree {
                left: PageCount(left),
            };
            let reply = self.lock().handle(event, &mut commands);
            let Reply::Seen { pages } = reply else {
                unreachable!("{reply:?} is no answer to a recount")
            };
            self.carry_out(&mut commands);
            if pages == PageCount::ZERO {
                break;
            }
            left = left.saturating_sub(pages.0);
        }
    }

    /// Marks a range as one that may lose its contents.
    ///
    /// # Errors
    /// The range overlaps one that is already marked, or the book is full.
    pub fn mark_volatile(&self, range: PageRange) -> Result<(), VolatileRefusal> {
        self.volatile().mark(range)
    }

    /// Removes the mark. Purged contents read as zeros afterwards, except pinned pages.
    pub fn mark_nonvolatile(&self, range: PageRange) -> Result<Contents, VolatileRefusal> {
        if !self.volatile().unmark(range)? {
            return Ok(Contents::Survived);
        }
        self.wait_for_purges();
        self.discard_around_pins(range);
        Ok(Contents::Purged)
    }

    /// Discards the pages that a purge skipped because it would have had to wait for them. A discard that includes a
    /// pinned page is refused, so the pages before and behind a pinned page are discarded separately.
    fn discard_around_pins(&self, mut rest: PageRange) {
        while let Err(Refusal::Pinned { page }) = self.discard(rest) {
            let before = PageRange::new(rest.start, PageCount(page.0 - rest.start.0));
            if !before.is_empty() {
                // A page pinned in the meantime is kept, like the pinned page at the end.
                let _ = self.discard(before);
            }
            rest = PageRange::new(page.plus(1), PageCount(rest.end().0 - page.0 - 1));
            if rest.is_empty() {
                break;
            }
        }
    }

    /// Forgets the volatile ranges of a region that is dropped: no call will ask for them.
    pub fn forget_volatile(&self, range: PageRange) {
        let purged = self.volatile().forget(range);
        if purged {
            self.wait_for_purges();
        }
    }

    /// Waits for purges in progress: a purge that took a range from the book before now must not drop data that is
    /// written there from now on.
    fn wait_for_purges(&self) {
        let _quiet = SignalsBlocked::new();
        let mut core = self.lock();
        while self.purging.load(Ordering::SeqCst) > 0 {
            core = self.wait_settled(core);
        }
    }

    /// Purges the oldest volatile range. If there is none, waits a moment for ranges that other threads are purging:
    /// the memory that they free will soon be available, and no contents should be written out for it. Returns false if
    /// there are neither, or if the book is in use. For threads inside the gate.
    pub fn purge_oldest_volatile(&self) -> bool {
        let Some(mut range) = self.oldest_volatile() else {
            let core = self.lock();
            if self.purging.load(Ordering::SeqCst) == 0 {
                return false;
            }
            drop(self.wait_settled(core));
            return true;
        };
        let mut commands = Commands::new();
        loop {
            let reply = self.lock().handle(Event::Purge { range }, &mut commands);
            self.carry_out(&mut commands);
            match reply {
                Reply::More { from } => {
                    range = range.tail(from);
                }
                _ => break,
            }
        }
        self.purges.fetch_add(1, Ordering::Relaxed);
        {
            // A thread that waits for this has read the number under the lock.
            let _core = self.lock();
            self.purging.fetch_sub(1, Ordering::SeqCst);
        }
        self.wake_waiters();
        true
    }

    /// Takes the oldest range from the book, to be purged. Another reclaiming thread holds the book only for a moment.
    /// A thread that marks ranges may fault while it holds the book, so this does not wait for it.
    fn oldest_volatile(&self) -> Option<PageRange> {
        for _ in 0..BOOK_TRIES {
            if let Some(mut book) = self.volatile.try_out_of_order() {
                let range = book.take_oldest()?;
                self.purging.fetch_add(1, Ordering::SeqCst);
                return Some(range);
            }
            millpond_sync::hint::spin_loop();
        }
        None
    }

    /// Takes the lock of the book of volatile ranges.
    pub fn volatile(&self) -> Held<'_, VolatileBook> {
        self.volatile.lock()
    }
}
