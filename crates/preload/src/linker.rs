//! The place of the dynamic linker's code, by which its own allocations are known: they come from an address there.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static START: AtomicUsize = AtomicUsize::new(0);
static LEN: AtomicUsize = AtomicUsize::new(0);

/// Notes the addresses of the linker's code.
pub fn set(start: usize, end: usize) {
    START.store(start, Relaxed);
    LEN.store(end - start, Relaxed);
}

/// Whether the address is in the linker's code. The answer is no as long as the place is not known.
#[inline]
pub fn contains(addr: usize) -> bool {
    addr.wrapping_sub(START.load(Relaxed)) < LEN.load(Relaxed)
}
