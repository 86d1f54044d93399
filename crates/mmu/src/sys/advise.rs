//! Drops many ranges with one call: `process_madvise` on the process itself.
//!
//! Dropping a single range costs a TLB shootdown if another thread of the process is running: ten times the rest of
//! the call for a single page. `process_madvise` takes up to 1,024 ranges and flushes once. The standard library does
//! not provide the call and the C library's wrapper sets `errno`, so the instruction is written out for the machines
//! that can be tested; others drop the ranges one by one.

use core::ffi::c_void;

use linux_raw_sys::general as nr;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::mm::Advice;

use millpond_core::PAGE_SIZE;

use super::gate;
use super::mm::{madvise, madvise_by_number};

/// One range of addresses, laid out like the kernel's `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// Drops the pages of all spans. Spans that are no longer mapped are skipped.
///
/// # Safety
/// No Rust reference covers the spans, and their contents may be lost.
pub(crate) unsafe fn discard(pidfd: Option<BorrowedFd<'_>>, mut spans: &[Span]) {
    while let Some(first) = spans.first() {
        if let Some(pidfd) = pidfd
            && spans.len() > 1
        {
            // SAFETY: the caller guarantees it.
            let mut bytes = unsafe { process_discard(pidfd, spans) }.unwrap_or(0);
            while let Some(span) = spans.first()
                && bytes >= span.len
            {
                bytes -= span.len;
                spans = &spans[1..];
            }
            // A span that stopped the call part of the way is dropped again by itself: pages that are gone stay gone.
            let Some(rest) = spans.first() else { return };
            // SAFETY: the caller guarantees it.
            unsafe { discard_one(*rest) };
        } else {
            // SAFETY: the caller guarantees it.
            unsafe { discard_one(*first) };
        }
        spans = &spans[1..];
    }
}

/// Whether the kernel lets a process advise itself with vectors (Linux 6.13).
pub(crate) fn has_vectors(pidfd: BorrowedFd<'_>) -> bool {
    on_trial(4, |start| {
        let spans = [0, 2].map(|page| Span {
            start: start + page * PAGE_SIZE,
            len: PAGE_SIZE,
        });
        // SAFETY: the mapping belongs to the trial, and is empty.
        unsafe { process_discard(pidfd, &spans) == Ok(2 * PAGE_SIZE) }
    })
}

/// Whether the kernel can mark pages ([`guard`], Linux 6.13).
pub(crate) fn has_guards() -> bool {
    on_trial(1, |start| {
        // SAFETY: the mapping belongs to the trial, and is empty.
        unsafe { guard(start, PAGE_SIZE).and_then(|()| unguard(start, PAGE_SIZE)) }.is_ok()
    })
}

/// Tries something with a mapping of `pages` pages, which is made only for that.
fn on_trial(pages: usize, works: impl FnOnce(usize) -> bool) -> bool {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    let (len, prot) = (pages * PAGE_SIZE, ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: this makes a new mapping of our own.
    let made = unsafe { mmap_anonymous(core::ptr::null_mut(), len, prot, MapFlags::PRIVATE) };
    made.is_ok_and(|at| {
        let works = works(at as usize);
        // SAFETY: the range was mapped above.
        let _ = unsafe { munmap(at, len) };
        works
    })
}

/// Drops pages and marks them: a touch raises SIGSEGV from then on (Linux 6.13).
///
/// # Errors
/// The kernel's error: it does not know the advice, or the memory is locked, not private, or not mapped.
///
/// # Safety
/// The conditions are those of [`discard`].
pub(crate) unsafe fn guard(start: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: the caller guarantees it.
    unsafe { madvise_by_number(start as *mut c_void, len, nr::MADV_GUARD_INSTALL) }
}

/// Removes the marks of [`guard`]. Present pages stay as they are.
///
/// # Errors
/// The kernel's error, as for [`guard`].
///
/// # Safety
/// Nobody relies on the marks.
pub(crate) unsafe fn unguard(start: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: the caller guarantees it.
    unsafe { madvise_by_number(start as *mut c_void, len, nr::MADV_GUARD_REMOVE) }
}

/// # Safety
/// The conditions are those of [`discard`].
unsafe fn discard_one(span: Span) {
    // SAFETY: the caller guarantees it.
    let done = unsafe { madvise(span.start as *mut c_void, span.len, Advice::LinuxDontNeed) };
    if done == Err(Errno::INVAL) {
        // Memory that the program locked is only dropped on explicit demand.
        // SAFETY: the caller guarantees it.
        let _ = unsafe {
            madvise(
                span.start as *mut c_void,
                span.len,
                Advice::LinuxDontneedLocked,
            )
        };
    }
}

/// # Safety
/// The conditions are those of [`discard`].
unsafe fn process_discard(pidfd: BorrowedFd<'_>, spans: &[Span]) -> Result<usize, Errno> {
    const DONTNEED: usize = nr::MADV_DONTNEED as usize;
    const NR: usize = nr::__NR_process_madvise as usize;
    let count = spans.len().min(1024);
    // SAFETY: the kernel reads `count` spans, which the slice has, and writes nothing of ours.
    let answer = unsafe {
        gate::syscall(
            NR,
            [
                pidfd.as_raw_fd() as usize,
                spans.as_ptr() as usize,
                count,
                DONTNEED,
                0,
                0,
            ],
        )
    };
    gate::check(answer)
}
