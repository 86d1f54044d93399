//! [`UffdMemory`]: memory that a userfaultfd watches. A thread that touches a missing page stops until somebody
//! installs the page. Arena and pool are both registered: pages travel between them.
//!
//! Where userfaultfd is refused, memory is watched through protections instead ([`protection`](crate::protection)),
//! with in-thread delivery only.

mod capture_protected;
mod copy;
mod cost;
mod fork;
mod hand_over;
mod huge;
mod install;
mod install_run;
mod leaf;
mod memory;
#[cfg(test)]
mod one_leaf;
mod open;
mod parts;
mod take_out;
mod take_over;
mod transfer;
mod zero_in_place;

use core::sync::atomic::AtomicBool;

use linux_raw_sys::general::UFFD_FEATURE_MOVE;
use millpond_core::{PAGE_SIZE, PageRange};
use rustix::fd::{AsRawFd, BorrowedFd};

use crate::common::Common;
use crate::config::{MemoryConfig, TakeOutMethod};
use crate::delivery::Watch;
use crate::delivery::handler::Served;
use crate::error::MmuError;
use crate::overcommit::is_counted_strictly;
use crate::staging::Staging;
use crate::sys::{FdCell, ioctl};
use cost::Costs;
use open::{Features, open_mem, open_uffd};
use parts::Parts;

pub(crate) use open::Offer;

/// Memory that a userfaultfd watches. The crate's documentation has an overview.
pub struct UffdMemory {
    common: Common,
    parts: Parts,
    /// Where huge pages are made; `None` without `UFFDIO_MOVE`, which they need.
    staging: Option<Staging>,
    uffd: FdCell,
    /// `/proc/self/mem`, for pages that the program may not read.
    mem: FdCell,
    /// `/dev/userfaultfd`, kept for children that may no longer open it. A child that is served by SIGBUS needs no
    /// privileges.
    device: FdCell,
    can_move: bool,
    features: Features,
    costs: Costs,
    surprised: AtomicBool,
}

impl UffdMemory {
    /// Reserves the arena and the frame pool and registers both, if the kernel makes this offer.
    ///
    /// # Errors
    /// The refusal, or the missing feature.
    pub(crate) fn new(config: &MemoryConfig, offer: Offer) -> Result<Self, MmuError> {
        let has_move = offer.features? & u64::from(UFFD_FEATURE_MOVE) != 0;
        if config.take_out == TakeOutMethod::Move && !has_move {
            return Err(MmuError::MissingFeature {
                feature: "UFFDIO_MOVE",
                way_out: "use Linux 6.8 or later, or the method Auto or Copy",
            });
        }
        let can_move = has_move && config.take_out != TakeOutMethod::Copy;
        let (uffd, features) =
            open_uffd(config.delivery, offer.device.get(), can_move, config.mask)?;
        let common = Common::new(config, Common::reserve_arena(config)?)?;
        // Slots for huge pages are 32 MiB of writable memory, whether they are used or not.
        let staging = match can_move && !is_counted_strictly() {
            true => Staging::new(config.huge_within, common.pagemap())?,
            false => None,
        };
        let memory = Self {
            parts: Parts::new(&common.arena),
            common,
            staging,
            uffd: FdCell::new(Some(uffd)),
            mem: FdCell::new(open_mem()),
            device: offer.device,
            can_move,
            features,
            costs: Costs::new(),
            surprised: AtomicBool::new(false),
        };
        memory.register_pool()?;
        if config.reserved.is_none() {
            memory.register_arena(memory.common.arena.base(), memory.common.arena.len())?;
        }
        Ok(memory)
    }

    /// What watches this memory.
    pub(crate) fn watch(&self) -> Watch {
        // SAFETY: the descriptor stays open until the handler is joined, because the drop detaches first. It is only
        // replaced in a new child, where the parent's handler does not run.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd().as_raw_fd()) };
        Watch::Userfaultfd(Served {
            fd,
            base: self.common.arena.base(),
            len: self.common.arena.len(),
            bell: self.common.pool.bell(),
            zeros: self.common.zeros.of(PAGE_SIZE),
            can_poison: self.features.poison,
        })
    }

    /// Implements [`RealMemory::present_pages_of_sparse`](crate::RealMemory::present_pages_of_sparse).
    pub(crate) fn present_pages_of_sparse(
        &self,
        range: PageRange,
        visit: &mut dyn FnMut(PageRange),
    ) {
        self.common.present_pages_of_sparse(range, visit);
    }

    /// Implements [`RealMemory::takes_out_by_move`](crate::RealMemory::takes_out_by_move).
    pub(crate) fn takes_out_by_move(&self) -> bool {
        self.can_move
    }

    /// Returns the descriptors that operations on this memory need.
    pub(crate) fn descriptors(&self) -> Vec<i32> {
        let cells = [&self.uffd, &self.mem, &self.device];
        let open = cells.into_iter().filter_map(FdCell::get);
        open.map(|fd| fd.as_raw_fd())
            .chain(self.common.descriptors())
            .collect()
    }

    /// Registers the frame pool with the current descriptor.
    fn register_pool(&self) -> Result<(), MmuError> {
        let pool = self.common.pool.memory();
        self.register_in_pool(pool.base(), pool.len())
    }

    /// Registers a part of the pool. It is also registered for write protection, which nobody uses there: that
    /// distinguishes the mappings of the pool from a leaf that comes with its table, and so keeps the kernel from
    /// merging neighbours (`leaf.rs`).
    fn register_in_pool(&self, start: usize, len: usize) -> Result<(), MmuError> {
        self.register(start, len, self.features.protect)
    }

    /// Registers a part of the arena, all of which must be ours.
    fn register_arena(&self, start: usize, len: usize) -> Result<(), MmuError> {
        self.register(start, len, !self.can_move)
    }

    fn register(&self, start: usize, len: usize, for_writes: bool) -> Result<(), MmuError> {
        ioctl::register(self.fd(), start, len, for_writes).map_err(|errno| MmuError::Register {
            start,
            bytes: len,
            errno,
        })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.uffd
            .get()
            .expect("the descriptor lives as long as the memory")
    }
}
