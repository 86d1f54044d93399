//! Memory without userfaultfd: absent pages are closed, and touching one raises SIGSEGV.
//!
//! The default profiles of Docker and Podman refuse userfaultfd. But every process may change the protection of its
//! own memory. So the arena is one private anonymous mapping without access. The kernel stops a thread at a closed
//! page as userfaultfd would at a missing one, with another signal. Three things remain, and need other means:
//!
//! - *Bytes get into a closed page, and out of it,* through `/proc/self/mem`, which ignores protections
//!   (`sys/own_memory.rs`). So a page is whole before any thread sees it: it is first written, then opened.
//! - *No write is lost when a page leaves:* it is first closed, which ends with an interrupt to all processors that
//!   may still have it in their TLB. Only then is it read, and dropped.
//! - *The protection that the program asked for* is kept in a table ([`wishes`]), because the kernel's protection
//!   says something else.
//!
//! The pool is ordinary memory. Frames are always copied, never moved.
//!
//! While the program has a single thread, and the kernel can mark pages (Linux 6.13), pages are *marked* instead of
//! closed, which takes a third of the time: [`guards`] explains how, and [`alone`] how we know.
//!
//! # Alternatives
//! We measured others (docs/MEASUREMENTS.md) and rejected them. A memory file that is mapped twice needs no
//! `/proc/self/mem`, but a forked child would share it. `mremap` of a filled page to its address copies nothing, but
//! the page keeps the offset of the place where it was filled: its mapping never joins its neighbours again, and the
//! limit is 65,530.
//!
//! # The number of mappings
//! A run of open pages between closed ones is a mapping, and the kernel allows a process 65,530 of them
//! (`vm.max_map_count`). A program that touches every other page of a gigabyte makes 131,072 runs. So runs are
//! counted, and when there are too many, a leaf with several runs is *parked*: one call closes it as a whole, while
//! its pages stay where they are. Touching a parked page opens its run again, for the price of a signal, and no other
//! part of the program needs to know. A leaf with a page that is pinned, or that the kernel is working on
//! (`held.rs`), is skipped. The cost is speed, by degrees, and never correctness. Larger folios make fewer runs. The
//! limit is half of the mappings, because the program makes some itself; if the kernel still says that there are too
//! many, leaves are parked until it agrees.
//!
//! Pages that have been handed over to other addresses, or are next to such pages, are also parked: all of them move
//! as one closed mapping.
//!
//! # States
//! | page | kernel's protection | its bytes | a touch |
//! | --- | --- | --- | --- |
//! | absent, closed | none | elsewhere | goes to the sink |
//! | absent, marked | as requested, or none | elsewhere | goes to the sink |
//! | there, open | as requested | in place | is no fault, or one for the program |
//! | there, parked | none | in place | opens the page's run |
//! | foreign, or not requested | not ours | none | is the program's fault |
//!
//! The *there* bit of a page is set before the page is opened, and cleared before it is closed. One lock ([`lock`])
//! orders the changes; the faulting thread looks without the lock, and comes again if it looked too early.
//!
//! # What it does not detect
//! A device that writes to a page while it is being taken out: keep the buffers of `O_DIRECT` reads pinned. A change
//! of protection that the program makes without telling us, with a bare system call: an absent page that is opened in
//! this way reads as zeros.

mod alone;
mod bits;
mod change;
mod fault;
mod fork;
mod guards;
mod hand_over;
mod install;
mod lock;
mod memory;
mod pages;
mod ranges;
mod take_out;
mod wishes;

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize};

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;

use millpond_core::{PAGE_SHIFT, PageRange};

use crate::arch;
use crate::sys::{FdCell, advise, own_memory};
use crate::zeroed::zeroed;
use alone::Alone;
use bits::Bits;
use lock::Lock;
use wishes::{LEAF, Wish, Wishes};

pub use alone::shares_memory;
pub(crate) use fault::Touch;
pub use memory::ProtectedMemory;

/// The kernel's default limit on the mappings of a process.
const USUAL_MAPPINGS: usize = 65_530;

/// An arena whose absent pages are closed.
pub(crate) struct Protection {
    base: usize,
    pages: usize,
    /// `/proc/self/mem`.
    mem: FdCell,
    lock: Lock,
    wishes: Wishes,
    /// The pages that are there.
    there: Bits,
    /// The pages that have the protection that the program asked for: they are there, or marked.
    open: Bits,
    /// The pages that are absent and have the kernel's mark.
    marked: Bits,
    /// Whether a page was ever marked.
    marks_in_use: AtomicBool,
    alone: Alone,
    /// How many times each page is pinned, and how many pages of each leaf are.
    pins: Box<[AtomicU8]>,
    pinned: Box<[AtomicU32]>,
    /// The current number of runs of open pages, and its limit.
    runs: AtomicUsize,
    most_runs: AtomicUsize,
    /// The leaf at which the search for one to park continues.
    hand: AtomicUsize,
}

impl Protection {
    /// Takes over an arena that is one closed mapping. Pages may be marked if the kernel can do so and `marks` is
    /// set.
    ///
    /// # Errors
    /// Closed memory cannot be written here.
    pub(crate) fn new(base: usize, len: usize, marks: bool) -> Result<Self, Errno> {
        if !arch::TELLS_ACCESSES {
            // Nothing tells a read fault from a write fault here, so our faults could not be told from the program's
            // own.
            return Err(Errno::NOSYS);
        }
        let mem = own_memory::open_if_it_overrides()?;
        let pages = len >> PAGE_SHIFT;
        // SAFETY: zeros are valid atomic integers, and an arena has at least one leaf.
        let (pins, pinned) = unsafe { (zeroed(pages), zeroed(pages.div_ceil(LEAF))) };
        let made = Self {
            base,
            pages,
            mem: FdCell::new(Some(mem)),
            lock: Lock::new(),
            wishes: Wishes::new(pages),
            there: Bits::new(pages),
            open: Bits::new(pages),
            marked: Bits::new(pages),
            marks_in_use: AtomicBool::new(false),
            alone: Alone::new(marks && advise::has_guards()),
            pins,
            pinned,
            runs: AtomicUsize::new(0),
            // Each run is a mapping, and so is the closed part after it.
            most_runs: AtomicUsize::new(most_mappings() / 2 / 2),
            hand: AtomicUsize::new(0),
        };
        made.give_history();
        Ok(made)
    }

    /// Whether memory can be watched through protections here.
    pub(crate) fn is_possible() -> Result<(), Errno> {
        if !arch::TELLS_ACCESSES {
            return Err(Errno::NOSYS);
        }
        own_memory::open_if_it_overrides().map(drop)
    }

    /// Makes the arena contain a page once. From then on the kernel considers all parts of it related: parts of a
    /// mapping that got their first pages separately are never joined again.
    fn give_history(&self) {
        let byte = 0u8;
        // SAFETY: nobody uses the arena's first page yet, and the byte written is the one that it reads as anyway.
        unsafe { own_memory::write(self.mem(), (&raw const byte) as usize, 1, self.base) };
        self.discard(0..1);
    }

    /// Returns the descriptors that operations on this memory need.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = i32> {
        let tasks = self.alone.descriptor();
        [self.mem().as_raw_fd()].into_iter().chain(tasks)
    }

    fn mem(&self) -> BorrowedFd<'_> {
        self.mem
            .get()
            .expect("the memory's descriptor lives as long as the arena")
    }

    fn addr(&self, page: usize) -> usize {
        self.base + (page << PAGE_SHIFT)
    }

    /// Returns the pages of `len` bytes at `start`.
    fn span(&self, start: usize, len: usize) -> Range<usize> {
        let first = (start - self.base) >> PAGE_SHIFT;
        let span = first..first + (len >> PAGE_SHIFT);
        debug_assert!(span.end <= self.pages);
        span
    }
}

/// Returns the pages of a range, as numbers.
fn numbers(range: PageRange) -> Range<usize> {
    range.start.0 as usize..range.end().0 as usize
}

/// Returns the maximum number of mappings that the kernel allows a process.
fn most_mappings() -> usize {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    let most = text.ok().and_then(|text| text.trim().parse().ok());
    most.unwrap_or(USUAL_MAPPINGS).clamp(1 << 8, 1 << 22)
}
