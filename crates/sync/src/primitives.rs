//! The primitives, from the standard library or from shuttle.

#[cfg(not(feature = "shuttle"))]
mod chosen {
    pub use std::sync::{
        Barrier, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic,
    };
    pub use std::{hint, thread};
}

#[cfg(feature = "shuttle")]
mod chosen {
    pub use shuttle::sync::{
        Barrier, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic,
    };
    pub use shuttle::{hint, thread};
}

pub use chosen::*;

use std::sync::{TryLockError, TryLockResult};

/// The guard of a tried lock, if no thread has the lock. A panic under a lock does not poison it.
pub fn if_free<G>(tried: TryLockResult<G>) -> Option<G> {
    match tried {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
