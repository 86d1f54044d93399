//! The faults that wait (`watchdog.rs`).

use millpond_core::PageIndex;
use millpond_sync::Word;
use millpond_sync::atomic::AtomicU32;
use millpond_sync::atomic::Ordering::SeqCst;
use millpond_sync::time::Instant;

/// Number of faults that are watched at once.
pub(crate) const SLOTS: usize = 64;

/// A page for which a fault waits. The number is one more than the page's, and zero if the slot is free.
pub(crate) struct Slot {
    pub(crate) page: AtomicU32,
    /// When the wait began, in milliseconds of the table's clock.
    pub(crate) since: AtomicU32,
    /// Length of the wait when it was last reported, in milliseconds.
    pub(crate) named: AtomicU32,
    /// Whether the thread sleeps in the kernel: then no thread here holds the slot.
    pub(crate) asleep: AtomicU32,
}

/// The table of waits, and the word that stops its thread.
pub struct Watchdog {
    pub(crate) slots: [Slot; SLOTS],
    pub(crate) start: Instant,
    pub(crate) stop: Word,
}

/// A guard: a fault waits while the value lives.
pub struct Waiting<'a>(pub(crate) Option<&'a Slot>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            slot.page.store(0, SeqCst);
        }
    }
}

impl Watchdog {
    pub fn new() -> Self {
        let slot = || Slot {
            page: AtomicU32::new(0),
            since: AtomicU32::new(0),
            named: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
        };
        Self {
            slots: std::array::from_fn(|_| slot()),
            start: Instant::now(),
            stop: Word::new(0),
        }
    }

    pub(crate) fn now(&self) -> u32 {
        self.start.elapsed().as_millis() as u32
    }

    /// Notes that a fault at `page` is not served at once.
    pub fn waits(&self, page: PageIndex) -> Waiting<'_> {
        Waiting(self.take(page, 0))
    }

    /// Notes that a thread sleeps at `page`, and that the thread which lands the page wakes it.
    pub fn sleeps(&self, page: PageIndex) {
        let known =
            |slot: &Slot| slot.page.load(SeqCst) == page.0 + 1 && slot.asleep.load(SeqCst) == 1;
        if !self.slots.iter().any(known) {
            self.take(page, 1);
        }
    }

    pub(crate) fn take(&self, page: PageIndex, asleep: u32) -> Option<&Slot> {
        let number = page.0 + 1;
        let first = number as usize;
        let free = |slot: &&Slot| {
            slot.page.load(SeqCst) == 0
                && slot
                    .page
                    .compare_exchange(0, number, SeqCst, SeqCst)
                    .is_ok()
        };
        let mut slots = (0..SLOTS).map(|n| &self.slots[(first + n) % SLOTS]);
        let slot = slots.find(free)?;
        slot.since.store(self.now(), SeqCst);
        slot.named.store(0, SeqCst);
        slot.asleep.store(asleep, SeqCst);
        Some(slot)
    }

    /// Forgets all waits in the child of a fork: no thread waits there.
    pub fn forget(&self) {
        for slot in &self.slots {
            slot.page.store(0, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_again_when_the_wait_ends() {
        let dog = Watchdog::new();
        let used = || {
            dog.slots
                .iter()
                .filter(|slot| slot.page.load(SeqCst) != 0)
                .count()
        };
        let waits: Vec<_> = (0..SLOTS as u32 + 3)
            .map(|n| dog.waits(PageIndex(n * 7)))
            .collect();
        assert_eq!(used(), SLOTS);
        assert!(waits[SLOTS].0.is_none(), "the table is full");
        drop(waits);
        assert_eq!(used(), 0);
    }

    #[test]
    fn threads_that_sleep_at_one_page_share_a_slot() {
        let dog = Watchdog::new();
        dog.sleeps(PageIndex(5));
        dog.sleeps(PageIndex(5));
        let _waits = dog.waits(PageIndex(5));
        let used = dog
            .slots
            .iter()
            .filter(|slot| slot.page.load(SeqCst) != 0)
            .count();
        assert_eq!(used, 2);
    }
}
