//! This process's tape of the pages that it touches, under `millpond record`.
//!
//! The manager's fault handler reports each page that comes in (`millpond::space::Recording`). The page goes to the
//! tape, and the recording process takes it from there. A child of a fork takes a tape of its own before its own
//! fault handler starts, so that no tape ever has two writers.

use core::sync::atomic::{AtomicPtr, Ordering::*};
use millpond::space::Recording;
use millpond_board::{TapeWriter, Tapes};
use std::path::Path;
use std::sync::OnceLock;

static TAPES: OnceLock<(Tapes, String)> = OnceLock::new();
static TAPE: AtomicPtr<TapeWriter> = AtomicPtr::new(core::ptr::null_mut());

/// The recording that the manager is asked for.
pub fn recording(window: u32) -> Recording {
    Recording { window, enters }
}

fn enters(page: u64) {
    // SAFETY: the pointer is null or came from a leaked box.
    if let Some(tape) = unsafe { TAPE.load(Acquire).as_ref() } {
        tape.push(page);
    }
}

/// Opens the tapes and takes one.
///
/// # Errors
/// A line for the user: a recording without a tape would be none.
pub fn begin(path: &Path, name: &str) -> Result<(), String> {
    let tapes = Tapes::open(path).map_err(|error| error.to_string())?;
    take(TAPES.get_or_init(|| (tapes, name.to_owned())));
    Ok(())
}

/// Takes a tape for a new child.
pub fn begin_in_child() {
    TAPE.store(core::ptr::null_mut(), Release);
    if let Some(tapes) = TAPES.get() {
        take(tapes);
    }
}

/// Takes a tape. Without a free one the process is not recorded, which the recorder counts.
fn take((tapes, name): &(Tapes, String)) {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    if let Ok(tape) = tapes.claim(pid as u32, name) {
        TAPE.store(Box::into_raw(Box::new(tape)), Release);
    }
}
