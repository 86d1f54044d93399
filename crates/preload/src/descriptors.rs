//! The manager's descriptors, kept where the program cannot close them by accident.
//!
//! Programs close descriptors that they did not open: daemons, and children between fork and exec, close all they can
//! count to. Service threads have a table of their own (`millpond_mmu::isolate_descriptors`), so no page turns into
//! zeros whatever the program closes. But the program's own threads work on memory too, when they free or unmap it, and
//! they have no other table than the program's. So for `close` and its relatives our numbers do not exist: closing one
//! fails with `EBADF`, a range leaves them out, and nothing can be duplicated onto one. What a program does by raw
//! system calls is beyond this; then its next discard that needs a descriptor stops the process with a line.

use crate::raw;
use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use millpond::space::Space;
use rustix::io::Errno;

/// More than a space has.
const MOST: usize = 32;
const NONE: i32 = -1;

static OURS: [AtomicI32; MOST] = [const { AtomicI32::new(NONE) }; MOST];

/// From now on these are the space's.
pub fn learn(space: &Space) {
    forget();
    for (place, fd) in OURS.iter().zip(space.descriptors()) {
        place.store(fd, Relaxed);
    }
}

/// Nothing is protected: the space is about to close its own.
pub fn forget() {
    for place in &OURS {
        place.store(NONE, Relaxed);
    }
}

fn is_ours(fd: c_int) -> bool {
    fd >= 0 && OURS.iter().any(|place| place.load(Relaxed) == fd)
}

/// The lowest of ours in `first..=last`.
fn next_ours(first: u32, last: u32) -> Option<u32> {
    let all = OURS
        .iter()
        .filter_map(|place| u32::try_from(place.load(Relaxed)).ok());
    all.filter(|fd| (first..=last).contains(fd)).min()
}

fn answer(result: Result<usize, Errno>) -> c_int {
    match result {
        Ok(value) => value as c_int,
        Err(errno) => {
            raw::set_errno(errno);
            -1
        }
    }
}

fn call(number: i64, args: [usize; 3]) -> Result<usize, Errno> {
    // SAFETY: these calls touch no memory, and descriptors of ours are kept out by the callers.
    unsafe { raw::syscall(number, [args[0], args[1], args[2], 0, 0, 0]) }
}

/// As `close` of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn close(fd: c_int) -> c_int {
    if is_ours(fd) {
        return answer(Err(Errno::BADF));
    }
    answer(call(libc::SYS_close, [fd as usize, 0, 0]))
}

/// As `close_range` of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    answer(close_around(first, last, flags as usize))
}

/// As `closefrom` of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn closefrom(first: c_int) {
    // What can fail there cannot here: the kernel closes what it finds.
    let _ = close_around(first.max(0) as u32, u32::MAX, 0);
}

/// As `dup2` of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    if is_ours(new) {
        return answer(Err(Errno::BUSY));
    }
    if old == new {
        // `dup3` refuses this; the C library asks whether the descriptor is open.
        return answer(
            call(libc::SYS_fcntl, [old as usize, libc::F_GETFD as usize, 0]).map(|_| new as usize),
        );
    }
    answer(call(libc::SYS_dup3, [old as usize, new as usize, 0]))
}

/// As `dup3` of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if is_ours(new) {
        return answer(Err(Errno::BUSY));
    }
    answer(call(
        libc::SYS_dup3,
        [old as usize, new as usize, flags as usize],
    ))
}

fn close_around(first: u32, last: u32, mut flags: usize) -> Result<usize, Errno> {
    if first > last {
        return Err(Errno::INVAL);
    }
    let mut from = first;
    loop {
        let ours = next_ours(from, last);
        let to = match ours {
            Some(fd) if fd == from => None,
            Some(fd) => Some(fd - 1),
            None => Some(last),
        };
        if let Some(to) = to {
            call(libc::SYS_close_range, [from as usize, to as usize, flags])?;
            // The table is the caller's own after the first call.
            flags &= !(libc::CLOSE_RANGE_UNSHARE as usize);
        }
        match ours {
            Some(fd) if fd < last => from = fd + 1,
            _ => return Ok(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_leaves_ours_out() {
        for (place, fd) in OURS.iter().zip([600, 602, 603]) {
            place.store(fd, Relaxed);
        }
        assert_eq!(next_ours(0, u32::MAX), Some(600));
        assert_eq!(next_ours(601, u32::MAX), Some(602));
        assert_eq!(next_ours(604, u32::MAX), None);
        assert!(is_ours(603) && !is_ours(601) && !is_ours(NONE));
        forget();
        assert_eq!(next_ours(0, u32::MAX), None);
    }
}
