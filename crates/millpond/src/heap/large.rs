//! Large allocations: each is a region of its own.
//!
//! A region begins at 2 MiB, and so do these allocations. That tells them from most others without a look at the book.

use super::segments::Regions;
use crate::region::Region;
use allocator_api2::alloc::Layout;
use millpond_core::{LEAF_PAGES, PAGE_SIZE};
use std::collections::BTreeMap;
use std::ptr::NonNull;

/// 2 MiB: where regions begin.
const LEAF: usize = LEAF_PAGES as usize * PAGE_SIZE;
/// Allocations from this length on are regions. A region takes 2 MiB of addresses at least, so that no more than half
/// of them are wasted.
const LEAST: usize = LEAF / 2;
/// An allocation that has shrunk below this length is no region any more.
const LEAST_KEPT: usize = LEAST / 4;

#[derive(Default)]
pub struct Large {
    /// The regions by the addresses of the allocations. The two differ only for alignments beyond 2 MiB.
    regions: BTreeMap<usize, Region>,
}

impl Large {
    /// Whether such an allocation is a region.
    pub fn takes(layout: Layout) -> bool {
        layout.size() >= LEAST || layout.align() > LEAF
    }

    pub fn has(&self, start: NonNull<u8>) -> bool {
        let start = start.addr().get();
        start.is_multiple_of(LEAF) && self.regions.contains_key(&start)
    }

    pub fn allocate(&mut self, source: &Regions, layout: Layout) -> Option<NonNull<u8>> {
        let beyond = layout.align().saturating_sub(LEAF);
        let region = source.make(layout.size().checked_add(beyond)?).ok()?;
        let lead = region.as_ptr().align_offset(layout.align());
        // SAFETY: the region has room for `beyond` bytes before the allocation, which are enough for any address at
        // 2 MiB.
        let start = NonNull::new(unsafe { region.as_ptr().add(lead) })?;
        self.regions.insert(start.addr().get(), region);
        Some(start)
    }

    /// Ends the region of an allocation. False when the allocation has none.
    pub fn free(&mut self, start: NonNull<u8>) -> bool {
        self.has(start) && self.regions.remove(&start.addr().get()).is_some()
    }

    /// Makes the allocation's region longer or shorter. `None` when it has none, or when it has to be another.
    pub fn resize(&mut self, start: NonNull<u8>, new: Layout) -> Option<NonNull<u8>> {
        let at = start.addr().get();
        if !self.has(start) || new.size() < LEAST_KEPT || new.align() > LEAF {
            return None;
        }
        let region = self.regions.get_mut(&at)?;
        if region.as_ptr() != start.as_ptr() {
            return None;
        }
        let changed = match new.size() < region.len() {
            true => region.shrink(new.size()),
            false => region.grow(new.size()),
        };
        changed.ok()?;
        let moved = NonNull::new(region.as_ptr())?;
        let region = self.regions.remove(&at)?;
        self.regions.insert(moved.addr().get(), region);
        Some(moved)
    }
}
