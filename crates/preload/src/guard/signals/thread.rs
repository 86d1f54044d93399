//! The state of each thread: a few words of thread-local storage.
//!
//! Signal handlers read these words, and so do functions that a program may call in its handlers, so they must be
//! accessible without an allocation. The usual access to a library's thread-local storage goes through the dynamic
//! linker, which may allocate if libraries have been loaded meanwhile. This library is loaded when the process
//! starts, so its storage lies at an offset from the thread pointer that the linker knows at that time (the model
//! "initial exec"). Rust has no stable name for that model, hence the few lines of assembler (and of `arch`).
//!
//! A child of `vfork` shares the words with the thread that waits for it.

use crate::arch;
use core::sync::atomic::{AtomicU64, AtomicUsize};

/// The words of one thread. All start as zeros. The thread's signal handlers also change them.
#[repr(C)]
pub struct Thread {
    /// The signals of [`never_blocked`](super::never_blocked) that the program believes to be blocked.
    pub masked: AtomicU64,
    /// Our alternate stack: its lowest address, or 0, and its length.
    pub stack: AtomicUsize,
    pub stack_len: AtomicUsize,
    /// The alternate stack that the program has set: address, length (0 when it has none) and flags.
    pub set: AtomicUsize,
    pub set_len: AtomicUsize,
    pub set_flags: AtomicUsize,
    /// The stack in managed memory that the program has given the thread: its lowest address, or 0, and its length.
    pub given: AtomicUsize,
    pub given_len: AtomicUsize,
    /// Nonzero while the thread serves a fault, with all signals really blocked.
    pub serves: AtomicUsize,
    /// The child of a `vfork` by this thread that has asked to be traced, or 0
    /// ([`traced`](crate::guard::children::traced)).
    pub asked_to_be_traced: AtomicUsize,
    /// Nonzero while the thread must not be parked ([`Busy`](crate::park::Busy)).
    pub keeps_on: AtomicUsize,
}

const _: () = assert!(size_of::<Thread>() == 88);

core::arch::global_asm!(
    ".pushsection .tbss.millpond_thread, \"awT\", @nobits",
    ".hidden millpond_thread",
    ".globl millpond_thread",
    ".type millpond_thread, @tls_object",
    ".balign 16",
    "millpond_thread:",
    "    .zero 88",
    ".size millpond_thread, 88",
    ".popsection",
);

/// Returns the words of the calling thread.
#[inline]
pub fn this() -> &'static Thread {
    // SAFETY: the address is that of 88 aligned bytes that belong to the calling thread and live as long as it runs.
    // No caller keeps the reference beyond its own frame, and all words are atomic.
    unsafe { &*arch::this_thread().cast::<Thread>() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;

    #[test]
    fn each_thread_has_words_of_its_own_that_begin_as_zeros() {
        this().masked.store(7, Relaxed);
        let other = std::thread::spawn(|| {
            let before = this().masked.swap(9, Relaxed);
            (before, core::ptr::from_ref(this()) as usize)
        });
        let (before, at) = other.join().unwrap();
        assert_eq!(before, 0);
        assert_eq!(this().masked.swap(0, Relaxed), 7);
        assert_ne!(at, core::ptr::from_ref(this()) as usize);
    }
}
