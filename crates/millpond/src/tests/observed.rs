//! Compressed RAM of which a test sees, or holds up, some calls.

use millpond_core::port::{Forks, LoadError, SaveError, Saved, Slots, Store, StoreUsage, Upkeep};
use millpond_core::{SlotId, SlotPart};
use millpond_store::{CompressedRam, CompressedRamConfig};

pub struct Observed {
    inner: CompressedRam,
    /// Called before each load.
    before_load: fn(),
    /// Called after each look at how much the store takes, with the answer, before it is given.
    after_look: fn(&mut StoreUsage),
}

impl Observed {
    pub fn boxed(before_load: fn(), after_look: fn(&mut StoreUsage)) -> Box<dyn Store> {
        let inner = CompressedRam::new(CompressedRamConfig::default()).unwrap();
        Box::new(Self {
            inner,
            before_load,
            after_look,
        })
    }
}

impl Slots for Observed {
    fn save(
        &self,
        slot: SlotId,
        previous: Option<SlotPart>,
        data: &[u8],
    ) -> Result<Saved, SaveError> {
        self.inner.save(slot, previous, data)
    }

    fn load(&self, slot: SlotId, first_page: u16, out: &mut [u8]) -> Result<(), LoadError> {
        (self.before_load)();
        self.inner.load(slot, first_page, out)
    }

    fn release(&self, slot: SlotId) {
        self.inner.release(slot);
    }
}

impl Upkeep for Observed {
    fn usage(&self) -> StoreUsage {
        let mut usage = self.inner.usage();
        (self.after_look)(&mut usage);
        usage
    }
}

impl Forks for Observed {
    fn after_fork_in_child(&self) -> Result<(), i32> {
        self.inner.after_fork_in_child()
    }

    fn before_fork(&self, child: u64) {
        self.inner.before_fork(child);
    }

    fn child_gone(&self, child: u64) {
        self.inner.child_gone(child);
    }
}
