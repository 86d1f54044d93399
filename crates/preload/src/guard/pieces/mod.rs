//! Long transfers: a buffer is held in pieces, so that one call does not evict everything else.
//!
//! The program sees one call: the sum of the pieces, up to the first short one. That is correct only if several
//! kernel calls have the same effect as one. So we cut a call only if we know that from the kind of the descriptor
//! ([`descriptor`]) and the flags ([`shape`]), and make everything else at once, however long it is:
//!
//! | the call | why it stays whole |
//! | --- | --- |
//! | sockets that preserve message boundaries, pipes with `O_DIRECT`, and unknown devices | a piece would be a separate message, or get part of one and lose the rest |
//! | `MSG_PEEK` | each piece would show the same bytes |
//! | `MSG_OOB`, `MSG_FASTOPEN`, `MSG_ERRQUEUE`, `RWF_ATOMIC` and unknown flags | the flag has a meaning for the whole call |
//! | `O_DIRECT` with lengths or addresses that are not whole pages | the kernel refuses all or nothing |
//! | sent messages with control data | it belongs to the first byte, and any credentials in it to all |
//!
//! A piece after the first must not wait if the whole call would not have waited. Reads of files and disks never
//! wait, and writes and reads with `MSG_WAITALL` may; every other read takes what is available and no more
//! ([`Further`]). An error after the first piece is not reported; the program meets it at its next call, as with the
//! kernel's own short counts.
//!
//! On a file a piece is an eighth of the budget. A socket or pipe usually accepts less than 256 KiB at a time, and a
//! non-blocking program tries again and again with everything that is left: with longer pieces each of its calls
//! would bring in, and hold, a multiple of what is sent. If many calls wait, their pieces are shorter
//! ([`piece`](super::holds::piece)).
//!
//! If two writers to the same file each write more than a piece, their pieces may interleave.

mod descriptor;
mod many;
mod message;
mod shape;
mod vector;

#[cfg(test)]
mod tests;

pub use vector::entry;

use super::call::{Way, at_once};
use super::holds::is_long;
use crate::raw::Entry;
use core::mem::MaybeUninit;
use descriptor::Cut;
use rustix::io::Errno;
use shape::{Buffer, Shape};
use vector::{PART, Place};

/// The maximum number of bytes that one call transfers (`MAX_RW_COUNT`).
const MOST: usize = 0x7fff_f000;
/// The argument of `preadv2` that selects the file's own position.
const OWN_POSITION: usize = usize::MAX;
/// The flag of `preadv2` that keeps it from waiting (`RWF_NOWAIT`).
const NO_WAIT: usize = 8;

/// How the pieces after the first are requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Further {
    /// Exactly as in the original call: it never waits, or is allowed to.
    AsAsked,
    /// Only what is available: the call has transferred something, and would not have waited for more.
    IfThere,
}

/// A call that is made in pieces.
pub enum Pieces {
    Plain(Plain),
    Message(message::Message),
    Many(many::Many),
}

/// Returns the call in pieces if it is too long for one piece and may be made in several.
pub fn of(number: i64, args: &[usize; 6]) -> Option<Pieces> {
    match number {
        libc::SYS_sendmsg | libc::SYS_recvmsg => message::of(number, args).map(Pieces::Message),
        libc::SYS_sendmmsg | libc::SYS_recvmmsg => many::of(number, args).map(Pieces::Many),
        _ => plain(number, args).map(Pieces::Plain),
    }
}

impl Pieces {
    /// Makes the calls.
    ///
    /// # Safety
    /// The conditions are those of the system call.
    pub unsafe fn make(self, way: Way) -> Result<usize, Errno> {
        // SAFETY: the caller guarantees what these calls need.
        unsafe {
            match self {
                Self::Plain(pieces) => pieces.make(way),
                Self::Message(pieces) => pieces.make(way),
                Self::Many(pieces) => pieces.make(way),
            }
        }
    }
}

/// A call with one buffer or vector.
pub struct Plain {
    number: i64,
    args: [usize; 6],
    shape: Shape,
    len: usize,
    cut: Cut,
}

fn plain(number: i64, args: &[usize; 6]) -> Option<Plain> {
    let shape = Shape::of(number)?;
    let len = match shape.buffer {
        Buffer::At(_, len) => args[len],
        Buffer::Vector => vector::total(args[1], args[2])?,
    };
    // The kernel refuses a negative length.
    if !is_long(len) || len > isize::MAX as usize || !shape.has_only_known_flags(args) {
        return None;
    }
    let cut = match shape.has_descriptor {
        true => descriptor::cut(args[0], shape.writes, || shape.is_of_whole_pages(args))?,
        false => Cut::of_a_generator(),
    };
    let cut = cut.with_flags(shape.waits_for_all(args));
    (len > cut.piece).then(|| Plain {
        number,
        args: *args,
        shape,
        len: len.min(MOST),
        cut,
    })
}

impl Plain {
    unsafe fn make(self, way: Way) -> Result<usize, Errno> {
        let Self {
            number,
            mut args,
            shape,
            len,
            cut,
        } = self;
        let mut place = match shape.buffer {
            Buffer::At(at, len) => Place::of_buffer(args[at], args[len]),
            Buffer::Vector => Place::of_vector(args[1], args[2]),
        };
        let mut part = [Entry::default(); PART];
        let mut done = 0;
        while done < len {
            let (asked, ranges) = place.next((len - done).min(cut.piece), &mut part);
            if asked == 0 {
                break;
            }
            match shape.buffer {
                Buffer::At(at, len) => (args[at], args[len]) = (part[0].base, part[0].len),
                Buffer::Vector => (args[1], args[2]) = (part.as_ptr() as usize, ranges),
            }
            let (number, args_now) = match done > 0 && cut.further == Further::IfThere {
                true => if_there(number, args, shape, &part, ranges),
                false => (number, args),
            };
            // SAFETY: the caller guarantees this for the whole memory, of which this is a part.
            let moved = match unsafe { at_once(number, args_now, way) } {
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
                Ok(moved) => moved,
            };
            done += moved;
            if moved != asked {
                break;
            }
            if let Some(offset) = shape.offset
                && args[offset] != OWN_POSITION
            {
                args[offset] += moved;
            }
        }
        Ok(done)
    }
}

/// Returns the call for the next piece of a read that takes only what is available. A pipe or socket has a flag for
/// that; old kernels refuse it, which ends the call with what it has so far.
fn if_there(
    number: i64,
    mut args: [usize; 6],
    shape: Shape,
    part: &[Entry; PART],
    ranges: usize,
) -> (i64, [usize; 6]) {
    if number == libc::SYS_recvfrom
        && let Some(flags) = shape.flags
    {
        args[flags] |= libc::MSG_DONTWAIT as usize;
        return (number, args);
    }
    let args = [
        args[0],
        part.as_ptr() as usize,
        ranges,
        OWN_POSITION,
        OWN_POSITION,
        NO_WAIT,
    ];
    (libc::SYS_preadv2, args)
}

/// Queries the kernel with a call that fills in one value.
fn ask<T: Copy>(number: i64, args: impl FnOnce(usize) -> [usize; 6]) -> Option<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let args = args(value.as_mut_ptr() as usize);
    // SAFETY: the kernel writes a value of this type, which lives here.
    unsafe { at_once(number, args, Way::Plain) }.ok()?;
    // SAFETY: zeros are a valid value of the plain types that are queried, and so is whatever the kernel wrote.
    Some(unsafe { value.assume_init() })
}
