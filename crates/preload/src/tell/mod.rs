//! The program is told how much memory there is: its budget, and what is left of it.
//!
//! Many programs size themselves by the machine: a sort chooses how much it reads before it writes runs to files, a JVM
//! how long its heap may grow, a database its cache. Under a budget the machine's memory is the wrong answer. A sort of
//! 135 MiB of lines that believes in 24 GiB reads all of them into 34 MiB, and takes minutes where it could have merged
//! files in a second. So what these programs ask is answered by the budget (`--tell budget`, the default):
//!
//! | asked by | answered |
//! | --- | --- |
//! | `sysconf(_SC_PHYS_PAGES)`, `get_phys_pages` | the budget |
//! | `sysconf(_SC_AVPHYS_PAGES)`, `get_avphys_pages` | what is left of the budget |
//! | `sysinfo`, by its function or by `syscall` | both, no buffers, no swap (`calls.rs`) |
//! | `/proc/meminfo` | both, no page cache, no swap (`meminfo.rs`) |
//! | `memory.max`, `memory.high`, `memory.current`, `memory.swap.max`; version 1's `memory.limit_in_bytes`, `memory.memsw.limit_in_bytes`, `memory.usage_in_bytes` | the budget and what is used of it, no swap, for the process's own control group and those above it (`cgroup.rs`) |
//!
//! No figure is larger than the machine's own. *Left* is the budget less what is resident, and without what was freed
//! and is only kept.
//!
//! A file is opened as ever. If it turns out to be one of these, its descriptor is replaced by one of a sealed memory
//! file with other words in it (`files.rs`). The kernel's path of the open file decides, and not the name that the
//! program used. The words are those of the moment at which the file was opened.
//!
//! What is not told: other descriptors of such files (one that was inherited, `freopen`), a path that does not begin
//! with `/proc/m` or `/sys/fs/cgroup/`, an open by `syscall`, what the C library asks itself (`qsort`), and calls by an
//! instruction of the program's own, as Go's runtime makes them. `memory.stat` and the figures of memory nodes stay the
//! kernel's. Of the open file's flags, close on exec alone is kept, and `fstat` tells of the file in memory.

mod calls;
mod cgroup;
mod files;
mod meminfo;
mod opens;
mod words;

use crate::space;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use calls::by_number;

/// The budget that the program is told, in bytes. It is 0 where the program is told of the machine.
static BUDGET: AtomicU64 = AtomicU64::new(0);
/// How often the program has asked.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// Looks up the C library's functions behind those that are replaced.
pub fn find() {
    crate::guard::real::find(opens::FUNCTIONS);
}

/// Tells the program its budget from now on, in bytes.
pub fn begin(budget: u64) {
    BUDGET.store(budget, Relaxed);
}

/// How often the program has asked, and was told its budget.
pub fn asked() -> u64 {
    ASKED.load(Relaxed)
}

/// Counts that the program is told its budget.
fn count() {
    ASKED.fetch_add(1, Relaxed);
}

/// The budget, if it is what the program is told.
fn budget() -> Option<u64> {
    match BUDGET.load(Relaxed) {
        0 => None,
        // A thread of Millpond's asks for the machine.
        _ if crate::threads::is_service() => None,
        budget => Some(budget),
    }
}

/// The bytes that are left of a budget.
fn left(budget: u64) -> u64 {
    const PAGE: u64 = crate::vma::PAGE as u64;
    let mut text = [0; 128];
    let resident = words::read_path(c"/proc/self/statm", &mut text).and_then(|text| {
        let pages = text.split(|&byte| byte == b' ').nth(1)?;
        words::number(pages)
    });
    let kept = space::get().map_or(0, |space| {
        let vm = space.stats().vm;
        vm.nr_lazyfree + vm.nr_free_frames
    });
    let used = resident.unwrap_or(0).saturating_sub(kept) * PAGE;
    budget.saturating_sub(used)
}
