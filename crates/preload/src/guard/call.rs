//! Making a call whose memory may be absent.
//!
//! The memory that the call touches is brought in and held, the call is made at the gate, and the holds are released.
//! Anything that the kernel gives out only once (a datagram, a line from a terminal, an eventfd's count) cannot get
//! lost on the way to absent memory: the buffer is present before the kernel looks for the data.
//!
//! A long buffer is handled in pieces ([`pieces`]).

use super::cancel;
use super::holds::{Holds, is_long, pages};
use super::{gate, pieces};
use crate::raw;
use millpond_guard::{table, touched};
use millpond_mmu::{Held, touch};
use rustix::io::Errno;

/// How a call is made once its memory is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The call is made directly.
    Plain,
    /// The thread may be cancelled while it waits, as in the C library's functions.
    Cancellable,
}

/// Makes system call `number`, with its memory brought in and held under direct delivery. Returns the kernel's
/// answer.
///
/// # Safety
/// The conditions are those of the system call.
pub unsafe fn held(number: i64, args: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { held_as(number, args, Way::Plain) }
}

/// Makes system call `number` as [`held`] does, in the way that the caller chooses.
///
/// # Safety
/// The conditions are those of the system call.
pub unsafe fn held_as(number: i64, args: [usize; 6], way: Way) -> Result<usize, Errno> {
    if !super::is_on() {
        // SAFETY: the caller guarantees what this call needs.
        return unsafe { make(number, &args, way) };
    }
    // SAFETY: the caller guarantees what these calls need.
    unsafe {
        match pieces::of(number, &args) {
            Some(pieces) => pieces.make(way),
            None => at_once(number, args, way),
        }
    }
}

/// Makes a system call on behalf of a C library function that this library replaces and that is a cancellation point.
/// Returns what the function would: -1 with `errno`, or the value.
///
/// # Safety
/// The conditions are those of the system call.
pub unsafe fn point(number: i64, args: [usize; 6]) -> isize {
    // SAFETY: the caller guarantees this.
    crate::c_answer(unsafe { held_as(number, args, Way::Cancellable) })
}

/// Makes such a call if it touches only one buffer in the space, of `args[2]` bytes at `args[1]`.
///
/// # Safety
/// The conditions are those of the system call.
#[inline]
pub unsafe fn with_buffer(number: i64, args: [usize; 6]) -> isize {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { with_range(number, args, args[1], args[2]) }
}

/// Makes such a call if it touches only `len` bytes of the space at `start`.
///
/// # Safety
/// The conditions are those of the system call.
#[inline]
pub unsafe fn with_range(number: i64, args: [usize; 6], start: usize, len: usize) -> isize {
    if len == 0 || is_long(len) {
        // SAFETY: the caller guarantees what this call needs.
        return unsafe { point(number, args) };
    }
    let pages = pages(start, len);
    let frame = core::ptr::from_ref(&args) as usize;
    let Some(_held) = Held::first(pages.start, pages.end, frame) else {
        return crate::c_answer(Err(Errno::NOMEM));
    };
    let _ = touch(start, start.saturating_add(len));
    // SAFETY: the caller guarantees what this call needs.
    crate::c_answer(unsafe { make(number, &args, Way::Cancellable) })
}

/// Makes a call with all of its memory held at once.
///
/// # Safety
/// The conditions are those of the system call.
pub unsafe fn at_once(number: i64, args: [usize; 6], way: Way) -> Result<usize, Errno> {
    let mut holds = Holds::new();
    if let Some(call) = table::call(number as u64) {
        touched::tell(call, &args.map(|word| word as u64), &mut holds);
    }
    if !holds.are_complete() {
        return Err(Errno::NOMEM);
    }
    // SAFETY: the caller guarantees what this call needs.
    unsafe { make(number, &args, way) }
}

/// Makes a call whose memory is held.
///
/// # Safety
/// The conditions are those of the system call.
#[inline]
pub unsafe fn make(number: i64, args: &[usize; 6], way: Way) -> Result<usize, Errno> {
    // SAFETY: the caller guarantees what these calls need.
    raw::check(unsafe {
        match way {
            Way::Plain => gate::call(number, args),
            Way::Cancellable => cancel::call(number, args),
        }
    })
}
