//! What happens after a panic under a lock.

use once_cell::race::OnceBox;

/// Set without a lock: a child that is forked meanwhile finds it set or not.
static END: OnceBox<fn() -> !> = OnceBox::new();

/// Makes a panic under a lock of this crate call `end`. Without it, the process aborts. Only the first call of this
/// function has an effect.
pub fn end_by(end: fn() -> !) {
    let _ = END.get_or_init(|| Box::new(end));
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
