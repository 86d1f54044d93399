//! userfaultfd's ioctls, each as one function.
//!
//! For those that serve faults, the kernel never returns `EPERM`, `EACCES` or `ENOSYS`. A filter of the program does,
//! and would continue to: the caller would retry for ever. So the process stops with a line that says what is
//! forbidden.

use linux_raw_sys::general::{
    UFFD_API, UFFDIO_REGISTER_MODE_MISSING, UFFDIO_REGISTER_MODE_WP, uffdio_api, uffdio_copy,
    uffdio_move, uffdio_poison, uffdio_range, uffdio_register, uffdio_writeprotect,
};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

const API: Opcode = opcode::read_write::<uffdio_api>(0xAA, 0x3F);
const REGISTER: Opcode = opcode::read_write::<uffdio_register>(0xAA, 0);
const UNREGISTER: Opcode = opcode::read::<uffdio_range>(0xAA, 1);
const WAKE: Opcode = opcode::read::<uffdio_range>(0xAA, 2);
const COPY: Opcode = opcode::read_write::<uffdio_copy>(0xAA, 3);
const MOVE: Opcode = opcode::read_write::<uffdio_move>(0xAA, 5);
const WRITEPROTECT: Opcode = opcode::read_write::<uffdio_writeprotect>(0xAA, 6);
const POISON: Opcode = opcode::read_write::<uffdio_poison>(0xAA, 8);

const _: () =
    assert!(WAKE == linux_raw_sys::ioctl::UFFDIO_WAKE && COPY == linux_raw_sys::ioctl::UFFDIO_COPY);

/// The mode of a move that wakes no thread, for a move into the pool, where no thread waits.
pub(crate) const DONT_WAKE: u64 = 1;

/// Negotiates `features`. Returns the features that the kernel has.
pub(crate) fn api(fd: BorrowedFd<'_>, features: u64) -> Result<u64, Errno> {
    let mut arg = uffdio_api {
        api: u64::from(UFFD_API),
        features,
        ioctls: 0,
    };
    // SAFETY: the opcode matches the structure; the kernel writes only into it.
    unsafe { ioctl(fd, Updater::<API, _>::new(&mut arg)) }?;
    Ok(arg.features)
}

/// Registers a range for missing pages, and for write protection if `protectable` is set.
pub(crate) fn register(
    fd: BorrowedFd<'_>,
    start: usize,
    len: usize,
    protectable: bool,
) -> Result<(), Errno> {
    let mode = UFFDIO_REGISTER_MODE_MISSING
        | if protectable {
            UFFDIO_REGISTER_MODE_WP
        } else {
            0
        };
    let mut arg = uffdio_register {
        range: range(start, len),
        mode: u64::from(mode),
        ioctls: 0,
    };
    // SAFETY: the opcode matches the structure. Registering changes what a fault does, not contents.
    unsafe { ioctl(fd, Updater::<REGISTER, _>::new(&mut arg)) }
}

/// Unregisters a range: from now on, a thread that touches an absent page there gets a page from the kernel.
pub(crate) fn unregister(fd: BorrowedFd<'_>, start: usize, len: usize) -> Result<(), Errno> {
    let mut arg = range(start, len);
    // SAFETY: the opcode matches the structure. Registering changes what a fault does, not contents.
    unsafe { ioctl(fd, Updater::<UNREGISTER, _>::new(&mut arg)) }
}

/// Makes the threads that wait in the range try again.
pub(crate) fn wake(fd: BorrowedFd<'_>, start: usize, len: usize) -> Result<(), Errno> {
    let mut arg = range(start, len);
    // SAFETY: the opcode matches the structure; nothing is written.
    allowed(unsafe { ioctl(fd, Updater::<WAKE, _>::new(&mut arg)) })
}

/// Copies into absent pages. Returns how many bytes were copied, and the error that stopped the call.
///
/// # Safety
/// No Rust reference covers the destination, and `src` is readable for `len` bytes or not mapped at all.
pub(crate) unsafe fn copy(
    fd: BorrowedFd<'_>,
    dst: usize,
    src: usize,
    len: usize,
) -> (usize, Option<Errno>) {
    let mut arg = uffdio_copy {
        dst: dst as u64,
        src: src as u64,
        len: len as u64,
        mode: 0,
        copy: 0,
    };
    // SAFETY: the opcode matches the structure; the caller knows what the call does to memory.
    match allowed(unsafe { ioctl(fd, Updater::<COPY, _>::new(&mut arg)) }) {
        Ok(()) => (len, None),
        Err(errno) => (usize::try_from(arg.copy).unwrap_or(0), Some(errno)),
    }
}

/// Moves pages to where there are none. Returns how many bytes the kernel says it moved, and the error that stopped
/// it.
///
/// # Safety
/// No Rust reference covers the source or the destination.
pub(crate) unsafe fn move_pages(
    fd: BorrowedFd<'_>,
    dst: usize,
    src: usize,
    len: usize,
    mode: u64,
) -> (usize, Option<Errno>) {
    let mut arg = uffdio_move {
        dst: dst as u64,
        src: src as u64,
        len: len as u64,
        mode,
        move_: 0,
    };
    // SAFETY: the opcode matches the structure; the caller knows what the call does to memory.
    match allowed(unsafe { ioctl(fd, Updater::<MOVE, _>::new(&mut arg)) }) {
        Ok(()) => (len, None),
        Err(errno) => (usize::try_from(arg.move_).unwrap_or(0), Some(errno)),
    }
}

/// Write-protects the pages of a range, or allows writes again and wakes the waiting threads.
pub(crate) fn write_protect(
    fd: BorrowedFd<'_>,
    start: usize,
    len: usize,
    on: bool,
) -> Result<(), Errno> {
    let mut arg = uffdio_writeprotect {
        range: range(start, len),
        mode: u64::from(on),
    };
    // SAFETY: the opcode matches the structure. A protected page makes writers wait; contents stay.
    allowed(unsafe { ioctl(fd, Updater::<WRITEPROTECT, _>::new(&mut arg)) })
}

/// Makes absent pages raise SIGBUS when touched. Returns how many bytes were marked, and the error that stopped the
/// call.
pub(crate) fn poison(fd: BorrowedFd<'_>, start: usize, len: usize) -> (usize, Option<Errno>) {
    let mut arg = uffdio_poison {
        range: range(start, len),
        mode: 0,
        updated: 0,
    };
    // SAFETY: the opcode matches the structure. Only empty pages are marked.
    match allowed(unsafe { ioctl(fd, Updater::<POISON, _>::new(&mut arg)) }) {
        Ok(()) => (len, None),
        Err(errno) => (usize::try_from(arg.updated).unwrap_or(0), Some(errno)),
    }
}

/// Returns the kernel's result. If the result comes from a filter instead, stops the process.
fn allowed(answer: Result<(), Errno>) -> Result<(), Errno> {
    match answer {
        Err(errno @ (Errno::PERM | Errno::ACCESS | Errno::NOSYS)) => {
            super::stop_as_forbidden("ioctl", errno)
        }
        answer => answer,
    }
}

fn range(start: usize, len: usize) -> uffdio_range {
    uffdio_range {
        start: start as u64,
        len: len as u64,
    }
}
