//! Memory that nobody watches yet: the arena of a process that does not need to be managed so far.
//!
//! The addresses are reserved as they are for [`RealMemory`](crate::RealMemory), and everything else is the kernel's:
//! what is opened is ordinary memory, which the kernel fills at the first touch with pages of the sizes that it would
//! choose anywhere, and which children of a fork inherit. A process costs a mapping then, and no descriptor, table or
//! thread. When its memory comes near its budget, the arena is taken over where it lies
//! ([`RealMemory::take_over`](crate::RealMemory::take_over)).

use core::ffi::c_void;

use rustix::io::Errno;
use rustix::mm::Advice;

use millpond_core::PAGE_SIZE;

use crate::error::MmuError;
use crate::reservation::{Purpose, Reservation};
use crate::sys::mm::{madvise, madvise_by_number, mremap_fixed};

/// An arena that the kernel backs alone. It is meant to last as long as the process: the addresses stay reserved when
/// the value is dropped, as they may have been taken over by then.
///
/// All ranges are in bytes from an address on, whole pages, and inside the arena.
///
/// ```
/// let memory = millpond_mmu::DormantMemory::new(1 << 30, &[])?;
/// memory.open(memory.base(), 8192)?;
/// let bytes = memory.base() as *mut u8;
/// // SAFETY: the page was opened, and nobody else knows of it.
/// unsafe { bytes.write(7) };
/// memory.discard(memory.base(), 4096)?;
/// // SAFETY: as above.
/// assert_eq!(unsafe { bytes.read() }, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DormantMemory {
    arena: Reservation,
}

impl DormantMemory {
    /// Reserves `len` bytes (a multiple of 2 MiB) at the first of these places (multiples of 1 GiB) where nothing is
    /// mapped, or where the kernel chooses.
    ///
    /// # Errors
    /// [`MmuError::Reserve`].
    pub fn new(len: usize, bases: &[usize]) -> Result<Self, MmuError> {
        let arena = Reservation::at_one_of("arena", len, bases, Purpose::Plain)?;
        Ok(Self {
            arena: arena.staying(),
        })
    }

    /// First address.
    #[must_use]
    pub fn base(&self) -> usize {
        self.arena.base()
    }

    /// Length in bytes.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "an arena has at least one leaf"
    )]
    pub fn len(&self) -> usize {
        self.arena.len()
    }

    /// Makes a range readable and writable. What was never written there reads as zeros.
    ///
    /// # Errors
    /// `ENOMEM` when the kernel has no more mappings for the process.
    ///
    /// # Panics
    /// When the range leaves the arena, as in all calls here.
    pub fn open(&self, start: usize, len: usize) -> Result<(), Errno> {
        self.arena.protect(start, len, true)
    }

    /// Forgets the contents of a range: it reads as zeros.
    ///
    /// # Errors
    /// `EINVAL` when a part of it is locked.
    pub fn discard(&self, start: usize, len: usize) -> Result<(), Errno> {
        self.check(start, len, "discard");
        // SAFETY: the range is inside the arena, whose owner wants zeros there.
        unsafe { madvise(start as *mut c_void, len, Advice::LinuxDontNeed) }
    }

    /// Forgets the contents of a range, and removes all access.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`discard`](Self::discard).
    pub fn close(&self, start: usize, len: usize) -> Result<(), Errno> {
        self.discard(start, len)?;
        self.arena.protect(start, len, false)
    }

    /// Maps a range anew, empty and without access, whatever is mapped there now.
    ///
    /// # Errors
    /// `ENOMEM` when the kernel has no more mappings for the process.
    pub fn renew(&self, start: usize, len: usize) -> Result<(), Errno> {
        self.arena.restore(start, len)
    }

    /// Brings a range into memory, as far as the program may write to it.
    pub fn populate(&self, start: usize, len: usize) {
        self.check(start, len, "populate");
        let advice = linux_raw_sys::general::MADV_POPULATE_WRITE;
        // A page that cannot be brought in is found out about when it is touched.
        // SAFETY: the advice changes no contents.
        let _ = unsafe { madvise_by_number(start as *mut c_void, len, advice) };
    }

    /// Moves the contents of `len` bytes at `old`, with their protection, to `new`, whatever is there. `old` is closed
    /// and empty afterwards, or keeps its protection with `keep`.
    ///
    /// # Errors
    /// The kernel's answer: `EFAULT` when `old` is several mappings. Then nothing has moved, and `new` is closed.
    pub fn remap(&self, old: usize, len: usize, new: usize, keep: bool) -> Result<(), Errno> {
        use rustix::mm::MremapFlags;
        self.check(old, len, "remap");
        self.check(new, len, "remap");
        let flags = MremapFlags::MAYMOVE | MremapFlags::DONTUNMAP;
        // SAFETY: both ranges are inside the arena, and nothing is wanted at `new`.
        let moved =
            unsafe { mremap_fixed(old as *mut c_void, len, len, flags, new as *mut c_void) };
        if let Err(errno) = moved {
            self.renew(new, len)?;
            return Err(errno);
        }
        match keep {
            true => Ok(()),
            false => self.renew(old, len),
        }
    }

    fn check(&self, start: usize, len: usize, call: &str) {
        self.arena.expect_inside(start, len, call);
        assert!(start.is_multiple_of(PAGE_SIZE), "{call} at {start:#x}");
    }
}
