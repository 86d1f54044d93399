//! Forking: the child gets the memory as it was, and serves its own faults from then on.
//!
//! A userfaultfd belongs to the memory of the process that made it. A child inherits the descriptor, and using it
//! would change the *parent's* memory. The child does not inherit the registration, so its missing pages would
//! silently read as zeros. A fork therefore has three parts:
//!
//! 1. Before the fork the caller stops all activity and makes the arena, the pool, the buffers for loads and the
//!    slots for huge pages inheritable. (Otherwise they are not: a child made without telling us dies at its first
//!    touch instead of reading wrong data.)
//! 2. The parent makes them non-inheritable again.
//! 3. The child makes its own descriptor, page map and process handle, closes the inherited ones, starts its own
//!    delivery, and registers arena and pool.
//!
//! Parent and child share pages until one of them writes, and a shared page cannot be moved. Then an install copies
//! the page, and a take-out first makes it the process's own.

use rustix::io::Errno;

use millpond_core::{PAGE_SIZE, PageRange};

use super::UffdMemory;
use super::open::{open_mem, open_uffd};
use crate::error::MmuError;
use crate::memory::Memory;
use crate::sys::ioctl;

impl UffdMemory {
    /// Implements [`RealMemory::before_fork_using`](crate::RealMemory::before_fork_using).
    pub(crate) fn before_fork(&self) {
        // A ready page shared with a child could not be moved to its destination.
        self.drop_huge_ready();
        // A leaf may have brought along the program's advice to wipe it in children.
        self.common.pool.memory().keep_on_fork();
        self.inherit(true);
    }

    /// Implements [`RealMemory::after_fork_in_parent`](crate::RealMemory::after_fork_in_parent).
    pub(crate) fn after_fork_in_parent(&self) {
        self.inherit(false);
    }

    /// Implements [`RealMemory::after_fork_in_child`](crate::RealMemory::after_fork_in_child).
    pub(crate) fn after_fork_in_child(&self, foreign: &[PageRange]) -> Result<(), MmuError> {
        let common = &self.common;
        common.forget_others_in_child();
        let device = self.device.get();
        let (uffd, _) = open_uffd(common.delivery, device, self.can_move, common.mask)?;
        self.uffd.replace(Some(uffd));
        self.mem.replace(open_mem());
        common.open_again_in_child()?;
        // A serving thread comes first. If memory were registered earlier, and the C library touched an absent page
        // of it while creating that thread, the child would silently wait for ever. In this order the C library reads
        // zeros, which the caller finds in the page tables and reports.
        common.attach_again_in_child(&self.watch())?;
        self.register_pool()?;
        for ours in common.pages().without(foreign) {
            self.register_pieces(common.at(ours.start), ours.len.bytes() as usize)?;
        }
        self.inherit(false);
        Ok(())
    }

    /// Registers a range. If it contains mappings that cannot be registered (files that the caller does not know
    /// about), this registers the rest around them, which it finds by halving.
    fn register_pieces(&self, start: usize, len: usize) -> Result<(), MmuError> {
        match ioctl::register(self.fd(), start, len, !self.can_move) {
            Ok(()) => Ok(()),
            Err(Errno::INVAL | Errno::NOMEM | Errno::PERM) if len > PAGE_SIZE => {
                let half = (len / 2).next_multiple_of(PAGE_SIZE);
                self.register_pieces(start, half)?;
                self.register_pieces(start + half, len - half)
            }
            // A single page of a foreign mapping needs no registration.
            Err(Errno::INVAL | Errno::NOMEM | Errno::PERM) => Ok(()),
            Err(errno) => Err(MmuError::Register {
                start,
                bytes: len,
                errno,
            }),
        }
    }

    fn inherit(&self, inherit: bool) {
        self.common.inherit(inherit, self.staging.as_ref());
    }
}
