//! The memory behind small allocations: segments, each a region, that `dlmalloc` divides.

use super::pages::Pages;
use crate::error::RegionError;
use crate::manager::Manager;
use crate::region::Region;
use crate::region_builder::RegionBuilder;
use millpond_core::PAGE_SIZE;
use std::cell::{Cell, RefCell};

/// Length of a segment, unless an allocation needs a longer one. It is addresses only: pages take memory when they are
/// written.
const SEGMENT: usize = 32 << 20;

/// How a heap's regions are made.
pub struct Regions {
    manager: Manager,
    settings: RegionBuilder,
}

impl Regions {
    pub fn make(&self, len: usize) -> Result<Region, RegionError> {
        self.settings.build(&self.manager, len)
    }
}

/// Where a heap's memory comes from.
pub enum Source {
    /// From regions, as many as it takes.
    Manager(Regions),
    /// From one region.
    Region,
}

pub struct Segments {
    source: Source,
    /// A region that is no segment yet.
    first: Cell<Option<Region>>,
    /// The segments, with what is known of their pages.
    pub pages: RefCell<Pages>,
}

impl Segments {
    pub fn new(manager: &Manager, settings: RegionBuilder) -> Result<Self, RegionError> {
        let manager = manager.clone();
        let regions = Regions { manager, settings };
        let first = regions.make(SEGMENT)?;
        Ok(Self::with(Source::Manager(regions), first))
    }

    pub fn of_region(region: Region) -> Self {
        Self::with(Source::Region, region)
    }

    fn with(source: Source, first: Region) -> Self {
        Self {
            source,
            first: Cell::new(Some(first)),
            pages: RefCell::default(),
        }
    }

    pub fn source(&self) -> &Source {
        &self.source
    }

    /// A region for a segment with room for `len` bytes.
    fn region(&self, len: usize) -> Option<Region> {
        let wanted = len.checked_add(PAGE_SIZE)?;
        match (self.first.take(), &self.source) {
            (Some(first), _) if first.len() >= wanted => Some(first),
            (first, source) => {
                self.first.set(first);
                match source {
                    Source::Manager(regions) => regions.make(wanted.max(SEGMENT)).ok(),
                    Source::Region => None,
                }
            }
        }
    }
}

// SAFETY: a segment is a region, which is kept until it is freed as a whole, and which nobody else knows.
unsafe impl dlmalloc::Allocator for Segments {
    fn alloc(&self, len: usize) -> (*mut u8, usize, u32) {
        let Some(region) = self.region(len) else {
            return (std::ptr::null_mut(), 0, 0);
        };
        let start = region.as_ptr();
        // The last page is left out: segments that touched each other would be taken for one.
        let room = region.len() / PAGE_SIZE * PAGE_SIZE - PAGE_SIZE;
        self.pages.borrow_mut().add(region);
        (start, room, 0)
    }

    fn remap(&self, _start: *mut u8, _old: usize, _new: usize, _can_move: bool) -> *mut u8 {
        std::ptr::null_mut()
    }

    fn free_part(&self, _start: *mut u8, _old: usize, _new: usize) -> bool {
        // What is free at a segment's end has no memory already, by `Pages::release`, and its addresses are wanted
        // again.
        false
    }

    fn free(&self, start: *mut u8, _len: usize) -> bool {
        match self.source {
            Source::Manager(_) => self.pages.borrow_mut().remove(start.addr()),
            Source::Region => false,
        }
    }

    fn can_release_part(&self, _flags: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        false
    }

    fn page_size(&self) -> usize {
        PAGE_SIZE
    }
}
