//! What happens after a panic under a lock.

use std::sync::OnceLock;

static END: OnceLock<fn() -> !> = OnceLock::new();

/// Has `end` called when a thread panics under a lock of this crate. Without it, the process aborts. The first call
/// counts.
pub fn end_by(end: fn() -> !) {
    let _ = END.set(end);
}

/// Ends the process. Under shuttle a panic is what its scheduler reports, so it unwinds.
#[cold]
pub(crate) fn end() {
    if cfg!(feature = "shuttle") {
        return;
    }
    match END.get() {
        Some(end) => end(),
        None => std::process::abort(),
    }
}
