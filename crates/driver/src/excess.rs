//! Says once that memory is above the budget.
//!
//! Memory of which nothing can leave is served above the limit (`core/src/ops/stuck.rs`), as the alternatives are to
//! hang and to lose data. The user who set the budget should know it, and what held the memory: the thread that keeps
//! house says so at its next tick, in one line. A store that takes nothing has a line of its own.

use crate::driver::Driver;
use crate::memory::Memory;
use millpond_core::{Excess, PageCount};
use millpond_mmu::report;
use millpond_sync::atomic::Ordering::Relaxed;

const MIB: u64 = 1 << 20;

impl<M: Memory> Driver<M> {
    /// Checks whether faults were served above the limit though the store takes what it is given, and says so.
    pub fn say_excess(&self) {
        if self.excess_said.load(Relaxed) {
            return;
        }
        let (limit, held) = {
            let core = self.lock();
            (core.limit(), core.excess())
        };
        if held == Excess::default() {
            return;
        }
        self.excess_said.store(true, Relaxed);
        let mib = |pages: PageCount| pages.bytes().div_ceil(MIB);
        report::line(format_args!(
            "memory is above the budget, as nothing more can leave: {} MiB are pinned, locked or cannot be moved, {} MiB \
             are held by the kernel (direct I/O, io_uring, process_vm_readv), of {} MiB for all; lock less, or give a \
             larger budget",
            mib(held.stays),
            mib(held.refused),
            mib(limit),
        ));
    }
}
