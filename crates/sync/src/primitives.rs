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
