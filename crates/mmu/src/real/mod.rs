//! [`RealMemory`]: memory that is watched by a userfaultfd, or through protections. The choice is made once, when the
//! memory is created. Each operation checks it once, where it begins; the rest is compiled for each kind.
//!
//! The state of folios in the core, not locks here, decides which operations may run concurrently:
//!
//! | | same folio or frame | other folios |
//! | --- | --- | --- |
//! | install, copy, take_out, take_out_leaf (all of leaf and block), fill, read_frame, free_frames | never (in flight; frames are leased, a mistake panics) | freely |
//! | zero_in_place, is_blank | never concurrent with an operation that maps or unmaps | freely |
//! | zap, poison | never concurrent with install or take_out | freely |
//! | the program's reads, writes, system calls | any time: they see the old page, the new page, or fault | freely |
//! | open, close, renew | never concurrent with an operation on the same pages | freely |
//! | hand_over | nothing else runs, and the program does not touch the source | nothing else runs |
//! | hand_over_watched | only the program and the thread that reads faults run | only these run |
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
    /// Page protections watch it, because userfaultfd is refused.
    Protected(ProtectedMemory),
}

/// Evaluates an expression for either kind of memory.
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
    /// Reserves the arena and the frame pool, and starts watching them. Afterwards no page of either is mapped, no
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
            // Pages that are there would have to be closed one by one.
            Err(refused) if config.reserved.is_some() => Err(refused),
            Err(refused) => ProtectedMemory::new(&config, refused).map(Self::Protected),
        }
    }

    /// Begins to watch an arena that was reserved before ([`MemoryConfig::reserved`]). Pages that are mapped stay where
    /// they are, but for the kernel's shared pages of zeros. No thread touches the arena during the call.
    ///
    /// `foreign` (in order and apart) are the ranges that the program has put other mappings over.
    ///
    /// # Errors
    /// The kernel refuses to watch a range. The arena must not be used any more.
    pub fn take_over(&self, foreign: &[PageRange]) -> Result<(), MmuError> {
        match self {
            Self::Uffd(kind) => kind.take_over(foreign),
            Self::Protected(_) => unreachable!("an arena that was reserved needs userfaultfd"),
        }
    }

    /// Notes that a range is open already, as it was before the arena was taken over.
    ///
    /// # Errors
    /// [`MmuError::OutsideArena`].
    pub fn was_open(&self, range: PageRange) -> Result<(), MmuError> {
        let common = self.common();
        common.span(range)?;
        common.note_open(range, true);
        Ok(())
    }

    /// Returns the address of the arena's first byte, which is aligned to 2 MiB.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(self.common().arena.base())
    }

    /// Returns the arena's length in bytes.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "an arena has at least one leaf"
    )]
    pub fn len(&self) -> usize {
        self.common().arena.len()
    }

    /// Returns the page that contains the address, or `None` for an address outside the arena.
    #[must_use]
    pub fn page_of(&self, addr: usize) -> Option<PageIndex> {
        self.common().page_of(addr)
    }

    /// Returns the address of the page's first byte.
    ///
    /// # Panics
    /// When the page is outside the arena (its end is allowed).
    #[must_use]
    pub fn addr_of(&self, page: PageIndex) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(self.common().at(page))
    }

    /// Records whether the program may use the pages of an open range, after it has changed their protection.
    ///
    /// # Errors
    /// [`MmuError::OutsideArena`].
    pub fn note_access(&self, range: PageRange, usable: bool) -> Result<(), MmuError> {
        self.common().note_access(range, usable)
    }

    /// [`present_pages`](crate::Memory::present_pages) for a long range that the program uses sparsely. If the kernel
    /// has no `PAGEMAP_SCAN` (Linux 6.7), this looks only at leaves where the program may use something: no thread
    /// can have touched the others.
    pub fn present_pages_of_sparse(&self, range: PageRange, visit: &mut dyn FnMut(PageRange)) {
        each_kind!(self, kind => kind.present_pages_of_sparse(range, visit));
    }

    /// Returns how many pages of the range are now mapped as parts of huge pages: 0 if the kernel does not tell
    /// (before Linux 6.7).
    #[must_use]
    pub fn huge_pages(&self, range: PageRange) -> PageCount {
        self.common().huge_pages(range)
    }

    /// Whether pages are taken out by `UFFDIO_MOVE`.
    #[must_use]
    pub fn takes_out_by_move(&self) -> bool {
        matches!(self, Self::Uffd(kind) if kind.takes_out_by_move())
    }

    /// Whether [`hand_over`](crate::Memory::hand_over) moves one pointer for each 2 MiB. The kernel does so on x86-64
    /// and AArch64.
    #[must_use]
    pub fn hands_over_by_tables(&self) -> bool {
        matches!(self, Self::Uffd(kind) if kind.hands_over_by_tables())
    }

    /// Whether [`hand_over_watched`](crate::Memory::hand_over_watched) works here: it needs a thread that reads the
    /// kernel's events, or memory that is watched through protections.
    #[must_use]
    pub fn can_hand_over_watched(&self) -> bool {
        match self {
            Self::Uffd(kind) => kind.can_hand_over_watched(),
            Self::Protected(_) => true,
        }
    }

    /// Returns the descriptors that operations on this memory need, for threads with their own descriptor table.
    #[must_use]
    pub fn descriptors(&self) -> Vec<i32> {
        each_kind!(self, kind => kind.descriptors())
    }

    /// Takes new pages of a node's part of the frame pool from that node. Each order is divided into `of` equal
    /// parts, and `part` is the number of this one.
    ///
    /// # Errors
    /// As for [`place`](crate::Memory::place).
    pub fn place_pool(&self, part: u8, of: u8, node: u32) -> Result<(), MmuError> {
        self.common().place_pool(part, of, node)
    }

    /// Copies `len` bytes from `from` to `to`. One or both lie in the arena. Returns false if a page is missing, or
    /// if this processor or delivery cannot tell; a part may be copied by then.
    ///
    /// # Safety
    /// The conditions are those of [`std::ptr::copy_nonoverlapping`], except that memory of the arena may be absent.
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
    /// [`MmuError::AlreadyAttached`], or the error that prevents the delivery from starting.
    pub fn attach(&self, sink: Arc<dyn FaultSink>) -> Result<(), MmuError> {
        each_kind!(self, kind => kind.common().attach(&kind.watch(), sink))
    }

    /// [`attach`](Self::attach) without a thread: with direct delivery, [`read_events`](Self::read_events) makes it.
    /// Until then a call that the kernel reports in an event, such as one that moves memory, waits.
    ///
    /// # Errors
    /// As for [`attach`](Self::attach).
    pub fn attach_alone(&self, sink: Arc<dyn FaultSink>) -> Result<(), MmuError> {
        each_kind!(self, kind => kind.common().attach_alone(&kind.watch(), sink))
    }

    /// Stops the delivery and waits until no fault is being resolved. Threads that fault afterwards wait (handler) or
    /// get SIGBUS (in-thread). Does nothing if nothing is attached. A sink must not call this.
    pub fn detach(&self) {
        self.common().detach();
    }

    /// Makes the next fork inherit arena and pool. The caller prevents all other operations until the fork is over.
    pub fn before_fork(&self) {
        self.before_fork_using(&[]);
    }

    /// [`before_fork`](Self::before_fork) for a caller that touches these ranges, where they are in memory, before
    /// the fork is over.
    pub fn before_fork_using(&self, ranges: &[PageRange]) {
        match self {
            Self::Uffd(kind) => kind.before_fork(),
            Self::Protected(kind) => kind.before_fork(ranges),
        }
    }

    /// Ends the inheritance: later children, which the caller does not announce, do not inherit arena and pool.
    pub fn after_fork_in_parent(&self) {
        each_kind!(self, kind => kind.after_fork_in_parent());
    }

    /// Gives a new child, in its only thread, its own watch and delivery. Call it before any touch of managed memory
    /// in the child. With direct delivery, call [`read_events`](Self::read_events) next.
    ///
    /// `foreign` (sorted and disjoint) are the ranges that the program has covered with other mappings. The kernel
    /// would mistake private anonymous mappings among these for ours.
    ///
    /// # Errors
    /// As for [`new`](Self::new) and [`attach`](Self::attach). Then the child cannot use managed memory and should
    /// exit.
    pub fn after_fork_in_child(&self, foreign: &[PageRange]) -> Result<(), MmuError> {
        match self {
            Self::Uffd(kind) => kind.after_fork_in_child(foreign),
            Self::Protected(kind) => kind.after_fork_in_child(),
        }
    }

    /// Starts the thread that reads events with direct delivery, if it is missing, once faults are served: for the new
    /// thread the C library may call the program's own allocator, which touches managed memory. The caller holds no
    /// lock that a fault takes. Does nothing with other deliveries.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn read_events(&self) -> Result<(), MmuError> {
        each_kind!(self, kind => kind.common().read_events(&kind.watch()))
    }

    /// Whether memory is watched through protections, because there is no userfaultfd.
    #[must_use]
    pub fn is_watched_by_protections(&self) -> bool {
        self.protected().is_some()
    }

    /// Gives an open range this protection (the bits of `mprotect`) on the program's behalf: present pages get it at
    /// once, others when they come in. Returns `None` if the kernel keeps the protection, and the program calls
    /// `mprotect` itself.
    pub fn protect_pages(&self, range: PageRange, prot: i32) -> Option<Result<(), MmuError>> {
        Some(self.protected()?.protect_pages(range, prot))
    }

    /// Gives a range up to somebody else's mapping, which is there or soon will be: pages no longer come in there,
    /// and protections are not changed. [`renew`](crate::Memory::renew) makes the range part of the arena again.
    ///
    /// This is for memory that is watched through protections. For other memory, [`unwatch`](crate::Memory::unwatch)
    /// serves the same purpose.
    pub fn cede(&self, range: PageRange) {
        if let Some(memory) = self.protected() {
            memory.protection().cede(range);
        }
    }

    /// Returns the number of runs of pages that the kernel has to keep apart, if memory is watched through
    /// protections.
    #[must_use]
    pub fn open_runs(&self) -> Option<usize> {
        Some(self.protected()?.protection().runs())
    }

    /// Test hook: lowers the limit on mapping runs of memory that is watched through protections.
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
