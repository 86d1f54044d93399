//! `sendmmsg` and `recvmmsg`: many messages, held at once only as far as one call may hold memory.
//!
//! The kernel also makes these calls message by message, and returns the number of messages before the first failure.
//! So a call for fewer messages, and another for the rest, have the same effect. The kernel itself keeps track of the
//! timeout: it writes the remaining time back after each call.

use super::message::header;
use super::vector::total;
use crate::guard::call::{Way, at_once};
use crate::guard::holds::allowed;
use libc::mmsghdr;
use millpond_mmu::read;
use rustix::io::Errno;

/// The maximum number of messages in one call; the kernel accepts no more.
const MOST: usize = 1024;
/// The maximum total number of ranges in one piece.
const RANGES: usize = 512;

/// Messages that are sent or received in several calls.
pub struct Many {
    number: i64,
    args: [usize; 6],
}

pub(super) fn of(number: i64, args: &[usize; 6]) -> Option<Many> {
    let count = args[2].min(MOST);
    (fitting(args[1], count) < count).then_some(Many {
        number,
        args: *args,
    })
}

/// Returns how many of the first messages fit in one piece, but at least one.
fn fitting(at: usize, count: usize) -> usize {
    let (mut bytes, mut ranges) = (0usize, 0usize);
    for index in 0..count {
        let Some(header) = header(at.wrapping_add(index * size_of::<mmsghdr>())) else {
            return count;
        };
        let Some(len) = total(header.msg_iov as usize, header.msg_iovlen) else {
            return count;
        };
        bytes = bytes.saturating_add(len);
        ranges += header.msg_iovlen;
        if index > 0 && (bytes > allowed() || ranges > RANGES) {
            return index;
        }
    }
    count
}

impl Many {
    pub(super) unsafe fn make(self, way: Way) -> Result<usize, Errno> {
        let Self { number, mut args } = self;
        let (start, count) = (args[1], args[2].min(MOST));
        let mut done = 0;
        while done < count {
            args[1] = start.wrapping_add(done * size_of::<mmsghdr>());
            args[2] = fitting(args[1], count - done);
            // SAFETY: the caller guarantees this for all messages, including these.
            let served = match unsafe { at_once(number, args, way) } {
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
                Ok(served) => served,
            };
            done += served;
            if served < args[2] || number == libc::SYS_recvmmsg && !waits_on(&mut args) {
                break;
            }
        }
        Ok(done)
    }
}

/// Returns whether the rest of a receiving call may continue because its time is not over. A call that waits only for
/// the first message takes only what is available from now on.
fn waits_on(args: &mut [usize; 6]) -> bool {
    if args[3] as i32 & libc::MSG_WAITFORONE != 0 {
        args[3] |= libc::MSG_DONTWAIT as usize;
    }
    let mut left = [0; size_of::<libc::timespec>()];
    args[4] == 0 || !read(args[4], &mut left) || left.iter().any(|&byte| byte != 0)
}
