//! Recording: the pages that the program touches, as the fault handler sees them.
//!
//! The use of a mapped page is not seen, so a page is seen when it enters the mapped set and not again until it has
//! left it. Under a large budget the handler sees only first touches. So a recorder keeps the mapped set small: the
//! *window*, the pages that came in last, in that order. A page that falls out of the window is taken out to limbo,
//! where it stays in RAM (the budget is unchanged), and its next touch is a rescue, which is seen. The trace is what
//! passes a filter of this many pages:
//!
//! - A page in constant use enters again each time that a window's worth of others has entered, so it is never missing
//!   for longer.
//! - The order of two uses is preserved if a window's worth of others lies between them. So the misses of a cache of
//!   many windows are those of the full trace; about caches of a few windows the trace says little.
//! - Hits within the window are not in the trace: miss ratios are of entries and not of accesses.
//!
//! Writes are not distinguished from reads, since a page mapped for a read is writable.
//!
//! The price is a fault for each entry and a take-out for each page that leaves. Take-outs go in batches, so that
//! neighbours share a call, and after the fault was answered, while the program continues. Nothing here allocates. The
//! oldest pages of the window are taken out whether or not they are in use. A page that is pinned, lazily freed or gone
//! is skipped. Pages brought in for a fork or a pin were not touched, and are not in the window: their use is not seen
//! until reclaim takes them out.

use crate::driver::Driver;
use crate::memory::Memory;
use millpond_core::limits::ANSWER_COMMANDS;
use millpond_core::{Advice, Commands, Event, Order, PAGE_SIZE, PageCount, PageIndex, PageRange};

impl<M: Memory> Driver<M> {
    /// Whether a recording is in progress.
    pub fn is_recorded(&self) -> bool {
        self.recorder.is_some()
    }

    /// The largest order that a fault brings in: the first touch of a page that came in with another would not be seen.
    pub fn most_order(&self) -> Order {
        match self.recorder {
            Some(_) => Order::ZERO,
            None => Order::MAX,
        }
    }

    /// Records that a touch has brought `page` in.
    pub fn record(&self, page: PageIndex) {
        let Some(recorder) = &self.recorder else {
            return;
        };
        let number = self.mmu.address(page) / PAGE_SIZE;
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
            // A page that is in flight or gone is skipped, and there is nothing to wait for.
            self.lock().handle(event, &mut commands);
        }
        self.carry_out(&mut commands);
    }
}
