//! Keeps the process within its budget where nothing faults.
//!
//! A fault looks what the process takes, and reclaims what is too much. But what is not managed grows without a fault
//! of ours: a library is loaded, a file is mapped and read, a Go program's own heap grows. A program that had filled
//! its memory and went on to fill 12 MiB of shared memory, a MiB each 20 ms, stood 11 MiB above its 32 until it used
//! its own memory again: the tick had lowered the limit, and nobody reclaimed. So the background thread looks by
//! itself, each few milliseconds while the budget is nearly used and the process changes, and reclaims what is above
//! the limit.
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
    /// The time until the next look at the process's size; `usual` where nothing is near.
    pub(crate) fn look_gap(&self, growth: &Growth, usual: Duration) -> Duration {
        if !self.governor.covers_process() {
            return usual;
        }
        let core = self.lock();
        growth.gap(core.available(), core.limit(), usual)
    }

    /// Looks what the process takes, and reclaims what is above the limit. `now` is counted from when the thread began.
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
