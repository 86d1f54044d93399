//! Snapshots: the pages change hands while no thread works on memory, and bases end with their last heirs.
//!
//! Taking a snapshot closes the gate, as a fork does: when all threads have left, no command is out, so that every page
//! is where the core says. Then the kernel's tables move and the core's follow. Both take a pointer for each 2 MiB.

use crate::driver::Driver;
use crate::signals::SignalsBlocked;
use crate::state::named::{Ended, Named};
use crate::state::queue::Freed;
use millpond_core::{
    Commands, Event, Kind, Order, OrderPolicy, PageCount, PageIndex, PageRange, Reclaimer, Refusal,
    RegionId, Reply,
};
use millpond_mmu::MmuError;
use std::sync::Arc;

/// Take-outs that the kernel may refuse while a base is merged. A base that is left beside its heir is correct, only
/// slower.
const MERGE_PATIENCE: u64 = 64;

/// Length from which on (32 MiB) a region that ends is taken out of userfaultfd first.
const ALONE: PageCount = PageCount(8 << 10);

/// Why there is no snapshot. All is as before.
#[derive(Debug)]
pub enum SnapshotRefusal {
    /// This page is pinned.
    Pinned(PageIndex),
    /// There are no addresses left.
    NoAddressSpace,
    /// The kernel refuses the move.
    Memory(MmuError),
}

impl Driver {
    /// Makes a region that reads as `source` does now, and changes on its own from there.
    ///
    /// # Safety
    /// No thread touches the source meanwhile.
    pub unsafe fn snapshot(&self, source: Named) -> Result<Named, SnapshotRefusal> {
        self.settle_kept(source.0);
        let addresses = || {
            let region = self.addresses(source.1.len);
            region.ok_or(SnapshotRefusal::NoAddressSpace)
        };
        let base = addresses()?;
        let copy = addresses().and_then(|copy| {
            let opened = self.mmu.open(copy.1).map_err(SnapshotRefusal::Memory);
            opened
                .map(|()| copy)
                .inspect_err(|_| self.forget_region(copy))
        });
        let copy = copy.inspect_err(|_| self.forget_region(base))?;
        // SAFETY: the caller's promise; the base was made a moment ago, and no thread uses it.
        match unsafe { self.take_snapshot(source, base, copy) } {
            Ok(()) => Ok(copy),
            Err(refusal) => {
                self.forget_region(base);
                if self.mmu.close(copy.1).is_ok() {
                    self.forget_region(copy);
                }
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
        let _alone = self.close_gate();
        if let Some(page) = self.lock().first_pinned(source.1) {
            return Err(SnapshotRefusal::Pinned(page));
        }
        // SAFETY: the gate is closed, so nothing is under way; the caller promises the rest.
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

    /// Takes addresses for a region, which no thread can touch yet. `None` when there is no free run that long.
    pub fn new_region(&self, pages: PageCount, order: OrderPolicy) -> Option<Named> {
        let kind = Kind::Anonymous;
        match self.tell(Event::CreateRegion { pages, order, kind }) {
            Reply::Region { region, range } => {
                self.place(region, range);
                Some((region, range))
            }
            Reply::Refused(Refusal::NoAddressSpace | Refusal::BadRange) => None,
            reply => unreachable!("{reply:?} is no answer to a region's creation"),
        }
    }

    /// Makes the memory of a region come from its node from now on. Where the kernel refuses that, memory is used as it
    /// comes.
    fn place(&self, region: RegionId, range: PageRange) {
        if let Some(&node) = self.nodes.get(self.node_of(region)) {
            let _ = self.mmu.place(range, node);
        }
    }

    /// The number of a region's memory node, counted from 0.
    pub fn node_of(&self, region: RegionId) -> usize {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        let node = self.lock().node_of_region(region);
        node.map_or(0, |node| usize::from(node.0))
    }

    /// Takes addresses for a region that gets its orders from another one.
    pub fn addresses(&self, pages: PageCount) -> Option<Named> {
        self.new_region(pages, Order::ZERO.into())
    }

    /// The orders of a region's folios.
    pub fn order_of(&self, region: RegionId) -> Option<OrderPolicy> {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        self.lock().order_of(region)
    }

    /// Whether a region shares anything with a snapshot.
    pub fn inherits(&self, region: RegionId) -> bool {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        self.lock().inherits(region)
    }

    /// Tells the core that a region is no more. None of it is in memory or in the store.
    pub fn forget_region(&self, (region, _): Named) {
        self.tell(Event::DropRegion { region });
    }

    /// Ends a region, and the bases from which no region inherits any more.
    pub fn drop_region(self: &Arc<Self>, region: Named) {
        self.forget_volatile(region.1);
        self.forget_kept(region.0);
        let ended = self.detach(region.0);
        self.end_region(region, Freed::ByOwner);
        self.end_bases(ended, Freed::ByOwner);
    }

    /// Gives back all that a detached region holds, and its addresses.
    pub fn end_region(self: &Arc<Self>, region: Named, by: Freed) {
        if region.1.len >= ALONE {
            // Leaving userfaultfd only makes other threads wait less, so a refusal does not matter.
            let _ = self.mmu.unwatch(region.1);
        }
        // A leaked guard leaves its pages pinned: then the addresses are kept rather than given to another region.
        if self.free_range(region.1, by).is_ok() && self.reset(region.1) {
            self.forget_region(region);
        }
    }

    /// Ends bases without heirs, one after the other, and merges the first that has one heir left into that heir.
    pub fn end_bases(self: &Arc<Self>, mut ended: Ended, by: Freed) {
        while let Some(base) = ended.orphan {
            ended = self.detach(base.0);
            self.end_region(base, by);
        }
        if let Some(base) = ended.single {
            self.merge(base);
        }
    }

    /// Detaches a region from the bases that it shares with others.
    pub fn detach(&self, region: RegionId) -> Ended {
        match self.tell(Event::Detach { region }) {
            Reply::Detached { orphan, single } => Ended { orphan, single },
            reply => unreachable!("{reply:?} for a region that is being dropped"),
        }
    }

    /// Makes addresses that hold nothing any more as new: a mapping that came from elsewhere does not join its
    /// neighbours.
    pub fn reset(&self, range: PageRange) -> bool {
        self.mmu.remap_reserved(range).is_ok()
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
                    if !self.reclaim_for(want, Reclaimer::Direct) {
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
        if self.reset(range) {
            self.forget_region((base, range));
        }
    }
}
