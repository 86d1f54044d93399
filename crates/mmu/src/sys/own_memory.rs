//! This process's memory through `/proc/self/mem`, which ignores what the program may do with it.
//!
//! The kernel reads and writes private memory there whatever its protection (FOLL_FORCE). An administrator can forbid
//! that (`proc_mem.force_override` on the kernel's command line, Linux 6.12), so it is tried before it is relied
//! upon.
//!
//! The calls are made through the [gate](super::gate), because a filter of calls would mistake their offsets for
//! pointers.

use core::ffi::c_void;

use linux_raw_sys::general as nr;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use millpond_core::PAGE_SIZE;

use super::advise::Span;
use super::mm::{mmap_anonymous, mprotect, munmap};
use super::{gate, pagemap};

/// Opens this process's memory for reading and writing. A descriptor refers to the process that opened it.
pub(crate) fn open() -> Result<OwnedFd, Errno> {
    pagemap::open_own(c"/proc/self/mem", OFlags::RDWR)
}

/// Reads from `at` into the buffers, one after the other, up to the end or to a byte that cannot be read. Returns the
/// number of bytes.
///
/// # Safety
/// The buffers are writable memory that no reference covers.
pub(crate) unsafe fn read(mem: BorrowedFd<'_>, into: &[Span], at: usize) -> usize {
    let args = |spans: &[Span], at| {
        [
            mem.as_raw_fd() as usize,
            spans.as_ptr() as usize,
            spans.len(),
            at,
            0,
            0,
        ]
    };
    let mut done = 0;
    for spans in into.chunks(MOST) {
        let want: usize = spans.iter().map(|span| span.len).sum();
        // SAFETY: the caller guarantees that the kernel may write into the buffers.
        let got = unsafe { gate::syscall(nr::__NR_preadv as usize, args(spans, at + done)) };
        done += usize::try_from(got).unwrap_or(0);
        if got != want as isize {
            break;
        }
    }
    done
}

/// Writes `len` bytes from `from` to `at`, up to the end or to a byte that cannot be written. Returns the number of
/// bytes. If a filter forbids the call, the process stops: absent memory could never come in again.
///
/// # Safety
/// No reference covers the destination, or what it refers to may change.
pub(crate) unsafe fn write(mem: BorrowedFd<'_>, from: usize, len: usize, at: usize) -> usize {
    // SAFETY: the caller guarantees it.
    unsafe { try_write(mem, from, len, at) }
        .unwrap_or_else(|errno| super::stop_as_forbidden("pwrite64", errno))
}

/// [`write`], for memory that nobody needs yet.
///
/// # Errors
/// A filter's error, which never comes from the kernel.
unsafe fn try_write(
    mem: BorrowedFd<'_>,
    from: usize,
    len: usize,
    at: usize,
) -> Result<usize, Errno> {
    let mut done = 0;
    while done < len {
        let args = [
            mem.as_raw_fd() as usize,
            from + done,
            len - done,
            at + done,
            0,
            0,
        ];
        // SAFETY: the kernel reads from our buffer; the caller guarantees that it may write to the destination.
        let put = unsafe { gate::syscall(nr::__NR_pwrite64 as usize, args) };
        match gate::check(put) {
            Err(errno @ (Errno::PERM | Errno::NOSYS)) => return Err(errno),
            Err(_) | Ok(0) => break,
            Ok(put) => done += put,
        }
    }
    Ok(done)
}

/// The maximum number of buffers in one call.
const MOST: usize = 64;

/// Opens this process's memory, if closed pages can be written through it.
pub(crate) fn open_if_it_overrides() -> Result<OwnedFd, Errno> {
    let mem = open()?;
    // SAFETY: this makes a new mapping of our own.
    let at = unsafe {
        mmap_anonymous(
            core::ptr::null_mut(),
            PAGE_SIZE,
            ProtFlags::empty(),
            MapFlags::PRIVATE,
        )
    }?;
    let tried = overrides(mem.as_fd(), at);
    // SAFETY: the page was mapped above.
    let _ = unsafe { munmap(at, PAGE_SIZE) };
    tried.map(|()| mem)
}

/// Writes to a closed page, opens it, and checks the result.
fn overrides(mem: BorrowedFd<'_>, page: *mut c_void) -> Result<(), Errno> {
    let byte = 0x5Au8;
    // SAFETY: the page is our own, and the source is one byte long.
    if unsafe { try_write(mem, (&raw const byte) as usize, 1, page as usize) }? != 1 {
        return Err(Errno::IO);
    }
    // SAFETY: the page is our own.
    unsafe { mprotect(page, PAGE_SIZE, MprotectFlags::READ) }?;
    // SAFETY: the page is readable now.
    let seen = unsafe { page.cast::<u8>().read_volatile() };
    if seen == byte { Ok(()) } else { Err(Errno::IO) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_memory_is_read_and_written() {
        let mem = match open_if_it_overrides() {
            Ok(mem) => mem,
            Err(errno) => return eprintln!("skipped: closed memory cannot be written: {errno}"),
        };
        // SAFETY: this makes a new mapping of our own.
        let at = unsafe {
            mmap_anonymous(
                core::ptr::null_mut(),
                2 * PAGE_SIZE,
                ProtFlags::empty(),
                MapFlags::PRIVATE,
            )
        }
        .unwrap() as usize;
        let text = *b"across a border";
        let there = at + PAGE_SIZE - 4;
        let (mut one, mut two) = ([0u8; 6], [0u8; 9]);
        let spans = [
            Span {
                start: one.as_mut_ptr() as usize,
                len: 6,
            },
            Span {
                start: two.as_mut_ptr() as usize,
                len: 9,
            },
        ];
        // SAFETY: the mapping belongs to this test, and the buffers are not looked at meanwhile.
        unsafe {
            assert_eq!(write(mem.as_fd(), text.as_ptr() as usize, 15, there), 15);
            assert_eq!(read(mem.as_fd(), &spans, there), 15);
        }
        assert_eq!([&one[..], &two[..]].concat(), text);
        // Unmapped memory can be neither read nor written. (Addresses that this test has unmapped may belong to
        // another thread by now; those below the first page belong to nobody.)
        // SAFETY: the mapping belongs to this test, and nothing is mapped at the other address.
        unsafe {
            munmap(at as *mut c_void, 2 * PAGE_SIZE).unwrap();
            let nowhere = 16;
            assert_eq!(write(mem.as_fd(), text.as_ptr() as usize, 15, nowhere), 0);
            assert_eq!(read(mem.as_fd(), &spans, nowhere), 0);
        }
    }
}
