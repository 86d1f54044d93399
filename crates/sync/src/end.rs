//! What happens after a panic under a lock.

use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

/// The function, as a pointer; null if there is none. A child that is forked while it is set finds either.
static END: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Makes a panic under a lock of this crate call `end`. Without it, the process aborts. Only the first call of this
/// function has an effect.
pub fn end_by(end: fn() -> !) {
    let none = std::ptr::null_mut();
    let _ = END.compare_exchange(none, end as *mut (), SeqCst, SeqCst);
}

/// Ends the process. Under shuttle a panic unwinds, because its scheduler reports failures by panics.
#[cold]
pub(crate) fn end() {
    if cfg!(feature = "shuttle") {
        return;
    }
    let end = END.load(SeqCst);
    if end.is_null() {
        std::process::abort();
    }
    // SAFETY: only `end_by` writes the pointer, and it writes a function of this type.
    let end = unsafe { std::mem::transmute::<*mut (), fn() -> !>(end) };
    end()
}
