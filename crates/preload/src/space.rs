//! The one space of this process, and the quick questions about it.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};

pub use millpond::space::Space;

static SPACE: AtomicPtr<Space> = AtomicPtr::new(core::ptr::null_mut());
static BASE: AtomicUsize = AtomicUsize::new(0);
static LEN: AtomicUsize = AtomicUsize::new(0);

static LAZY: AtomicBool = AtomicBool::new(true);

/// Whether memory that the program frees is kept until it is wanted.
pub fn is_lazy() -> bool {
    LAZY.load(Relaxed)
}

/// Sets whether memory that the program frees is kept until it is wanted.
pub fn set_lazy(lazy: bool) {
    LAZY.store(lazy, Relaxed);
}

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether a page that is out is closed, and its fault SIGSEGV, because there is no userfaultfd.
pub fn is_closed() -> bool {
    CLOSED.load(Relaxed)
}

/// Makes `space` the one of this process.
pub fn set(space: &'static Space) {
    CLOSED.store(space.keeps_protections(), Relaxed);
    BASE.store(space.base(), Relaxed);
    LEN.store(space.len(), Relaxed);
    SPACE.store(core::ptr::from_ref(space).cast_mut(), Release);
}

/// The space. It is `None` before the constructor has made it, and in a program without a budget.
#[inline]
pub fn get() -> Option<&'static Space> {
    // SAFETY: the pointer is null or came from a static reference.
    unsafe { SPACE.load(Acquire).as_ref() }
}

/// Whether `addr` lies in the space.
#[inline]
pub fn contains(addr: usize) -> bool {
    addr.wrapping_sub(BASE.load(Relaxed)) < LEN.load(Relaxed)
}

/// Whether any of the `len` bytes from `addr` lie in the space.
pub fn overlaps(addr: usize, len: usize) -> bool {
    let base = BASE.load(Relaxed);
    addr < base.saturating_add(LEN.load(Relaxed)) && addr.saturating_add(len) > base
}
