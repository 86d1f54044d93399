//! Takes scattered pages of a leaf out together: the leaf's page-table entries are exchanged with those of an empty
//! block of the pool.
//!
//! `UFFDIO_MOVE` takes one run of neighbours at a time, and each call interrupts the processors that run other
//! threads of the process. If every second page of a leaf has to go, that is 256 interrupts. `mremap` moves the
//! entries of all 2 MiB under one lock and interrupts once. With `MREMAP_DONTUNMAP` the leaf stays mapped, empty and
//! registered with userfaultfd: a thread that touches it faults as on any absent page, and whatever a thread wrote
//! before the interrupt is in the page that moved. The table has median times in µs. An interrupt took 18 µs when
//! they were measured, with other work on both processors (without that work it took 9.5):
//!
//! | pages of the leaf | 1 | 32 | 128 | 256 | 512 |
//! | --- | --- | --- | --- | --- | --- |
//! | alone: by moves | 1.3 | 31 | 127 | 250 | 40 |
//! | alone: by table, into a new block / a used block | 8 / 9 | 8 / 10 | 9 / 11 | 11 / 12 | 17 / 18 |
//! | with another thread running: by moves | 19 | 600 | 2,430 | 4,900 | 94 |
//! | with another thread running: by table, new / used | 28 / 47 | 30 / 49 | 33 / 51 | 43 / 60 | 55 / 74 |
//!
//! A used block has an empty page table, which the kernel frees on the way, with an interrupt of its own. About half
//! of the time alone is not the move: 1 µs is for the checks before it, 1 µs for the calls that make the block a part
//! of the pool, and 2 µs for the look at what has arrived. When 4,000 blocks are taken one after the other, the last
//! costs as much as the first, and a move of one page costs the same as before.
//!
//! *Refusals that `mremap` does not make.* `UFFDIO_MOVE` refuses memory that the program locked or made read-only.
//! `mremap` moves it, and gives the pool a block that cannot be written to, or removes the lock from the whole
//! mapping. So we ask the kernel first, with two calls that change nothing. `msync(MS_INVALIDATE)` fails if anything
//! is locked. And a move of 2 MiB *from* the block *to* the leaf is refused because the block is empty (or the leaf
//! is not), but only after the kernel has checked that each of the two is part of one mapping, that the leaf is
//! registered here, and that their protections and locks are alike. The program may still change something between
//! the checks and the move. A change to a part of the leaf splits it into two mappings, which `mremap` refuses. A
//! change to a larger area that contains the whole leaf has the same effect as if it had been made after the pages
//! were gone. In the same way we ask whether the block is like the rest of the pool, and if not, we undo the settings
//! that it has inherited. No check detects `MADV_WIPEONFORK`; it would empty frames in children, so it is undone for
//! the whole pool before each fork that inherits it (`fork.rs`). `MADV_DONTFORK` and `MADV_NOHUGEPAGE` are the same
//! in arena and pool from the start. The memory policy that comes along is the leaf's: a preference for later pages
//! of these places, until the next leaf.
//!
//! *What `mremap` does not detect.* A page that a device writes to moves anyway, so this method is only for in-thread
//! delivery, where the program pins what it hands to the kernel. With handler delivery the kernel would also report
//! the move, and wait until the report is read. The program's own `MADV_FREE` and guard pages travel along: a program
//! that requests these from the kernel in managed memory gets a frame that vanishes, or that cannot be read.
//!
//! *Pages shared with a child* after a fork: the entries move as they are. When such a page comes back, it is busy,
//! and is copied like any other.
//!
//! *The block is a separate mapping from then on*, because it keeps the offsets of the leaf. It is no longer
//! registered, and is registered again before any other thread may use it. No call may cross its border (`pool.rs`).
//! Neighbouring leaves in neighbouring blocks could be one mapping: the kernel would merge them on the way, and take
//! both out of userfaultfd. It only does so with mappings that are registered alike, and these are not: the pool is
//! also registered for write protection, and the arena is not.
//!
//! *Waiting threads.* The move, and registering the block, lock the process's memory map exclusively; the checks
//! share it with faults. A fault in the mapping of the leaf sleeps meanwhile, which takes 50 µs and more, so that
//! mapping is a small part of the arena (`parts.rs`).
//!
//! *When the move fails*, the block may already be unmapped: the kernel makes room before it looks closer. The block
//! is mapped again, or the process stops. A foreign mapping that was made there meanwhile is not touched. The one
//! foreseeable reason why the block could not be mapped again is that the program has limited its address space to
//! less than it uses. Under any such limit no leaf is moved.

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use millpond_core::{
    Frame, LEAF_PAGES, LeafPages, PAGE_SHIFT, PAGE_SIZE, PageIndex, PageRange, TakeOutError,
};

use super::UffdMemory;
use crate::common::{Install, watched};
use crate::delivery::Delivery;
use crate::error::MmuError;
use crate::held::Taking;
use crate::report;
use crate::reservation::HUGE;
use crate::sys::{ioctl, pagemap, remap};

impl UffdMemory {
    /// Implements [`Mmu::take_out_leaf`](millpond_core::Mmu::take_out_leaf).
    pub(super) fn capture_leaf(
        &self,
        at: PageRange,
        frame: Frame,
        pages: &LeafPages,
    ) -> Result<(), TakeOutError> {
        assert!(
            at.len.0 == LEAF_PAGES && at.start.0.is_multiple_of(LEAF_PAGES),
            "{at} is not a leaf"
        );
        if !self.can_move || !self.features.protect || self.common.delivery != Delivery::InThread {
            return Err(TakeOutError::Immovable);
        }
        let lease = self.common.pool.lease_block(frame);
        let lease = lease.ok_or(TakeOutError::Immovable)?;
        let (leaf, block) = (self.common.at(at.start), lease.addr());
        let taking = Taking::begin();
        if taking.is_held(leaf, HUGE) {
            return Err(TakeOutError::Busy);
        }
        // Phase 1: the mapping must be as it was made.
        if !may_map_again() || !remap::is_mapped_unlocked(leaf, HUGE) {
            return Err(TakeOutError::Immovable);
        }
        self.may_move(leaf, block)?;
        // Phase 2: exchange the entries.
        self.parts.part_off(&self.common.arena, leaf);
        self.move_leaf(leaf, block)?;
        // Phase 3: compare the pages that the block should have with those that it has.
        self.compare(leaf, block, pages);
        Ok(())
    }

    /// Whether leaf and block are each part of one mapping, and these are compatible. The kernel checks that before
    /// it looks for the page that it should move, which does not exist.
    fn may_move(&self, leaf: usize, block: usize) -> Result<(), TakeOutError> {
        // SAFETY: the block is leased and empty, so nothing moves; the arena is only seen through raw pointers.
        let answer = unsafe { ioctl::move_pages(self.fd(), leaf, block, HUGE, ioctl::DONT_WAKE) };
        match answer {
            (0, Some(Errno::EXIST | Errno::NOENT)) => Ok(()),
            (0, Some(Errno::AGAIN)) => Err(TakeOutError::Busy),
            (0, Some(_)) => Err(TakeOutError::Immovable),
            _ => report::stop(format_args!(
                "the block at {block:#x} was to be empty and is not: stopped, to lose nothing silently"
            )),
        }
    }

    fn move_leaf(&self, leaf: usize, block: usize) -> Result<(), TakeOutError> {
        // SAFETY: the leaf is arena memory, which Rust only sees through raw pointers; the block is leased and empty.
        if let Err(errno) = unsafe { remap::move_tables(leaf, block, HUGE) } {
            self.restore_block(block);
            return Err(if errno == Errno::NOMEM {
                TakeOutError::Busy
            } else {
                TakeOutError::Immovable
            });
        }
        watched(self.adopt(block));
        Ok(())
    }

    /// Makes a block part of the pool. It may have inherited settings of the leaf that the program changed after the
    /// checks. That is rare, so the calls that undo them are only made if the block differs from the pool.
    fn adopt(&self, block: usize) -> Result<(), MmuError> {
        self.register_in_pool(block, HUGE)?;
        if self.is_registered(block) {
            return Ok(());
        }
        let adopted = self.common.pool.memory().adopt(block, HUGE);
        adopted.map_err(|errno| MmuError::Reserve {
            what: "frame pool",
            bytes: HUGE,
            errno,
        })
    }

    /// Makes the block part of the pool again after a failed move: the kernel unmaps the block before it checks
    /// whether it can move the leaf.
    fn restore_block(&self, block: usize) {
        let failed = |errno| MmuError::Reserve {
            what: "frame pool",
            bytes: HUGE,
            errno,
        };
        match self.common.pool.memory().refill(block, HUGE) {
            Ok(()) => watched(self.register_in_pool(block, HUGE)),
            // The block was never unmapped, or another thread mapped it first.
            Err(Errno::EXIST) if self.is_registered(block) => {}
            Err(errno) => watched(Err(failed(errno))),
        }
    }

    /// Whether the mapping at the block belongs to the pool, and is like it. This asks the kernel as in
    /// [`may_move`](Self::may_move), with a page of the pool that is never there.
    fn is_registered(&self, block: usize) -> bool {
        let never = self.common.pool.bell();
        // SAFETY: no page is at the source, so nothing moves.
        let answer =
            unsafe { ioctl::move_pages(self.fd(), block, never, PAGE_SIZE, ioctl::DONT_WAKE) };
        matches!(answer, (0, Some(Errno::EXIST | Errno::NOENT)))
    }

    /// Fills places whose page was not there with zeros, and sends back pages that `pages` does not name.
    fn compare(&self, leaf: usize, block: usize, pages: &LeafPages) {
        if self.holds_exactly(block, pages) {
            return;
        }
        let mut there = LeafPages::default();
        let looked = pagemap::runs(
            self.common.pagemap(),
            block,
            block + HUGE,
            &mut |from, to| {
                for addr in (from..to).step_by(PAGE_SIZE) {
                    there.add(PageIndex(((addr - block) >> PAGE_SHIFT) as u32));
                }
            },
        );
        if let Err(errno) = looked {
            report::stop(format_args!(
                "/proc/self/pagemap cannot be read ({errno}): what became of a leaf is not known, stopped"
            ));
        }
        for place in 0..LEAF_PAGES {
            let offset = place as usize * PAGE_SIZE;
            match (pages.has(place), there.has(place)) {
                (true, false) => self.populate(block + offset, PAGE_SIZE),
                // A page that the core does not know about (see `install.rs`) stays where the program has it.
                (false, true) => {
                    self.say_surprise(leaf + offset);
                    self.put_back(leaf + offset, block + offset, PAGE_SIZE);
                }
                _ => {}
            }
        }
    }

    /// Whether exactly these pages are in memory at the block. Returns false also if the kernel has swapped one out.
    fn holds_exactly(&self, block: usize, pages: &LeafPages) -> bool {
        let mut resident = [0; LEAF_PAGES as usize];
        pagemap::resident(block, &mut resident).is_ok()
            && (0..)
                .zip(resident)
                .all(|(place, resident)| (resident & 1 == 1) == pages.has(place))
    }
}

/// Whether an unmapped range can be mapped again: that would fail in a program that has limited its memory to less
/// than it uses.
fn may_map_again() -> bool {
    [Resource::As, Resource::Data]
        .into_iter()
        .all(|resource| getrlimit(resource).current.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Delivery;
    use crate::uffd::one_leaf::one_leaf;
    use millpond_core::{Mmu, Order, PageCount};

    /// Guards against protections and locks that came along with a leaf because they were set after the checks.
    #[test]
    fn protections_and_locks_inherited_by_a_block_are_undone() {
        let Some(uffd) = one_leaf(Delivery::InThread) else {
            return;
        };
        let seat = Frame::new(Order::ZERO, LEAF_PAGES + 3);
        let block = uffd.common.pool.addr(Frame::new(Order::ZERO, LEAF_PAGES));
        let at = block as *mut core::ffi::c_void;
        for locked in [false, true] {
            // SAFETY: this is an empty part of the pool that nobody else uses.
            unsafe {
                rustix::mm::mprotect(at, HUGE, rustix::mm::MprotectFlags::READ).unwrap();
                if locked {
                    rustix::mm::mlock_with(at, HUGE, rustix::mm::MlockFlags::ONFAULT).unwrap();
                }
            }
            assert!(!uffd.is_registered(block), "it is not seen");
            uffd.adopt(block).unwrap();
            assert!(uffd.is_registered(block));
            uffd.fill(seat, true, &mut |bytes| {
                bytes.fill(1);
                Ok(())
            })
            .unwrap();
            uffd.free_frames(&[seat]);
        }
    }

    #[test]
    fn a_block_that_was_unmapped_is_made_again() {
        let Some(uffd) = one_leaf(Delivery::InThread) else {
            return;
        };
        let seat = Frame::new(Order::ZERO, LEAF_PAGES + 3);
        let block = uffd.common.pool.addr(Frame::new(Order::ZERO, LEAF_PAGES));
        assert!(uffd.is_registered(block));
        uffd.restore_block(block);
        // SAFETY: this is an empty part of the pool that nobody else uses.
        unsafe { rustix::mm::munmap(block as *mut core::ffi::c_void, HUGE) }.unwrap();
        uffd.restore_block(block);
        assert!(uffd.is_registered(block));
        let first = PageRange::new(PageIndex(0), PageCount(1));
        for _ in 0..2 {
            uffd.install_zero(first, None).unwrap();
            uffd.take_out(first, seat).unwrap();
            uffd.free_frames(&[seat]);
        }
    }
}
