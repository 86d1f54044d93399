//! The store that keeps nothing.

use millpond_core::SlotId;
use millpond_core::SlotPart;
use millpond_core::port::{LoadError, SaveError, Saved, Store, StoreUsage};

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

impl Store for Null {
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

    fn usage(&self) -> StoreUsage {
        StoreUsage::default()
    }

    fn after_fork_in_child(&self) -> Result<(), i32> {
        Ok(())
    }

    fn before_fork(&self, _: u64) {}

    fn child_gone(&self, _: u64) {}
}
