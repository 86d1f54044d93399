//! Snapshots: the pages move to a base while no thread works on memory, and bases end with their last heirs.
//!
//! Taking a snapshot closes the gate, as a fork does: when all threads have left, no command is in progress, so every
//! page is where the core expects it. Then the kernel's tables move and the core's follow. Both move one pointer for
//! each 2 MiB.

use crate::driver::Driver;
use crate::fault::Patience;
use crate::memory::Memory;
use crate::signals::SignalsBlocked;
use crate::state::named::Named;
use millpond_core::{Commands, Event, PageCount, PageIndex, Reclaimer, Refusal, Reply};
use millpond_mmu::MmuError;

/// Number of take-outs that the kernel may refuse while a base is merged. Leaving a base and its heir unmerged is
/// correct, only slower.
const MERGE_PATIENCE: u64 = 64;

/// Why there is no snapshot. Nothing has changed.
#[derive(Debug)]
pub enum SnapshotRefusal {
    /// This page is pinned.
    Pinned(PageIndex),
    /// There are no addresses left.
    NoAddressSpace,
    /// The kernel refuses the move.
    Memory(MmuError),
}

impl<M: Memory> Driver<M> {
    /// Makes a region that reads like `source` does now, and changes independently from then on.
    ///
    /// # Safety
    /// No thread touches the source during the call.
    pub unsafe fn snapshot(&self, source: Named) -> Result<Named, SnapshotRefusal> {
        self.settle_kept(source.0);
        let addresses = || {
            let region = self.addresses(source.1.len);
            region.ok_or(SnapshotRefusal::NoAddressSpace)
        };
        let base = addresses()?;
        let copy = addresses().and_then(|copy| {
            let opened = self.mmu.open(copy.1).map_err(SnapshotRefusal::Memory);
            opened.map(|()| copy).inspect_err(|_| self.take_back(copy))
        });
        let copy = copy.inspect_err(|_| self.take_back(base))?;
        // SAFETY: the caller's promise; the base was made a moment ago, and no thread uses it.
        match unsafe { self.take_snapshot(source, base, copy) } {
            Ok(()) => Ok(copy),
            Err(refusal) => {
                self.take_back(base);
                self.take_back(copy);
                Err(refusal)
            }
        }
    }

    /// # Safety
    /// As [`Driver::snapshot`]; `base` and `copy` are new.
    unsafe fn take_snapshot(
        &self,
        source: Named,
        base: Named,
        copy: Named,
    ) -> Result<(), SnapshotRefusal> {
        let _quiet = SignalsBlocked::new();
        let _alone = loop {
            let alone = self.close_gate();
            let Some(strayed) = [base, copy].into_iter().find(|&new| self.has_strays(new)) else {
                break alone;
            };
            // Each fault that was under way when the addresses changed hands is late once, so this ends.
            drop(alone);
            assert!(self.discard_strays(strayed), "{strayed:?} keeps strays");
        };
        if let Some(page) = self.lock().first_pinned(source.1) {
            return Err(SnapshotRefusal::Pinned(page));
        }
        // SAFETY: the gate is closed, so nothing is in progress; the caller promises the rest.
        unsafe {
            self.mmu
                .hand_over(source.1, base.1, (PageCount::ZERO, PageCount::ZERO))
        }
        .map_err(SnapshotRefusal::Memory)?;
        let event = Event::Snapshot {
            region: source.0,
            base: base.0,
            copy: copy.0,
        };
        let reply = self.lock().handle(event, &mut Commands::new());
        assert_eq!(reply, Reply::Done, "a snapshot of {source:?}");
        Ok(())
    }

    /// Hands a base over to its only heir. Other threads may end that by dropping the heir, or by taking a snapshot of
    /// it.
    pub fn merge(&self, (base, range): Named) {
        let _quiet = SignalsBlocked::new();
        let refused = |core: &millpond_core::Core| {
            let stats = core.stats();
            stats.takeout_busy + stats.takeout_immovable
        };
        let before = refused(&self.lock());
        let mut from = range.start;
        let mut commands = Commands::new();
        loop {
            let _inside = self.gate.enter();
            let mut core = self.lock();
            if refused(&core) - before > MERGE_PATIENCE {
                return;
            }
            let reply = core.handle(Event::Merge { base, from }, &mut commands);
            if matches!(reply, Reply::Wait { .. }) && commands.is_empty() {
                drop(self.wait_settled(core));
                continue;
            }
            drop(core);
            self.carry_out(&mut commands);
            match reply {
                Reply::More { from: next } => from = next,
                Reply::Reclaim { pages } => {
                    let want = PageCount(self.lock().available().0 + pages.0);
                    // A thread that frees must not wait here: the batch that it would wait for may be its own next
                    // job, or another thread's that waits for this one to leave the gate.
                    if !self.reclaim_for(want, Reclaimer::Direct, Patience::Leave) {
                        return;
                    }
                }
                Reply::Detached { .. } => break,
                Reply::Refused(
                    Refusal::OutOfRecords
                    | Refusal::Busy
                    | Refusal::RegionInUse
                    | Refusal::UnknownRegion,
                ) => {
                    return;
                }
                reply => unreachable!("{reply:?} is no answer to a merge"),
            }
        }
        self.take_back((base, range));
    }
}
