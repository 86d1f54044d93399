//! The location of the dynamic linker's code, which identifies the linker's own allocations by their caller.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static START: AtomicUsize = AtomicUsize::new(0);
static LEN: AtomicUsize = AtomicUsize::new(0);

/// Records the addresses of the linker's code.
pub fn set(start: usize, end: usize) {
    START.store(start, Relaxed);
    LEN.store(end - start, Relaxed);
}

/// Returns whether the address is in the linker's code; false until the location is known.
#[inline]
pub fn contains(addr: usize) -> bool {
    addr.wrapping_sub(START.load(Relaxed)) < LEN.load(Relaxed)
}
