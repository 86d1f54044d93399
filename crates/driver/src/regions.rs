//! The life of a region: it gets addresses and a node, answers queries, and ends.
//!
//! A region that ends gives back all that it holds, then its addresses, and only then its name, so no other region can
//! encounter its remains. It also leaves the bases that it shares with other regions: a base without heirs ends as a
//! region does, and a base with one heir left is merged into that heir (`snapshot.rs`).

use crate::driver::Driver;
use crate::memory::Memory;
use crate::signals::SignalsBlocked;
use crate::state::named::{Ended, Named};
use crate::state::queue::FreedBy;
use millpond_core::{
    Event, Kind, Order, OrderPolicy, PageCount, PageRange, Refusal, RegionId, Reply,
};
use std::sync::Arc;

/// Length (32 MiB) from which a region that ends is first unregistered from userfaultfd.
const ALONE: PageCount = PageCount(8 << 10);

impl<M: Memory> Driver<M> {
    /// Allocates addresses for a region, which no thread can touch yet. Returns `None` if there is no free run that
    /// long.
    pub fn new_region(&self, pages: PageCount, order: OrderPolicy) -> Option<Named> {
        self.new_region_of(pages, order, Kind::Anonymous)
    }

    /// Allocates addresses for a region whose pages are of this kind.
    pub(crate) fn new_region_of(
        &self,
        pages: PageCount,
        order: OrderPolicy,
        kind: Kind,
    ) -> Option<Named> {
        match self.tell(Event::CreateRegion { pages, order, kind }) {
            Reply::Region { region, range } => {
                self.place(region, range);
                Some((region, range))
            }
            Reply::Refused(Refusal::NoAddressSpace | Refusal::BadRange) => None,
            reply => unreachable!("{reply:?} is no answer to a region's creation"),
        }
    }

    /// Places the memory of a region on its node from now on. If the kernel refuses that, memory is used as it comes.
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

    /// Allocates addresses for a region that gets its orders from another one.
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

    /// Whether a region that no thread has touched holds anything. The caller is inside the gate, or has closed it.
    pub(crate) fn has_strays(&self, region: Named) -> bool {
        self.lock().leaves_in_use(region.1) > 0
    }

    /// Discards what late faults brought into a region that no thread has touched. The answer is whether they had. A
    /// handler reads a fault some time after it happened: its addresses may be another region's by then.
    pub(crate) fn discard_strays(&self, region: Named) -> bool {
        let _quiet = SignalsBlocked::new();
        let has_strays = {
            let _inside = self.gate.enter();
            self.has_strays(region)
        };
        // A thread that serves its own fault is not late, and neither is a prefetch, for which a region's end waits.
        // (Under the scheduler no program touches memory that is not its own.)
        #[cfg(feature = "shuttle")]
        assert!(
            !has_strays || self.delivery == millpond_mmu::Delivery::Handler,
            "something came to {region:?}, and no handler was late"
        );
        // Nobody can have pinned these pages, so they go.
        has_strays && self.discard(region.1).is_ok()
    }

    /// Takes back the addresses of a region that holds nothing but what late faults brought into it.
    pub(crate) fn take_back(&self, region: Named) {
        // From here on a late fault finds no region.
        self.detach(region.0);
        self.discard_strays(region);
        if self.reset(region.1) {
            self.forget_region(region);
        }
    }

    /// Tells the core that a region is no more. None of it is in memory or in the store.
    pub fn forget_region(&self, (region, range): Named) {
        self.forget_file(range);
        self.tell(Event::DropRegion { region });
    }

    /// Ends a region, and the bases from which no region inherits any longer.
    pub fn drop_region(self: &Arc<Self>, region: Named) {
        self.forget_volatile(region.1);
        self.forget_kept(region.0);
        let ended = self.detach(region.0);
        self.end_region(region, FreedBy::Owner);
        self.end_bases(ended, FreedBy::Owner);
    }

    /// Gives back all that a detached region holds, and its addresses.
    pub fn end_region(self: &Arc<Self>, region: Named, by: FreedBy) {
        if region.1.len >= ALONE {
            // Unregistering only shortens the waits of other threads, so a refusal does not matter.
            let _ = self.mmu.unwatch(region.1);
        }
        // A leaked guard leaves its pages pinned: then the addresses are kept rather than given to another region.
        if self.free_range(region.1, by).is_ok() && self.reset(region.1) {
            self.forget_region(region);
        }
    }

    /// Ends bases without heirs, one after another, and merges the first that has one heir left into that heir.
    pub fn end_bases(self: &Arc<Self>, mut ended: Ended, by: FreedBy) {
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

    /// Resets addresses that no longer hold anything: a mapping that came from elsewhere does not merge with its
    /// neighbours.
    pub fn reset(&self, range: PageRange) -> bool {
        self.mmu.renew(range).is_ok()
    }
}
