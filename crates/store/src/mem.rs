//! Anonymous memory straight from the kernel.
//!
//! A store runs inside fault handlers and inside processes whose allocator is served by Millpond
//! itself. If it called an allocator there, it could fault on memory that waits for this very
//! fault. So everything a store owns is mapped by raw system calls, here.

use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};
use std::ptr::{self, NonNull};

/// The kernel's page, which is the granularity of everything below.
pub(crate) const PAGE: usize = 4096;

/// Bytes in a line of the processor's caches.
pub(crate) const LINE: usize = 64;

pub(crate) use crate::arch::prefetch;

/// A private anonymous mapping, zeroed, page-aligned, unmapped when dropped. A forked child has its
/// own copy.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is plain memory that belongs to the process, not to a thread. Its owners decide which thread may
// touch which part when; they only get a raw pointer from here.
unsafe impl Send for Mapping {}
// SAFETY: the owners decide about access as for `Send`; the methods that take `&self` touch no byte of it.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes, rounded up to pages. Pages take RAM when they are first touched, each separately: most
    /// mappings are sparsely used tables, and a machine that gives huge pages to all memory would back 2 MiB of a table
    /// for one entry. [`populate_huge`] requests huge pages where they help.
    pub(crate) fn new(len: usize) -> Result<Self, Errno> {
        let len = len.next_multiple_of(PAGE).max(PAGE);
        // SAFETY: a new private mapping at an address that the kernel chooses replaces nothing.
        let base = unsafe {
            mm::mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        // SAFETY: the advice changes which page sizes the kernel picks, not contents. A kernel that is built without
        // huge pages answers EINVAL, and needs no advice.
        let _ = unsafe { mm::madvise(base, len, Advice::LinuxNoHugepage) };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, len })
    }

    /// Maps `len` bytes, a power of two, at a multiple of `len`.
    pub(crate) fn aligned(len: usize) -> Result<Self, Errno> {
        let mapping = Self::new(len)?;
        if mapping.as_ptr().addr().is_multiple_of(len) {
            return Ok(mapping);
        }
        drop(mapping);
        let wide = Self::new(2 * len)?;
        let start = wide.into_raw();
        let before = start.addr().next_multiple_of(len) - start.addr();
        // SAFETY: these are three parts of a mapping that nothing else knows, and each is a mapping of its own. The
        // outer two are unmapped.
        unsafe {
            let base = start.add(before);
            for (part, bytes) in [(start, before), (base.add(len), len - before)] {
                if bytes > 0 {
                    drop(Self::from_raw(part, bytes));
                }
            }
            Ok(Self::from_raw(base, len))
        }
    }

    /// The address of the mapping's first byte.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Gives up ownership of the mapping without unmapping it, and returns its first address.
    pub(crate) fn into_raw(self) -> *mut u8 {
        let base = self.as_ptr();
        std::mem::forget(self);
        base
    }

    /// Takes ownership of a mapping back.
    ///
    /// # Safety
    /// `base` came from [`Mapping::into_raw`] of a mapping of `len` bytes, or is a part of such a mapping that has
    /// `len` bytes. It was not taken back before.
    pub(crate) unsafe fn from_raw(base: *mut u8, len: usize) -> Self {
        debug_assert!(!base.is_null() && len.is_multiple_of(PAGE));
        // SAFETY: the caller hands over a live mapping, which is never at address zero.
        let base = unsafe { NonNull::new_unchecked(base) };
        Self { base, len }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing that borrows from its owner is alive.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Gives pages to `len` bytes at `base` in one call, which costs a third of faulting them in one by one. Where the
/// kernel (before 5.14) or its memory limit refuses, the pages come at first touch.
///
/// # Safety
/// The range is page-aligned and inside a live [`Mapping`].
pub(crate) unsafe fn populate(base: *mut u8, len: usize) {
    // SAFETY: populating changes no byte of a mapping that the caller vouches for.
    let _ = unsafe { mm::madvise(base.cast(), len, Advice::LinuxPopulateWrite) };
}

/// Gives the pages of `len` bytes at `base` back to the kernel. They read as zeros afterwards.
///
/// # Safety
/// The range is page-aligned and inside a live [`Mapping`], and its bytes are no longer needed.
pub(crate) unsafe fn give_back(base: *mut u8, len: usize) {
    // SAFETY: the caller vouches for the mapping, and for that its bytes may go.
    let _ = unsafe { mm::madvise(base.cast(), len, Advice::LinuxDontNeed) };
}

/// Gives pages to `len` bytes at `base` in one call, by huge pages where the kernel has them.
///
/// # Safety
/// The conditions are those of [`populate`].
pub(crate) unsafe fn populate_huge(base: *mut u8, len: usize) {
    // SAFETY: advice changes no byte of a mapping that the caller vouches for.
    unsafe {
        let _ = mm::madvise(base.cast(), len, Advice::LinuxHugepage);
        populate(base, len);
    }
}
