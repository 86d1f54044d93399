//! Where the dynamic linker's code lies, so that its own allocations are known by the address that they come from.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static START: AtomicUsize = AtomicUsize::new(0);
static LEN: AtomicUsize = AtomicUsize::new(0);

/// From now on the linker lies at these addresses.
pub fn set(start: usize, end: usize) {
    START.store(start, Relaxed);
    LEN.store(end - start, Relaxed);
}

/// Whether the address is the linker's; it is nobody's as long as the place is not known.
#[inline]
pub fn contains(addr: usize) -> bool {
    addr.wrapping_sub(START.load(Relaxed)) < LEN.load(Relaxed)
}
