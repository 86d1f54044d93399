//! Keeping signal handlers from running under the core lock.
//!
//! A signal handler of the program may touch managed memory. If it ran on a thread that holds the core lock, the fault
//! would need that same lock and never be resolved. So every thread of the program blocks its signals before it takes
//! one of our locks, and restores them afterwards. (In the handler threads and in the SIGBUS handler signals are
//! blocked anyway.)
//!
//! Signals that a fault raises are not blocked: such a signal, if blocked when it is raised, ends the process.
//!
//! Under shuttle nothing is blocked: all threads of an execution share the mask of one kernel thread, and no signal
//! handler touches simulated memory.

use std::marker::PhantomData;
#[cfg(not(feature = "shuttle"))]
use std::mem::MaybeUninit;

/// Keeps signals blocked in this thread while the value lives.
#[derive(Debug)]
pub struct SignalsBlocked {
    #[cfg(not(feature = "shuttle"))]
    before: libc::sigset_t,
    /// Keeps the value on its thread: a signal mask belongs to its thread.
    not_send: PhantomData<*const ()>,
}

impl SignalsBlocked {
    /// Blocks nothing.
    #[expect(
        clippy::new_without_default,
        reason = "a guard is nothing that one has by default"
    )]
    #[must_use]
    #[cfg(feature = "shuttle")]
    pub fn new() -> Self {
        Self {
            not_send: PhantomData,
        }
    }

    /// Blocks signals in this thread.
    #[cfg(not(feature = "shuttle"))]
    #[expect(
        clippy::new_without_default,
        reason = "a guard is nothing that one has by default"
    )]
    #[must_use]
    pub fn new() -> Self {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: both are valid places for a signal set; sigfillset makes the first one whole before it is used,
        // pthread_sigmask the second. No call can fail with these arguments.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for raised in [libc::SIGBUS, libc::SIGSEGV, libc::SIGSYS] {
                libc::sigdelset(all.as_mut_ptr(), raised);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
            Self {
                before: before.assume_init(),
                not_send: PhantomData,
            }
        }
    }
}

#[cfg(not(feature = "shuttle"))]
impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: `before` came from the kernel in `new`, on this thread: the value is not Send.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            );
        }
    }
}
