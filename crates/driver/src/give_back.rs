//! Gives batches back: memory that [`Core`](millpond_core::Core) has unhooked goes to kernel and store outside the
//! core's lock.
//!
//! A batch comes from a free (`free.rs`), or from one of three other sources. *Spare frames in the pool* beyond the
//! mark, beyond a lowered budget, or beyond the cap on lazily freed memory are gathered and given back by the code that
//! finds them: the tick, the call that lowers the budget, the call that frees lazily. *Frames that copies leave behind*
//! are given back by the reclaim thread, before faults would have to do so. *Memory that is discarded while threads may
//! touch it* is given back by the discarding thread, inside the gate. One large batch is kept for that. A thread that
//! finds it in use has an inline batch, and takes the core's lock more often. So does a fault that gives back *spare
//! frames in pieces* because it needs a large one, and a look that leaves no room for spare frames.

use crate::driver::Driver;
use crate::memory::Memory;
#[cfg(feature = "shuttle")]
use crate::sabotage::{self, Sabotage};
use crate::state::queue::FreedBy;
use arrayvec::ArrayVec;
use millpond_core::gather::{Gather, Gathered};
use millpond_core::{Commands, Core, Frame, PageCount, PageRange};
use millpond_sync::time::Instant;

/// Number of frames, or runs of frames, that one call gives back.
const AT_ONCE: usize = 64;

impl<M: Memory> Driver<M> {
    /// Lends `f` the large batch for discards, if no thread is using it, in place of the inline one.
    pub fn with_large_batch<T>(
        &self,
        commands: &mut Commands,
        f: impl FnOnce(&mut Commands) -> T,
    ) -> T {
        let Some(mut large) = self.freer.discards.try_lock() else {
            return f(commands);
        };
        std::mem::swap(commands.batch(), &mut large);
        let result = f(commands);
        std::mem::swap(commands.batch(), &mut large);
        result
    }

    /// Gives a batch back, and tells the core and the waiting threads.
    pub fn give_back(&self, gather: &mut Gather, by: FreedBy) {
        let begun = Instant::now();
        if let Some(range) = gather.zap() {
            self.mmu.zap(&[range]);
        }
        let mut frames = ArrayVec::<Frame, AT_ONCE>::new();
        let mut runs = ArrayVec::<PageRange, AT_ONCE>::new();
        let mut slots = 0;
        for item in gather.items() {
            match item {
                Gathered::Slot(slot) => {
                    self.store.release(slot);
                    slots += 1;
                }
                Gathered::Frame(frame) => {
                    if frames.is_full() {
                        self.mmu.free_frames(&frames);
                        frames.clear();
                    }
                    frames.push(frame);
                }
                Gathered::Run(run) => {
                    if runs.is_full() {
                        self.mmu.zap(&runs);
                        runs.clear();
                    }
                    runs.push(run);
                }
            }
        }
        self.mmu.free_frames(&frames);
        self.mmu.zap(&runs);
        if let Some(awaited) = self.lock().gathered(gather) {
            self.mmu.wake(awaited);
        }
        self.freer.counts.add(by, gather.pages(), slots, begun);
        #[cfg(feature = "shuttle")]
        if sabotage::is_out(Sabotage::GivenBackTwice) {
            return;
        }
        gather.clear();
        self.wake_waiters();
    }

    /// Gives the frames that copies left behind to the kernel, so that faults need not do so. For threads inside the
    /// gate.
    pub fn give_copied_back(&self) {
        self.give_back_while(&mut self.freer.spare.lock(), Core::gather_copied);
    }

    /// Gives the pool's spare frames that demand does not require to the kernel. For threads inside the gate.
    pub fn give_spare_frames_back(&self) {
        let most = self.freer.chunk();
        self.give_back_while(&mut self.freer.spare.lock(), |core, gather| {
            core.gather_spare(most, gather);
        });
    }

    /// Gives the spare frames for which a lowered limit leaves no room to the kernel. For threads inside the gate.
    pub fn give_excess_back(&self) {
        self.with_spare_batch(|gather| {
            self.give_back_while(gather, |core, gather| {
                core.gather_spare(core.spare_excess(), gather);
            });
        });
    }

    /// Gives `missing` pages of the pool's small spare pieces to the kernel, so that a fault can get a large one. For
    /// threads inside the gate. Returns whether there were any.
    pub fn give_scattered_back(&self, missing: PageCount) -> bool {
        self.with_spare_batch(|gather| {
            self.lock().gather_scattered(missing, gather);
            let found = !gather.is_empty();
            if found {
                self.give_back(gather, FreedBy::Owner);
            }
            found
        })
    }

    /// Lends `f` the batch for spare frames, or an inline one if it is taken: a fault may have interrupted the thread
    /// that has it.
    fn with_spare_batch<T>(&self, f: impl FnOnce(&mut Gather) -> T) -> T {
        let mut large = self.freer.spare.try_lock();
        let mut inline = Gather::new();
        f(large.as_deref_mut().unwrap_or(&mut inline))
    }

    /// Gives back all that `collect` finds, batch by batch, until it finds nothing.
    fn give_back_while(&self, gather: &mut Gather, collect: impl Fn(&mut Core, &mut Gather)) {
        loop {
            collect(&mut self.lock(), gather);
            if gather.is_empty() {
                return;
            }
            self.give_back(gather, FreedBy::Owner);
        }
    }
}
