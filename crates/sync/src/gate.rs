//! The gate that keeps a fork apart from work on memory.

use crate::{Rank, RwLock, RwLockReadGuard, RwLockWriteGuard, end, if_free, thread, witness};
use std::sync::PoisonError;

/// Keeps a fork apart from all work on memory. A working thread is inside from its first lock to its last. A fork
/// closes the gate when all threads have left, so that no lock of the driver, the store or the MMU is held by a thread
/// that does not exist in the child.
///
/// No thread enters twice: behind a waiting fork, the second entry would wait for the first.
#[derive(Debug)]
pub struct Gate(RwLock<()>);

/// A guard of the gate: the thread is inside, or the gate is closed, while the value lives. A panic during that time
/// ends the process, even when no lock is held: between two locks a folio is in flight, and the next thread that
/// touched it would wait forever.
#[derive(Debug)]
pub struct Passage<G> {
    guard: Option<G>,
    /// Whether the thread was panicking before. A destructor may work on memory while a panic of the program unwinds,
    /// and that panic must not end the process here.
    unwinding_before: bool,
}

impl Gate {
    /// An open gate.
    #[expect(
        clippy::new_without_default,
        reason = "a gate belongs to a driver, and nobody has one by default"
    )]
    pub const fn new() -> Self {
        Self(RwLock::new(()))
    }

    /// Goes inside.
    pub fn enter(&self) -> Passage<RwLockReadGuard<'_, ()>> {
        witness::before(Rank::Gate);
        let guard = self.0.read().unwrap_or_else(PoisonError::into_inner);
        witness::taken(Rank::Gate);
        Passage::new(guard)
    }

    /// Goes inside unless the gate is closed or a thread waits to close it.
    pub fn try_enter(&self) -> Option<Passage<RwLockReadGuard<'_, ()>>> {
        let guard = if_free(self.0.try_read())?;
        witness::before(Rank::Gate);
        witness::taken(Rank::Gate);
        Some(Passage::new(guard))
    }

    /// Waits until all threads have left, and lets none in.
    pub fn close(&self) -> Passage<RwLockWriteGuard<'_, ()>> {
        witness::before(Rank::Gate);
        let guard = self.0.write().unwrap_or_else(PoisonError::into_inner);
        witness::taken(Rank::Gate);
        Passage::new(guard)
    }
}

impl<G> Passage<G> {
    fn new(guard: G) -> Self {
        Self {
            guard: Some(guard),
            unwinding_before: thread::panicking(),
        }
    }
}

impl<G> Drop for Passage<G> {
    fn drop(&mut self) {
        if thread::panicking() && !self.unwinding_before {
            end::end();
        }
        self.guard = None;
        witness::released(Rank::Gate);
    }
}
