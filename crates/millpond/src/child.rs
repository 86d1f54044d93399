//! What a forked child may do with its parent's manager: forget it.
//!
//! A child has a copy of the manager's tables and of its locks, whoever held these at that moment; it has none of the
//! threads, and of the memory nothing: it is not inherited. But it has the descriptor through which that memory is
//! managed, and what is asked of a userfaultfd is done to the process that opened it. So a child must not ask.
//!
//! Values of the parent's are dropped there without a word, as a garbage collector or the end of a scope may do at any
//! time: the parent still has what they stand for. Calls panic, since a touch of the memory ends the child, too: by
//! SIGABRT and with a line that says what it was, for which an empty file lies in its place (`mmu/src/orphans.rs`).
//! Addresses can be asked for: they say nothing about what is there. A manager that the child builds itself is like any
//! other, and may lie where its parent's did: so the child's faults are nobody's until it has one.
//!
//! A child is told by a handler of `pthread_atfork`, which a bare `clone` does not call; comparing process numbers
//! would cost a system call each time, more than marking a range volatile does. The [`Space`](crate::space::Space) of a
//! whole program is set up again in its children, and has none of this.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Forks between the process that was first and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process(u32);

impl Process {
    /// The one that asks.
    pub(crate) fn this() -> Self {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(|| {
            // SAFETY: the handler is a function of this library, which stores a few words. Where it is refused, for
            // want of memory, a child is not told apart.
            unsafe { libc::pthread_atfork(None, None, Some(begin)) };
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether it is the one that asks.
    pub(crate) fn is_this(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

extern "C" fn begin() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    millpond_mmu::forget_deliveries_in_child();
}
