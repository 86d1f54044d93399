//! [`RealMemory`]: memory that is watched by a userfaultfd, or by protections. The choice is made once, when memory is
//! made. Each operation asks once, where it begins; what it does is compiled for each kind.
//!
//! The state of folios in the core, not locks here, decides which operations may run beside each other:
//!
//! | | same folio or frame | other folios |
//! | --- | --- | --- |
//! | install, copy, take_out, take_out_leaf (all of leaf and block), fill, read_frame, free_frames | never (in flight; frames are leased, a mistake panics) | freely |
//! | zero_in_place, is_blank | never beside an operation that maps or unmaps | freely |
//! | zap, poison | never beside install or take_out | freely |
//! | the program's reads, writes, system calls | any time: they see the old page, the new page, or fault | freely |
//! | open, close, renew | never beside an operation on the same pages | freely |
//! | hand_over | nothing else runs, and the program does not touch the source | nothing else runs |
//! | hand_over_watched | nothing else runs but the program and the thread that reads faults | nothing else runs but these |
//! | before_fork … after_fork | nothing else runs: the caller is quiet | nothing else runs |

mod operations;

use std::sync::Arc;

use millpond_core::{PageCount, PageIndex, PageRange};

use crate::common::{Capture, Common};
use crate::config::MemoryConfig;
use crate::delivery::FaultSink;
use crate::error::MmuError;
use crate::protection::ProtectedMemory;
use crate::sys::pagemap;
use crate::uffd::{Offer, UffdMemory};

/// Real memory: the implementation of [`Memory`](crate::Memory) in a program. The crate's documentation has an
/// overview.
#[expect(
    clippy::large_enum_variant,
    reason = "a process has one, or a few, and they stay where they are"
)]
pub enum RealMemory {
    /// A userfaultfd watches the arena.
    Uffd(UffdMemory),
    /// Protections watch it, because userfaultfd is refused.
    Protected(ProtectedMemory),
}

/// Has the memory that there is do something.
macro_rules! each_kind {
    ($memory:expr, $kind:ident => $work:expr) => {
        match $memory {
            RealMemory::Uffd($kind) => $work,
            RealMemory::Protected($kind) => $work,
        }
    };
}
use each_kind;

impl RealMemory {
    /// Reserves the arena and the frame pool, and begins to watch them. Afterwards no page of either is mapped, no
    /// region is open and nothing is delivered yet.
    ///
    /// # Errors
    /// The length is bad, userfaultfd is refused, a feature is missing, or there is no address space. Nothing is left
    /// behind.
    pub fn new(config: MemoryConfig) -> Result<Self, MmuError> {
        config.check()?;
        crate::held::decline_huge_pages();
        if config.mask.scan {
            pagemap::do_without_scan();
        }
        let offer = Offer::to(&config);
        match offer.features {
            Ok(_) => UffdMemory::new(&config, offer).map(Self::Uffd),
            Err(refused) => ProtectedMemory::new(&config, refused).map(Self::Protected),
        }
    }

    /// The arena's first byte, aligned to 2 MiB.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(self.common().arena.base())
    }

    /// The arena's length in bytes.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "an arena has at least one leaf"
    )]
    pub fn len(&self) -> usize {
        self.common().arena.len()
    }

    /// The page that holds the address, or `None` for an address outside the arena.
    #[must_use]
    pub fn page_of(&self, addr: usize) -> Option<PageIndex> {
        self.common().page_of(addr)
    }

    /// The address of the page's first byte.
    ///
    /// # Panics
    /// When the page is outside the arena (its end is allowed).
    #[must_use]
    pub fn addr_of(&self, page: PageIndex) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(self.common().at(page))
    }

    /// Notes whether the program may use the pages of a range that is open, after it has changed their protection.
    ///
    /// # Errors
    /// [`MmuError::OutsideArena`].
    pub fn note_access(&self, range: PageRange, usable: bool) -> Result<(), MmuError> {
        self.common().note_access(range, usable)
    }

    /// [`present_pages`](crate::Memory::present_pages) for a long range of which the program uses little. Where the
    /// kernel has no `PAGEMAP_SCAN` (Linux 6.7) it looks only at leaves of which the program may use something: no
    /// thread can have touched another.
    pub fn present_pages_of_sparse(&self, range: PageRange, visit: &mut dyn FnMut(PageRange)) {
        each_kind!(self, kind => kind.present_pages_of_sparse(range, visit));
    }

    /// How many pages of the range are now mapped as parts of huge pages. The answer is 0 where the kernel does not
    /// tell (before Linux 6.7).
    #[must_use]
    pub fn huge_pages(&self, range: PageRange) -> PageCount {
        self.common().huge_pages(range)
    }

    /// Whether pages are taken out by `UFFDIO_MOVE`.
    #[must_use]
    pub fn takes_out_by_move(&self) -> bool {
        matches!(self, Self::Uffd(kind) if kind.takes_out_by_move())
    }

    /// Whether [`hand_over`](crate::Memory::hand_over) moves a pointer for each 2 MiB. The kernel does so on x86-64 and
    /// AArch64.
    #[must_use]
    pub fn hands_over_by_tables(&self) -> bool {
        matches!(self, Self::Uffd(kind) if kind.hands_over_by_tables())
    }

    /// Whether [`hand_over_watched`](crate::Memory::hand_over_watched) works here: it needs a thread that reads the
    /// kernel's events, or memory that is watched by protections.
    #[must_use]
    pub fn can_hand_over_watched(&self) -> bool {
        match self {
            Self::Uffd(kind) => kind.can_hand_over_watched(),
            Self::Protected(_) => true,
        }
    }

    /// The descriptors that operations on this memory need, for threads with a descriptor table of their own.
    #[must_use]
    pub fn descriptors(&self) -> Vec<i32> {
        each_kind!(self, kind => kind.descriptors())
    }

    /// Takes new pages of a node's part of the frame pool from that node. The part is number `part` of `of` equal
    /// parts of each order.
    ///
    /// # Errors
    /// The reasons are those of [`place`](crate::Memory::place).
    pub fn place_pool(&self, part: u8, of: u8, node: u32) -> Result<(), MmuError> {
        self.common().place_pool(part, of, node)
    }

    /// Copies `len` bytes from `from` to `to`, of which one or both lie in the arena. The answer is false when a page
    /// is missing, or when that cannot be found out here; a part may be copied then.
    ///
    /// # Safety
    /// The conditions are those of [`std::ptr::copy_nonoverlapping`], but that memory of the arena may be absent.
    #[must_use]
    pub unsafe fn copy_nofault(&self, from: *const u8, to: *mut u8, len: usize) -> bool {
        // SAFETY: the caller guarantees it.
        unsafe { self.common().copy_nofault(from, to, len) }
    }

    /// Delivers faults to `sink` from now on.
    ///
    /// With handler delivery this starts a thread, which must be able to allocate from a heap that is not managed.
    ///
    /// # Errors
    /// [`MmuError::AlreadyAttached`], or the error that keeps the delivery from starting.
    pub fn attach(&self, sink: Arc<dyn FaultSink>) -> Result<(), MmuError> {
        each_kind!(self, kind => kind.common().attach(&kind.watch(), sink))
    }

    /// Stops the delivery and waits until no fault is being resolved. Threads that fault afterwards wait (handler) or
    /// get SIGBUS (in-thread). Nothing happens when nothing is attached. A sink must not call this.
    pub fn detach(&self) {
        self.common().detach();
    }

    /// Makes the next fork inherit arena and pool. The caller keeps every other operation away until the fork is
    /// over.
    pub fn before_fork(&self) {
        self.before_fork_using(&[]);
    }

    /// [`before_fork`](Self::before_fork) for a caller that touches these ranges before the fork is over, where they
    /// are in memory.
    pub fn before_fork_using(&self, ranges: &[PageRange]) {
        match self {
            Self::Uffd(kind) => kind.before_fork(),
            Self::Protected(kind) => kind.before_fork(ranges),
        }
    }

    /// Ends the inheritance: later children, those made behind the caller's back, do not inherit arena and pool.
    pub fn after_fork_in_parent(&self) {
        each_kind!(self, kind => kind.after_fork_in_parent());
    }

    /// Gives a new child, in its only thread, a watch and delivery of its own. It must be called before any touch of
    /// managed memory in the child. Where it is served directly, [`read_events_in_child`](Self::read_events_in_child)
    /// comes next.
    ///
    /// `foreign` (in order and apart) are the ranges that the program has put other mappings over. The kernel would
    /// take private and anonymous mappings among these for ours.
    ///
    /// # Errors
    /// The errors are those of [`new`](Self::new) and [`attach`](Self::attach). The child cannot use managed memory
    /// then and should exit.
    pub fn after_fork_in_child(&self, foreign: &[PageRange]) -> Result<(), MmuError> {
        match self {
            Self::Uffd(kind) => kind.after_fork_in_child(foreign),
            Self::Protected(kind) => kind.after_fork_in_child(),
        }
    }

    /// Starts the thread that reads events in a child that is served directly, once faults are served there: for the
    /// new thread the C library may call an allocator of the program's own, which touches managed memory. The caller
    /// holds no lock that a fault takes. Nothing happens with other deliveries.
    ///
    /// # Errors
    /// There is no thread.
    pub fn read_events_in_child(&self) -> Result<(), MmuError> {
        each_kind!(self, kind => kind.common().read_events_in_child(&kind.watch()))
    }

    /// Whether memory is watched by protections, because there is no userfaultfd.
    #[must_use]
    pub fn is_watched_by_protections(&self) -> bool {
        self.protected().is_some()
    }

    /// Gives the program this protection (the bits of `mprotect`) for a range that is open: pages get it when they come
    /// in, and those that are there at once. The answer is `None` where the kernel keeps the protection, and the
    /// program calls `mprotect` itself.
    pub fn protect_pages(&self, range: PageRange, prot: i32) -> Option<Result<(), MmuError>> {
        Some(self.protected()?.protect_pages(range, prot))
    }

    /// Gives a range up to a mapping of somebody else's, which is there or soon will be: no page comes in there any
    /// more, and no protection is changed. [`renew`](crate::Memory::renew) makes the range part of the arena again.
    ///
    /// This is for memory that is watched by protections. Elsewhere [`unwatch`](crate::Memory::unwatch) does as much.
    pub fn cede(&self, range: PageRange) {
        if let Some(memory) = self.protected() {
            memory.protection().cede(range);
        }
    }

    /// The number of runs of pages that the kernel has to keep apart, where memory is watched by protections.
    #[must_use]
    pub fn open_runs(&self) -> Option<usize> {
        Some(self.protected()?.protection().runs())
    }

    /// Has memory that is watched by protections get by with so few runs, for a test.
    #[doc(hidden)]
    pub fn limit_runs(&self, runs: usize) {
        if let Some(memory) = self.protected() {
            memory.protection().limit_runs(runs);
        }
    }

    fn protected(&self) -> Option<&ProtectedMemory> {
        match self {
            Self::Uffd(_) => None,
            Self::Protected(kind) => Some(kind),
        }
    }

    fn common(&self) -> &Common {
        each_kind!(self, kind => kind.common())
    }
}

impl Drop for RealMemory {
    fn drop(&mut self) {
        self.detach();
    }
}
