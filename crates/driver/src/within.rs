//! Keeps the process within its budget while nothing faults.
//!
//! A fault checks the process's size, and reclaims the excess. But unmanaged memory grows without a fault that we see:
//! a library is loaded, a file is mapped and read, a Go program's own heap grows. A program that had filled its memory
//! and then filled 12 MiB of shared memory, one MiB every 20 ms, exceeded its 32 by 11 MiB until it used its own memory
//! again: the tick had lowered the limit, and nobody reclaimed. So the background thread looks by itself, every few
//! milliseconds while the budget is nearly used and the process changes, and reclaims memory above the limit.
//!
//! One look takes two microseconds, and waking the thread for it ten: a quarter of a per cent of a processor.

use crate::driver::Driver;
use crate::fault::Patience;
use crate::memory::Memory;
use crate::state::growth::Growth;
use millpond_core::{PageCount, Reclaimer, VmStat};
use millpond_sync::atomic::Ordering;
use std::time::Duration;

impl<M: Memory> Driver<M> {
    /// The time until the next look at the process's size; `usual` if the budget is not nearly used.
    pub(crate) fn look_gap(&self, growth: &Growth, usual: Duration) -> Duration {
        if !self.governor.covers_process() {
            return usual;
        }
        let core = self.lock();
        growth.gap(core.available(), core.limit(), usual)
    }

    /// Checks the process's size, and reclaims memory above the limit. `now` is counted from the thread's start.
    pub(crate) fn keep_within(&self, growth: &mut Growth, now: Duration) {
        if !self.governor.covers_process() {
            return;
        }
        let _inside = self.gate.enter();
        self.adjust_limit();
        let vm = self.lock().stats();
        let others = self.governor.others.load(Ordering::Relaxed);
        growth.saw(vm.nr_mapped + vm.nr_limbo, others);
        if !is_over(&vm) || !growth.may_reclaim(now) {
            return;
        }
        self.reclaim_for(PageCount(1), Reclaimer::Background, Patience::Leave);
        if is_over(&self.lock().stats()) {
            growth.was_vain(now);
        }
    }
}

/// Whether more is in memory than the limit allows. Spare frames have gone back when the limit was set.
fn is_over(vm: &VmStat) -> bool {
    vm.nr_mapped + vm.nr_limbo + vm.nr_unhooked > vm.nr_limit
}
