//! Takes a fix out of the driver on purpose, to see that its tests under a scheduler notice. Only builds for that
//! scheduler have this.
//!
//! All threads of an execution are one of the kernel's, so the switch is thread-local: tests that run beside each other
//! do not meet.

use std::cell::Cell;

/// A fix that can be taken out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// A region ends without waiting for the prefetch that is under way there.
    PrefetchOutlives,
    /// The core takes what it is told of the book of kept pages for the latest, whichever edition that is of.
    ToldOutOfOrder,
    /// The core's lock is let go between the look that finds nothing done and the wait for that.
    LostWakeUp,
    /// A batch that was given back is not emptied.
    GivenBackTwice,
    /// A thread that opens the gate does not look whether a fault was left to it.
    FaultForgotten,
}

thread_local! {
    static OUT: Cell<Option<Sabotage>> = const { Cell::new(None) };
}

/// A guard: the fix is out while the value lives.
pub struct Out(());

/// Takes a fix out, or none.
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
