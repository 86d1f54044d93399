//! The manager's descriptors, kept where the program cannot close them by accident.
//!
//! Programs close descriptors that they did not open: daemons, and children between fork and exec, close every number
//! they can count to. Service threads have a descriptor table of their own (`millpond_mmu::isolate_descriptors`), so
//! no page turns into zeros whatever the program closes. But the program's own threads also do work for the manager,
//! when they free or unmap memory, and they have only the program's table. So to `close` and its relatives our
//! numbers do not exist: closing one fails with `EBADF`, a range skips them, and nothing can be duplicated onto one.
//! We cannot intercept a program's raw system calls; after one that closes a descriptor of ours, the next discard
//! that needs it stops the process with a line.
//!
//! For a fork, the parent opens a pipe, and the child opens its own store and fault handler before it can close its
//! parent's; yet a server may fork with every descriptor in use. So we keep some descriptors in reserve. They refer
//! to nothing useful, are closed for a fork and reopened afterwards. A program with a low descriptor limit has fewer
//! in reserve, or none; in that case its child ends with a line at the point where it needs them.

use crate::raw;
use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use millpond::space::Space;
use rustix::io::Errno;

/// More than the space's number of descriptors.
const MOST: usize = 32;
const NONE: i32 = -1;

static OURS: [AtomicI32; MOST] = [const { AtomicI32::new(NONE) }; MOST];

/// Number of descriptors in reserve: those that a child opens before it closes the inherited ones, those that its
/// parent opens for it, and a few more.
const IN_RESERVE: usize = 16;
/// The lowest number of the reserve: like the space's own descriptors, it stays clear of programs that count the low
/// ones.
const HIGH: usize = 512;

static RESERVE: [AtomicI32; IN_RESERVE] = [const { AtomicI32::new(NONE) }; IN_RESERVE];

/// Records the space's descriptors, which are protected from now on, and fills the reserve.
pub fn learn(space: &Space) {
    forget();
    for (place, fd) in OURS.iter().zip(space.descriptors()) {
        place.store(fd, Relaxed);
    }
    keep_reserve();
}

/// Ends the protection of all descriptors because the space is about to close its own.
pub fn forget() {
    for place in &OURS {
        place.store(NONE, Relaxed);
    }
}

/// Opens descriptors for the next fork, as many as are available.
pub fn keep_reserve() {
    // An eventfd keeps no file, directory or other process alive.
    let flags = libc::EFD_CLOEXEC as usize;
    let Ok(first) = call(libc::SYS_eventfd2, [0, flags, 0]) else {
        return;
    };
    let empty = RESERVE.iter().filter(|place| place.load(Relaxed) == NONE);
    for place in empty {
        let duplicate = [first, libc::F_DUPFD_CLOEXEC as usize, HIGH];
        if let Ok(fd) = call(libc::SYS_fcntl, duplicate) {
            place.store(fd as i32, Relaxed);
        }
    }
    let _ = call(libc::SYS_close, [first, 0, 0]);
}

/// Closes the reserve so that a fork can use its descriptors.
pub fn lend_reserve() {
    for place in &RESERVE {
        let fd = place.swap(NONE, Relaxed);
        if fd != NONE {
            let _ = call(libc::SYS_close, [fd as usize, 0, 0]);
        }
    }
}

fn all_of_ours() -> impl Iterator<Item = i32> {
    let places = OURS.iter().chain(&RESERVE);
    places
        .map(|place| place.load(Relaxed))
        .filter(|&fd| fd >= 0)
}

fn is_ours(fd: c_int) -> bool {
    all_of_ours().any(|ours| ours == fd)
}

/// Returns whether the program may not use this number. It may use one of the reserve, which shrinks by that one.
fn is_taken(fd: c_int) -> bool {
    for place in &RESERVE {
        if fd >= 0 && place.compare_exchange(fd, NONE, Relaxed, Relaxed).is_ok() {
            return false;
        }
    }
    is_ours(fd)
}

/// Returns the lowest of our descriptors in `first..=last`.
fn next_ours(first: u32, last: u32) -> Option<u32> {
    let all = all_of_ours().map(|fd| fd as u32);
    all.filter(|fd| (first..=last).contains(fd)).min()
}

fn answer(result: Result<usize, Errno>) -> c_int {
    crate::c_answer(result) as c_int
}

fn call(number: i64, args: [usize; 3]) -> Result<usize, Errno> {
    // SAFETY: these calls touch no memory, and the callers exclude our descriptors.
    unsafe { raw::syscall(number, [args[0], args[1], args[2], 0, 0, 0]) }
}

exports! {
    [close: Numbers]
    extern "C" fn close(fd: c_int) -> c_int {
        if is_ours(fd) {
            return answer(Err(Errno::BADF));
        }
        answer(call(libc::SYS_close, [fd as usize, 0, 0]))
    }

    [close_range: Numbers]
    extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        answer(close_around(first, last, flags as usize))
    }

    [close_range: Numbers]
    extern "C" fn closefrom(first: c_int) {
        // The possible failures cannot happen here: the kernel closes whatever descriptors it finds.
        let _ = close_around(first.max(0) as u32, u32::MAX, 0);
    }

    [dup2: Numbers]
    extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
        if is_taken(new) {
            return answer(Err(Errno::BUSY));
        }
        if old == new {
            // `dup3` refuses equal numbers; the C library then checks whether the descriptor is open.
            let is_open = call(libc::SYS_fcntl, [old as usize, libc::F_GETFD as usize, 0]);
            return answer(is_open.map(|_| new as usize));
        }
        answer(call(libc::SYS_dup3, [old as usize, new as usize, 0]))
    }

    [dup3: Numbers]
    extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
        if is_taken(new) {
            return answer(Err(Errno::BUSY));
        }
        answer(call(
            libc::SYS_dup3,
            [old as usize, new as usize, flags as usize],
        ))
    }
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
            // After the first call the caller has its own table.
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
    fn closing_a_range_of_descriptors_skips_ours() {
        for (place, fd) in OURS.iter().zip([600, 602, 603]) {
            place.store(fd, Relaxed);
        }
        assert_eq!(next_ours(0, u32::MAX), Some(600));
        assert_eq!(next_ours(601, u32::MAX), Some(602));
        assert_eq!(next_ours(604, u32::MAX), None);
        assert!(is_ours(603) && !is_ours(601) && !is_ours(NONE));
        RESERVE[3].store(700, Relaxed);
        assert_eq!(next_ours(604, u32::MAX), Some(700));
        assert!(is_ours(700) && !is_taken(700), "given to the program");
        assert!(!is_ours(700) && is_taken(600));
        forget();
        assert_eq!(next_ours(0, u32::MAX), None);
    }
}
