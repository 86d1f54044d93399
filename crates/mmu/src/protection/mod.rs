//! Memory without userfaultfd: a page that is not there is closed, and a touch of it is SIGSEGV.
//!
//! Docker's and Podman's default profiles refuse userfaultfd. What every process may do is change the protection of its
//! own memory. So the arena is one private anonymous mapping without access. The kernel stops a thread at a closed page
//! as userfaultfd would at a missing one, with another signal. Three things are left to do by other means:
//!
//! - *Bytes get into a closed page, and out of it,* by `/proc/self/mem`, which does not ask for protections
//!   (`sys/own_memory.rs`). So a page is whole before any thread sees it: it is written first, and opened then.
//! - *No write is lost when a page leaves:* it is closed, which ends with the interruption of all processors that may
//!   still have it in their TLB. Only then is it read, and dropped.
//! - *The protection that the program asked for* is kept in a table ([`wishes`]), as the kernel's says something else.
//!
//! The pool is ordinary memory. Frames are always copied, never moved.
//!
//! While the program has a single thread, and the kernel can mark pages (Linux 6.13), pages are *marked* instead of
//! closed, which takes a third of the time: [`guards`] says how, and [`alone`] how that is known.
//!
//! # The other ways
//! They were measured (docs/MEASUREMENTS.md) and left. A memory file that is mapped twice needs no `/proc/self/mem`,
//! but a fork's child would share it. `mremap` of a filled page over its address copies nothing, but the page keeps
//! the offset of the place where it was filled: its mapping never joins its neighbours again, and there may be 65,530.
//!
//! # The number of mappings
//! A run of open pages between closed ones is a mapping, and the kernel allows a process 65,530 of them
//! (`vm.max_map_count`). A program that touches every other page of a gigabyte makes 131,072 runs. So runs are
//! counted, and when there are too many, a leaf that has several is *parked*: it is closed as a whole, by one call,
//! while its pages stay where they are. A touch of a parked page opens its run again, for the price of a signal, and
//! no other part of the program needs to know. A leaf with a page that is pinned, or that the kernel works on
//! (`held.rs`), is passed over. What is given up is speed, by degrees, and never correctness. Larger folios make
//! fewer runs. The limit is half of the mappings, because the program makes some itself; where the kernel says that
//! there are too many all the same, leaves are parked until it agrees.
//!
//! Pages that have been handed over to other addresses, or lie beside such pages, are parked as well: all of them
//! move as one closed mapping.
//!
//! # States
//! | page | kernel's protection | its bytes | a touch |
//! | --- | --- | --- | --- |
//! | absent, closed | none | elsewhere | goes to the sink |
//! | absent, marked | as wished, or none | elsewhere | goes to the sink |
//! | there, open | as wished | in place | is no fault, or one for the program |
//! | there, parked | none | in place | opens the page's run |
//! | foreign, or not wished for | not ours | none | is the program's fault |
//!
//! The bits say *there* before the page is opened, and cease to say so before it is closed. One lock ([`lock`]) orders
//! the changes; the faulting thread looks without it, and comes again if it looked too early.
//!
//! # What it does not see
//! A device that writes to a page while it is taken out: keep buffers of `O_DIRECT` reads pinned. A change of
//! protection that the program makes past us, by a bare system call: an absent page that is opened in this way reads
//! as zeros.

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

/// The kernel's usual limit for the mappings of a process.
const USUAL_MAPPINGS: usize = 65_530;

/// An arena whose pages are closed while they are not there.
pub(crate) struct Protection {
    base: usize,
    pages: usize,
    /// `/proc/self/mem`.
    mem: FdCell,
    lock: Lock,
    wishes: Wishes,
    /// The pages that are there.
    there: Bits,
    /// The pages that have the protection that is wished for: they are there, or marked.
    open: Bits,
    /// The pages that are not there, and have the kernel's mark.
    marked: Bits,
    /// Whether a page was ever marked.
    marks_in_use: AtomicBool,
    alone: Alone,
    /// How often each page is pinned, and how many pages of each leaf are.
    pins: Box<[AtomicU8]>,
    pinned: Box<[AtomicU32]>,
    /// Runs of open pages now, and the most that there should be.
    runs: AtomicUsize,
    most_runs: AtomicUsize,
    /// The leaf at which the search for one to park goes on.
    hand: AtomicUsize,
}

impl Protection {
    /// Takes charge of an arena that is one closed mapping. Pages may be marked if the kernel can, and `marks` is set.
    ///
    /// # Errors
    /// Closed memory cannot be written here.
    pub(crate) fn new(base: usize, len: usize, marks: bool) -> Result<Self, Errno> {
        if !arch::TELLS_ACCESSES {
            // Nothing says here whether a fault was a read or a write, so none could be told from the program's own.
            return Err(Errno::NOSYS);
        }
        let mem = own_memory::open_if_it_overrides()?;
        let pages = len >> PAGE_SHIFT;
        // SAFETY: atomic numbers are numbers, and an arena has at least one leaf.
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
            // Each run is a mapping, and so is the closed part behind it.
            most_runs: AtomicUsize::new(most_mappings() / 2 / 2),
            hand: AtomicUsize::new(0),
        };
        made.give_history();
        Ok(made)
    }

    /// Whether memory can be watched by protections here.
    pub(crate) fn is_possible() -> Result<(), Errno> {
        if !arch::TELLS_ACCESSES {
            return Err(Errno::NOSYS);
        }
        own_memory::open_if_it_overrides().map(drop)
    }

    /// Has the arena hold a page once. From then on the kernel takes all parts of it for relatives: parts of a mapping
    /// that have got their first pages apart from each other are never joined again.
    fn give_history(&self) {
        let byte = 0u8;
        // SAFETY: the first page of the arena is nobody's yet, and a byte is written that it reads as anyway.
        unsafe { own_memory::write(self.mem(), (&raw const byte) as usize, 1, self.base) };
        self.discard(0..1);
    }

    /// The descriptors that operations on this memory need.
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

    /// The pages of `len` bytes at `start`.
    fn span(&self, start: usize, len: usize) -> Range<usize> {
        let first = (start - self.base) >> PAGE_SHIFT;
        let span = first..first + (len >> PAGE_SHIFT);
        debug_assert!(span.end <= self.pages);
        span
    }
}

/// The pages of a range, as numbers.
fn numbers(range: PageRange) -> Range<usize> {
    range.start.0 as usize..range.end().0 as usize
}

/// The most mappings that the kernel allows a process.
fn most_mappings() -> usize {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    let most = text.ok().and_then(|text| text.trim().parse().ok());
    most.unwrap_or(USUAL_MAPPINGS).clamp(1 << 8, 1 << 22)
}
