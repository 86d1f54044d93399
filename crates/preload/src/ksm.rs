//! KSM, the kernel's merging of pages that hold the same: not of a process under a budget.
//!
//! A page that was merged is the kernel's. It cannot be moved out before somebody has written to it, so what merging
//! spares on one side keeps other memory from leaving on the other. Compressed RAM keeps equal bytes small anyway.
//! So `MADV_MERGEABLE` of managed memory is `EINVAL`, the answer of a kernel without KSM, and so is
//! `PR_SET_MEMORY_MERGE`, which is about all memory of a process at once, ours included. What was said about
//! a process before it began, by `PR_SET_MEMORY_MERGE` in who started it (systemd's `MemoryKSM=` does), is taken back
//! as the first thing, when no page of ours is there yet. A program that asked and was told that its memory is merged
//! would wait for that: the kernel's own tests of KSM did, for ever.

use crate::prctl::kernel;
use crate::space;

/// In `linux/prctl.h`.
pub const PR_SET_MEMORY_MERGE: i32 = 67;
const PR_GET_MEMORY_MERGE: i32 = 68;

/// Takes back what was said before this process began.
pub fn leave() {
    if kernel([PR_GET_MEMORY_MERGE as usize, 0, 0, 0, 0]) == Ok(1) {
        let _ = kernel([PR_SET_MEMORY_MERGE as usize, 0, 0, 0, 0]);
    }
}

/// Whether the program may not have what it asks for.
pub fn refuses(args: [usize; 5]) -> bool {
    args[0] as i32 == PR_SET_MEMORY_MERGE && args[1] != 0 && space::get().is_some()
}
