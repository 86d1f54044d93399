//! Stacks of our own for threads that run on a managed one.
//!
//! Coroutine libraries take their stacks from `malloc` or `mmap`, so a thread may enter this library with its stack
//! in managed memory. Holding one of our locks there invites a deadlock: the next push may fault, and the threads
//! that serve the fault may need the lock. So before taking a lock we compare the stack pointer with the space's
//! bounds, which costs nothing, and a thread inside them continues on one of a few unmanaged stacks.
//!
//! The handler of SIGBUS also serves faults on such stacks (`guard/signals/handlers.rs`). These form a separate set:
//! work on a safe stack may fault, and if all were in use the handler would wait for the very stack on which the work
//! runs.

use crate::{raw, space};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

const STACK: usize = 256 << 10;

/// Stacks for threads that run on managed memory, and stacks for faults.
static SAFE: Stacks<16> = Stacks::new();
static FAULTS: Stacks<64> = Stacks::new();

/// A few stacks, each mapped when it is first needed.
struct Stacks<const COUNT: usize> {
    /// One bit for each stack that is in use.
    in_use: AtomicU64,
    places: [AtomicUsize; COUNT],
}

/// Runs `work` on an unmanaged stack. If `work` takes locks, it must not borrow from the caller's frame.
pub fn on_safe_stack<R>(work: impl FnOnce() -> R) -> R {
    if !space::contains(psm::stack_pointer() as usize) {
        return work();
    }
    SAFE.run(work)
}

/// Runs `work`, which may need more stack than a program gives to its threads, on an unmanaged stack of 256 KiB. It
/// must not borrow from the caller's frame.
pub fn on_large_stack<R>(work: impl FnOnce() -> R) -> R {
    match SAFE.own() {
        Some(_) => work(),
        None => SAFE.run(work),
    }
}

/// Runs `work`, which serves a fault and does not fault itself, on a separate stack, whichever stack the thread is
/// on.
pub fn on_fault_stack<R>(work: impl FnOnce() -> R) -> R {
    FAULTS.run(work)
}

/// Returns whether the calling thread serves a fault, so that this library and not the program made the call.
pub fn serves_fault() -> bool {
    FAULTS.own().is_some()
}

impl<const COUNT: usize> Stacks<COUNT> {
    const fn new() -> Self {
        assert!(COUNT <= u64::BITS as usize);
        Self {
            in_use: AtomicU64::new(0),
            places: [const { AtomicUsize::new(0) }; COUNT],
        }
    }

    fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        let (number, base) = self.claim();
        // SAFETY: the stack is a mapping of `STACK` bytes, page-aligned, and belongs to this thread alone while the
        // bit is set. A panic in `work` ends the process at the `extern "C"` boundary inside psm.
        let result = unsafe { psm::on_stack(base as *mut u8, STACK, work) };
        self.in_use.fetch_and(!(1 << number), Release);
        result
    }

    fn claim(&self) -> (usize, usize) {
        loop {
            let used = self.in_use.load(Relaxed);
            let number = (!used).trailing_zeros() as usize;
            if number >= COUNT {
                // There are currently more threads than stacks; each thread finishes within microseconds once it
                // runs.
                // SAFETY: the call changes nothing.
                let _ = unsafe { raw::syscall(libc::SYS_sched_yield, [0; 6]) };
                continue;
            }
            if self
                .in_use
                .compare_exchange_weak(used, used | 1 << number, Acquire, Relaxed)
                .is_err()
            {
                continue;
            }
            let mut base = self.places[number].load(Relaxed);
            if base == 0 {
                match raw::map_anonymous(STACK) {
                    Ok(new) => base = new,
                    Err(_) => crate::exit::fail("millpond: no memory for a stack of 256 KiB"),
                }
                self.places[number].store(base, Relaxed);
            }
            return (number, base);
        }
    }

    /// Returns the number of the stack that the calling thread is on, if it is one of these.
    fn own(&self) -> Option<usize> {
        let own = psm::stack_pointer() as usize;
        self.places.iter().position(|place| {
            let base = place.load(Relaxed);
            base != 0 && (base..base + STACK).contains(&own)
        })
    }

    /// Frees the stacks that the calling thread is not on.
    fn keep_own(&self) {
        let used = self.own().map_or(0, |number| 1 << number);
        self.in_use.store(used, Relaxed);
    }
}

/// Frees, in a new child, the stacks of other threads, which do not exist there.
pub fn after_fork_in_child() {
    SAFE.keep_own();
    FAULTS.keep_own();
}
