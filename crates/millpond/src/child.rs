//! A forked child can do only one thing with its parent's manager: forget it.
//!
//! A child has a copy of the manager's tables and of its locks, as they were at the moment of the fork. It has none of
//! the threads, and none of the managed memory, which is not inherited. But it has the descriptor through which that
//! memory is managed, and a request to a userfaultfd acts on the process that opened it. So a child must make no such
//! request.
//!
//! The child may silently drop values of the parent, as a garbage collector or the end of a scope may do at any time:
//! the parent still has the memory that they represent. Calls panic, since a touch of the memory also ends the child:
//! by SIGABRT and with a message that names the cause, for which an empty file takes the memory's place
//! (`mmu/src/orphans.rs`). Addresses can be queried, because they say nothing about the contents. A manager that the
//! child builds itself is like any other, and may be at the addresses of its parent's. So faults of the child belong to
//! no manager until it has built one.
//!
//! The child learns of the fork by a handler of `pthread_atfork`, which a bare `clone` does not call. The handler is
//! there before the first manager serves a fault: another thread may fork while it is built. Comparing process numbers
//! would cost a system call each time, more than marking a range volatile costs. The
//! [`Space`](crate::space::Space) of a whole program is set up again in its children, and needs none of this.

use millpond_sync::{ForkOnce, Rank};
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of forks between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process, by the number of forks that led to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process(u32);

impl Process {
    /// The calling process.
    pub(crate) fn this() -> Self {
        static REGISTERED: ForkOnce = ForkOnce::new(Rank::OncePerProcess);
        REGISTERED.call(|| {
            // SAFETY: the handler is a function of this library, which stores a few words. Where the registration is
            // refused, for want of memory, a child is not told apart.
            unsafe { libc::pthread_atfork(None, None, Some(begin)) };
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is the calling process.
    pub(crate) fn is_this(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

extern "C" fn begin() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    millpond_mmu::forget_deliveries_in_child();
}
