//! Reports once that memory exceeds the budget.
//!
//! If nothing can leave memory, faults are served above the limit (`core/src/ops/stuck.rs`), as the alternatives are to
//! hang and to lose data. The user who set the budget should know this, and what held the memory: the background thread
//! reports it at its next tick, in one line. A store that accepts nothing has a separate message.

use crate::driver::Driver;
use crate::memory::Memory;
use millpond_core::{Excess, PageCount};
use millpond_mmu::report;
use millpond_sync::atomic::Ordering::Relaxed;

const MIB: u64 = 1 << 20;

impl<M: Memory> Driver<M> {
    /// Checks whether faults were served above the limit although the store accepts pages, and reports it.
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
