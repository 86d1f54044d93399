//! Reserved address space: one private anonymous mapping, aligned to 2 MiB (a large one to 1 GiB), which is unmapped
//! when the value is dropped.
//!
//! Alignment to 1 GiB lets the kernel move a gigabyte's page tables with one pointer. Alignment to 2 MiB makes a leaf
//! of 512 pages coincide with one page-table page, so that moving and unmapping a leaf never touches a neighbour's
//! table. `MADV_NOHUGEPAGE` keeps the kernel from putting a huge page over a range where userfaultfd was told about
//! single pages. Our own huge pages are made elsewhere (`staging.rs`) and moved in, which the advice does not
//! prevent. `MADV_DONTFORK` is the rule and inheritance the exception: a child created without telling us (a raw
//! `clone`) dies by SIGSEGV at its first touch, whereas with an inherited mapping it would silently read zeros for
//! every absent page. Memory that the kernel serves alone ([`Purpose::Plain`]) gets neither advice.

use core::ffi::c_void;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use crate::error::MmuError;
use crate::sys::mm::{madvise, mmap_anonymous, mprotect, munlock, munmap};

/// Alignment of the arena and of each of the pool's areas: the range of one page-table page.
pub(crate) const HUGE: usize = 2 << 20;

/// The range of one entry in a page table two levels above the tables that map single pages.
const GIGABYTE: usize = 1 << 30;

/// Bytes that a single call drops.
const PIECE: usize = 32 << 20;

/// Who serves the memory of a reservation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Millpond: the kernel maps single pages, and a child inherits nothing by itself.
    Watched,
    /// The kernel alone, as it serves any other memory.
    Plain,
}

/// A mapping owned by this value alone.
pub(crate) struct Reservation {
    base: usize,
    len: usize,
    purpose: Purpose,
    /// Whether the addresses were reserved by somebody else and stay mapped when the value is dropped.
    lent: bool,
}

impl Reservation {
    /// Reserves `len` inaccessible bytes (a multiple of the page size).
    pub(crate) fn new(what: &'static str, len: usize) -> Result<Self, MmuError> {
        Self::anywhere(what, len, Purpose::Watched)
    }

    fn anywhere(what: &'static str, len: usize, purpose: Purpose) -> Result<Self, MmuError> {
        let fail = |errno| MmuError::Reserve {
            what,
            bytes: len,
            errno,
        };
        let align = if len >= GIGABYTE { GIGABYTE } else { HUGE };
        let padded = len.checked_add(align).ok_or(fail(Errno::NOMEM))?;
        // SAFETY: a new mapping at an address that the kernel chooses affects no other memory.
        let raw =
            unsafe { mmap_anonymous(core::ptr::null_mut(), padded, ProtFlags::empty(), FLAGS) }
                .map_err(fail)?;
        let raw = raw as usize;
        let base = raw.next_multiple_of(align);
        for (start, bytes) in [(raw, base - raw), (base + len, raw + padded - base - len)] {
            if bytes > 0 {
                // SAFETY: the slack before and after the aligned part was mapped above and never handed out.
                unsafe { munmap(start as *mut c_void, bytes) }.map_err(fail)?;
            }
        }
        let reservation = Self {
            base,
            len,
            purpose,
            lent: false,
        };
        reservation.advise_new(base, len).map_err(fail)?;
        Ok(reservation)
    }

    /// Reserves `len` inaccessible bytes at the first of these places (multiples of 1 GiB) where nothing is mapped.
    /// If there is none, the kernel chooses the place.
    pub(crate) fn at_one_of(
        what: &'static str,
        len: usize,
        bases: &[usize],
        purpose: Purpose,
    ) -> Result<Self, MmuError> {
        let flags = FLAGS | MapFlags::FIXED_NOREPLACE;
        for &base in bases {
            debug_assert!(base.is_multiple_of(GIGABYTE));
            // SAFETY: the kernel only creates the mapping if the range is free.
            let made =
                unsafe { mmap_anonymous(base as *mut c_void, len, ProtFlags::empty(), flags) };
            let Ok(raw) = made else { continue };
            let reservation = Self {
                base: raw as usize,
                len,
                purpose,
                lent: false,
            };
            // A kernel that does not know the flag (before Linux 4.17) takes the address as a hint. A mapping in the
            // wrong place is unmapped when the value is dropped.
            if raw as usize != base {
                continue;
            }
            reservation
                .advise_new(base, len)
                .map_err(|errno| MmuError::Reserve {
                    what,
                    bytes: len,
                    errno,
                })?;
            return Ok(reservation);
        }
        Self::anywhere(what, len, purpose)
    }

    /// Addresses that are reserved already, by a mapping that stays when the value is dropped.
    pub(crate) fn lent(base: usize, len: usize) -> Self {
        Self {
            base,
            len,
            purpose: Purpose::Watched,
            lent: true,
        }
    }

    /// The same addresses, by a mapping that stays when the value is dropped.
    pub(crate) fn staying(mut self) -> Self {
        self.lent = true;
        self
    }

    /// Returns whether the addresses had been reserved before.
    pub(crate) fn is_lent(&self) -> bool {
        self.lent
    }

    /// First address.
    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// # Panics
    /// When `start..start + len` is no part of the reservation.
    pub(crate) fn expect_inside(&self, start: usize, len: usize, call: &str) {
        let at = start.checked_sub(self.base);
        assert!(
            at.is_some_and(|at| at <= self.len && len <= self.len - at),
            "{call} outside the reservation: {start:#x}+{len:#x}"
        );
    }

    /// Maps `start..start + len`, a part of the reservation, anew: empty and inaccessible.
    pub(crate) fn restore(&self, start: usize, len: usize) -> Result<(), Errno> {
        self.expect_inside(start, len, "restore");
        // SAFETY: MAP_FIXED only replaces addresses inside the reservation, which this value owns; the caller
        // guarantees that nothing mapped there now is still needed.
        unsafe {
            mmap_anonymous(
                start as *mut c_void,
                len,
                ProtFlags::empty(),
                FLAGS | MapFlags::FIXED,
            )
        }?;
        self.advise_new(start, len)
    }

    /// Maps a part anew as ordinary memory: empty, without page tables, readable and writable, and made of huge pages
    /// where the kernel has them. After an error the part must not be used any more.
    pub(crate) fn renew_huge(&self, start: usize, len: usize) -> Result<(), Errno> {
        self.expect_inside(start, len, "renew");
        // SAFETY: MAP_FIXED only replaces addresses inside the reservation, which this value owns; the caller
        // guarantees that nothing mapped there now is still needed.
        unsafe {
            mmap_anonymous(
                start as *mut c_void,
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                FLAGS | MapFlags::FIXED,
            )
        }?;
        // SAFETY: the advice changes which page sizes the kernel picks, not contents.
        unsafe { madvise(start as *mut c_void, len, Advice::LinuxHugepage) }?;
        // SAFETY: the advice changes what fork copies, not memory.
        unsafe { madvise(start as *mut c_void, len, Advice::LinuxDontFork) }
    }

    /// Maps a part where nothing should be mapped now: empty, readable and writable. The error is [`Errno::EXIST`] if
    /// something is mapped there.
    pub(crate) fn refill(&self, start: usize, len: usize) -> Result<(), Errno> {
        self.expect_inside(start, len, "refill");
        // SAFETY: the kernel only creates the mapping if the range is free.
        unsafe {
            mmap_anonymous(
                start as *mut c_void,
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                FLAGS | MapFlags::FIXED_NOREPLACE,
            )
        }?;
        self.advise_new(start, len)
    }

    /// Makes a part into which `mremap` moved a leaf like the rest: undoes the protection and the lock that the
    /// program may have set on the leaf.
    pub(crate) fn adopt(&self, start: usize, len: usize) -> Result<(), Errno> {
        self.protect(start, len, true)?;
        // SAFETY: a lock changes what the kernel may swap out, not contents.
        unsafe { munlock(start as *mut c_void, len) }
    }

    /// Ensures that a forked child that inherits the mapping finds its contents, whatever advice the program gave for
    /// parts that were moved here.
    pub(crate) fn keep_on_fork(&self) {
        let advice = Advice::LinuxKeepOnFork;
        // SAFETY: the advice only changes what a child finds.
        let kept = unsafe { madvise(self.base as *mut c_void, self.len, advice) };
        debug_assert_eq!(kept, Ok(()));
    }

    /// Sets the protection of a part.
    pub(crate) fn protect(&self, start: usize, len: usize, readable: bool) -> Result<(), Errno> {
        self.expect_inside(start, len, "protect");
        let flags = if readable {
            MprotectFlags::READ | MprotectFlags::WRITE
        } else {
            MprotectFlags::empty()
        };
        // SAFETY: the range is inside the reservation. The caller removes access from a range only when no region
        // lies there, so no reference into it exists.
        unsafe { mprotect(start as *mut c_void, len, flags) }
    }

    /// Sets whether a forked child inherits the mapping.
    pub(crate) fn inherit(&self, inherit: bool) -> Result<(), Errno> {
        let advice = if inherit {
            Advice::LinuxDoFork
        } else {
            Advice::LinuxDontFork
        };
        // SAFETY: the advice changes what fork copies, not memory.
        unsafe { madvise(self.base as *mut c_void, self.len, advice) }
    }

    /// Sets whether a core dump contains the part's contents. Inaccessible memory has no contents to dump, but the
    /// kernel dumps a mapping as a whole once any part of it contained something.
    pub(crate) fn dump(&self, start: usize, len: usize, dump: bool) -> Result<(), Errno> {
        let advice = if dump {
            Advice::LinuxDoDump
        } else {
            Advice::LinuxDontDump
        };
        // SAFETY: the advice changes what a core dump contains, not memory.
        unsafe { madvise(start as *mut c_void, len, advice) }
    }

    /// Gives a part the advice that every new mapping of the reservation gets.
    pub(crate) fn advise_new(&self, start: usize, len: usize) -> Result<(), Errno> {
        if self.purpose == Purpose::Plain {
            return Ok(());
        }
        // SAFETY: the advice changes which page sizes the kernel picks, not contents.
        match unsafe { madvise(start as *mut c_void, len, Advice::LinuxNoHugepage) } {
            // A kernel built without transparent huge pages returns EINVAL, and needs no advice.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
        // SAFETY: the advice changes what fork copies, not memory.
        unsafe { madvise(start as *mut c_void, len, Advice::LinuxDontFork) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.lent {
            return;
        }
        // The contents are dropped in pieces: unmapping all at once would block every other mmap of the process.
        for start in (0..self.len).step_by(PIECE) {
            let len = PIECE.min(self.len - start);
            // SAFETY: this value owns the mapping, and nothing can refer to it after the drop.
            let _ = unsafe {
                madvise(
                    (self.base + start) as *mut c_void,
                    len,
                    Advice::LinuxDontNeed,
                )
            };
        }
        // SAFETY: this value owns the mapping, and nothing can refer to it after the drop.
        let _ = unsafe { munmap(self.base as *mut c_void, self.len) };
    }
}

const FLAGS: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);
