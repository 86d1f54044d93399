//! `sim`'s store behind the driver's trait.

use crate::pages::{pages_of, write_bytes};
use millpond_core::{
    Forks, LoadError, Outcome, PAGE_SIZE, SaveError, Saved, SlotId, SlotPart, Slots, StoreUsage,
    Upkeep,
};
use millpond_sim::report::Check;
use millpond_sim::rng::Rng;
use millpond_sim::store::{SimStore, Weather};
use millpond_sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A simulated store. Each call is one moment, before which the scheduler may run other threads.
#[derive(Clone)]
pub struct Simulated(Arc<Inside>);

struct Inside {
    state: Mutex<(SimStore, Rng)>,
    calls: AtomicU32,
}

impl Simulated {
    /// An empty store with room for `capacity` pages.
    #[must_use]
    pub fn new(capacity: u64, rng: Rng) -> Self {
        Self(Arc::new(Inside {
            state: Mutex::new((SimStore::new(capacity), rng)),
            calls: AtomicU32::new(0),
        }))
    }

    /// Does `call` at one moment of the schedule. Its lock is the standard library's and never contended: the scheduler
    /// runs one thread at a time, and does not switch threads under it.
    fn at_once<T>(&self, call: impl FnOnce(&mut SimStore, &mut Rng) -> Check<T>) -> T {
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        let mut state = self.state();
        let (store, rng) = &mut *state;
        let done = call(store, rng);
        drop(state);
        done.unwrap_or_else(|failure| panic!("{}", failure.what))
    }

    fn state(&self) -> MutexGuard<'_, (SimStore, Rng)> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Slots that hold something.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.state().0.slots()
    }

    /// Makes saves and loads fail as `weather` says, from now on.
    pub fn set_weather(&self, weather: Weather) {
        self.state().0.weather = weather;
    }
}

impl Slots for Simulated {
    fn save(
        &self,
        slot: SlotId,
        previous: Option<SlotPart>,
        data: &[u8],
    ) -> Result<Saved, SaveError> {
        let data = pages_of(data);
        match self.at_once(|store, rng| store.save(slot, previous, &data, rng)) {
            Outcome::Stored => Ok(Saved::Stored),
            Outcome::Unchanged => Ok(Saved::Unchanged),
            Outcome::AllZero => Ok(Saved::AllZero),
            Outcome::StoreFull => Err(SaveError::Full),
            _ => Err(SaveError::Io(5)),
        }
    }

    fn load(&self, slot: SlotId, first_page: u16, out: &mut [u8]) -> Result<(), LoadError> {
        let pages = out.len() / PAGE_SIZE;
        let mut damaged = false;
        let loaded = self.at_once(|store, rng| {
            damaged = rng.chance(500);
            store.load_pages(slot, first_page, pages, rng)
        });
        // An error of the medium is retried, damage is not.
        let error = if damaged {
            LoadError::Corrupt
        } else {
            LoadError::Io(5)
        };
        write_bytes(&loaded.ok_or(error)?, out);
        Ok(())
    }

    fn forget(&self, part: SlotPart) {
        self.at_once(|store, _| store.forget(part));
    }

    /// Stricter than the trait: the driver never releases an empty slot, but would do so if it freed a batch twice.
    fn release(&self, slot: SlotId) {
        self.at_once(|store, _| store.release(slot));
    }
}

impl Upkeep for Simulated {
    fn usage(&self) -> StoreUsage {
        let state = self.state();
        StoreUsage {
            slots: state.0.slots() as u64,
            logical_bytes: state.0.pages() * PAGE_SIZE as u64,
            ..StoreUsage::default()
        }
    }
}

impl Forks for Simulated {
    fn after_fork_in_child(&self) -> Result<(), i32> {
        unreachable!("no process is forked under the scheduler")
    }

    fn before_fork(&self, _child: u64) {
        unreachable!("no process is forked under the scheduler")
    }

    fn child_gone(&self, _child: u64) {
        unreachable!("no process is forked under the scheduler")
    }
}
