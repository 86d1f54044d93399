//! The owner of a pointer, determined from its address alone.
//!
//! Blocks from before the manager was up and blocks of its own threads live in the internal allocator's range; the
//! program's blocks live in the space. A pointer into neither was never given out.

use crate::{init, internal_alloc, raw, space};

/// The allocator that gave out a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The internal allocator gave out the block.
    Internal,
    /// jemalloc gave out the block.
    Program,
}

/// Returns the owner of `pointer`; if there is none, ends the process as the C library does.
#[inline]
pub fn of(pointer: *const core::ffi::c_void, call: &str) -> Owner {
    let addr = pointer as usize;
    if space::contains(addr) {
        return Owner::Program;
    }
    if internal_alloc::owns(addr) {
        return Owner::Internal;
    }
    if init::is_passive() {
        return Owner::Program;
    }
    stop(addr, call)
}

#[cold]
fn stop(addr: usize, call: &str) -> ! {
    raw::complain(&format!("millpond: {call}({addr:#x}): invalid pointer\n"));
    // SAFETY: the call ends the process by SIGABRT, as the C library does for such a pointer.
    unsafe { libc::abort() }
}
