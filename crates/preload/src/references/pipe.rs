//! `vmsplice`: the pipe gets copies of managed memory.
//!
//! The copy is private memory of ours that is unmapped after the call: the pipe's references are then the last, and
//! the pages are freed once they have been read. The call keeps the kernel's semantics, as it is still a `vmsplice`:
//! it waits for the first free place in the pipe or answers `EAGAIN`, takes what fits, can be interrupted and
//! restarted, and raises SIGPIPE. `write` would need one copy less than `vmsplice` does here, but waits until
//! everything is written, and follows the descriptor's `O_NONBLOCK`, whereas `vmsplice` follows its own flag.
//!
//! We copy no more than the whole pipe could hold. A range that cannot be read ends the copy where the kernel would
//! have ended, with `EFAULT` if it is the first. Two things differ. The reader gets the bytes as they were at the
//! call, even if the program changes them before they are read, which it must not do. And small ranges share a page,
//! so more of them fit.
//!
//! A `vmsplice` out of a pipe copies anyway, and memory that is not managed stays where it is. We leave both to the
//! kernel.

use super::copy_from_program;
use crate::raw::{Entry, MAX_RANGES};
use crate::{guard, raw, space};
use core::ffi::{c_int, c_uint, c_void};
use rustix::io::Errno;

/// Number of ranges read at a time: a thread's stack may be small.
const BLOCK: usize = 32;

/// The arguments of one call.
#[derive(Clone, Copy)]
struct Request {
    fd: i32,
    vector: usize,
    count: usize,
    flags: u32,
}

impl Request {
    fn to_kernel(self) -> Result<usize, Errno> {
        let args = [
            self.fd as usize,
            self.vector,
            self.count,
            self.flags as usize,
            0,
            0,
        ];
        // SAFETY: the call reads memory of the program or a copy of ours, and writes what the program asked for.
        unsafe { guard::call::held(libc::SYS_vmsplice, args) }
    }

    /// Calls `visit` with each range, until it has seen enough.
    ///
    /// # Errors
    /// The vector cannot be read.
    fn ranges(self, mut visit: impl FnMut(Entry) -> bool) -> Result<(), Errno> {
        let mut block = [Entry::default(); BLOCK];
        for first in (0..self.count).step_by(BLOCK) {
            let entries = &mut block[..BLOCK.min(self.count - first)];
            // SAFETY: entries are words without gaps, and any bytes are valid words.
            let bytes = unsafe {
                core::slice::from_raw_parts_mut(
                    entries.as_mut_ptr().cast::<u8>(),
                    size_of_val(entries),
                )
            };
            let at = self.vector.wrapping_add(first * size_of::<Entry>());
            if copy_from_program(at, bytes)? < bytes.len() {
                return Err(Errno::FAULT);
            }
            for &entry in &*entries {
                if !visit(entry) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Returns the number of bytes that the vector names if some of them are managed and the kernel accepts every
    /// length.
    fn managed_bytes(self) -> Option<usize> {
        let (mut bytes, mut managed, mut good) = (0usize, false, true);
        self.ranges(|Entry { base, len }| {
            good = len <= isize::MAX as usize;
            managed |= len > 0 && space::overlaps(base, len);
            bytes = bytes.saturating_add(len);
            good
        })
        .ok()?;
        (managed && good).then_some(bytes)
    }

    /// Copies the ranges of the vector until `to` is full or a byte cannot be read.
    fn gather(self, to: &mut [u8]) -> Result<usize, Errno> {
        let mut done = 0;
        let mut refused = None;
        self.ranges(|Entry { base, len }| {
            let room = &mut to[done..];
            let len = len.min(room.len());
            match copy_from_program(base, &mut room[..len]) {
                Ok(copied) => {
                    done += copied;
                    copied == len && done < to.len()
                }
                Err(error) => {
                    refused = Some(error);
                    false
                }
            }
        })?;
        match refused {
            Some(error) if done == 0 => Err(error),
            _ => Ok(done),
        }
    }
}

/// Returns the number of bytes that a pipe holds, if `fd` is a pipe open for writing.
fn capacity(fd: i32) -> Option<usize> {
    let ask = |what: i32| {
        let args = [fd as usize, what as usize, 0, 0, 0, 0];
        // SAFETY: the call queries a descriptor.
        unsafe { raw::syscall(libc::SYS_fcntl, args) }.ok()
    };
    let access = ask(libc::F_GETFL)? as i32 & libc::O_ACCMODE;
    (access != libc::O_RDONLY).then(|| ask(libc::F_GETPIPE_SZ))?
}

/// Our own memory for the copy of one call.
struct Copy {
    at: usize,
    len: usize,
}

impl Copy {
    fn new(len: usize) -> Result<Self, Errno> {
        let at = raw::map_anonymous(len)?;
        // A child has no use for the copy, and nothing there would unmap it.
        // SAFETY: this is our own mapping.
        let _ = unsafe { raw::madvise(at, len, libc::MADV_DONTFORK) };
        Ok(Self { at, len })
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the memory is mapped readable and writable, and belongs to this value alone.
        unsafe { core::slice::from_raw_parts_mut(self.at as *mut u8, self.len) }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // SAFETY: this is our own mapping, whose borrows have ended. Pages that a pipe refers to stay until they have
        // been read.
        let _ = unsafe { raw::munmap(self.at, self.len) };
    }
}

fn splice(request: Request) -> Result<usize, Errno> {
    if space::get().is_none() || request.count > MAX_RANGES {
        return request.to_kernel();
    }
    let Some(bytes) = request.managed_bytes() else {
        return request.to_kernel();
    };
    let Some(capacity) = capacity(request.fd) else {
        return request.to_kernel();
    };
    let mut copy = Copy::new(bytes.min(capacity))?;
    let len = request.gather(copy.bytes())?;
    let given = Entry { base: copy.at, len };
    Request {
        vector: core::ptr::from_ref(&given) as usize,
        count: 1,
        ..request
    }
    .to_kernel()
}

exports! {
    [vmsplice: Held]
    unsafe extern "C" fn vmsplice(
        fd: c_int,
        vector: *const c_void,
        count: usize,
        flags: c_uint,
    ) -> isize {
        let request = Request {
            fd,
            vector: vector as usize,
            count,
            flags,
        };
        crate::c_answer(splice(request))
    }
}
