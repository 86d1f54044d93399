//! Tells the program how much memory there is: its budget, and what is left of it.
//!
//! Many programs size themselves by the machine: a sort chooses how much it reads before it writes runs to files, a
//! JVM how far its heap may grow, a database its cache. Under a budget the machine's memory is the wrong answer. A
//! sort of 135 MiB of lines that believes in 24 GiB reads all of them into 34 MiB, and takes minutes where it could
//! have merged files in a second. So we answer such queries with the budget (`--tell budget`, the default):
//!
//! | query | answer |
//! | --- | --- |
//! | `sysconf(_SC_PHYS_PAGES)`, `get_phys_pages` | the budget |
//! | `sysconf(_SC_AVPHYS_PAGES)`, `get_avphys_pages` | what is left of the budget |
//! | `sysinfo`, by its function or by `syscall` | both, no buffers, no swap (`calls.rs`) |
//! | `/proc/meminfo` | both, no page cache, no swap (`meminfo.rs`) |
//! | `memory.max`, `memory.high`, `memory.current`, `memory.swap.max`; version 1's `memory.limit_in_bytes`, `memory.memsw.limit_in_bytes`, `memory.usage_in_bytes` | the budget and what is used of it, no swap, for the process's own control group and those above it (`cgroup.rs`) |
//!
//! No figure is larger than the machine's own. *Left* is the budget minus resident memory, not counting memory that
//! was freed and is merely kept.
//!
//! A file is opened as usual. If it turns out to be one of these, its descriptor is replaced by one of a sealed
//! memory file with different contents (`files.rs`). The kernel's path of the open file decides, not the name that
//! the program used. The contents are those of the moment when the file was opened.
//!
//! The following do not get the budget: other descriptors of such files (an inherited one, `freopen`), a path that
//! does not start with `/proc/m` or `/sys/fs/cgroup/`, an open by `syscall`, queries by the C library itself
//! (`qsort`), and calls by the program's own system call instruction, such as Go's runtime makes. `memory.stat` and
//! the figures of memory nodes remain the kernel's. Of the open file's flags, only close-on-exec is kept, and `fstat`
//! reports the file in memory.

mod calls;
mod cgroup;
mod files;
mod meminfo;
mod opens;

use crate::{space, words};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use calls::by_number;

/// The budget that the program is told, in bytes; 0 if the program is told about the machine.
static BUDGET: AtomicU64 = AtomicU64::new(0);
/// How often the program has asked.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// Looks up the C library's functions that are replaced.
pub fn find() {
    crate::guard::real::find(opens::FUNCTIONS);
}

/// From now on tells the program its budget, in bytes.
pub fn begin(budget: u64) {
    BUDGET.store(budget, Relaxed);
}

/// Returns how often the program has asked and was told its budget.
pub fn asked() -> u64 {
    ASKED.load(Relaxed)
}

/// Counts an answer with the budget.
fn count() {
    ASKED.fetch_add(1, Relaxed);
}

/// Returns the budget, if the program is told it.
fn budget() -> Option<u64> {
    match BUDGET.load(Relaxed) {
        0 => None,
        // Threads of Millpond ask about the machine.
        _ if crate::threads::is_service() => None,
        budget => Some(budget),
    }
}

/// Returns the bytes that are left of a budget.
fn left(budget: u64) -> u64 {
    const PAGE: u64 = crate::vma::PAGE as u64;
    let resident = words::statm([1]).map_or(0, |[pages]| pages as u64);
    let kept = space::get().map_or(0, |space| {
        let vm = space.stats().vm;
        vm.nr_lazyfree + vm.nr_free_frames
    });
    let used = resident.saturating_sub(kept) * PAGE;
    budget.saturating_sub(used)
}
