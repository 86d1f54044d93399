//! Switches off KSM, the kernel's merging of pages with equal contents, for a process under a budget.
//!
//! A merged page belongs to the kernel. It cannot be evicted until it has been written to, so the memory that merging
//! saves keeps other memory from being evicted. Compressed RAM keeps equal bytes small anyway. So `MADV_MERGEABLE` on
//! managed memory fails with `EINVAL`, like on a kernel without KSM. `PR_SET_MEMORY_MERGE`, which applies to all
//! memory of a process including ours, fails the same way. The process that started this one may already have set
//! `PR_SET_MEMORY_MERGE` for it (systemd's `MemoryKSM=` does that). We undo that first of all, before any page of
//! ours exists. A program that was told its memory is merged might wait for the merge: the kernel's own tests of KSM
//! did, forever.

use crate::prctl::kernel;
use crate::space;

/// The option's number in `linux/prctl.h`.
pub const PR_SET_MEMORY_MERGE: i32 = 67;
const PR_GET_MEMORY_MERGE: i32 = 68;

/// Switches merging off if it was switched on before this process started.
pub fn leave() {
    if kernel([PR_GET_MEMORY_MERGE as usize, 0, 0, 0, 0]) == Ok(1) {
        let _ = kernel([PR_SET_MEMORY_MERGE as usize, 0, 0, 0, 0]);
    }
}

/// Returns whether the program's `prctl` call is refused.
pub fn refuses(args: [usize; 5]) -> bool {
    args[0] as i32 == PR_SET_MEMORY_MERGE && args[1] != 0 && space::get().is_some()
}
