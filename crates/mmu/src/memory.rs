//! What a memory that pages come to and go from can do: the seam between the driver and the memory that it manages.
//!
//! Core's [`Mmu`] is what the core's commands need. The driver needs a little more: regions that are opened and closed,
//! ranges that are handed over to other addresses, a look at the page tables. [`Memory`] is both together. The driver
//! is generic over it, and every fault is compiled for the memory that serves it: [`RealMemory`] in a program, a
//! simulated one where threads are scheduled by a test.
//!
//! What can only be said of real memory is not part of the trait: the delivery of faults, descriptors, and the fork of
//! the process.
//!
//! [`RealMemory`]: crate::RealMemory

use millpond_core::{Mmu, PageCount, PageIndex, PageRange};

use crate::error::MmuError;

/// Memory as the driver sees it.
///
/// A call concerns an arena of pages that begins with page 0. Ranges lie inside it, and are of any length unless said
/// otherwise. An error leaves everything as it was. No call waits for a thread that works on memory.
pub trait Memory: Mmu + 'static {
    /// All pages of the arena.
    fn arena(&self) -> PageRange;

    /// The address of a page, as messages and recordings name it.
    fn address(&self, page: PageIndex) -> usize;

    /// Lets the program read and write a range: a region begins.
    ///
    /// # Errors
    /// The memory refuses it.
    fn open(&self, range: PageRange) -> Result<(), MmuError>;

    /// Takes all access from a range, of which no page is mapped.
    ///
    /// # Errors
    /// The memory refuses it.
    fn close(&self, range: PageRange) -> Result<(), MmuError>;

    /// Makes a range of which nobody uses anything as new: empty, and without access.
    ///
    /// # Errors
    /// The memory refuses it.
    fn renew(&self, range: PageRange) -> Result<(), MmuError>;

    /// Notes that nobody touches the range any more before it is made [new](Self::renew), so that dropping its pages
    /// may be made cheaper.
    ///
    /// # Errors
    /// Nothing is made cheaper.
    fn unwatch(&self, _range: PageRange) -> Result<(), MmuError> {
        Ok(())
    }

    /// Takes new pages of a range from the memory of `node`, a number of the system's.
    ///
    /// # Errors
    /// New pages come from where the system likes.
    fn place(&self, _range: PageRange, _node: u32) -> Result<(), MmuError> {
        Ok(())
    }

    /// The pages around `page` that the program may use, as far as a fault's window can reach. `page` is one of them.
    fn usable_around(&self, page: PageIndex) -> PageRange;

    /// Calls `visit` for the runs of mapped pages in the range, lowest first.
    fn present_pages(&self, range: PageRange, visit: &mut dyn FnMut(PageRange));

    /// Zeroes the pages of `at` if all of them are mapped. The answer is false when one is missing, or when that
    /// cannot be found out; some may be zeroed then.
    ///
    /// # Safety
    /// `at` is part of an open region, and no reference to its bytes is in use.
    unsafe fn zero_if_mapped(&self, at: PageRange) -> bool;

    /// Keeps pages, which the core has pinned, in a state in which the kernel can use them too, until
    /// [`unpinned`](Self::unpinned) is called as often. Mapped pages of most memories always are.
    fn pinned(&self, _range: PageRange) {}

    /// Ends one [`pinned`](Self::pinned) of each page.
    fn unpinned(&self, _range: PageRange) {}

    /// Moves the pages that are mapped in `from` to `to`, which is as long and begins alike in its leaf. `from` is
    /// empty afterwards. As many pages before `from` and behind it as `beside` says may be moved along and back.
    ///
    /// # Safety
    /// Nothing else is under way in either range, no thread of the program touches `from` meanwhile, and `to` is
    /// nobody's. All of this holds for the pages beside the ranges, too.
    ///
    /// # Errors
    /// The memory refuses the move.
    unsafe fn hand_over(
        &self,
        from: PageRange,
        to: PageRange,
        beside: (PageCount, PageCount),
    ) -> Result<(), MmuError>;

    /// Moves pages as [`hand_over`](Self::hand_over) does, while threads of the program may touch both ranges.
    /// Afterwards `from` is empty, and open if `keep` is set.
    ///
    /// # Safety
    /// Nothing else is under way in either range, and `to` is nobody's.
    ///
    /// # Errors
    /// The memory refuses the move.
    unsafe fn hand_over_watched(
        &self,
        from: PageRange,
        to: PageRange,
        keep: bool,
    ) -> Result<(), MmuError>;

    /// Whether the pages of `bytes` are known to be neighbours in the machine's memory: a huge page.
    fn is_in_one_piece(&self, _bytes: &[u8]) -> bool {
        false
    }

    /// Whether a stream of first touches wants [`make_huge_ready`](Self::make_huge_ready). The answers of these five
    /// methods are those of a memory that makes no pages ahead of need.
    fn wants_huge_ready(&self) -> bool {
        false
    }

    /// Makes one more huge page of zeros ahead of need. False when none is wanted, or none can be had now.
    fn make_huge_ready(&self) -> bool {
        false
    }

    /// The memory that huge pages made ahead of need take.
    fn huge_ready(&self) -> PageCount {
        PageCount::ZERO
    }

    /// Gives the huge pages that were made ahead of need back.
    fn drop_huge_ready(&self) {}

    /// Notes that a period is over, in which huge pages made ahead of need were asked for or not.
    fn settle_huge_ready(&self) {}
}
