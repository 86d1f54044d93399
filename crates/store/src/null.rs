//! The store that keeps nothing.

use millpond_core::SlotId;
use millpond_core::SlotPart;
use millpond_core::port::{Forks, LoadError, SaveError, Saved, Slots, StoreUsage, Upkeep};

/// The store of a manager without one: it accepts only zeros, which need no store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Null;

impl Null {
    /// A description of the store in one line, for reports.
    #[must_use]
    pub fn describe(&self) -> String {
        "no store".to_owned()
    }
}

impl Slots for Null {
    fn save(&self, _: SlotId, _: Option<SlotPart>, data: &[u8]) -> Result<Saved, SaveError> {
        if data.iter().all(|byte| *byte == 0) {
            Ok(Saved::AllZero)
        } else {
            Err(SaveError::Full)
        }
    }

    fn load(&self, _: SlotId, _: u16, _: &mut [u8]) -> Result<(), LoadError> {
        Err(LoadError::Missing)
    }

    fn release(&self, _: SlotId) {}
}

impl Upkeep for Null {
    fn usage(&self) -> StoreUsage {
        StoreUsage::default()
    }
}

impl Forks for Null {
    fn after_fork_in_child(&self) -> Result<(), i32> {
        Ok(())
    }

    fn before_fork(&self, _: u64) {}

    fn child_gone(&self, _: u64) {}
}
