//! Lazily freed memory and volatile ranges: what the core and the book decide, carried out.
//!
//! Marking a volatile range takes the book's lock and nothing else: no system call, no signal mask, no gate. That is
//! sound because nobody who reclaims waits for that lock: a signal handler of the program may interrupt the marking
//! thread, touch managed memory and have to reclaim, and then it finds the lock taken and goes on without.

use crate::driver::Driver;
use crate::signals::SignalsBlocked;
use millpond_core::tables::volatile::VolatileRefusal;
use millpond_core::{Commands, Event, FreeMode, PageCount, PageRange, Refusal, Reply};
use std::sync::atomic::Ordering;

/// What became of the contents of a volatile range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "purged contents are gone"]
pub enum Contents {
    /// They are as they were.
    Survived,
    /// They were dropped: the range reads as zeros.
    Purged,
}

/// Times that a thread which reclaims looks whether the book of volatile ranges is free: some microseconds.
const BOOK_TRIES: u32 = 200;

impl Driver {
    /// Lazily frees all of `ranges`: one round of the lock, as far as the commands fit in one list.
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
                self.make_resident(page)?;
            }
            core = self.lock();
        }
        drop(core);
        self.carry_out(&mut commands);
        self.trim_lazyfree();
        Ok(())
    }

    /// Drops what is lazily freed beyond the cap.
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
                // What was captured is dropped without a command. The rest is on its way on other threads.
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

    /// Looks at all lazily freed memory that could have been written to unseen. Takes time in proportion to it.
    pub fn recount_lazyfree(&self) {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        if self.mark_freed_inside() {
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
    /// The range touches one that is marked already, or the book is full.
    pub fn mark_volatile(&self, range: PageRange) -> Result<(), VolatileRefusal> {
        self.volatile().mark(range)
    }

    /// Ends the mark. What was purged reads as zeros afterwards, pinned pages excepted.
    pub fn mark_nonvolatile(&self, range: PageRange) -> Result<Contents, VolatileRefusal> {
        if !self.volatile().unmark(range)? {
            return Ok(Contents::Survived);
        }
        self.wait_for_purges();
        self.discard_around_pins(range);
        Ok(Contents::Purged)
    }

    /// Discards what a purge passed over, because it would have had to wait for it. A pinned page refuses a discard:
    /// what is before and behind it goes by itself.
    fn discard_around_pins(&self, mut rest: PageRange) {
        while let Err(Refusal::Pinned { page }) = self.discard(rest) {
            let before = PageRange::new(rest.start, PageCount(page.0 - rest.start.0));
            if !before.is_empty() {
                // A pin that came meanwhile keeps its page, as the one at the end does.
                let _ = self.discard(before);
            }
            rest = PageRange::new(page.plus(1), PageCount(rest.end().0 - page.0 - 1));
            if rest.is_empty() {
                break;
            }
        }
    }

    /// The region is dropped: nobody will ask for its volatile ranges.
    pub fn forget_volatile(&self, range: PageRange) {
        let purged = self.volatile().forget(range);
        if purged {
            self.wait_for_purges();
        }
    }

    /// A purge that took a range from the book before now must not drop what is written there from now on.
    fn wait_for_purges(&self) {
        let _quiet = SignalsBlocked::new();
        while self.purging.load(Ordering::SeqCst) > 0 {
            drop(self.wait_settled(self.lock()));
        }
    }

    /// Purges the oldest volatile range, or waits a moment for what other threads are purging: what they free is about
    /// to come, and nobody's contents should be written out for it. False when there is none of either, or the book is
    /// in use. For threads inside the gate.
    pub fn purge_oldest_volatile(&self) -> bool {
        let Some(mut range) = self.oldest_volatile() else {
            if self.purging.load(Ordering::SeqCst) == 0 {
                return false;
            }
            drop(self.wait_settled(self.lock()));
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
        self.purging.fetch_sub(1, Ordering::SeqCst);
        self.wake_waiters();
        true
    }

    /// Takes the oldest range from the book, to be purged. Another thread that reclaims has the book for a moment; who
    /// marks ranges may fault with it in hand, and is not waited for.
    fn oldest_volatile(&self) -> Option<PageRange> {
        for _ in 0..BOOK_TRIES {
            if let Ok(mut book) = self.volatile.try_lock() {
                let range = book.take_oldest()?;
                self.purging.fetch_add(1, Ordering::SeqCst);
                return Some(range);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Takes the lock of the book of volatile ranges.
    pub fn volatile(
        &self,
    ) -> std::sync::MutexGuard<'_, millpond_core::tables::volatile::VolatileBook> {
        self.volatile
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
