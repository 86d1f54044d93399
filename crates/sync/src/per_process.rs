//! Statics that remain usable in any child of a fork.
//!
//! A program with threads may fork at any moment, and the child has every lock in its former state: a lock that another
//! thread of the parent held is held forever, and a [`OnceLock`](std::sync::OnceLock) or a [`Once`](std::sync::Once)
//! that such a thread was about to fill is never filled. This does not matter for the state of a manager, as a child
//! builds its own managers. But parent and child share statics, so a child that builds its first manager would wait for
//! a thread that it does not have. Statics that a fork can catch in mid-operation are therefore of these two kinds (or
//! are filled without a lock, by [`OnceBox`], if two threads may make the value at the same time).
//!
//! Neither kind needs to be notified of the fork. Handlers of `pthread_atfork` that take all locks before a fork would
//! also work for most of them, but are not called by a bare `clone`, nor for a fork that has begun before they are
//! registered, and they hang if a signal handler forks while its thread holds such a lock.

use crate::{Held, Rank, Ranked};
use once_cell::race::OnceBox;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

/// A separate lock for each process, with a fresh value. A child leaves its parent's lock in whatever state it is, and
/// drops nothing of it.
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

/// Work that a process does once, so that its children find it done. A child that was forked in the middle of the work
/// does it again, so half-done work must be harmless.
pub struct ForkOnce {
    is_done: AtomicBool,
    /// The process that does the work now, or 0. It is a parent's in a child that was forked meanwhile.
    doer: AtomicU32,
    turn: PerProcess<()>,
}

impl ForkOnce {
    /// Work that is not done yet, under a lock of this rank.
    pub const fn new(rank: Rank) -> Self {
        Self {
            is_done: AtomicBool::new(false),
            doer: AtomicU32::new(0),
            turn: PerProcess::new(rank, || ()),
        }
    }

    /// Records that the work is done, by other code or by a thread that is alone.
    pub fn set_done(&self) {
        self.is_done.store(true, SeqCst);
    }

    /// Whether this process was forked while another thread of its parent did the work. Locks of other code that the
    /// work takes may be held for good.
    #[must_use]
    pub fn was_interrupted(&self) -> bool {
        let doer = self.doer.load(SeqCst);
        doer != 0 && doer != std::process::id()
    }

    #[cfg(test)]
    pub(crate) fn is_done(&self) -> bool {
        self.is_done.load(SeqCst)
    }

    /// Does `work`, unless it is already done.
    pub fn call(&self, work: impl FnOnce()) {
        let Ok(()) = self.try_call(|| {
            work();
            Ok::<(), Infallible>(())
        });
    }

    /// Does `work`, unless it is already done. After an error it counts as not done.
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
        self.doer.store(std::process::id(), SeqCst);
        let worked = work();
        if worked.is_ok() {
            self.set_done();
        }
        self.doer.store(0, SeqCst);
        worked
    }
}
