//! What happens after a panic under a lock.

use std::sync::OnceLock;

static END: OnceLock<fn() -> !> = OnceLock::new();

/// Makes a panic under a lock of this crate call `end`. Without it, the process aborts. Only the first call of this
/// function has an effect.
pub fn end_by(end: fn() -> !) {
    let _ = END.set(end);
}

/// Ends the process. Under shuttle a panic unwinds, because its scheduler reports failures by panics.
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
