//! KSM, the kernel's merging of pages with equal contents, is switched off for a process under a budget.
//!
//! A merged page is the kernel's. It cannot be moved out before it has been written to, so the memory that merging
//! spares on one side keeps other memory from leaving on the other. Compressed RAM keeps equal bytes small anyway. So
//! `MADV_MERGEABLE` of managed memory is `EINVAL`, the answer of a kernel without KSM, and so is
//! `PR_SET_MEMORY_MERGE`, which is about all memory of a process at once, ours included. `PR_SET_MEMORY_MERGE` may
//! have been set for a process before it began, by the process that started it (systemd's `MemoryKSM=` does that).
//! That is taken back as the first thing, when no page of ours is there yet. A program that asked and was told that
//! its memory is merged would wait for the merge: the kernel's own tests of KSM did, for ever.

use crate::prctl::kernel;
use crate::space;

/// The option's number in `linux/prctl.h`.
pub const PR_SET_MEMORY_MERGE: i32 = 67;
const PR_GET_MEMORY_MERGE: i32 = 68;

/// Switches merging off, if it was switched on before this process began.
pub fn leave() {
    if kernel([PR_GET_MEMORY_MERGE as usize, 0, 0, 0, 0]) == Ok(1) {
        let _ = kernel([PR_SET_MEMORY_MERGE as usize, 0, 0, 0, 0]);
    }
}

/// Whether the program's `prctl` call is refused.
pub fn refuses(args: [usize; 5]) -> bool {
    args[0] as i32 == PR_SET_MEMORY_MERGE && args[1] != 0 && space::get().is_some()
}
