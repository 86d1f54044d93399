//! What memory must provide so that pages can come and go: the seam between the driver and the memory that it
//! manages.
//!
//! The core's [`Mmu`] is what the core's commands need. The driver needs a little more: regions that are opened and
//! closed, ranges that are handed over to other addresses, a look at the page tables. [`Memory`] combines both. The
//! driver is generic over it, and the whole fault path is compiled for the memory that serves it: [`RealMemory`] in a
//! program, a simulated one where a test schedules the threads.
//!
//! Whatever concerns only real memory is not part of the trait: the delivery of faults, descriptors, and forking the
//! process.
//!
//! [`RealMemory`]: crate::RealMemory

use millpond_core::{Mmu, PageCount, PageIndex, PageRange};

use crate::error::MmuError;

/// Memory as the driver sees it.
///
/// Every call concerns an arena of pages that begins with page 0. Ranges lie inside it, and may have any length
/// unless stated otherwise. A failed call leaves everything unchanged. No call waits for a thread that works on
/// memory.
pub trait Memory: Mmu + 'static {
    /// Returns all pages of the arena.
    fn arena(&self) -> PageRange;

    /// Returns the address of a page, as messages and recordings name it.
    fn address(&self, page: PageIndex) -> usize;

    /// Lets the program read and write a range: a region begins.
    ///
    /// # Errors
    /// The memory refuses.
    fn open(&self, range: PageRange) -> Result<(), MmuError>;

    /// Removes all access from a range in which no page is mapped.
    ///
    /// # Errors
    /// The memory refuses.
    fn close(&self, range: PageRange) -> Result<(), MmuError>;

    /// Resets a range that nobody uses: it becomes empty and inaccessible.
    ///
    /// # Errors
    /// The memory refuses.
    fn renew(&self, range: PageRange) -> Result<(), MmuError>;

    /// Notes that nobody touches the range any more until it is [renewed](Self::renew), so that dropping its pages
    /// may become cheaper.
    ///
    /// # Errors
    /// Dropping them does not become cheaper.
    fn unwatch(&self, _range: PageRange) -> Result<(), MmuError> {
        Ok(())
    }

    /// Takes new pages of a range from `node`, a NUMA node by its system number.
    ///
    /// # Errors
    /// New pages come from wherever the system chooses.
    fn place(&self, _range: PageRange, _node: u32) -> Result<(), MmuError> {
        Ok(())
    }

    /// Returns the pages around `page` that the program may use, as far as a fault's window can reach. `page` is one
    /// of them.
    fn usable_around(&self, page: PageIndex) -> PageRange;

    /// Calls `visit` for each run of mapped pages in the range, lowest first.
    fn present_pages(&self, range: PageRange, visit: &mut dyn FnMut(PageRange));

    /// Zeroes the pages of `at` if all of them are mapped. Returns false when one is missing, or when the memory
    /// cannot tell; some may be zeroed by then.
    ///
    /// # Safety
    /// `at` is part of an open region, and no reference to its bytes is in use.
    unsafe fn zero_if_mapped(&self, at: PageRange) -> bool;

    /// Keeps pages that the core has pinned in a state in which the kernel can also use them, until
    /// [`unpinned`](Self::unpinned) is called equally often. In most kinds of memory, mapped pages always are in that
    /// state.
    fn pinned(&self, _range: PageRange) {}

    /// Ends one [`pinned`](Self::pinned) of each page.
    fn unpinned(&self, _range: PageRange) {}

    /// Moves the mapped pages of `from` to `to`, which has the same length and the same offset within its leaf.
    /// Afterwards `from` is empty. The call may also move up to `beside` pages before and after `from`, and move them
    /// back.
    ///
    /// # Safety
    /// No other operation is in progress in either range, no thread of the program touches `from` meanwhile, and
    /// nobody owns `to`. The same holds for the pages next to the ranges.
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
    /// No other operation is in progress in either range, and nobody owns `to`.
    ///
    /// # Errors
    /// The memory refuses the move.
    unsafe fn hand_over_watched(
        &self,
        from: PageRange,
        to: PageRange,
        keep: bool,
    ) -> Result<(), MmuError>;

    /// Whether the pages of `bytes` are known to be contiguous in physical memory, as a huge page.
    fn is_in_one_piece(&self, _bytes: &[u8]) -> bool {
        false
    }

    /// Whether a stream of first touches wants [`make_huge_ready`](Self::make_huge_ready). By default, these five
    /// methods behave as for a memory that makes no pages ahead of need.
    fn wants_huge_ready(&self) -> bool {
        false
    }

    /// Makes one more huge page of zeros ahead of need. Returns false when none is wanted, or none is available now.
    fn make_huge_ready(&self) -> bool {
        false
    }

    /// Returns how much memory the huge pages made ahead of need take.
    fn huge_ready(&self) -> PageCount {
        PageCount::ZERO
    }

    /// Frees the huge pages made ahead of need.
    fn drop_huge_ready(&self) {}

    /// Ends a period, during which huge pages made ahead of need were or were not requested.
    fn settle_huge_ready(&self) {}
}
