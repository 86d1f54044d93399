//! A stream gets its leaf in one piece.
//!
//! Random accesses leave a leaf in memory in pieces. A stream that reaches the leaf needs the pages between the pieces,
//! and gets them with a call for each hole and a fault for every few holes. Pages that came in as pieces leave as
//! pieces, and the next stream finds the pieces of both. With 512 MiB in memory for 256, read in order after 100,000
//! random reads, a page took 2.2 µs, and 1.6 in the next lap. In a leaf that comes and goes whole, a page takes 0.65.
//!
//! So the leaf's pages in memory are evicted first: out of the program by its page table
//! ([`leaf_out`](crate::ops::leaf_out)), and immediately on to the store. Then all of the leaf comes in as one folio.
//! The first lap takes 1.3 µs a page that way, the second 0.65. Rereading a hundred pages costs less than eighty calls
//! for the holes between them, and unchanged pages are not written. (The kernel's khugepaged copies the pages in memory
//! to a huge page, and brings in the others, page by page.)
//!
//! # When it pays
//! With *r* pages in memory, *a* absent and *h* holes, in units of 0.4 µs, it pays when
//!
//! ```text
//!     8 h + a / 2   >   2 r + 200
//! ```
//!
//! The left side is the cost of the holes: for each a call and its share of a fault, and the extra cost of a small page
//! over its share of a large one. The right side is the cost of comparing, dropping and rereading the pages in memory,
//! and of taking them out by the table.
//!
//! # When it would be in vain
//! A leaf comes in as one folio from one slot, or from [`FOLD_PARTS`](crate::limits::FOLD_PARTS) of them. Pages that
//! were never saved will get slots of their own, so the parts are counted first, as if nothing had changed. Pages that
//! have changed since they came in are not known until they are saved. So failures are counted: after a leaf that was
//! evicted and did not come in whole, the next leaf is left alone, after another failure the next two, four, up to 64.
//!
//! # Programs that it would hurt
//! A program may be using the pages in memory while the stream passes. They would come back with the stream, and leave
//! with it. Uses of mapped pages are not observed, but pages that were evicted by mistake fault again at once, away
//! from every stream. Such faults are *strays*: with more than eight recent strays (half are forgotten with each leaf
//! that a stream reaches) no leaf is evicted. That costs a leaf or two of a set in use, and none if another thread
//! faults at random.

use crate::addr::{LEAF_PAGES, Order, PageCount, PageIndex, PageRange};
use crate::limits::{EVICT_SHARE, LARGE};
use crate::machine::Core;
use crate::policy::order::{OrderPolicy, Step, Way};
use crate::policy::whole_leaf::STREAM;
use crate::tables::fold::Parts;
use crate::tables::leaf::Entry;

/// The cost of a hole, in units of half an absent page.
const HOLE: u32 = 8;
/// The cost of a page in memory that is evicted and comes back, in the same units.
const EVICTED: u32 = 2;
/// The cost of evicting any page of a leaf, in the same units.
const LEAF: u32 = 200;

impl Core {
    /// The pages that a stream at `page` has stepped over in a leaf that was evicted for it.
    pub(crate) fn was_stepped_over(&self, page: PageIndex) -> Option<PageRange> {
        let leaf = PageRange::block(page, Order::MAX);
        let range = |from: PageIndex, to: PageIndex| PageRange::new(from, PageCount(to.0 - from.0));
        match self.evictions.way(page)? {
            Way::Up => Some(range(leaf.start, page)),
            Way::Down => Some(range(page.plus(1), leaf.end())),
            Way::Unknown => None,
        }
    }

    /// How many pages to reclaim so that the leaf that a stream has reached leaves first. Returns `None` if it need not
    /// leave.
    pub(crate) fn evict_leaf(&mut self, page: PageIndex, step: Step) -> Option<PageCount> {
        let leaf = PageRange::block(page, Order::MAX);
        let region = self.regions.of(page).expect("a fault is in a region");
        let is_adaptive = matches!(region.order, OrderPolicy::Adaptive { .. });
        let is_stream = is_adaptive && step.run >= STREAM && step.window >= LARGE;
        let room = self.limit / EVICT_SHARE >= LEAF_PAGES && !self.store_blocked;
        if !step.enters
            || !is_stream
            || !room
            || self.evictions.way(page).is_some()
            || !self.may_take_leaf(leaf.start)
        {
            return None;
        }
        let there = self.pays_to_evict(leaf)?;
        if !self.evictions.is_due() {
            return None;
        }
        self.evictions.asks(page, step.way);
        let vec = self.lru.id(self.group_of(page), self.node_of(page));
        self.take_leaf_for_stream(leaf.start, vec);
        Some(PageCount(self.frames.spare_pages() + there))
    }

    /// How many pages of a leaf are in memory, if it pays to evict them and bring in the leaf as one folio.
    fn pays_to_evict(&self, leaf: PageRange) -> Option<u32> {
        let mut parts = Parts::new();
        let (mut there, mut holes, mut in_hole) = (0, 0, false);
        let mut at = leaf.start;
        while at < leaf.end() {
            let (slot, first, pages) = match self.leaves.get(at) {
                Entry::Empty | Entry::Zero => (None, 0, 0),
                Entry::Swapped { slot, index } => (Some(slot), index, 0),
                Entry::Folio(id) => {
                    let folio = self.folios.get(id);
                    let part = folio.backing()?;
                    (Some(part.slot), part.first, folio.order.pages().0)
                }
                Entry::Poisoned => return None,
            };
            for n in 0..pages.max(1) {
                if !parts.add(slot, first + n as u16) {
                    return None;
                }
            }
            holes += u32::from(pages == 0 && !in_hole);
            in_hole = pages == 0;
            there += pages;
            at = at.plus(pages.max(1));
        }
        let absent = LEAF_PAGES - there;
        let pays = HOLE * holes + absent / 2 > EVICTED * there + LEAF;
        (there > 0 && pays).then_some(there)
    }
}
