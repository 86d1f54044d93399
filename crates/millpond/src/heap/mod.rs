//! A heap in managed memory, for the collections of other crates.
//!
//! Small allocations come from `dlmalloc`, which keeps its books beside them, in managed memory: a budget covers both.
//! Allocations of 1 MiB and more are regions of their own. They grow by the tables, not by copying, and their memory is
//! given back at once (`large.rs`). What becomes free between small allocations is given back by pages (`pages.rs`).
//!
//! One lock guards a heap. It is held for an allocation, which may wait for the store when the books are there. Threads
//! that allocate all the time should have a heap each.
//!
//! A forked child does not have its parent's memory. There an allocation is refused, and freeing does nothing, before
//! any lock is taken.

mod large;
mod pages;
mod segments;

use crate::error::RegionError;
use crate::manager::{Manager, Pond};
use crate::region::Region;
use crate::region_builder::RegionBuilder;
use allocator_api2::alloc::{AllocError, Allocator, Layout};
use dlmalloc::Dlmalloc;
use large::Large;
use millpond_sync::{Rank, Ranked};
use segments::{Segments, Source};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// The alignment of every allocation of `dlmalloc`'s.
const SMALL_ALIGN: usize = 2 * size_of::<usize>();

/// An allocator whose memory is a manager's, for collections that take one: those of `hashbrown`, and those of
/// `allocator_api2`. Clones allocate from the same heap, which ends with the last clone; every collection has one.
///
/// The heap may be used by several threads, and memory may be freed by another than the one that allocated it.
/// Allocation never panics: a collection that cannot have what it needs does what it does without memory.
///
/// ```
/// use millpond::{GroupLimits, Manager, PondAlloc, Region};
///
/// let manager = Manager::builder().ram(32 << 20).build()?;
/// let index = manager.group(&manager.root(), "index", GroupLimits::new().max(8 << 20))?;
/// let heap = PondAlloc::with(&manager, Region::builder().group(&index))?;
///
/// let mut lengths = hashbrown::HashMap::new_in(heap.clone());
/// let mut words = allocator_api2::vec::Vec::new_in(heap.clone());
/// for n in 0_u64..500_000 {
///     lengths.insert(n, n.to_string().len());
///     words.push(n);
/// }
/// assert_eq!((lengths[&99_999], words[7]), (5, 7));
/// assert!(index.stats()?.usage <= 8 << 20 && heap.stats().bytes > 12 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PondAlloc(Arc<Heap>);

struct Heap {
    pond: Arc<Pond>,
    state: Ranked<State>,
}

struct State {
    small: Dlmalloc<Segments>,
    large: Large,
    stats: HeapStats,
}

/// Figures of a heap. See [`PondAlloc::stats`].
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let heap = millpond::PondAlloc::new(&manager)?;
/// let numbers = allocator_api2::boxed::Box::new_in([7_u64; 10], heap.clone());
/// assert_eq!((heap.stats().allocations, heap.stats().bytes), (1, 80));
/// drop(numbers);
/// assert_eq!(heap.stats().bytes, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapStats {
    /// Allocations that live.
    pub allocations: u64,
    /// Bytes that they asked for.
    pub bytes: u64,
}

const _: () = {
    const fn may_be_sent_and_shared<T: Send + Sync>() {}
    may_be_sent_and_shared::<PondAlloc>();
};

impl PondAlloc {
    /// Makes a heap in the manager's root group.
    ///
    /// # Errors
    /// As [`Manager::region`].
    pub fn new(manager: &Manager) -> Result<Self, RegionError> {
        Self::with(manager, Region::builder())
    }

    /// Makes a heap whose regions have a group or orders of their own.
    ///
    /// # Errors
    /// As [`RegionBuilder::build`].
    pub fn with(manager: &Manager, regions: RegionBuilder) -> Result<Self, RegionError> {
        // The first segment is made at once, so that a group that cannot have it is known before anything is allocated.
        let segments = Segments::new(manager, regions)?;
        Ok(Self::of(manager.pond(), segments))
    }

    /// Makes a heap inside of one region, beyond which it never grows. What the region held is lost.
    ///
    /// ```
    /// use allocator_api2::vec::Vec;
    /// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
    /// let heap = millpond::PondAlloc::in_region(manager.region(1 << 20)?);
    /// let mut bytes = Vec::new_in(heap);
    /// assert!(bytes.try_reserve(2 << 20).is_err());
    /// bytes.extend([7_u8; 1000]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn in_region(region: Region) -> Self {
        let pond = Arc::clone(region.pond());
        Self::of(&pond, Segments::of_region(region))
    }

    fn of(pond: &Arc<Pond>, segments: Segments) -> Self {
        let state = State {
            small: Dlmalloc::new_with_allocator(segments),
            large: Large::default(),
            stats: HeapStats::default(),
        };
        Self(Arc::new(Heap {
            pond: Arc::clone(pond),
            state: Ranked::new(Rank::Heap, state),
        }))
    }

    /// Figures of the heap, as of now.
    ///
    /// # Panics
    /// In a forked child, for a heap of its parent's.
    #[must_use]
    pub fn stats(&self) -> HeapStats {
        // Asking for the driver is what panics, before the lock.
        let _ = self.0.pond.driver();
        self.0.state.lock().stats
    }

    fn with_state<T>(
        &self,
        work: impl FnOnce(&mut State) -> Result<T, AllocError>,
    ) -> Result<T, AllocError> {
        match self.0.pond.is_ours() {
            true => work(&mut self.0.state.lock()),
            false => Err(AllocError),
        }
    }
}

impl State {
    fn allocate(&mut self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let start = match self.small.allocator().source() {
            Source::Manager(source) if Large::takes(layout) => {
                self.large.allocate(source, layout).ok_or(AllocError)?
            }
            Source::Manager(_) | Source::Region => self.allocate_small(layout)?,
        };
        self.stats.allocations += 1;
        self.stats.bytes += layout.size() as u64;
        Ok(start)
    }

    fn allocate_small(&mut self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        // SAFETY: dlmalloc takes any size and any power of two. Its memory is that of the segments.
        let start = unsafe { self.small.malloc(layout.size(), layout.align()) };
        let start = NonNull::new(start).ok_or(AllocError)?;
        let pages = &self.small.allocator().pages;
        pages.borrow_mut().hold(start.addr().get(), layout.size());
        Ok(start)
    }

    /// # Safety
    /// The allocation lives, and is not used again.
    unsafe fn free(&mut self, start: NonNull<u8>, layout: Layout) {
        self.stats.allocations -= 1;
        self.stats.bytes -= layout.size() as u64;
        if self.large.free(start) {
            return;
        }
        // SAFETY: the caller's promise; the allocation was not one of the large ones, so it is dlmalloc's.
        unsafe {
            self.small
                .free(start.as_ptr(), layout.size(), layout.align())
        };
        let pages = &self.small.allocator().pages;
        pages
            .borrow_mut()
            .release(start.addr().get(), layout.size());
    }

    /// Changes an allocation's length in the place that it comes from: a region by its tables, a small allocation by
    /// what `dlmalloc` can do. `None` when that place cannot have the new one; the old one lives on then.
    ///
    /// # Safety
    /// The allocation lives, and is not used again if there is an answer.
    unsafe fn resize(
        &mut self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Option<NonNull<u8>> {
        let resized = match self.large.has(start) {
            true => self.large.resize(start, new)?,
            // SAFETY: the caller's promise; the allocation is not one of the large ones.
            false => unsafe { self.resize_small(start, old, new) }?,
        };
        self.stats.bytes = self.stats.bytes - old.size() as u64 + new.size() as u64;
        Some(resized)
    }

    /// # Safety
    /// As for [`State::resize`], of an allocation of `dlmalloc`'s or without bytes.
    unsafe fn resize_small(
        &mut self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Option<NonNull<u8>> {
        let stays_small = match self.small.allocator().source() {
            Source::Manager(_) => !Large::takes(new),
            Source::Region => true,
        };
        let aligned = old.align().max(new.align()) <= SMALL_ALIGN;
        if old.size() == 0 || new.size() == 0 || !aligned || !stays_small {
            return None;
        }
        // SAFETY: the caller's promise.
        let resized = unsafe {
            let start = start.as_ptr();
            self.small
                .realloc(start, old.size(), old.align(), new.size())
        };
        let resized = NonNull::new(resized)?;
        let mut pages = self.small.allocator().pages.borrow_mut();
        pages.hold(resized.addr().get(), new.size());
        pages.release(start.addr().get(), old.size());
        Some(resized)
    }
}

/// The bytes of an allocation.
fn bytes(start: NonNull<u8>, layout: Layout) -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(start, layout.size())
}

impl PondAlloc {
    /// Makes an allocation longer or shorter by moving its contents to another.
    ///
    /// # Safety
    /// As for [`Allocator::grow`] and [`Allocator::shrink`].
    unsafe fn copied(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let target = self.allocate(new)?;
        let len = old.size().min(new.size());
        // SAFETY: both allocations are as long as that, and live, so they do not overlap. The old one is not used
        // after this, by the caller's promise.
        unsafe {
            start.copy_to_nonoverlapping(target.cast(), len);
            self.deallocate(start, old);
        }
        Ok(target)
    }
}

// SAFETY: an allocation is memory of a region that the heap owns, and the heap lives as long as any clone. Nobody else
// has it until it is freed. Clones share the heap, and moving one moves a pointer.
unsafe impl Allocator for PondAlloc {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let start = match layout.size() {
            0 => {
                NonNull::new(std::ptr::without_provenance_mut(layout.align())).ok_or(AllocError)?
            }
            _ => self.with_state(|state| state.allocate(layout))?,
        };
        Ok(bytes(start, layout))
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let target = self.allocate(layout)?;
        // A new region is zeros, and looking at it would bring it in.
        if !self.is_region(target.cast()) {
            // SAFETY: the allocation is as long as that.
            unsafe { target.cast::<u8>().write_bytes(0, layout.size()) };
        }
        Ok(target)
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        if layout.size() == 0 {
            return;
        }
        let freed = self.with_state(|state| {
            // SAFETY: the caller's promise.
            unsafe { state.free(start, layout) };
            Ok(())
        });
        // In a forked child there is nothing to free.
        let _ = freed;
    }

    unsafe fn grow(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let resized = self.with_state(|state| {
            // SAFETY: the caller's promise.
            unsafe { state.resize(start, old, new) }.ok_or(AllocError)
        });
        match resized {
            Ok(start) => Ok(bytes(start, new)),
            // SAFETY: the caller's promise.
            Err(AllocError) => unsafe { self.copied(start, old, new) },
        }
    }

    unsafe fn grow_zeroed(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise.
        let target = unsafe { self.grow(start, old, new) }?;
        // A region grows by zeros. It is exactly as long as its allocation, so that nothing was written behind it.
        if !self.is_region(target.cast()) {
            // SAFETY: the allocation is as long as that.
            unsafe {
                let behind = target.cast::<u8>().add(old.size());
                behind.write_bytes(0, new.size() - old.size());
            }
        }
        Ok(target)
    }

    unsafe fn shrink(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise, which is the same.
        unsafe { self.grow(start, old, new) }
    }
}

impl PondAlloc {
    /// Whether the allocation is a region of its own.
    fn is_region(&self, start: NonNull<u8>) -> bool {
        self.with_state(|state| Ok(state.large.has(start)))
            .unwrap_or(false)
    }
}

impl fmt::Debug for PondAlloc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut heap = f.debug_struct("PondAlloc");
        if self.0.pond.is_ours() {
            let stats = self.stats();
            heap.field("allocations", &stats.allocations);
            heap.field("bytes", &stats.bytes);
        }
        heap.finish_non_exhaustive()
    }
}
