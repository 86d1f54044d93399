//! `process_vm_readv` and `process_vm_writev`, with which a process copies its own memory or another's.
//!
//! Both vectors usually lie on the stack, so the filter does not see the memory that they name. The copy proceeds in
//! pieces of one range on each side: a program that copies more than its budget must succeed. The remote side is held
//! if it is this process. Memory that is absent in *another* process is an error that we cannot prevent.

use crate::guard::call::{Way, make};
use crate::guard::holds::{Holds, allowed};
use crate::guard::is_on;
use crate::guard::pieces::entry;
use crate::raw::{self, Entry, MAX_RANGES};
use core::ffi::c_ulong;
use libc::{iovec, pid_t};
use rustix::io::Errno;

/// One side's vector, starting at the range to be copied next.
struct Side {
    at: usize,
    ranges: usize,
    now: Entry,
}

impl Side {
    fn new(at: usize, ranges: usize) -> Self {
        Self {
            at,
            ranges,
            now: Entry::default(),
        }
    }

    /// Returns whether anything is left.
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

/// Copies piece by piece. Returns the sum, or the error of the first piece.
unsafe fn in_pieces(
    number: i64,
    process: usize,
    mut local: Side,
    mut remote: Side,
) -> Result<usize, Errno> {
    let is_own = is_this_process(process);
    let mut done = 0;
    loop {
        let piece = match (local.has_more(), remote.has_more()) {
            (Ok(true), Ok(true)) => {
                let len = local.now.len.min(remote.now.len).min(allowed() / 2);
                // SAFETY: the caller guarantees this for the whole of both vectors.
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
    process: usize,
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
    unsafe { make(number, &[process, local, 1, remote, 1, 0], Way::Plain) }
}

/// Returns whether a number names this process or one of its threads.
fn is_this_process(pid: usize) -> bool {
    // SAFETY: the call is a query.
    let own = unsafe { raw::syscall(libc::SYS_getpid, [0; 6]) };
    own.is_ok_and(|own| {
        let args = [own, pid, 0, 0, 0, 0];
        // SAFETY: no signal is sent; the kernel looks for the thread.
        pid == own || unsafe { raw::syscall(libc::SYS_tgkill, args) }.is_ok()
    })
}

/// Makes the call of this number, for the functions and for the program's own calls. It is made unchanged if there is
/// no direct delivery, or if the kernel would refuse it.
///
/// # Safety
/// The conditions are those of the system call.
pub unsafe fn by_number(number: i64, args: [usize; 6]) -> Result<usize, Errno> {
    let [process, local, local_count, remote, remote_count, flags] = args;
    let is_refused = flags != 0 || local_count.max(remote_count) > MAX_RANGES;
    if is_refused || !is_on() {
        // SAFETY: the caller guarantees what this call needs.
        return unsafe { raw::syscall(number, args) };
    }
    let (local, remote) = (
        Side::new(local, local_count),
        Side::new(remote, remote_count),
    );
    // SAFETY: the caller guarantees what this call needs.
    unsafe { in_pieces(number, process, local, remote) }
}

exports! {
    [process_vm_readv: Held]
    unsafe extern "C" fn process_vm_readv(
        process: pid_t,
        local: *const iovec,
        local_count: c_ulong,
        remote: *const iovec,
        remote_count: c_ulong,
        flags: c_ulong,
    ) -> isize = unsafe {
        let [local, remote] = [local, remote].map(|vector| vector as usize);
        let counts = [local_count, remote_count].map(|count| count as usize);
        let args = [
            process as usize,
            local,
            counts[0],
            remote,
            counts[1],
            flags as usize,
        ];
        crate::c_answer(by_number(libc::SYS_process_vm_readv, args))
    }

    [process_vm_writev: Held]
    unsafe extern "C" fn process_vm_writev(
        process: pid_t,
        local: *const iovec,
        local_count: c_ulong,
        remote: *const iovec,
        remote_count: c_ulong,
        flags: c_ulong,
    ) -> isize = unsafe {
        let [local, remote] = [local, remote].map(|vector| vector as usize);
        let counts = [local_count, remote_count].map(|count| count as usize);
        let args = [
            process as usize,
            local,
            counts[0],
            remote,
            counts[1],
            flags as usize,
        ];
        crate::c_answer(by_number(libc::SYS_process_vm_writev, args))
    }
}
