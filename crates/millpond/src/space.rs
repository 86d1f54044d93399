//! A sparse address space for allocators: addresses are opened and closed at page granularity, faults go to a handler
//! thread or to the thread that faults, and fork is supported. The preloaded library puts such a space under an
//! unmodified program.
//!
//! After the space, in the same arena, there are addresses that are never given to the program. When the program gives
//! up many GiB, that memory is moved there by its tables and freed in the background; the program's own addresses are
//! closed, and free for reuse, at once. Memory that has to be copied while threads may touch it is moved there first
//! ([`Space::lend_aside`]).

mod engage;

use crate::builder::ManagerBuilder;
use crate::error::BuildError;
use crate::manager::{Manager, Pond};
use crate::store_kind::StoreKind;
use millpond_core::{
    Event, FreeMode, Kind, LEAF_PAGES, OrderPolicy, PAGE_SIZE, PageCount, PageIndex, PageRange,
    Refusal, Reply,
};
use millpond_driver::OnStoreFull;
use millpond_driver::error::ForkError;
use millpond_driver::operate::PinRefusal;
use millpond_driver::pressure::Pressure;
use millpond_driver::remap::RemapRefusal;
use millpond_driver::state::named::Named;
use millpond_driver::state::queue::FreedBy;
pub use millpond_driver::state::record::Recording;
use millpond_driver::stats::Stats;
use millpond_driver::{Driver, fork};
use millpond_mmu::{Delivery, DormantMemory, Mask, Memory, MmuError};
use rustix::io::Errno;
use std::cell::UnsafeCell;
use std::sync::{Arc, OnceLock};

use engage::Dormant;
pub use engage::Opened;

/// Bytes under one leaf.
const LEAF: usize = LEAF_PAGES as usize * PAGE_SIZE;

/// This fraction of a space's length is added for memory that is being freed.
const ROOM_ASIDE: u64 = 4;
/// Most bytes that [`ROOM_ASIDE`] adds.
const ROOM_ASIDE_MOST: u64 = 64 << 30;

/// Addresses behind a space, lent by [`Space::lend_aside`]. They stay lent if the `Aside` is forgotten.
///
/// ```
/// # use millpond::space::{Space, SpaceOptions};
/// # use millpond::{Delivery, Mask, OnStoreFull, Order, StoreKind};
/// # let space = Space::create(SpaceOptions {
/// #     ram: 24 << 20,
/// #     store: StoreKind::compressed_ram(),
/// #     on_store_full: OnStoreFull::Exceed,
/// #     encrypt: false,
/// #     delivery: Delivery::Handler,
/// #     order: Order::ZERO.into(),
/// #     address_space: 4 << 30,
/// #     bases: &[],
/// #     on_tick: None,
/// #     recording: None,
/// #     mask: Mask::from_environment(),
/// #     tables_on_credit: false,
/// # });
/// # let Ok(space) = space else { return Ok(()) };
/// let aside = space.lend_aside(2 << 20, space.base()).expect("addresses are left");
/// assert!(!space.contains(aside.start) && aside.len == 2 << 20);
/// space.return_aside(aside);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it stays lent"]
pub struct Aside {
    region: Named,
    /// First address.
    pub start: usize,
    /// Length in bytes.
    pub len: usize,
}

/// Settings of a [`Space`].
///
/// ```
/// use millpond::space::{Space, SpaceOptions};
/// use millpond::{Delivery, Mask, OnStoreFull, Order, StoreKind};
///
/// let space = Space::create(SpaceOptions {
///     ram: 24 << 20,
///     store: StoreKind::compressed_ram(),
///     on_store_full: OnStoreFull::Exceed,
///     encrypt: false,
///     delivery: Delivery::Handler,
///     order: Order::ZERO.into(),
///     address_space: 4 << 30,
///     bases: &[],
///     on_tick: None,
///     recording: None,
///     mask: Mask::from_environment(),
///     tables_on_credit: false,
/// });
/// // A handler thread needs a permission, of which the error speaks.
/// if let Err(error) = space {
///     println!("{error}");
/// }
/// ```
#[derive(Clone, Debug)]
pub struct SpaceOptions {
    /// The budget for the whole process, in bytes.
    pub ram: u64,
    /// The store: where pages go that do not fit.
    pub store: StoreKind,
    /// Behaviour when the store is full.
    pub on_store_full: OnStoreFull,
    /// Whether data that goes to a file is encrypted. See [`ManagerBuilder::encrypt`](crate::ManagerBuilder::encrypt).
    pub encrypt: bool,
    /// How faults are delivered: [`Delivery::Handler`], or [`Delivery::Direct`] in a process that is prepared for it.
    pub delivery: Delivery,
    /// Orders of the space's folios.
    pub order: OrderPolicy,
    /// Addresses to reserve, in bytes. A quarter of this length, at most 64 GiB, is also reserved after them, for
    /// memory that is being freed.
    pub address_space: u64,
    /// Addresses at which the space should begin (multiples of 1 GiB), in order of preference. If none of these places
    /// is free with room for all that is reserved, the kernel chooses.
    pub bases: &'static [usize],
    /// Called by the reclaim thread every tenth of a second. It must not touch managed memory.
    pub on_tick: Option<fn()>,
    /// Records each page that a touch brings in; recording also makes pages come in again and again. For orders fixed
    /// at 0.
    pub recording: Option<Recording>,
    /// Kernel capabilities to do without.
    pub mask: Mask,
    /// Whether the process's allocator maps large blocks so that the kernel does not count them before they are used
    /// (`MAP_NORESERVE`). Then the tables may be longer than the machine's memory; otherwise such a space is refused.
    pub tables_on_credit: bool,
}

/// The lengths of a space's addresses, in bytes.
#[derive(Clone, Copy)]
struct Lengths {
    space: u64,
    aside: u64,
}

impl Lengths {
    fn of(address_space: u64) -> Self {
        let leaf = LEAF as u64;
        let quarter = (address_space / ROOM_ASIDE).next_multiple_of(leaf);
        Self {
            space: address_space.next_multiple_of(leaf),
            aside: quarter.min(ROOM_ASIDE_MOST),
        }
    }

    fn sum(self) -> u64 {
        self.space + self.aside
    }
}

impl SpaceOptions {
    fn builder(&self, lengths: Lengths) -> ManagerBuilder {
        Manager::builder()
            .ram(self.ram)
            .store(self.store.clone())
            .on_store_full(self.on_store_full)
            .encrypt(self.encrypt)
            .delivery(self.delivery)
            .order(self.order)
            .address_space(lengths.sum())
            .bases(self.bases)
            .cover_process()
            .on_tick(self.on_tick)
            .recording(self.recording)
            .mask(self.mask)
            .tables_on_credit(self.tables_on_credit)
    }
}

/// The address space of a process. It lasts until the process ends.
///
/// ```
/// # use millpond::space::{Space, SpaceOptions};
/// # use millpond::{Delivery, Mask, OnStoreFull, Order, StoreKind};
/// # let space = Space::create(SpaceOptions {
/// #     ram: 24 << 20,
/// #     store: StoreKind::compressed_ram(),
/// #     on_store_full: OnStoreFull::Exceed,
/// #     encrypt: false,
/// #     delivery: Delivery::Handler,
/// #     order: Order::ZERO.into(),
/// #     address_space: 4 << 30,
/// #     bases: &[],
/// #     on_tick: None,
/// #     recording: None,
/// #     mask: Mask::from_environment(),
/// #     tables_on_credit: false,
/// # });
/// # let Ok(space) = space else { return Ok(()) };
/// let start = space.base();
/// space.open(start, 8192)?;
/// // SAFETY: the pages are open, and nothing else uses them.
/// let bytes = unsafe { std::slice::from_raw_parts_mut(start as *mut u8, 8192) };
/// bytes.fill(7);
/// space.discard(start, 4096)?;
/// assert_eq!((bytes[0], bytes[4096]), (0, 7));
/// space.close(start, 8192)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Space {
    base: usize,
    lengths: Lengths,
    /// The kernel's part, while nobody manages the memory.
    dormant: Option<Dormant>,
    managed: OnceLock<Managed>,
    /// The locks of a fork, which the forking thread holds from before the fork until after it.
    hold: UnsafeCell<Option<fork::Hold<'static>>>,
}

/// What manages the memory, once somebody does.
struct Managed {
    pond: Pond,
    order: OrderPolicy,
}

/// Whose work a call is.
enum Backing<'a> {
    Managed(&'a Arc<Driver>),
    Dormant(&'a DormantMemory),
}

// SAFETY: everything but `hold` is shared by locks and atomics. `hold` is touched by the forking thread only: from
// `before_fork`, which takes the core lock, until the call that ends it; a second forking thread waits for that lock.
unsafe impl Sync for Space {}

impl Space {
    /// Length from which on memory is freed in the background, in bytes. Moving it away takes 0.1 ms, during which no
    /// fault is served. Closing 4 MiB takes 0.2 ms, and closing 8 MiB takes the kernel 0.7 ms.
    pub const ASIDE: usize = 8 << 20;

    /// Reserves the addresses and starts the fault handler and the reclaim thread.
    ///
    /// # Errors
    /// As [`ManagerBuilder::build`](crate::ManagerBuilder::build).
    pub fn create(options: SpaceOptions) -> Result<&'static Self, BuildError> {
        let lengths = Lengths::of(options.address_space);
        let driver = options.builder(lengths).driver()?;
        let base = driver.0.mmu.base() as usize;
        let space = Self::at(base, lengths, None);
        space.manage(driver, |driver| Pond::start(driver, None))?;
        Ok(Box::leak(Box::new(space)))
    }

    fn at(base: usize, lengths: Lengths, dormant: Option<Dormant>) -> Self {
        Self {
            base,
            lengths,
            dormant,
            managed: OnceLock::new(),
            hold: UnsafeCell::new(None),
        }
    }

    /// Makes the space's region, and has `start` see to what is in it already and deliver faults.
    fn manage(
        &self,
        (driver, order): (Arc<Driver>, OrderPolicy),
        start: impl FnOnce(Arc<Driver>) -> Result<Pond, BuildError>,
    ) -> Result<(), BuildError> {
        let (pages, kind) = (PageCount((self.len() / PAGE_SIZE) as u32), Kind::Anonymous);
        let Reply::Region { .. } = driver.tell(Event::CreateRegion { pages, order, kind }) else {
            unreachable!("a new arena has room for a region of its own length");
        };
        let pond = start(driver)?;
        pond.driver().start_freeing_later();
        let is_first = self.managed.set(Managed { pond, order }).is_ok();
        assert!(is_first, "a space is managed once");
        Ok(())
    }

    /// First address of the space.
    #[must_use]
    pub fn base(&self) -> usize {
        self.base
    }

    /// Length of the space in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a space has at least one leaf")]
    pub fn len(&self) -> usize {
        self.lengths.space as usize
    }

    /// Whether the address is one of the space's own.
    #[must_use]
    pub fn contains(&self, addr: usize) -> bool {
        addr.wrapping_sub(self.base()) < self.len()
    }

    /// Makes pages readable and writable; they are zeros when touched.
    ///
    /// # Errors
    /// `EINVAL` for an unaligned or foreign range, `ENOMEM` when the kernel has no more mappings for the process.
    pub fn open(&self, addr: usize, len: usize) -> Result<(), Errno> {
        let range = self.pages(addr, len)?;
        match self.backing() {
            Backing::Managed(driver) => driver.mmu.open(range).map_err(|_| Errno::NOMEM),
            Backing::Dormant(memory) => memory.open(addr, len),
        }
    }

    /// Forgets the contents of the pages: they read as zeros.
    ///
    /// # Errors
    /// `EINVAL` for an unaligned or foreign range or a page that is pinned, `ENOMEM` when records run out.
    pub fn discard(&self, addr: usize, len: usize) -> Result<(), Errno> {
        let range = self.pages(addr, len)?;
        match self.backing() {
            Backing::Managed(driver) => driver.discard(range).map_err(errno),
            Backing::Dormant(memory) => memory.discard(addr, len),
        }
    }

    /// Allows the pages to be forgotten when memory is short: they read as they did or as zeros. No thread may use them
    /// during the call, and they must be writable.
    ///
    /// # Errors
    /// As [`Space::discard`].
    pub fn lazy_free(&self, addr: usize, len: usize) -> Result<(), Errno> {
        self.free_lazily(addr, len, FreeMode::Exclusive)
    }

    /// [`Space::lazy_free`] of pages that read as zeros afterwards.
    ///
    /// # Errors
    /// As [`Space::discard`].
    pub fn lazy_free_zeroed(&self, addr: usize, len: usize) -> Result<(), Errno> {
        self.free_lazily(addr, len, FreeMode::ReadsZeros)
    }

    /// [`Space::lazy_free`] of pages that other threads may use concurrently: their writes are kept.
    ///
    /// # Errors
    /// As [`Space::discard`].
    pub fn lazy_free_shared(&self, addr: usize, len: usize) -> Result<(), Errno> {
        self.free_lazily(addr, len, FreeMode::Shared)
    }

    fn free_lazily(&self, addr: usize, len: usize, mode: FreeMode) -> Result<(), Errno> {
        let range = self.inside(addr, len)?;
        match self.backing() {
            Backing::Managed(driver) => driver.lazy_free(&[range], mode).map_err(errno),
            // Memory that the kernel may take at any time could not be adopted.
            Backing::Dormant(memory) => memory.discard(addr, len),
        }
    }

    /// Removes the mark from lazily freed memory that has been written to since, so that [`Space::stats`] counts
    /// correctly. The call takes time in proportion to that memory.
    pub fn recount_lazyfree(&self) {
        if let Backing::Managed(driver) = self.backing() {
            driver.recount_lazyfree();
        }
    }

    /// Forgets the contents of the pages and removes all access.
    ///
    /// # Errors
    /// As [`Space::discard`].
    pub fn close(&self, addr: usize, len: usize) -> Result<(), Errno> {
        let range = self.pages(addr, len)?;
        match self.backing() {
            Backing::Managed(driver) => {
                driver.discard(range).map_err(errno)?;
                driver.mmu.close(range).map_err(|_| Errno::NOMEM)
            }
            Backing::Dormant(memory) => memory.close(addr, len),
        }
    }

    /// [`Space::close`] for memory that threads may touch until then. The call does not wait until its frames are given
    /// back: that happens in the background. As with `close`, the contents are gone when this returns, and the
    /// addresses are free. The whole leaves within the `len` bytes are freed in the background; the rest is closed. If
    /// there are too few of them to be worth it, everything is closed.
    ///
    /// # Errors
    /// As [`Space::discard`].
    pub fn close_aside(&self, addr: usize, len: usize) -> Result<(), Errno> {
        let range = self.pages(addr, len)?;
        let (start, end) = (addr.next_multiple_of(LEAF), (addr + len) / LEAF * LEAF);
        let Backing::Managed(driver) = self.backing() else {
            return self.close(addr, len);
        };
        let possible = driver.mmu.can_hand_over_watched() && !driver.is_recorded();
        if !possible || end.saturating_sub(start) < Self::ASIDE {
            return self.close(addr, len);
        }
        let middle = self.pages(start, end - start)?;
        // Pages are pinned, no addresses are left, or there are too many mappings: then the memory is closed the slow
        // way.
        if driver.free_part(middle).is_err() {
            return self.close(addr, len);
        }
        let close = |part: PageRange| match part.is_empty() {
            true => Ok(()),
            false => self.close(
                driver.mmu.addr_of(part.start) as usize,
                part.len.bytes() as usize,
            ),
        };
        let head = PageCount(middle.start.0 - range.start.0);
        close(PageRange::new(range.start, head))?;
        close(range.tail(middle.end()))
    }

    /// Lends `len` bytes of addresses after the space, which nothing else knows. They are inaccessible, and meant to be
    /// used by [`Space::open`], [`Space::remap`], [`Space::discard`] and [`Space::protection_changed`]. They have the
    /// same offset within 2 MiB as `like`. `None` if there are no such addresses, or nobody manages the memory yet.
    ///
    /// # Panics
    /// When `len` or `like` is not a multiple of 4 KiB, or `len` is 0.
    pub fn lend_aside(&self, len: usize, like: usize) -> Option<Aside> {
        let lead = like % LEAF;
        assert!(
            len > 0 && len.is_multiple_of(PAGE_SIZE) && lead.is_multiple_of(PAGE_SIZE),
            "{len} bytes like {like:#x}"
        );
        let pages = PageCount(((lead + len) / PAGE_SIZE).try_into().ok()?);
        let managed = self.managed.get()?;
        let driver = managed.pond.driver();
        let region = driver.new_region(pages, managed.order)?;
        let start = driver.mmu.addr_of(region.1.start) as usize + lead;
        Some(Aside { region, start, len })
    }

    /// Ends a loan. The contents of the addresses are forgotten.
    pub fn return_aside(&self, aside: Aside) {
        if let Backing::Managed(driver) = self.backing() {
            driver.end_region(aside.region, FreedBy::Owner);
        }
    }

    /// Stops managing the range, which is closed, so that a foreign mapping can replace it: nothing is managed there,
    /// and no page comes in there any more. [`Space::restore`] undoes this, whether or not there was a foreign mapping.
    ///
    /// A fault next to the range that began while the range was open brings in the pages around it. When memory was
    /// short, zeros that had come in this way were once taken for the program's pages, and the contents of the foreign
    /// mapping were moved out in their place.
    ///
    /// # Errors
    /// As [`Space::discard`].
    pub fn cede(&self, addr: usize, len: usize) -> Result<(), Errno> {
        let range = self.inside(addr, len)?;
        let Backing::Managed(driver) = self.backing() else {
            return Ok(());
        };
        driver.mmu.cede(range);
        // A capture that was under way watches its pages again when it is done, and the discard waits for that capture:
        // in the second round there is none.
        for _ in 0..2 {
            let unwatched = driver.mmu.unwatch(range);
            unwatched.map_err(|_| Errno::NOMEM)?;
            self.discard(addr, len)?;
        }
        Ok(())
    }

    /// Makes the range part of the space again after foreign mappings were put over it.
    ///
    /// # Errors
    /// `EINVAL` for an unaligned or foreign range, `ENOMEM` when the kernel refuses.
    pub fn restore(&self, addr: usize, len: usize) -> Result<(), Errno> {
        let range = self.inside(addr, len)?;
        match self.backing() {
            Backing::Managed(driver) => driver.mmu.renew(range).map_err(|_| Errno::NOMEM),
            Backing::Dormant(memory) => memory.renew(addr, len),
        }
    }

    /// Moves the contents of `len` bytes at `old`, with their protection, to `new`, where nothing is mapped. Both
    /// ranges have the same offset within 2 MiB and do not overlap. Afterwards `old` is closed, or, with `keep`, open
    /// as before and empty. The program may touch both during the call: none of its writes is lost, and no page reads
    /// as zeros that is not zeros.
    ///
    /// # Errors
    /// `EINVAL` for an unaligned or foreign range or ranges with different offsets, `EBUSY` for pages that are pinned,
    /// `EIO` when the store cannot give a page back, `ENOMEM` when the kernel has no more mappings for the process,
    /// `ENOSYS` when the kernel cannot do this at all. After an error everything is where it was.
    pub fn remap(&self, old: usize, len: usize, new: usize, keep: bool) -> Result<(), Errno> {
        let (from, to) = (self.pages(old, len)?, self.pages(new, len)?);
        let alike = old % LEAF == new % LEAF;
        if !alike || old.abs_diff(new) < len {
            return Err(Errno::INVAL);
        }
        let driver = match self.backing() {
            Backing::Managed(driver) => driver,
            Backing::Dormant(memory) => return memory.remap(old, len, new, keep),
        };
        if !driver.mmu.can_hand_over_watched() {
            return Err(Errno::NOSYS);
        }
        loop {
            match driver.remap_watched(from, to, keep) {
                Ok(()) => return Ok(()),
                // A stray touch has just brought in a page at the new place.
                Err(RemapRefusal::InUse) => self.discard(new, len)?,
                Err(RemapRefusal::Pinned(_) | RemapRefusal::Volatile(_)) => {
                    return Err(Errno::BUSY);
                }
                Err(RemapRefusal::Lost(_)) => return Err(Errno::IO),
                Err(RemapRefusal::OutOfRecords | RemapRefusal::NoAddressSpace) => {
                    return Err(Errno::NOMEM);
                }
                Err(RemapRefusal::Memory(MmuError::HandOver { errno, .. })) => return Err(errno),
                Err(RemapRefusal::Memory(_)) => return Err(Errno::NOMEM),
            }
        }
    }

    /// Whether the space keeps the protections of pages, because there is no userfaultfd and pages that are out are
    /// closed.
    #[must_use]
    pub fn keeps_protections(&self) -> bool {
        matches!(self.backing(), Backing::Managed(driver) if driver.mmu.is_watched_by_protections())
    }

    /// Changes the protection (the bits of `mprotect`) of a range that is open, if the space keeps protections. Returns
    /// `None` if the kernel keeps them: then the caller makes the system call. In both cases the caller must call
    /// [`Space::protection_changed`] before and after, and [`Space::access_changed`] after.
    ///
    /// # Errors
    /// `EINVAL` for an unaligned or foreign range, and for a protection key, of which the space knows nothing; `ENOMEM`
    /// when the kernel has no more mappings for the process.
    pub fn protect(
        &self,
        addr: usize,
        len: usize,
        prot: i32,
        has_key: bool,
    ) -> Option<Result<(), Errno>> {
        let Backing::Managed(driver) = self.backing() else {
            return None;
        };
        let mmu = &driver.mmu;
        if !mmu.is_watched_by_protections() {
            return None;
        }
        if has_key {
            return Some(Err(Errno::INVAL));
        }
        let changed = self
            .pages(addr, len)
            .map(|range| mmu.protect_pages(range, prot));
        Some(changed.and_then(|changed| match changed {
            Some(Err(MmuError::Protect { errno, .. })) => Err(errno),
            Some(Err(_)) => Err(Errno::NOMEM),
            _ => Ok(()),
        }))
    }

    /// Announces that the program is about to change the protection of a range, or has changed it: from now on folios
    /// end at the range's ends. Call it before and after the change.
    pub fn protection_changed(&self, addr: usize, len: usize) {
        if let (Ok(range), Backing::Managed(driver)) = (self.pages(addr, len), self.backing()) {
            // The core refuses only a folio that is lost or has no record. Such a folio does not move, and this call is
            // only about moves.
            let _ = driver.operate(range, |range| Event::Protected { range });
        }
    }

    /// Announces whether the program may use the pages of a range that is open. Pages that it may not use come in only
    /// when they are requested, and not along with others.
    pub fn access_changed(&self, addr: usize, len: usize, usable: bool) {
        if let (Ok(range), Backing::Managed(driver)) = (self.pages(addr, len), self.backing()) {
            // The call is refused only for a range outside the space, and `range` is inside.
            let _ = driver.mmu.note_access(range, usable);
        }
    }

    /// Brings the pages in and keeps them in memory permanently.
    ///
    /// # Errors
    /// `EINVAL` for an unaligned or foreign range, `EIO` when the store cannot give a page back.
    pub fn pin_forever(&self, addr: usize, len: usize) -> Result<(), Errno> {
        let range = self.inside(addr, len)?;
        match self.backing() {
            Backing::Managed(driver) => driver.pin_in_any_case(range).map_err(errno),
            Backing::Dormant(memory) => {
                memory.populate(addr, len);
                Ok(())
            }
        }
    }

    /// Brings the pages in and keeps them in memory until [`Space::unpin`].
    ///
    /// # Errors
    /// As [`Space::pin_forever`], and `ENOMEM` when less than a quarter of the budget would be left for the rest.
    pub fn pin(&self, addr: usize, len: usize) -> Result<(), Errno> {
        let range = self.inside(addr, len)?;
        let Backing::Managed(driver) = self.backing() else {
            return self.pin_forever(addr, len);
        };
        driver.pin(range).map_err(|refusal| match refusal {
            PinRefusal::NoRoom(_) => Errno::NOMEM,
            PinRefusal::Core(refusal) => errno(refusal),
        })
    }

    /// Ends a [`Space::pin`] of pages that are all pinned.
    pub fn unpin(&self, addr: usize, len: usize) {
        if let (Ok(range), Backing::Managed(driver)) = (self.inside(addr, len), self.backing()) {
            let _ = driver.unpin(range);
        }
    }

    /// Brings the pages in that can be brought in; they may leave again at any time. A page that cannot is found out
    /// about when it is touched.
    pub fn populate(&self, addr: usize, len: usize) {
        let Ok(range) = self.inside(addr, len) else {
            return;
        };
        match self.backing() {
            Backing::Managed(driver) => drop(driver.populate(range)),
            Backing::Dormant(memory) => memory.populate(addr, len),
        }
    }

    /// Makes the pages leave memory now.
    pub fn advise_pageout(&self, addr: usize, len: usize) {
        self.advise(addr, len, millpond_core::Advice::PageOut);
    }

    /// Makes the pages the first to leave memory.
    pub fn advise_cold(&self, addr: usize, len: usize) {
        self.advise(addr, len, millpond_core::Advice::Cold);
    }

    /// Says that the pages will be needed: pages that are brought in next are kept, as pages from a stream are not.
    pub fn advise_willneed(&self, addr: usize, len: usize) {
        self.advise(addr, len, millpond_core::Advice::WillNeed);
    }

    fn advise(&self, addr: usize, len: usize, advice: millpond_core::Advice) {
        if let (Ok(range), Backing::Managed(driver)) = (self.inside(addr, len), self.backing()) {
            let _ = driver.operate(range, |range| Event::Advise { range, advice });
        }
    }

    /// Prepares everything for a fork. The ranges (address, length; any alignment) are resident across it. Signals are
    /// blocked and locks held from here until [`Space::after_fork_in_parent`] or [`Space::after_fork_in_child`].
    pub fn before_fork(&'static self, resident: &[(usize, usize)]) {
        let Some(managed) = self.managed.get() else {
            return;
        };
        let ranges: Vec<PageRange> = resident
            .iter()
            .filter_map(|&(addr, len)| self.touched(addr, len))
            .collect();
        let hold = managed.pond.driver().before_fork(&ranges);
        // SAFETY: the core lock is held by `hold`, so no other thread is between here and the end of its fork.
        unsafe { *self.hold.get() = Some(hold) };
    }

    /// Releases the locks in the parent after a fork.
    pub fn after_fork_in_parent(&'static self) {
        if let Some(hold) = self.take_hold() {
            hold.parent();
        }
    }

    /// Sets the space up in the child after a fork, so that faults are served. `foreign` (address, length; in order and
    /// apart) lists the ranges that lie under other mappings. [`Space::start_threads_in_child`] comes next.
    ///
    /// # Errors
    /// An error means that the child must not touch managed memory any more: it would read zeros.
    pub fn after_fork_in_child(&'static self, foreign: &[(usize, usize)]) -> Result<(), ForkError> {
        let pages = |&(addr, len): &(usize, usize)| self.touched(addr, len);
        let foreign: Vec<PageRange> = foreign.iter().filter_map(pages).collect();
        let hold = self.take_hold();
        hold.map_or(Ok(()), |hold| hold.child(&foreign))
    }

    /// Gives a child its service threads, once the C library may take memory from the program's allocator. Until then
    /// the child reclaims only where it faults, and a call that moves managed memory in the kernel waits.
    ///
    /// # Errors
    /// An error means that there is no thread, and that the child cannot go on.
    pub fn start_threads_in_child(&'static self) -> Result<(), ForkError> {
        match self.backing() {
            Backing::Managed(driver) => driver.start_threads_in_child(),
            Backing::Dormant(_) => Ok(()),
        }
    }

    /// Starts the threads of a space that has just been [engaged](Space::engage). The caller holds no lock: the C
    /// library may touch absent memory when it makes a thread.
    ///
    /// # Errors
    /// A thread could not be made. Then the process cannot go on: a call that moves managed memory would wait forever.
    pub fn start_threads(&self) -> Result<(), BuildError> {
        match self.backing() {
            Backing::Managed(driver) => driver.start_threads(BuildError::Thread),
            Backing::Dormant(_) => Ok(()),
        }
    }

    /// Has the threads made that the space makes later than the first, and waits for that: a program whose first thread
    /// is about to end, and which has others, wants no thread made after that. The caller holds no lock that `malloc`
    /// takes.
    pub fn make_threads_now(&self) {
        if let Backing::Managed(driver) = self.backing() {
            driver.make_others_now();
        }
    }

    /// Descriptors in the program's table that the space works with: the caller keeps the program from closing them.
    #[must_use]
    pub fn descriptors(&self) -> Vec<i32> {
        match self.backing() {
            Backing::Managed(driver) => driver.service_descriptors(),
            Backing::Dormant(_) => Vec::new(),
        }
    }

    /// Counters and gauges of the space. While nobody manages it there is only its budget.
    #[must_use]
    pub fn stats(&self) -> Stats {
        match (self.backing(), &self.dormant) {
            (Backing::Managed(driver), _) => driver.stats(),
            (Backing::Dormant(_), dormant) => Stats {
                ram: dormant.as_ref().map_or(0, |dormant| dormant.ram),
                ..Stats::default()
            },
        }
    }

    /// How much of the last seconds and minutes was lost to waiting for memory.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        match self.backing() {
            Backing::Managed(driver) => driver.root_pressure(),
            Backing::Dormant(_) => Pressure::default(),
        }
    }

    fn take_hold(&self) -> Option<fork::Hold<'static>> {
        // SAFETY: this is called by the thread that forked, which holds the core lock by the hold that is taken here.
        unsafe { (*self.hold.get()).take() }
    }

    #[inline]
    fn backing(&self) -> Backing<'_> {
        match (self.managed.get(), &self.dormant) {
            (Some(managed), _) => Backing::Managed(managed.pond.driver()),
            (None, Some(dormant)) => Backing::Dormant(&dormant.memory),
            (None, None) => unreachable!("a space that is not dormant is managed from the start"),
        }
    }

    /// The pages of an aligned range inside the space itself.
    fn inside(&self, addr: usize, len: usize) -> Result<PageRange, Errno> {
        let end = addr.checked_add(len).ok_or(Errno::INVAL)?;
        match end <= self.base() + self.len() {
            true => self.pages(addr, len),
            false => Err(Errno::INVAL),
        }
    }

    /// The pages of an aligned range inside the space or the addresses aside.
    fn pages(&self, addr: usize, len: usize) -> Result<PageRange, Errno> {
        if !addr.is_multiple_of(PAGE_SIZE) || !len.is_multiple_of(PAGE_SIZE) || len == 0 {
            return Err(Errno::INVAL);
        }
        let end = addr.checked_add(len).ok_or(Errno::INVAL)?;
        if addr < self.base || end > self.end() {
            return Err(Errno::INVAL);
        }
        self.touched(addr, len).ok_or(Errno::INVAL)
    }

    /// The end of the addresses aside.
    fn end(&self) -> usize {
        self.base + self.lengths.sum() as usize
    }

    /// The pages that any range touches, as far as they belong to the space or lie aside.
    fn touched(&self, addr: usize, len: usize) -> Option<PageRange> {
        let start = addr.max(self.base());
        let end = addr.checked_add(len)?.min(self.end());
        if start >= end {
            return None;
        }
        let first = (start - self.base()) / PAGE_SIZE;
        let last = (end - 1 - self.base()) / PAGE_SIZE;
        Some(PageRange::new(
            PageIndex(first as u32),
            PageCount((last - first + 1) as u32),
        ))
    }
}

fn errno(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::OutOfRecords | Refusal::NoAddressSpace => Errno::NOMEM,
        Refusal::Poisoned { .. } => Errno::IO,
        _ => Errno::INVAL,
    }
}
