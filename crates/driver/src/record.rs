//! Recording: which pages the program touches, seen from the fault handler.
//!
//! A mapped page is used without anybody's knowledge, so a page is seen when it enters the mapped set and not again
//! until it has left it. Under a large budget that is its first touch and nothing more. So a recorder keeps the mapped
//! set small: the *window*, the pages that came in last, in that order. What falls out of it is taken out to limbo,
//! where it stays in RAM (the budget is what it was), and its next touch is a rescue, which is seen. The trace is what
//! a filter of so many pages lets through:
//!
//! - a page that is used all the time enters again each time that a window's worth of others has entered, so it is
//!   never missing for longer;
//! - the order of two uses is kept when a window's worth of others lies between them, so the misses of a cache that is
//!   many windows large are those of the full trace; about caches of a few windows it says little;
//! - hits within the window are not in it: miss ratios are of entries and not of accesses.
//!
//! Writes are not told from reads, since a page that is mapped for a read is writable.
//!
//! The price is a fault for each entry and a take-out for each page that leaves. These go in batches, so that
//! neighbours share a call, and after the fault was answered, while the program goes on. Nothing here allocates. What
//! is taken out is the oldest of the window whether or not it is in use; when it is pinned, lazily freed or gone, it is
//! left alone. Pages that were brought in for a fork or a pin were not touched, and are not in the window: their use is
//! not seen until reclaim takes them out.

use crate::driver::Driver;
use millpond_core::limits::ANSWER_COMMANDS;
use millpond_core::{Advice, Commands, Event, Order, PAGE_SIZE, PageCount, PageIndex, PageRange};

impl Driver {
    /// Whether a recording is under way.
    pub fn is_recorded(&self) -> bool {
        self.recorder.is_some()
    }

    /// The most that a fault brings in: what comes beside the page that was touched would not be seen when it is
    /// touched.
    pub fn most_order(&self) -> Order {
        match self.recorder {
            Some(_) => Order::ZERO,
            None => Order::MAX,
        }
    }

    /// A touch has brought `page` in.
    pub fn record(&self, page: PageIndex) {
        let Some(recorder) = &self.recorder else {
            return;
        };
        let number = self.mmu.addr_of(page) as usize / PAGE_SIZE;
        let leaving = {
            let mut window = recorder.window.lock();
            (recorder.recording.enters)(number as u64);
            window.enter(page)
        };
        if let Some(pages) = leaving {
            self.take_out_of_window(&pages);
        }
    }

    fn take_out_of_window(&self, pages: &[PageIndex]) {
        let mut commands = Commands::new();
        for &page in pages {
            if commands.room() <= ANSWER_COMMANDS {
                self.carry_out(&mut commands);
            }
            let event = Event::Advise {
                range: PageRange::new(page, PageCount(1)),
                advice: Advice::PageOut,
            };
            // What is in flight or gone is left alone, and there is nothing to wait for.
            self.lock().handle(event, &mut commands);
        }
        self.carry_out(&mut commands);
    }
}
