//! The manager: a budget, a store, and the regions that share them.

use crate::builder::ManagerBuilder;
use crate::child::Process;
use crate::error::{BuildError, MIN_RAM, RegionError, SetRamError};
use crate::group::Names;
use crate::region::Region;
use crate::vec::{Plain, PondVec};
use millpond_core::{Backing, Kind, OrderPolicy, PAGE_SIZE, PageCount};
use millpond_driver::Driver;
use millpond_driver::others::Others;
use millpond_driver::state::named::Named;
use millpond_driver::state::queue::FreeTuning;
use millpond_driver::stats::Stats;
use millpond_mmu::Memory;
use millpond_store::StreamReads;
use millpond_sync::OwnThread;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// Memory for one process under one budget. Clones share it; it ends with the last clone and the last region.
///
/// ```
/// let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let mut numbers = manager.vec::<u64>(1_000_000)?;
/// numbers[999_999] = 7;
/// assert_eq!(numbers.iter().sum::<u64>(), 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Manager {
    pond: Arc<Pond>,
    order: OrderPolicy,
}

/// A driver with its threads running. The threads end with it.
pub(crate) struct Pond {
    /// The driver. It is dropped with the pond, but not in a forked child, to which it does not belong.
    driver: ManuallyDrop<Arc<Driver>>,
    pub(crate) names: Names,
    /// The process that owns the pond; `None` where forked children are served too.
    process: Option<Process>,
    /// The housekeeping thread, and the watchdog thread unless the former creates it.
    threads: Vec<OwnThread>,
    /// The thread that reads objects, once there has been one.
    #[cfg(feature = "remote")]
    pub(crate) objects: std::sync::OnceLock<Arc<millpond_remote::ObjectReader>>,
}

impl Pond {
    /// Delivers faults and starts the threads for this `process`, which was determined first, so that a child forked in
    /// the meantime knows that it is one: otherwise its faults would go to this driver. Without a process, forked
    /// children are served as well. Such a pond belongs to an unmodified program, which may end at once: the watchdog
    /// thread starts later.
    pub(crate) fn start(driver: Arc<Driver>, process: Option<Process>) -> Result<Self, BuildError> {
        let mut pond = Self::without_threads(driver, process)?;
        let driver = &*pond.driver;
        driver.mmu.read_events()?;
        let refault_cost = driver.lock().refault_cost();
        let others = if process.is_none() {
            Others::AtFirstTick
        } else {
            Others::ByMaker
        };
        let housekeeping = driver
            .start_housekeeping(refault_cost, others)
            .map_err(BuildError::Thread)?;
        pond.threads.push(housekeeping);
        if others == Others::ByMaker {
            let watching = driver.start_watching().map_err(BuildError::Thread)?;
            pond.threads.push(watching);
        }
        Ok(pond)
    }

    /// [`start`](Self::start) without threads, but for a handler. For a process that is just being taken over,
    /// [`Space::start_threads`] comes next.
    ///
    /// [`Space::start_threads`]: crate::space::Space::start_threads
    pub(crate) fn without_threads(
        driver: Arc<Driver>,
        process: Option<Process>,
    ) -> Result<Self, BuildError> {
        driver.adjust_limit();
        driver.mmu.attach_alone(Arc::clone(&driver) as _)?;
        Ok(Self {
            driver: ManuallyDrop::new(driver),
            names: Names::default(),
            process,
            threads: Vec::new(),
            #[cfg(feature = "remote")]
            objects: std::sync::OnceLock::new(),
        })
    }

    /// Whether the pond belongs to this process, rather than being inherited from a parent (`child.rs`).
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.process.is_none_or(Process::is_this)
    }

    /// # Panics
    /// In a forked child.
    #[inline]
    pub(crate) fn driver(&self) -> &Arc<Driver> {
        assert!(
            self.is_ours(),
            "the manager was built by a parent of this process, which has its memory: build another one after the fork"
        );
        &self.driver
    }

    /// The driver, for calls that a forked child may also make: those that ask for addresses.
    #[inline]
    pub(crate) fn inherited_driver(&self) -> &Arc<Driver> {
        &self.driver
    }
}

impl Drop for Pond {
    fn drop(&mut self) {
        if !self.is_ours() {
            // The threads do not exist in this process, and their handles may not be given up.
            std::mem::forget(std::mem::take(&mut self.threads));
            #[cfg(feature = "remote")]
            std::mem::forget(self.objects.take());
            return;
        }
        self.driver.stop_shrinking();
        self.driver.stop_prefetching();
        self.driver.stop_writing_back();
        self.driver.stop_freeing();
        self.driver.stop_housekeeping();
        self.driver.stop_watching();
        for thread in self.threads.drain(..) {
            thread.join();
        }
        #[cfg(debug_assertions)]
        if !std::thread::panicking() {
            self.driver.expect_sound();
        }
        self.driver.mmu.detach();
        // SAFETY: the driver is not used after this.
        unsafe { ManuallyDrop::drop(&mut self.driver) };
    }
}

/// Features of the system that a manager can use. See [`Manager::capabilities`]. `millpond doctor` says more, including
/// how to enable the missing ones.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let can = manager.capabilities();
/// if !can.userfaultfd {
///     println!("faults take longer here: `millpond doctor` says what would help");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Pages are taken out by moving them (Linux 6.8), not by copying.
    pub moves_pages: bool,
    /// [`Region::remap`], [`Region::grow`] and [`Region::snapshot`] move memory by one pointer for each 2 MiB.
    /// Otherwise the kernel moves mapped pages one by one.
    pub fast_remap: bool,
    /// Faults come from userfaultfd. Otherwise, for example if a container's profile refuses userfaultfd, memory is
    /// watched by protections: everything works, but faults take longer.
    pub userfaultfd: bool,
}

impl Manager {
    /// A builder for a manager.
    pub fn builder() -> ManagerBuilder {
        ManagerBuilder::default()
    }

    pub(crate) fn new(pond: Arc<Pond>, order: OrderPolicy) -> Self {
        Self { pond, order }
    }

    pub(crate) fn pond(&self) -> &Arc<Pond> {
        &self.pond
    }

    /// A region of `len` bytes of zeros, rounded up to pages, with folios of the manager's order.
    ///
    /// # Errors
    /// No bytes, too many, or no room in the address space.
    pub fn region(&self, len: usize) -> Result<Region, RegionError> {
        self.region_with(len, self.order)
    }

    /// A region whose folios have the orders given by `order`: fixed large ones for memory that is read in order, fixed
    /// small ones for memory that is not, or adaptive ones.
    ///
    /// # Errors
    /// As [`Manager::region`].
    pub fn region_with(
        &self,
        len: usize,
        order: impl Into<OrderPolicy>,
    ) -> Result<Region, RegionError> {
        if len == 0 {
            return Err(RegionError::Empty);
        }
        let too_long = RegionError::TooLong {
            count: len,
            size: 1,
        };
        let pages = PageCount::from_bytes_ceil(len as u64).ok_or(too_long)?;
        let driver = self.pond.driver();
        let order = order.into();
        if let Some((id, range)) = driver.take_whole(pages, order) {
            return Ok(Region::new(Arc::clone(&self.pond), id, range, len));
        }
        self.open_region(len, pages, || driver.new_region(pages, order))
    }

    /// A region of `len` bytes whose pages belong to a file, in one of two ways.
    pub(crate) fn file_region(
        &self,
        len: usize,
        kind: Kind,
        backing: Arc<dyn Backing>,
    ) -> Result<Region, RegionError> {
        let too_long = RegionError::TooLong {
            count: len,
            size: 1,
        };
        let pages = PageCount::from_bytes_ceil(len as u64).ok_or(too_long)?;
        let driver = self.pond.driver();
        millpond_driver::read_ahead::start(driver, StreamReads::enter);
        if backing.is_written() {
            millpond_driver::write_back::start(driver);
        }
        self.open_region(len, pages, || {
            driver.new_file_region(pages, self.order, kind, Arc::clone(&backing))
        })
    }

    /// Opens a region for which `create` takes addresses. If there are none, addresses kept for reuse are given up
    /// first.
    fn open_region(
        &self,
        len: usize,
        pages: PageCount,
        create: impl Fn() -> Option<Named>,
    ) -> Result<Region, RegionError> {
        let driver = self.pond.driver();
        let bytes = pages.bytes();
        let mut created = create();
        if created.is_none() && driver.end_oldest_whole() {
            driver.quiesce();
            created = create();
        }
        let (id, range) = created.ok_or(RegionError::NoAddressSpace {
            bytes,
            space: driver.mmu.len() as u64,
        })?;
        if let Err(error) = driver.mmu.open(range) {
            driver.forget_region((id, range));
            return Err(RegionError::Memory {
                bytes,
                reason: error.to_string(),
            });
        }
        Ok(Region::new(Arc::clone(&self.pond), id, range, len))
    }

    /// A vector of `n` zeros.
    ///
    /// # Errors
    /// As [`Manager::region`]; also when `n` elements overflow.
    pub fn vec<T: Plain>(&self, n: usize) -> Result<PondVec<T>, RegionError> {
        let size = size_of::<T>();
        let bytes = n
            .checked_mul(size)
            .filter(|&bytes| bytes <= isize::MAX as usize - PAGE_SIZE);
        let bytes = bytes.ok_or(RegionError::TooLong { count: n, size })?;
        let region = self.region(bytes)?;
        // SAFETY: the region is long enough, and `Plain` says that its zeros are values.
        Ok(unsafe { PondVec::new(region, n) })
    }

    /// An empty vector with addresses for `n` elements, at least one. It is filled from its start, so its folios grow
    /// with it, up to 2 MiB.
    ///
    /// # Errors
    /// As [`Manager::vec`].
    pub fn vec_with_capacity<T>(&self, n: usize) -> Result<PondVec<T>, RegionError> {
        PondVec::<T>::builder().capacity(n.max(1)).build(self)
    }

    /// Changes the budget, up to the budget that the manager was built with. A lower budget is in force when this
    /// returns: the pages beyond it have gone to the store, and their memory to the kernel.
    ///
    /// # Errors
    /// Below 16 MiB, or more than the manager was built with.
    ///
    /// ```
    /// # let manager = millpond::Manager::builder().ram(64 << 20).build()?;
    /// let mut region = manager.region(48 << 20)?;
    /// region.as_mut_slice().fill(7);
    /// manager.set_ram(16 << 20)?;
    /// let vm = manager.stats().vm;
    /// assert!((vm.nr_mapped + vm.nr_limbo + vm.nr_free_frames) * 4096 <= 16 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_ram(&self, bytes: u64) -> Result<(), SetRamError> {
        let most = self.pond.driver().most_ram();
        if !(MIN_RAM..=most).contains(&bytes) {
            return Err(SetRamError {
                bytes,
                least: MIN_RAM,
                most,
            });
        }
        self.pond.driver().set_ram(bytes);
        Ok(())
    }

    /// Whether a parent of this process built the manager. Such a manager can only be dropped here: its memory belongs
    /// to the parent, and calls on it and on its regions and groups panic.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        !self.pond.is_ours()
    }

    /// Features of the system that this manager can use.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        let mmu = &self.pond.driver().mmu;
        Capabilities {
            moves_pages: mmu.takes_out_by_move(),
            fast_remap: mmu.hands_over_by_tables(),
            userfaultfd: !mmu.is_watched_by_protections(),
        }
    }

    /// Waits until all memory that is being freed has been given back.
    pub fn quiesce(&self) {
        self.pond.driver().quiesce();
    }

    /// Changes how memory is given back, from now on. Workers beyond the new number stay idle.
    pub fn set_free_tuning(&self, tuning: FreeTuning) {
        self.pond.driver().freer.set_tuning(tuning);
    }

    /// Counters and gauges, as of now. The call checks whether lazily freed memory that is still mapped has been
    /// written to since: about 25 ms for each GiB of it.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.pond.driver().recount_lazyfree();
        self.pond.driver().stats()
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager")
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}
