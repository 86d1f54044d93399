//! The background thread makes the data in compressed RAM denser, as far as its [pace](crate::state::recompress)
//! allows.

use crate::driver::Driver;
use crate::memory::Memory;
use crate::state::recompress::Pace;
use millpond_core::Recompress;
use millpond_mmu::processor_time;
use millpond_sync::atomic::Ordering;
use millpond_sync::time::Instant;

impl<M: Memory> Driver<M> {
    /// Does pieces of this work until the allowance is spent, there is nothing to do, or a thread needs memory: a kick
    /// after `seen` ends it. `began` is the time from which the pace counts, and `dense` tells whether RAM is worth it
    /// even if the store has enough. `go_away` is called when there is something to do: it lets the thread run on any
    /// processor.
    pub fn recompress(
        &self,
        pace: &mut Pace,
        began: Instant,
        seen: u32,
        dense: bool,
        mut go_away: impl FnMut(),
    ) {
        if !self.governor.covers_store() {
            return;
        }
        while pace.may_work(began.elapsed()) {
            let (since, cpu) = (Instant::now(), processor_time());
            let left = {
                let _inside = self.gate.enter();
                self.store.recompress(dense)
            };
            if left == Recompress::Idle {
                return;
            }
            go_away();
            let got = processor_time().saturating_sub(cpu);
            pace.worked(got, since.elapsed());
            self.recompress_ns
                .fetch_add(got.as_nanos() as u64, Ordering::Relaxed);
            if left == Recompress::RoundOver {
                pace.round_is_over();
            }
            if self.kicks.load() != seen || self.stop.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}
