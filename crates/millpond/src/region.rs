//! A region: memory of the program that need not fit in RAM.

use crate::error::{AdviseError, PinError, RangeError};
use crate::manager::Pond;
use crate::region_builder::RegionBuilder;
use millpond_core::{
    Event, FreeMode, GIGABYTE_PAGES, PAGE_SIZE, PageCount, PageIndex, PageRange, PageState,
    Refusal, RegionId,
};
use millpond_driver::operate::PinRefusal;
use millpond_driver::{Driver, FaultError};
use millpond_mmu::Memory;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A run of managed bytes with a stable address. The bytes are zero until written.
///
/// The bytes may be read and written by plain loads and stores from any thread, as far as Rust's rules on sharing
/// allow. With in-thread delivery (the default) they must not be passed to a system call unless they are
/// [pinned](Region::pin), and threads that touch them must leave SIGBUS unblocked. If the store cannot give a page
/// back, a touch of it raises SIGBUS; [`Region::populate`] finds out without.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let mut region = manager.region(64 << 20)?; // four budgets
/// region.as_mut_slice()[63 << 20] = 7;
/// let bytes: &[u8] = region.as_slice();
/// assert_eq!((bytes.len(), bytes[0], bytes[63 << 20]), (64 << 20, 0, 7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Region {
    pond: Arc<Pond>,
    /// Serial number, unique within the process. Page numbers and ids would not do, because each manager counts its own
    /// and reuses them.
    serial: u64,
    id: RegionId,
    /// The region's pages in the manager's addresses.
    range: PageRange,
    /// Pages that come before the first byte: memory that was moved here has the same place in its 2 MiB as before.
    front: u32,
    len: usize,
    /// Number of live guards: if there are none, the driver need not be asked for pinned pages.
    guards: AtomicUsize,
}

static NEXT_SERIAL: AtomicU64 = AtomicU64::new(0);

/// A hint about how a range will be used.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// use millpond::Advice;
/// let mut region = manager.region(8 << 20)?;
/// region.as_mut_slice().fill(7);
/// region.advise(0..4 << 20, Advice::PageOut)?;
/// assert_eq!(region.stats().resident, 4 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Advice {
    /// The range is not needed soon: it leaves first when memory is short.
    Cold,
    /// The range is not needed for long: it leaves the program's memory now.
    PageOut,
    /// The range is needed soon: it is brought in now.
    WillNeed,
    /// The range will be touched in order: an adaptive region brings in large folios from the first fault on. For whole
    /// 2 MiB.
    Sequential,
    /// The range will be touched at random: an adaptive region brings in single pages. For whole 2 MiB.
    Random,
    /// The order of touches is no longer known. For whole 2 MiB.
    Normal,
}

/// Bytes of a region by location.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let mut region = manager.region(1 << 20)?;
/// region.as_mut_slice()[..8192].fill(7);
/// let stats = region.stats();
/// assert!(stats.resident >= 8192 && stats.swapped == 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionStats {
    /// Bytes that are mapped.
    pub resident: u64,
    /// Bytes in RAM but taken out of the program, waiting for a second touch.
    pub limbo: u64,
    /// Lazily freed bytes in RAM, mapped or not, that are not known to have been used since.
    pub lazyfree: u64,
    /// Bytes in the store.
    pub swapped: u64,
    /// Bytes shared with a [snapshot](Region::snapshot) or its source. They are in RAM or in the store, but belong to
    /// neither of the two.
    pub inherited: u64,
    /// Bytes lost to a failed load.
    pub lost: u64,
}

/// Keeps a range in memory while it lives. See [`Region::pin`].
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let region = manager.region(1 << 20)?;
/// let guard = region.pin(0..8192)?;
/// assert!(region.stats().resident >= 8192);
/// drop(guard); // now the pages may leave again
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the range is pinned only while the guard lives"]
pub struct PinGuard<'a> {
    region: &'a Region,
    pages: PageRange,
}

/// A range that stays pinned without a guard. See [`PinGuard::leak`].
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let region = manager.region(1 << 20)?;
/// let pinned = region.pin(0..8192)?.leak();
/// // ... until a callback says that the pages are not used any more:
/// region.unpin(pinned);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the range is pinned until this is given to Region::unpin"]
pub struct Pinned {
    /// The serial number of the pinned region. Ranges alone do not distinguish regions: two managers number their pages
    /// alike.
    region: u64,
    pages: PageRange,
}

impl PinGuard<'_> {
    /// Leaves the range pinned until [`Region::unpin`], for callers that cannot hold a borrow of the region that long.
    ///
    /// ```
    /// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
    /// let mut region = manager.region(1 << 20)?;
    /// let pinned = region.pin(0..4096)?.leak();
    /// assert!(region.discard(0..4096).is_err());
    /// region.unpin(pinned);
    /// region.discard(0..4096)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn leak(self) -> Pinned {
        let guard = std::mem::ManuallyDrop::new(self);
        Pinned {
            region: guard.region.serial,
            pages: guard.pages,
        }
    }
}

impl Region {
    pub(crate) fn new(pond: Arc<Pond>, id: RegionId, range: PageRange, len: usize) -> Self {
        Self {
            pond,
            serial: NEXT_SERIAL.fetch_add(1, Ordering::Relaxed),
            id,
            range,
            front: 0,
            len,
            guards: AtomicUsize::new(0),
        }
    }

    /// A builder for a region whose folios have orders of their own.
    pub fn builder() -> RegionBuilder {
        RegionBuilder::default()
    }

    /// The number of the memory node (NUMA) that the region's memory is taken from, counted from 0; see
    /// [`ManagerBuilder::fake_nodes`](crate::ManagerBuilder::fake_nodes). Regions are made on the nodes in turn.
    #[must_use]
    pub fn node(&self) -> usize {
        self.pond.driver().node_of(self.id)
    }

    /// Length in bytes, as the caller asked for it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: a region has at least one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Address of the first byte, aligned to 2 MiB. It does not change while the region lives, unless it
    /// [grows](Region::grow).
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.pond.inherited_driver().mmu.addr_of(self.start())
    }

    /// The region's bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the range is mapped readable and stays so until `drop`; the manager changes where its pages are,
        // never what they read as; Rust's borrow rules keep writers away while the slice lives.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }

    /// The region's bytes, for writing.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; `&mut self` makes this the only slice.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.len) }
    }

    /// Forgets the pages of `range` (byte offsets, multiples of 4,096; the region's own end is allowed). They read as
    /// zeros, and neither RAM nor store holds them any more.
    ///
    /// # Errors
    /// A bad or unaligned range, or a pinned page in it.
    ///
    /// ```
    /// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
    /// let mut region = manager.region(1 << 20)?;
    /// region.as_mut_slice().fill(7);
    /// region.discard(4096..8192)?;
    /// assert_eq!((region.as_slice()[4095], region.as_slice()[4096], region.as_slice()[8192]), (7, 0, 7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn discard(&mut self, range: Range<usize>) -> Result<(), RangeError> {
        let pages = self.whole_pages(&range)?;
        // SAFETY: `&mut self`: no other thread looks at the bytes.
        match unsafe { self.driver().discard_in_place(self.id, pages) } {
            Ok(true) => Ok(()),
            // SAFETY: `&mut self` again. A refusal of the first call is found by this call too.
            _ => unsafe { self.discard_shared(range) },
        }
    }

    /// Forgets the pages of `range` as [`Region::discard`] does, but keeps no memory mapped in place.
    pub(crate) fn empty(&mut self, range: Range<usize>) -> Result<(), RangeError> {
        // SAFETY: `&mut self`: no other thread looks at the bytes.
        unsafe { self.discard_shared(range) }
    }

    /// [`Region::discard`] for programs that share the region by its address.
    ///
    /// # Safety
    /// No reference to bytes of the range may be alive: they change.
    ///
    /// # Errors
    /// As [`Region::discard`].
    pub unsafe fn discard_shared(&self, range: Range<usize>) -> Result<(), RangeError> {
        let range = self.whole_pages(&range)?;
        self.pond
            .driver()
            .discard(range)
            .map_err(|refusal| self.range_error(refusal))
    }

    /// Announces that all of `range` (byte offsets, multiples of 4,096; the region's own end is allowed) is about to be
    /// written: the store's copy of it is forgotten instead of being read back. Until the range is written, it reads as
    /// before, or as zeros.
    ///
    /// # Errors
    /// A bad or unaligned range.
    pub fn will_overwrite(&mut self, range: Range<usize>) -> Result<(), RangeError> {
        let range = self.whole_pages(&range)?;
        self.pond
            .driver()
            .lazy_free(&[range], FreeMode::Stored)
            .unwrap_or_else(|refusal| unreachable!("{refusal:?} for a range inside a region"));
        Ok(())
    }

    /// Gives a hint about the pages that `range` touches.
    ///
    /// # Errors
    /// A bad range, or, for [`Advice::WillNeed`], a page that cannot be brought in.
    pub fn advise(&self, range: Range<usize>, advice: Advice) -> Result<(), AdviseError> {
        let pages = self.touched_pages(&range)?;
        let advice = match advice {
            Advice::Cold => millpond_core::Advice::Cold,
            Advice::PageOut => millpond_core::Advice::PageOut,
            Advice::Sequential => millpond_core::Advice::Sequential,
            Advice::Random => millpond_core::Advice::Random,
            Advice::Normal => millpond_core::Advice::Normal,
            Advice::WillNeed => return Ok(self.populate(range)?),
        };
        let event = |range| Event::Advise { range, advice };
        self.pond
            .driver()
            .operate(pages, event)
            .unwrap_or_else(|refusal| unreachable!("{refusal:?} for advice inside a region"));
        Ok(())
    }

    /// Brings the pages that `range` touches into memory, as far as the budget holds them at once.
    ///
    /// # Errors
    /// The first page that the store cannot give back.
    ///
    /// # Panics
    /// When the range leaves the region.
    pub fn populate(&self, range: Range<usize>) -> Result<(), RangeError> {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "{range:?} is not in 0..{}",
            self.len
        );
        let populated = self.pond.driver().populate(self.pages(&range));
        populated.map_err(|(page, error)| match error {
            FaultError::Lost | FaultError::Outside => RangeError::Lost {
                offset: self.offset(page),
            },
            FaultError::OutOfRecords => RangeError::OutOfRecords,
        })
    }

    /// Brings the pages that `range` touches into memory and keeps them there while the guard lives: for buffers of
    /// system calls and for threads that must not wait.
    ///
    /// After some calls the kernel still refers to the pages: `vmsplice` into a pipe, `send` with `MSG_ZEROCOPY`,
    /// `SEND_ZC` of io_uring, direct I/O on NFS and Ceph. For these calls the guard must live until the far end has
    /// read the data, or the kernel has reported completion. This applies to either delivery: a page that is not pinned
    /// may leave, and the far end gets the bytes that its frame holds by then.
    ///
    /// # Errors
    /// A bad range, more than the budget can hold in addition to everything else, or a page that cannot be brought in.
    ///
    /// ```
    /// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
    /// use std::io::Read;
    /// let mut region = manager.region(1 << 20)?;
    /// let buffer = region.as_ptr();
    /// let guard = region.pin(0..512)?;
    /// // SAFETY: pinned, so the kernel can write there, and not otherwise in use.
    /// let buffer = unsafe { std::slice::from_raw_parts_mut(buffer, 512) };
    /// std::fs::File::open("/dev/zero")?.read_exact(buffer)?;
    /// drop(guard);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pin(&self, range: Range<usize>) -> Result<PinGuard<'_>, PinError> {
        let pages = self.touched_pages(&range)?;
        let pinned = self.pond.driver().pin(pages);
        pinned.map_err(|refusal| self.not_pinned(pages, refusal))?;
        Ok(self.pinned(pages))
    }

    /// Turns a refusal to pin `pages` into an error.
    pub(crate) fn not_pinned(&self, pages: PageRange, refusal: PinRefusal) -> PinError {
        match refusal {
            PinRefusal::NoRoom(ram) => PinError::OverBudget {
                bytes: pages.len.bytes(),
                ram,
            },
            PinRefusal::Core(Refusal::PinOverflow { page }) => PinError::TooOften {
                offset: self.offset(page),
            },
            PinRefusal::Core(refusal) => self.range_error(refusal).into(),
        }
    }

    /// Makes the guard of pages that are pinned.
    pub(crate) fn pinned(&self, pages: PageRange) -> PinGuard<'_> {
        self.guards.fetch_add(1, Ordering::Relaxed);
        PinGuard {
            region: self,
            pages,
        }
    }

    /// Unpins the range of a guard of this region that was [leaked](PinGuard::leak).
    ///
    /// # Panics
    /// If the range was pinned in another region, of this manager or another; nothing is changed in that case.
    pub fn unpin(&self, pinned: Pinned) {
        let Pinned { region, pages } = pinned;
        assert!(
            self.serial == region && self.range.covers(pages),
            "{pages:?} was pinned in another region than {:?}: give it to the one that it was pinned in",
            self.range
        );
        drop(PinGuard {
            region: self,
            pages,
        });
    }

    /// Bytes of the region by location. The call takes time in proportion to the region's length, and checks lazily
    /// freed memory as [`Manager::stats`](crate::Manager::stats) does.
    #[must_use]
    pub fn stats(&self) -> RegionStats {
        self.pond.driver().recount_lazyfree();
        let mut stats = RegionStats::default();
        self.pond.driver().each_state(self.range, |state| {
            let sum = match state {
                PageState::Resident | PageState::InFlight => &mut stats.resident,
                PageState::Limbo => &mut stats.limbo,
                PageState::LazyFree { .. } => &mut stats.lazyfree,
                PageState::Swapped => &mut stats.swapped,
                PageState::Inherited => &mut stats.inherited,
                PageState::Poisoned => &mut stats.lost,
                PageState::Empty => return,
            };
            *sum += PAGE_SIZE as u64;
        });
        stats
    }

    /// Ends the region at once, and gives its memory back in the background. The addresses are free when this returns,
    /// and the memory soon after: [`Manager::quiesce`](crate::Manager::quiesce) waits for that, and
    /// [`Stats`](crate::Stats) counts the memory as in use until then. The call moves one pointer for each gigabyte,
    /// regardless of how much is in memory.
    ///
    /// ```
    /// # let manager = millpond::Manager::builder().ram(64 << 20).build()?;
    /// let mut region = manager.region(32 << 20)?;
    /// region.as_mut_slice().fill(7);
    /// region.free_async();
    /// manager.quiesce();
    /// assert_eq!(manager.stats().vm.nr_mapped, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn free_async(self) {
        let region = std::mem::ManuallyDrop::new(self);
        // SAFETY: the region is not used again, so the handle leaves it once.
        let pond = unsafe { std::ptr::read(&region.pond) };
        if pond.is_ours() {
            pond.driver().forget_prefetches(region.range);
            pond.driver().free_async((region.id, region.range));
        }
    }

    pub(crate) fn pond(&self) -> &Arc<Pond> {
        &self.pond
    }

    pub(crate) fn driver(&self) -> &Driver {
        self.pond.driver()
    }

    fn start(&self) -> PageIndex {
        self.range.start.plus(self.front)
    }

    /// Number of pages before the region's first byte.
    pub(crate) fn front(&self) -> u32 {
        self.front
    }

    /// Makes the handle of a snapshot's region, whose core region exists.
    pub(crate) fn sibling(&self, (id, range): (RegionId, PageRange)) -> Self {
        let mut sibling = Self::new(Arc::clone(&self.pond), id, range, self.len);
        sibling.front = self.front;
        sibling
    }

    /// Makes a region of zeros with folios of the same orders, `len` bytes from its page `front` on. If there are
    /// addresses, a region of a gigabyte or more also gets the rest of its last gigabyte, so that it can move on by
    /// whole gigabytes. A region that shares with a snapshot does not, because it moves as a whole or not at all.
    /// `None` if there are no addresses.
    pub(crate) fn another(&self, front: u32, len: usize) -> Option<Self> {
        let pages = PageCount::from_bytes_ceil(len as u64 + u64::from(front) * PAGE_SIZE as u64)?;
        let driver = self.driver();
        let order = driver.order_of(self.id)?;
        let whole = (pages.0 >= GIGABYTE_PAGES && !driver.inherits(self.id))
            .then(|| pages.0.checked_next_multiple_of(GIGABYTE_PAGES))
            .flatten();
        let named = whole
            .and_then(|pages| driver.new_region(PageCount(pages), order))
            .or_else(|| driver.new_region(pages, order))?;
        // Between the two calls the region's group may have been removed; then this region is the root's.
        let _ = driver.move_region(named, driver.group_of(self.named()));
        if driver.mmu.open(named.1).is_err() {
            driver.forget_region(named);
            return None;
        }
        let mut region = Self::new(Arc::clone(&self.pond), named.0, named.1, len);
        region.front = front;
        Some(region)
    }

    pub(crate) fn named(&self) -> (RegionId, PageRange) {
        (self.id, self.range)
    }

    /// Gives the region another id and range, or another length.
    pub(crate) fn rename(&mut self, (id, range): (RegionId, PageRange), len: usize) {
        (self.id, self.range, self.len) = (id, range, len);
    }

    pub(crate) fn is_of_the_same_manager(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pond, &other.pond)
    }

    /// The first pinned page of the range. A leaked guard counts.
    pub(crate) fn first_pinned(&self, range: PageRange) -> Option<PageIndex> {
        match self.guards.load(Ordering::Relaxed) {
            0 => None,
            _ => self.driver().first_pinned(range),
        }
    }

    /// The error for a refusal whose reason is a page of the caller's range.
    pub(crate) fn range_error(&self, refusal: Refusal) -> RangeError {
        match refusal {
            Refusal::Pinned { page } => RangeError::Pinned {
                offset: self.offset(page),
            },
            Refusal::Poisoned { page } => RangeError::Lost {
                offset: self.offset(page),
            },
            Refusal::OutOfRecords => RangeError::OutOfRecords,
            other => unreachable!("{other:?} for a range inside a region"),
        }
    }

    /// The pages of a range that begins and ends at pages, or at the region's end.
    pub(crate) fn whole_pages(&self, range: &Range<usize>) -> Result<PageRange, RangeError> {
        let pages = self.touched_pages(range)?;
        let (start, end) = (range.start, range.end);
        let at_page = |at: usize| at.is_multiple_of(PAGE_SIZE);
        if !at_page(start) || !(at_page(end) || end == self.len) {
            return Err(RangeError::Unaligned { start, end });
        }
        Ok(pages)
    }

    /// The pages that a range of bytes touches. It must not be empty or leave the region.
    pub(crate) fn touched_pages(&self, range: &Range<usize>) -> Result<PageRange, RangeError> {
        let (start, end, len) = (range.start, range.end, self.len);
        match start < end && end <= len {
            true => Ok(self.pages(range)),
            false => Err(RangeError::Bad { start, end, len }),
        }
    }

    /// The pages that a range of bytes touches.
    pub(crate) fn pages(&self, range: &Range<usize>) -> PageRange {
        let first = range.start / PAGE_SIZE;
        let end = range.end.div_ceil(PAGE_SIZE);
        PageRange::new(
            self.start().plus(first as u32),
            PageCount((end - first) as u32),
        )
    }

    pub(crate) fn offset(&self, page: PageIndex) -> usize {
        (page.0 - self.start().0) as usize * PAGE_SIZE
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.pond.is_ours() {
            self.pond.driver().forget_prefetches(self.range);
            self.pond.driver().drop_region((self.id, self.range));
        }
    }
}

impl Drop for PinGuard<'_> {
    fn drop(&mut self) {
        if !self.region.pond.is_ours() {
            return;
        }
        let unpinned = self.region.pond.driver().unpin(self.pages);
        self.region.guards.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(unpinned.is_ok(), "{:?} of a guard's own pages", unpinned);
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("start", &self.as_ptr())
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PinGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinGuard")
            .field("pages", &self.pages)
            .finish_non_exhaustive()
    }
}
