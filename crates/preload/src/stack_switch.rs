//! A stack of our own for threads that stand on a managed one.
//!
//! Coroutine libraries take their stacks from `malloc` or `mmap`, so a thread may enter this library with its stack in
//! managed memory. Holding one of our locks there is a deadlock in waiting: the next push may fault, and the fault is
//! served by threads that may need the lock. So before a lock is taken the stack pointer is compared with the space's
//! bounds, which costs nothing, and a thread inside them continues on one of a few unmanaged stacks.

use crate::{raw, space};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

const STACK: usize = 256 << 10;
const STACKS: usize = 16;

/// One bit for each stack that is in use.
static IN_USE: AtomicU64 = AtomicU64::new(0);
static PLACES: [AtomicUsize; STACKS] = [const { AtomicUsize::new(0) }; STACKS];

/// Runs `work` on an unmanaged stack. If `work` takes locks, it must not borrow from the caller's frame.
pub fn on_safe_stack<R>(work: impl FnOnce() -> R) -> R {
    if !space::contains(psm::stack_pointer() as usize) {
        return work();
    }
    let (number, base) = claim();
    // SAFETY: the stack is a mapping of `STACK` bytes, page-aligned, and belongs to this thread alone while the bit
    // is set. A panic in `work` ends the process at the `extern "C"` boundary inside psm.
    let result = unsafe { psm::on_stack(base as *mut u8, STACK, work) };
    IN_USE.fetch_and(!(1 << number), Release);
    result
}

fn claim() -> (usize, usize) {
    loop {
        let used = IN_USE.load(Relaxed);
        let number = (!used).trailing_zeros() as usize;
        if number >= STACKS {
            // There are more threads than stacks at this moment; each is done within microseconds.
            core::hint::spin_loop();
            continue;
        }
        if IN_USE
            .compare_exchange_weak(used, used | 1 << number, Acquire, Relaxed)
            .is_err()
        {
            continue;
        }
        let mut base = PLACES[number].load(Relaxed);
        if base == 0 {
            match raw::map_anonymous(STACK) {
                Ok(new) => base = new,
                Err(_) => crate::exit::fail("millpond: no memory for a stack of 256 KiB"),
            }
            PLACES[number].store(base, Relaxed);
        }
        return (number, base);
    }
}

/// Frees, in a new child, the stacks of other threads, which do not exist there.
pub fn after_fork_in_child() {
    let own = psm::stack_pointer() as usize;
    let mut used = 0;
    for (number, place) in PLACES.iter().enumerate() {
        let base = place.load(Relaxed);
        if base != 0 && (base..base + STACK).contains(&own) {
            used |= 1 << number;
        }
    }
    IN_USE.store(used, Relaxed);
}
