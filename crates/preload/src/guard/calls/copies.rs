//! `process_vm_readv` and `process_vm_writev`, by which a process copies its own memory, or another's.
//!
//! Both vectors mostly lie on the stack, so the filter sees nothing of what they name. The copy goes in pieces of one
//! range of each side: a program that copies more than its budget must get through. The other side is held where it is
//! this process. Memory that is out in *another* process is an error there, which no one here can help.

use crate::guard::call::{Way, make};
use crate::guard::holds::{Holds, allowed};
use crate::guard::pieces::entry;
use crate::guard::real::{Find, Real};
use crate::raw::{self, Entry, MAX_RANGES};
use core::ffi::c_ulong;
use libc::{iovec, pid_t};
use rustix::io::Errno;

type Copy =
    unsafe extern "C" fn(pid_t, *const iovec, c_ulong, *const iovec, c_ulong, c_ulong) -> isize;

// SAFETY: the C library's function has this type.
static READ: Real<Copy> = unsafe { Real::named(c"process_vm_readv") };
// SAFETY: the C library's function has this type.
static WRITE: Real<Copy> = unsafe { Real::named(c"process_vm_writev") };

pub const FUNCTIONS: &[&dyn Find] = &[&READ, &WRITE];

/// One side's vector, from the range that is copied next.
struct Side {
    at: usize,
    ranges: usize,
    now: Entry,
}

impl Side {
    fn new(vector: *const iovec, count: c_ulong) -> Self {
        Self {
            at: vector as usize,
            ranges: count as usize,
            now: Entry::default(),
        }
    }

    /// Whether there is anything left.
    fn has_more(&mut self) -> Result<bool, Errno> {
        while self.now.len == 0 && self.ranges > 0 {
            self.now = entry(self.at).ok_or(Errno::FAULT)?;
            self.at += size_of::<Entry>();
            self.ranges -= 1;
        }
        Ok(self.now.len > 0)
    }

    fn advance(&mut self, len: usize) {
        self.now.base = self.now.base.wrapping_add(len);
        self.now.len -= len;
    }
}

/// Copies piece by piece. The answer is the sum, or the error of the first.
unsafe fn in_pieces(
    number: i64,
    process: pid_t,
    mut local: Side,
    mut remote: Side,
) -> Result<usize, Errno> {
    // SAFETY: the call asks.
    let own = unsafe { raw::syscall(libc::SYS_getpid, [0; 6]) };
    let is_own = own == Ok(process as usize);
    let mut done = 0;
    loop {
        let piece = match (local.has_more(), remote.has_more()) {
            (Ok(true), Ok(true)) => {
                let len = local.now.len.min(remote.now.len).min(allowed() / 2);
                // SAFETY: the caller guarantees it for the whole of both vectors.
                unsafe {
                    one(
                        number,
                        process,
                        [local.now.base, remote.now.base],
                        len,
                        is_own,
                    )
                }
                .map(|moved| (moved, len))
            }
            (Err(error), _) | (_, Err(error)) => Err(error),
            _ => return Ok(done),
        };
        match piece {
            Ok((moved, len)) => {
                done += moved;
                if moved != len {
                    return Ok(done);
                }
                local.advance(len);
                remote.advance(len);
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => return Ok(done),
        }
    }
}

/// Copies one piece.
unsafe fn one(
    number: i64,
    process: pid_t,
    [local, remote]: [usize; 2],
    len: usize,
    is_own: bool,
) -> Result<usize, Errno> {
    let ranges = [Entry { base: local, len }, Entry { base: remote, len }];
    let mut holds = Holds::new();
    holds.add(ranges.as_ptr() as usize, size_of_val(&ranges));
    holds.add(local, len);
    if is_own {
        holds.add(remote, len);
    }
    if !holds.are_complete() {
        return Err(Errno::NOMEM);
    }
    let [local, remote] = [&raw const ranges[0] as usize, &raw const ranges[1] as usize];
    // SAFETY: the caller guarantees what this call needs.
    unsafe {
        make(
            number,
            &[process as usize, local, 1, remote, 1, 0],
            Way::Plain,
        )
    }
}

/// Makes a call with nothing changed where there is no direct delivery, or where the kernel refuses it.
unsafe fn copy(
    real: &Real<Copy>,
    number: i64,
    process: pid_t,
    [local, remote]: [(*const iovec, c_ulong); 2],
    flags: c_ulong,
) -> isize {
    let is_refused = flags != 0 || local.1.max(remote.1) as usize > MAX_RANGES;
    match real.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if is_refused || !crate::guard::is_on() => unsafe {
            real(process, local.0, local.1, remote.0, remote.1, flags)
        },
        _ => {
            let [local, remote] = [local, remote].map(|(vector, count)| Side::new(vector, count));
            // SAFETY: the caller guarantees what this call needs.
            crate::c_answer(unsafe { in_pieces(number, process, local, remote) })
        }
    }
}

/// Replaces the C library's `process_vm_readv`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn process_vm_readv(
    process: pid_t,
    local: *const iovec,
    local_count: c_ulong,
    remote: *const iovec,
    remote_count: c_ulong,
    flags: c_ulong,
) -> isize {
    let sides = [(local, local_count), (remote, remote_count)];
    // SAFETY: the caller guarantees what this call needs.
    unsafe { copy(&READ, libc::SYS_process_vm_readv, process, sides, flags) }
}

/// Replaces the C library's `process_vm_writev`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn process_vm_writev(
    process: pid_t,
    local: *const iovec,
    local_count: c_ulong,
    remote: *const iovec,
    remote_count: c_ulong,
    flags: c_ulong,
) -> isize {
    let sides = [(local, local_count), (remote, remote_count)];
    // SAFETY: the caller guarantees what this call needs.
    unsafe { copy(&WRITE, libc::SYS_process_vm_writev, process, sides, flags) }
}
