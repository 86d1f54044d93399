//! Reserved address space: one private anonymous mapping, aligned to 2 MiB (a large one to 1 GiB), which is unmapped
//! when the value is dropped.
//!
//! Alignment to 1 GiB lets the kernel move a gigabyte's page tables by one pointer. Alignment to 2 MiB lets a leaf of
//! 512 pages be one page-table page, so that moving and unmapping a leaf never touches a neighbour's table.
//! `MADV_NOHUGEPAGE` keeps the kernel from putting a huge page over a range of which userfaultfd was told single
//! pages. Our own huge pages are made elsewhere (`staging.rs`) and moved in, which the advice does not hinder.
//! `MADV_DONTFORK` is the rule and inheritance the exception: a child that is made behind our back (a raw `clone`)
//! dies by SIGSEGV at its first touch, where with an inherited mapping it would silently read zeros for every page
//! that is out.

use core::ffi::c_void;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use crate::error::MmuError;
use crate::sys::mm::{madvise, mmap_anonymous, mprotect, munlock, munmap};

/// Alignment of the arena and of each of the pool's areas: the reach of one page-table page.
pub(crate) const HUGE: usize = 2 << 20;

/// The reach of one entry of a page table two levels above the tables that map single pages.
const GIGABYTE: usize = 1 << 30;

/// Bytes that one call drops from memory.
const PIECE: usize = 32 << 20;

/// A mapping that belongs to this value alone.
pub(crate) struct Reservation {
    base: usize,
    len: usize,
}

impl Reservation {
    /// Reserves `len` bytes (a multiple of the page size) without access.
    pub(crate) fn new(what: &'static str, len: usize) -> Result<Self, MmuError> {
        let fail = |errno| MmuError::Reserve {
            what,
            bytes: len,
            errno,
        };
        let align = if len >= GIGABYTE { GIGABYTE } else { HUGE };
        let padded = len.checked_add(align).ok_or(fail(Errno::NOMEM))?;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let raw =
            unsafe { mmap_anonymous(core::ptr::null_mut(), padded, ProtFlags::empty(), FLAGS) }
                .map_err(fail)?;
        let raw = raw as usize;
        let base = raw.next_multiple_of(align);
        for (start, bytes) in [(raw, base - raw), (base + len, raw + padded - base - len)] {
            if bytes > 0 {
                // SAFETY: the slack before and behind the aligned part was mapped above and never handed out.
                unsafe { munmap(start as *mut c_void, bytes) }.map_err(fail)?;
            }
        }
        let reservation = Self { base, len };
        reservation.advise_new(base, len).map_err(fail)?;
        Ok(reservation)
    }

    /// Reserves `len` bytes without access at the first of these places (multiples of 1 GiB) where nothing is mapped.
    /// If there is none, the kernel chooses the place.
    pub(crate) fn at_one_of(
        what: &'static str,
        len: usize,
        bases: &[usize],
    ) -> Result<Self, MmuError> {
        let flags = FLAGS | MapFlags::FIXED_NOREPLACE;
        for &base in bases {
            debug_assert!(base.is_multiple_of(GIGABYTE));
            // SAFETY: the kernel puts the mapping there only if nothing is in its way.
            let made =
                unsafe { mmap_anonymous(base as *mut c_void, len, ProtFlags::empty(), flags) };
            let Ok(raw) = made else { continue };
            let reservation = Self {
                base: raw as usize,
                len,
            };
            // A kernel that does not know the flag (before Linux 4.17) takes the place for a hint. A mapping that is
            // not where it was wanted is unmapped when the value is dropped.
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
        Self::new(what, len)
    }

    /// First address.
    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Maps `start..start + len`, a part of the reservation, anew: empty and without access.
    pub(crate) fn restore(&self, start: usize, len: usize) -> Result<(), Errno> {
        assert!(
            start >= self.base && start + len <= self.base + self.len,
            "restore outside the reservation"
        );
        // SAFETY: MAP_FIXED replaces only addresses inside the reservation, which this value owns; the caller
        // guarantees that nothing that is mapped there now is wanted.
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
    /// where the kernel has them. On an error the part must not be used any more.
    pub(crate) fn renew_huge(&self, start: usize, len: usize) -> Result<(), Errno> {
        assert!(
            start >= self.base && start + len <= self.base + self.len,
            "renew outside the reservation"
        );
        // SAFETY: MAP_FIXED replaces only addresses inside the reservation, which this value owns; the caller
        // guarantees that nothing that is mapped there now is wanted.
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

    /// Maps a part in which nothing may be mapped now: empty, readable and writable. The error is [`Errno::EXIST`]
    /// when something is mapped there.
    pub(crate) fn refill(&self, start: usize, len: usize) -> Result<(), Errno> {
        assert!(
            start >= self.base && start + len <= self.base + self.len,
            "refill outside the reservation"
        );
        // SAFETY: the kernel puts the mapping there only if nothing is in its way.
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

    /// Makes a part that a leaf was moved to by `mremap` like the rest: undoes the protection and the lock that the
    /// program may have set on the leaf.
    pub(crate) fn adopt(&self, start: usize, len: usize) -> Result<(), Errno> {
        self.protect(start, len, true)?;
        // SAFETY: a lock changes what the kernel may swap out, not contents.
        unsafe { munlock(start as *mut c_void, len) }
    }

    /// Lets a child of a fork that inherits the mapping find its contents, whatever advice the program gave for parts
    /// that were moved here.
    pub(crate) fn keep_on_fork(&self) {
        let advice = Advice::LinuxKeepOnFork;
        // SAFETY: the advice changes what a child finds.
        let kept = unsafe { madvise(self.base as *mut c_void, self.len, advice) };
        debug_assert_eq!(kept, Ok(()));
    }

    /// Sets the protection of a part.
    pub(crate) fn protect(&self, start: usize, len: usize, readable: bool) -> Result<(), Errno> {
        assert!(
            start >= self.base && start + len <= self.base + self.len,
            "protect outside the reservation"
        );
        let flags = if readable {
            MprotectFlags::READ | MprotectFlags::WRITE
        } else {
            MprotectFlags::empty()
        };
        // SAFETY: the range is inside the reservation. Taking access away from a range is asked for only when
        // no region lies there, so no reference into it exists.
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

    /// Sets whether a core dump has the contents of the part. Without access there are no contents to dump, but the
    /// kernel dumps a mapping as a whole once a part of it held something.
    pub(crate) fn dump(&self, start: usize, len: usize, dump: bool) -> Result<(), Errno> {
        let advice = if dump {
            Advice::LinuxDoDump
        } else {
            Advice::LinuxDontDump
        };
        // SAFETY: the advice changes what a core dump has, not memory.
        unsafe { madvise(start as *mut c_void, len, advice) }
    }

    fn advise_new(&self, start: usize, len: usize) -> Result<(), Errno> {
        // SAFETY: the advice changes which page sizes the kernel picks, not contents.
        match unsafe { madvise(start as *mut c_void, len, Advice::LinuxNoHugepage) } {
            // A kernel that is built without transparent huge pages answers EINVAL, and needs no advice.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
        // SAFETY: the advice changes what fork copies, not memory.
        unsafe { madvise(start as *mut c_void, len, Advice::LinuxDontFork) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // The contents go in pieces: an unmapping in one piece would keep every other mmap of the process waiting.
        for start in (0..self.len).step_by(PIECE) {
            let len = PIECE.min(self.len - start);
            // SAFETY: the mapping is owned by this value, and nothing can name it after the drop.
            let _ = unsafe {
                madvise(
                    (self.base + start) as *mut c_void,
                    len,
                    Advice::LinuxDontNeed,
                )
            };
        }
        // SAFETY: the mapping is owned by this value, and nothing can name it after the drop.
        let _ = unsafe { munmap(self.base as *mut c_void, self.len) };
    }
}

const FLAGS: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);
