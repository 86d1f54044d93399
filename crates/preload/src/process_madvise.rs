//! `process_madvise`: advice about many ranges in one call.
//!
//! Advice about another process is passed to the kernel, and so is advice about this one if no range lies in the
//! space. Otherwise the ranges are handled one after another like calls of [`crate::madvise`], and the answer is the
//! kernel's: the bytes of all ranges before the first failure, or its error if the first range failed.
//!
//! The kernel checks for errors in the arguments themselves. It checks flags, count, vector, descriptor and advice in
//! this order, and the advice only if there is a byte to advise about. So a first call with an advice that no kernel
//! knows has no effect, and fails with `EINVAL` if all other arguments are correct.
//!
//! We also ask the kernel whether a descriptor means this process. A process may give any advice about its own memory
//! but only hints about another's, and a call without ranges shows which applies. Before Linux 6.13 only hints were
//! allowed; there we look in `/proc`, which names the process.

use crate::madvise::advise;
use crate::raw::{Entry, MAX_RANGES};
use crate::signals::Blocked;
use crate::stack_switch::on_safe_stack;
use crate::{guard, space};
use core::ffi::{CStr, c_int, c_uint, c_void};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// An advice that no kernel knows.
const NO_ADVICE: i32 = -1;
/// The maximum number of bytes that the kernel handles in one call (`MAX_RW_COUNT`). It ignores the rest of a longer
/// vector.
const MAX_BYTES: usize = i32::MAX as usize & !(crate::vma::PAGE - 1);

/// The arguments of one call.
#[derive(Clone, Copy)]
struct Request {
    pidfd: i32,
    vector: usize,
    count: usize,
    advice: i32,
    flags: u32,
}

impl Request {
    fn to_kernel(self) -> Result<usize, Errno> {
        let args = [
            self.pidfd as usize,
            self.vector,
            self.count,
            self.advice as usize,
            self.flags as usize,
            0,
        ];
        // SAFETY: the program asked for it, and no managed page is concerned (or the advice is one that no kernel
        // knows).
        unsafe { guard::call::held(libc::SYS_process_madvise, args) }
    }

    fn without_ranges(self, advice: i32) -> Self {
        Self {
            vector: 0,
            count: 0,
            advice,
            ..self
        }
    }

    /// Returns whether the descriptor means this process and this kernel accepts the advice through this call.
    fn is_for_us(self) -> bool {
        let takes = |advice| self.without_ranges(advice).to_kernel().is_ok();
        takes(libc::MADV_DONTNEED) || names_us(self.pidfd) && takes(self.advice)
    }

    /// Returns the entries of the vector, cut where the kernel cuts it. Nothing after a negative length is read.
    ///
    /// # Safety
    /// The kernel has read the vector, either completely or up to a negative length.
    unsafe fn entries(self) -> impl Iterator<Item = Result<Entry, Errno>> {
        let mut room = MAX_BYTES;
        (0..self.count).map(move |n| {
            // SAFETY: this is one of the entries that the caller vouches for.
            let Entry { base, len } =
                unsafe { (self.vector as *const Entry).add(n).read_unaligned() };
            if len > isize::MAX as usize {
                return Err(Errno::INVAL);
            }
            let len = len.min(room);
            room -= len;
            Ok(Entry { base, len })
        })
    }
}

fn process_advise(request: Request) -> Result<usize, Errno> {
    if space::get().is_none() {
        return request.to_kernel();
    }
    let all_but_advice = Request {
        advice: NO_ADVICE,
        ..request
    };
    match all_but_advice.to_kernel() {
        Err(Errno::INVAL) if request.flags == 0 && request.count <= MAX_RANGES => {}
        result => return result,
    }
    // SAFETY: the kernel has read the vector, or found a negative length in it and read no further.
    let entries = unsafe { request.entries() };
    let mut overlaps = false;
    for entry in entries {
        let entry = entry?;
        overlaps |= space::overlaps(entry.base, entry.len);
    }
    if !overlaps || !request.is_for_us() {
        return request.to_kernel();
    }
    on_safe_stack(move || {
        // The entries are copied, because the vector may lie in the memory that the advice is about.
        let _blocked = Blocked::new();
        // SAFETY: the kernel has read the vector.
        let entries: Vec<Entry> = unsafe { request.entries() }.collect::<Result<_, _>>()?;
        let mut done = 0;
        for entry in &entries {
            match advise(entry.base, entry.len, request.advice) {
                Ok(()) => done += entry.len,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    })
}

/// Returns whether `/proc` says that the descriptor means this process.
fn names_us(pidfd: i32) -> bool {
    let mut path = *b"/proc/self/fdinfo/\0\0\0\0\0\0\0\0\0\0\0\0";
    let Ok(()) = std::io::Write::write_fmt(&mut &mut path[18..29], format_args!("{pidfd}")) else {
        return false;
    };
    let Ok(path) = CStr::from_bytes_until_nul(&path) else {
        return false;
    };
    let mut buffer = [0u8; 512];
    let read = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|file| rustix::io::read(&file, &mut buffer[..]))
        .unwrap_or(0);
    let text = core::str::from_utf8(&buffer[..read]).unwrap_or("");
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"));
    let own = rustix::process::getpid().as_raw_nonzero().get();
    pid.and_then(|pid| pid.trim().parse().ok()) == Some(own)
}

exports! {
    /// The C library has this function since 2.36.
    [process_madvise: Mappings]
    unsafe extern "C" fn process_madvise(
        pidfd: c_int,
        vector: *const c_void,
        count: usize,
        advice: c_int,
        flags: c_uint,
    ) -> isize {
        let request = Request {
            pidfd,
            vector: vector as usize,
            count,
            advice,
            flags,
        };
        crate::c_answer(process_advise(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, PidfdFlags, getpid, getppid, pidfd_open};
    use std::os::fd::AsRawFd;

    #[test]
    fn our_own_pidfd_is_distinguished_from_others() {
        let open = |pid: Pid| pidfd_open(pid, PidfdFlags::empty()).unwrap();
        assert!(names_us(open(getpid()).as_raw_fd()));
        assert!(!names_us(open(getppid().unwrap()).as_raw_fd()));
        assert!(!names_us(0));
        assert!(!names_us(-1));
    }

    #[test]
    fn a_long_vector_is_cut_where_the_kernel_cuts_it() {
        let vector = [1 << 30, 1 << 30, 5].map(|len| Entry { base: 0, len });
        let request = Request {
            pidfd: 0,
            vector: vector.as_ptr() as usize,
            count: vector.len(),
            advice: 0,
            flags: 0,
        };
        // SAFETY: the vector is a live array.
        let lens: Vec<usize> = unsafe { request.entries() }
            .map(|entry| entry.unwrap().len)
            .collect();
        assert_eq!(lens, [1 << 30, (1 << 30) - crate::vma::PAGE, 0]);
    }
}
