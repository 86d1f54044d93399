//! Forking: the child gets the memory as it was, and serves its own faults from then on.
//!
//! A userfaultfd belongs to the memory of the process that made it. A child inherits the descriptor, and using it
//! would change the *parent's* memory. It does not inherit the registration: its missing pages would silently read as
//! zeros. A fork therefore has three parts:
//!
//! 1. Before the fork the caller quiets everything and lets arena, pool, the buffers for loads and the huge pages'
//!    slots be inherited. (Otherwise they are not: a child made behind our back dies at its first touch, where it
//!    would read wrong data.)
//! 2. The parent forbids the inheritance again.
//! 3. The child makes a descriptor, a page map and a process handle of its own, closes the inherited ones, starts its
//!    own delivery, and registers arena and pool.
//!
//! Where pages are watched by protections, the child inherits the protections, and they are right. It needs only a way
//! to its own closed pages.
//!
//! Parent and child share pages until one of them writes, and a shared page cannot be moved. Then installing copies
//! the page, and taking out makes it the process's own first.

use rustix::io::Errno;

use millpond_core::{PAGE_SIZE, PageCount, PageIndex, PageRange};

use super::Uffd;
use super::open::{open_mem, open_pagemap, open_pidfd, open_uffd};
use crate::error::MmuError;
use crate::report;
use crate::staging::Staging;
use crate::sys::ioctl;

impl Uffd {
    /// Makes the next fork inherit arena and pool. The caller keeps every other operation away until the fork is
    /// over.
    pub fn before_fork(&self) {
        self.before_fork_using(&[]);
    }

    /// [`before_fork`](Self::before_fork) for a caller that touches these ranges before the fork is over, where they
    /// are in memory.
    pub fn before_fork_using(&self, ranges: &[PageRange]) {
        // A ready page that a child shares could not be moved to its destination.
        self.drop_huge_ready();
        // A leaf may have brought along the program's advice to wipe it in children.
        self.pool.memory().keep_on_fork();
        if let Some(protection) = &self.protection {
            protection.before_fork(ranges);
        }
        self.inherit(true);
    }

    /// Ends the inheritance: later children, those made behind the caller's back, do not inherit arena and pool.
    pub fn after_fork_in_parent(&self) {
        self.inherit(false);
        if let Some(protection) = &self.protection {
            protection.after_fork_in_parent();
        }
    }

    /// Gives a new child, in its only thread, userfaultfd and delivery of its own. It must be called before any touch
    /// of managed memory in the child. Where it is served directly, [`Uffd::read_events_in_child`] comes next.
    ///
    /// `foreign` (in order and apart) are the ranges that the program has put other mappings over. The kernel would
    /// take private and anonymous mappings among these for ours.
    ///
    /// # Errors
    /// The errors are those of [`Uffd::new`] and [`Uffd::attach`]. The child cannot use managed memory then and
    /// should exit.
    pub fn after_fork_in_child(&self, foreign: &[PageRange]) -> Result<(), MmuError> {
        crate::held::forget_others_in_child();
        self.pool.forget_leases();
        self.bounce.forget_buffers();
        if let Some(protection) = &self.protection {
            let opened = protection.after_fork_in_child();
            opened.map_err(|errno| MmuError::Open {
                what: "/proc/self/mem",
                errno,
                way_out: "let this process write its own files in /proc",
            })?;
        } else {
            let uffd = open_uffd(self.delivery, self.device.get(), self.can_move, self.mask)?;
            self.uffd.replace(Some(uffd.0));
        }
        self.pagemap.replace(Some(open_pagemap()?));
        self.mem.replace(open_mem());
        self.pidfd.replace(open_pidfd(self.mask));
        // A thread that serves comes first. If memory were registered before, and the C library touched an absent
        // page of it while it makes that thread, the child would wait for ever, without a word. In this order the C
        // library reads zeros, which the caller finds in the page tables and reports.
        self.attach_again_in_child()?;
        if self.is_watched_by_protections() {
            self.inherit(false);
            return Ok(());
        }
        self.register_pool()?;
        let arena = PageRange::new(
            PageIndex(0),
            PageCount((self.arena.len() / PAGE_SIZE) as u32),
        );
        for ours in arena.without(foreign) {
            self.register_pieces(self.at(ours.start), ours.len.bytes() as usize)?;
        }
        self.inherit(false);
        Ok(())
    }

    /// Registers the frame pool with the present descriptor.
    pub(super) fn register_pool(&self) -> Result<(), MmuError> {
        let pool = self.pool.memory();
        self.register_in_pool(pool.base(), pool.len())
    }

    /// Registers a part of the pool. It is registered for write protection, too, which no one uses there: it
    /// distinguishes the mappings of the pool from a leaf that comes by its table, and so keeps the kernel from
    /// merging neighbours (`leaf.rs`).
    pub(super) fn register_in_pool(&self, start: usize, len: usize) -> Result<(), MmuError> {
        if self.is_watched_by_protections() {
            return Ok(());
        }
        ioctl::register(self.fd(), start, len, self.features.protect).map_err(|errno| {
            MmuError::Register {
                start,
                bytes: len,
                errno,
            }
        })
    }

    /// Registers a part of the arena, which must be all ours.
    pub(super) fn register_arena(&self, start: usize, len: usize) -> Result<(), MmuError> {
        if self.is_watched_by_protections() {
            return Ok(());
        }
        ioctl::register(self.fd(), start, len, !self.can_move).map_err(|errno| MmuError::Register {
            start,
            bytes: len,
            errno,
        })
    }

    /// Registers a range. Where there are mappings in it that cannot be registered (files that the caller does not
    /// know of), the rest around them is registered, which halving finds.
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
        let staging = self.staging.as_ref().map(Staging::memory);
        let ours = [&self.arena, self.pool.memory(), self.bounce.memory()];
        for memory in ours.into_iter().chain(staging) {
            if let Err(errno) = memory.inherit(inherit)
                && errno != Errno::NOMEM
            {
                report::line(format_args!(
                    "what a child inherits of {:#x}+{:#x} could not be set ({errno})",
                    memory.base(),
                    memory.len()
                ));
            }
        }
    }
}
