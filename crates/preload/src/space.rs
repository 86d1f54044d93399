//! The one space of this process, and cheap queries about it.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};

pub use millpond::space::Space;

static SPACE: AtomicPtr<Space> = AtomicPtr::new(core::ptr::null_mut());
static BASE: AtomicUsize = AtomicUsize::new(0);
static LEN: AtomicUsize = AtomicUsize::new(0);

static LAZY: AtomicBool = AtomicBool::new(true);

/// Returns whether memory that the program frees is kept until it is needed.
pub fn is_lazy() -> bool {
    LAZY.load(Relaxed)
}

/// Sets whether memory that the program frees is kept until it is needed.
pub fn set_lazy(lazy: bool) {
    LAZY.store(lazy, Relaxed);
}

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Returns whether an absent page is closed, so that touching it raises SIGSEGV because there is no userfaultfd.
pub fn is_closed() -> bool {
    CLOSED.load(Relaxed)
}

/// Makes `space` the space of this process.
pub fn set(space: &'static Space) {
    CLOSED.store(space.keeps_protections(), Relaxed);
    BASE.store(space.base(), Relaxed);
    LEN.store(space.len(), Relaxed);
    SPACE.store(core::ptr::from_ref(space).cast_mut(), Release);
}

/// Returns the space, or `None` before the constructor has created it and in a program without a budget.
#[inline]
pub fn get() -> Option<&'static Space> {
    // SAFETY: the pointer is null or came from a static reference.
    unsafe { SPACE.load(Acquire).as_ref() }
}

/// Returns whether `addr` lies in the space.
#[inline]
pub fn contains(addr: usize) -> bool {
    addr.wrapping_sub(BASE.load(Relaxed)) < LEN.load(Relaxed)
}

/// Returns whether any of the `len` bytes from `addr` lie in the space.
pub fn overlaps(addr: usize, len: usize) -> bool {
    let base = BASE.load(Relaxed);
    addr < base.saturating_add(LEN.load(Relaxed)) && addr.saturating_add(len) > base
}
