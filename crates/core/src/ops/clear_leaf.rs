//! A stream gets its leaf whole.
//!
//! Random accesses leave a leaf in memory in pieces. A stream that comes to it wants what lies between them, and gets
//! it by a call for each hole and a fault for every few of these; what came in so leaves so, and the next stream finds
//! the pieces of two. Of 512 MiB in memory for 256, read in order after 100,000 random reads, a page took 2.2 µs, and
//! 1.6 in the lap after it. Of a leaf that comes and goes whole it takes 0.65.
//!
//! So what there is of the leaf is put out first: out of the program by its page table
//! ([`leaf_out`](crate::ops::leaf_out)), and on to the store at once. Then all of it comes in as one folio. The first
//! lap takes 1.3 µs a page that way, the second 0.65. To read a hundred pages again costs less than eighty calls for
//! the holes between them, and what has not changed is not written. (The kernel's khugepaged copies what is in memory
//! to a huge page, and brings in what is not, page by page.)
//!
//! # When it pays
//! With *r* pages in memory, *a* absent and *h* holes, in units of 0.4 µs:
//!
//! ```text
//!     8 h + a / 2   >   2 r + 200
//! ```
//!
//! is what the holes cost, a call and its part of a fault each and what a small page takes beyond its part of a large
//! one, against comparing, dropping and reading again what is there, and the table's way out.
//!
//! # When it would be in vain
//! A leaf comes as one folio from one slot, or from [`FOLD_PARTS`](crate::limits::FOLD_PARTS) of them. What was never
//! saved will have slots of its own, so the parts are counted first, as if nothing had changed. What has changed since
//! it came in is not known before it is saved. So there is an account: after a leaf that was put out and did not come
//! whole the next one is left as it is, after another failure the next two, four, up to 64.
//!
//! # Whom it would hurt
//! Who uses the pages that are there, while the stream passes. They would come back with the stream, and leave with it.
//! Uses of what is mapped are not seen, but what was put out by mistake faults again at once, away from every stream,
//! and such faults are *strays*: with more than eight of late (half are forgotten with each leaf that a stream comes
//! to) no leaf is put out. That is a leaf or two of a set in use, and none beside a thread that faults at random.

use crate::addr::{LEAF_PAGES, Order, PageCount, PageIndex, PageRange};
use crate::limits::{CLEAR_SHARE, LARGE};
use crate::machine::Core;
use crate::policy::order::{OrderPolicy, Step, Way};
use crate::policy::whole_leaf::STREAM;
use crate::tables::fold::Parts;
use crate::tables::leaf::Entry;

/// What a hole costs, in units of what follows.
const HOLE: u32 = 8;
/// What a page that is in memory costs, if it is put out and comes back.
const PUT_OUT: u32 = 2;
/// What it costs to put any out.
const LEAF: u32 = 200;

impl Core {
    /// What a stream that is at `page` has stepped over in a leaf that was put out for it.
    pub(crate) fn was_stepped_over(&self, page: PageIndex) -> Option<PageRange> {
        let leaf = PageRange::block(page, Order::MAX);
        let range = |from: PageIndex, to: PageIndex| PageRange::new(from, PageCount(to.0 - from.0));
        match self.clearing.way(page)? {
            Way::Up => Some(range(leaf.start, page)),
            Way::Down => Some(range(page.plus(1), leaf.end())),
            Way::Unknown => None,
        }
    }

    /// A stream has come to a leaf of which a part is in memory. If that is to leave first: how much is to be
    /// reclaimed, so that it has.
    pub(crate) fn clear_leaf(&mut self, page: PageIndex, step: Step) -> Option<PageCount> {
        let leaf = PageRange::block(page, Order::MAX);
        let region = self.regions.of(page).expect("a fault is in a region");
        let is_adaptive = matches!(region.order, OrderPolicy::Adaptive { .. });
        let is_stream = is_adaptive && step.run >= STREAM && step.window >= LARGE;
        let room = self.limit / CLEAR_SHARE >= LEAF_PAGES && !self.store_blocked;
        if !step.enters
            || !is_stream
            || !room
            || self.clearing.way(page).is_some()
            || !self.may_take_leaf(leaf.start)
        {
            return None;
        }
        let there = self.pays_to_clear(leaf)?;
        if !self.clearing.is_due() {
            return None;
        }
        self.clearing.asks(page, step.way);
        let vec = self.lru.id(self.group_of(page), self.node_of(page));
        self.take_leaf_for_stream(leaf.start, vec);
        Some(PageCount(self.frames.spare_pages() + there))
    }

    /// How many pages of a leaf are in memory, if it pays to put them out and have all of it as one.
    fn pays_to_clear(&self, leaf: PageRange) -> Option<u32> {
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
        let pays = HOLE * holes + absent / 2 > PUT_OUT * there + LEAF;
        (there > 0 && pays).then_some(there)
    }
}
