//! What is in a static, and is well in any child of a fork.
//!
//! A program with threads may fork at any moment, and the child has every lock as it was: one that another thread of
//! the parent's held is held for ever, and a [`OnceLock`](std::sync::OnceLock) or a [`Once`](std::sync::Once) that one
//! was about to fill is never filled. What belongs to a manager is of no use in a child, which builds managers of its
//! own. A static is the same for both, so a child that builds its first manager would wait for a thread that it does
//! not have. Statics that a thread can be caught in are therefore of these two kinds (or are filled without a lock, by
//! [`OnceBox`], where it does no harm that two threads make the value at once).
//!
//! Neither needs to hear of the fork. Handlers of `pthread_atfork` that take all locks before a fork would do as well
//! for most, but are not called by a bare `clone`, nor for the fork that has begun when they are registered, and they
//! hang where a signal handler forks in the middle of such a lock.

use crate::{Held, Rank, Ranked};
use once_cell::race::OnceBox;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// A lock of which each process has its own, with a value that begins anew. A child leaves that of its parent as it is,
/// in whatever state, and drops nothing of it.
pub struct PerProcess<T> {
    rank: Rank,
    start: fn() -> T,
    own: OnceBox<Own<T>>,
}

/// The lock of one process, and that of the first of its children that needed one after the fork.
struct Own<T> {
    process: u32,
    lock: Ranked<T>,
    next: OnceBox<Own<T>>,
}

impl<T> PerProcess<T> {
    /// A lock of this rank, around what `start` gives in each process.
    pub const fn new(rank: Rank, start: fn() -> T) -> Self {
        Self {
            rank,
            start,
            own: OnceBox::new(),
        }
    }

    /// Takes the lock of this process. Its first call in a process allocates some bytes, which are kept for good.
    ///
    /// ```
    /// use millpond_sync::{PerProcess, Rank};
    ///
    /// static USES: PerProcess<u32> = PerProcess::new(Rank::DefaultManager, || 0);
    ///
    /// *USES.lock() += 1;
    /// assert_eq!(*USES.lock(), 1);
    /// ```
    pub fn lock(&self) -> Held<'_, T> {
        let process = std::process::id();
        let mut place = &self.own;
        loop {
            let own = place.get_or_init(|| {
                Box::new(Own {
                    process,
                    lock: Ranked::new(self.rank, (self.start)()),
                    next: OnceBox::new(),
                })
            });
            if own.process == process {
                return own.lock.lock();
            }
            place = &own.next;
        }
    }
}

/// Work that a process has to do once, and that its children find done. A child that was forked in the middle of it
/// does it itself, so half of it must do no harm.
pub struct ForkOnce {
    is_done: AtomicBool,
    turn: PerProcess<()>,
}

impl ForkOnce {
    /// Nothing is done yet. The lock has this rank, under which the work is done.
    pub const fn new(rank: Rank) -> Self {
        Self {
            is_done: AtomicBool::new(false),
            turn: PerProcess::new(rank, || ()),
        }
    }

    /// Says that the work is done, by somebody else or by a thread that is alone.
    pub fn set_done(&self) {
        self.is_done.store(true, SeqCst);
    }

    #[cfg(test)]
    pub(crate) fn is_done(&self) -> bool {
        self.is_done.load(SeqCst)
    }

    /// Does `work`, unless that is done.
    pub fn call(&self, work: impl FnOnce()) {
        let Ok(()) = self.try_call(|| {
            work();
            Ok::<(), Infallible>(())
        });
    }

    /// Does `work`, unless that is done. After an error it is not.
    ///
    /// # Errors
    /// Those of `work`.
    ///
    /// ```
    /// use millpond_sync::{ForkOnce, Rank};
    ///
    /// static READY: ForkOnce = ForkOnce::new(Rank::OncePerProcess);
    ///
    /// assert_eq!(READY.try_call(|| Err("not yet")), Err("not yet"));
    /// assert_eq!(READY.try_call(|| Ok::<(), &str>(())), Ok(()));
    /// assert_eq!(READY.try_call(|| Err("never asked")), Ok(()));
    /// ```
    pub fn try_call<E>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        if self.is_done.load(SeqCst) {
            return Ok(());
        }
        let _turn = self.turn.lock();
        if self.is_done.load(SeqCst) {
            return Ok(());
        }
        work()?;
        self.set_done();
        Ok(())
    }
}
