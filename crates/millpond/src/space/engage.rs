//! A space that nobody manages until it must be: dormant, then engaged, once.
//!
//! *Dormant* the space is a reservation, and its memory the kernel's. There is no userfaultfd, no table, no thread, no
//! store. A process whose memory stays far below its budget never pays for more.
//!
//! *Engaging* makes the manager, takes the addresses over where they lie, and adopts the pages that are in memory
//! ([`Driver::adopt`](millpond_driver::Driver)). It takes 40 µs for the descriptors and tables, and some milliseconds
//! for each GiB that is in memory. The caller knows what the program has opened, protected and mapped over.
//!
//! *One thread.* No thread may touch the space during the call but for the caller's stack, and no system call of
//! another thread may be under way that names memory in the space: the kernel would find a page gone that was there
//! when the call began. A process with a single thread fulfils both, and one whose other threads have been stopped
//! outside of system calls. The threads of the space are made by a call of their own ([`Space::start_threads`]), when
//! the others run again: one that was stopped may hold a lock of the C library.

use super::{Lengths, Space, SpaceOptions};
use crate::error::BuildError;
use crate::manager::Pond;
use millpond_core::{OrderPolicy, PageRange};
use millpond_driver::Driver;
use millpond_mmu::DormantMemory;

/// A range that the program has opened, of one protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// First address.
    pub start: usize,
    /// Length in bytes.
    pub len: usize,
    /// Whether the program may use it now.
    pub usable: bool,
}

/// What a dormant space keeps for the time when it is engaged.
pub(super) struct Dormant {
    pub(super) memory: DormantMemory,
    pub(super) ram: u64,
}

impl Space {
    /// Reserves addresses as [`SpaceOptions::address_space`] and [`SpaceOptions::bases`] say, and does nothing else.
    /// [`Space::engage`] makes the rest. `ram` is the budget, which [`Space::stats`] tells.
    ///
    /// # Errors
    /// [`BuildError::Memory`] when the addresses cannot be had.
    pub fn dormant(
        address_space: u64,
        bases: &[usize],
        ram: u64,
    ) -> Result<&'static Self, BuildError> {
        let lengths = Lengths::of(address_space);
        let memory = DormantMemory::new(lengths.sum() as usize, bases)?;
        let space = Self::at(memory.base(), lengths, Some(Dormant { memory, ram }));
        Ok(Box::leak(Box::new(space)))
    }

    /// Returns whether the space is not managed yet.
    #[must_use]
    pub fn is_dormant(&self) -> bool {
        self.managed.get().is_none()
    }

    /// Begins to manage a dormant space, with these options but for its addresses. The budget holds from now on, as far
    /// as threads that fault can keep it: [`Space::start_threads`] comes next.
    /// `opened` are the ranges that the program has opened, `held` (address, length) the parts of these that stay in
    /// memory, and `foreign` (in order and apart) the ranges that lie under other mappings. The head of
    /// `space/engage.rs` says what other threads may do meanwhile.
    ///
    /// # Errors
    /// As for [`Space::create`]; then nothing has changed, and the space may be engaged with other options.
    /// [`BuildError::Adopt`], or an error of memory that is watched already: the space must not be used any more.
    ///
    /// # Panics
    /// When the space is managed already.
    pub fn engage(
        &self,
        options: &SpaceOptions,
        opened: &[Opened],
        held: &[(usize, usize)],
        foreign: &[(usize, usize)],
    ) -> Result<(), BuildError> {
        assert!(self.is_dormant(), "a space is engaged once");
        let builder = options.builder(self.lengths).reserved(self.base);
        let driver = builder.driver()?;
        let pages = |&(addr, len): &(usize, usize)| self.touched(addr, len);
        let foreign: Vec<PageRange> = foreign.iter().filter_map(pages).collect();
        let held: Vec<PageRange> = held.iter().filter_map(pages).collect();
        self.manage(driver, |driver| {
            self.take_over(&driver, options.order, opened, &held, &foreign)?;
            Pond::without_threads(driver, None)
        })
    }

    fn take_over(
        &self,
        driver: &Driver,
        order: OrderPolicy,
        opened: &[Opened],
        held: &[PageRange],
        foreign: &[PageRange],
    ) -> Result<(), BuildError> {
        driver.mmu.take_over(foreign)?;
        for &Opened { start, len, usable } in opened {
            let Some(range) = self.touched(start, len) else {
                continue;
            };
            driver.mmu.was_open(range)?;
            if !usable {
                driver.mmu.note_access(range, false)?;
            }
            driver.adopt(range, order).map_err(BuildError::Adopt)?;
        }
        for &range in held {
            driver.pin_in_any_case(range).map_err(BuildError::Adopt)?;
        }
        Ok(())
    }
}
