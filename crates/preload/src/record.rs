//! This process's tape of the pages that it touches, used under `millpond record`.
//!
//! The manager's fault handler reports each page that comes in (`millpond::space::Recording`). The page goes onto the
//! tape, and the recording process takes it from there. A child of a fork claims its own tape before its fault
//! handler starts, so no tape ever has two writers.

use core::sync::atomic::{AtomicPtr, Ordering::*};
use millpond::space::Recording;
use millpond_board::{TapeWriter, Tapes};
use std::path::Path;
use std::sync::OnceLock;

static TAPES: OnceLock<(Tapes, String)> = OnceLock::new();
static TAPE: AtomicPtr<TapeWriter> = AtomicPtr::new(core::ptr::null_mut());

/// Returns the recording options for the manager.
pub fn recording(window: u32) -> Recording {
    Recording { window, enters }
}

fn enters(page: u64) {
    // SAFETY: the pointer is null or came from a leaked box.
    if let Some(tape) = unsafe { TAPE.load(Acquire).as_ref() } {
        tape.push(page);
    }
}

/// Opens the tapes and claims one.
///
/// # Errors
/// A line for the user: without a tape there would be no recording.
pub fn begin(path: &Path, name: &str) -> Result<(), String> {
    let tapes = Tapes::open(path).map_err(|error| error.to_string())?;
    take(TAPES.get_or_init(|| (tapes, name.to_owned())));
    Ok(())
}

/// Claims a tape for a new child.
pub fn begin_in_child() {
    TAPE.store(core::ptr::null_mut(), Release);
    if let Some(tapes) = TAPES.get() {
        take(tapes);
    }
}

/// Claims a tape. If none is free, the process is not recorded; the recorder counts such processes.
fn take((tapes, name): &(Tapes, String)) {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    if let Ok(tape) = tapes.claim(pid as u32, name) {
        TAPE.store(Box::into_raw(Box::new(tape)), Release);
    }
}
