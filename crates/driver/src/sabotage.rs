//! Removes a fix from the driver on purpose, to check that the tests under a scheduler notice. Only builds for that
//! scheduler have this.
//!
//! All threads of an execution run on one kernel thread, so the switch is thread-local: concurrent tests do not affect
//! each other.

use std::cell::Cell;

/// A fix that can be removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// A region ends without waiting for a prefetch in progress there.
    PrefetchOutlives,
    /// The core accepts every report about the book of kept pages as the latest, whatever its edition.
    ToldOutOfOrder,
    /// The core's lock is released between the check that finds nothing done and the wait.
    LostWakeUp,
    /// A batch that was given back is not emptied.
    GivenBackTwice,
    /// A thread that opens the gate does not check whether a fault was deferred to it.
    FaultForgotten,
}

thread_local! {
    static OUT: Cell<Option<Sabotage>> = const { Cell::new(None) };
}

/// A guard: the fix is out while the value lives.
pub struct Out(());

/// Removes a fix, or none.
#[must_use]
pub fn set(sabotage: Option<Sabotage>) -> Out {
    OUT.set(sabotage);
    Out(())
}

impl Drop for Out {
    fn drop(&mut self) {
        OUT.set(None);
    }
}

/// Whether this fix is out.
pub(crate) fn is_out(sabotage: Sabotage) -> bool {
    OUT.get() == Some(sabotage)
}
