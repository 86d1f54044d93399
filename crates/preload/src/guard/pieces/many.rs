//! `sendmmsg` and `recvmmsg`: many messages, of which no more are held at once than one call may hold.
//!
//! The kernel makes these calls message by message, too, and answers with their number up to the first that fails. So
//! a call for fewer messages, and another for the rest, do the same. What says how long to wait is for the kernel to
//! keep: it writes the rest of the time back after each call.

use super::message::header;
use super::vector::total;
use crate::guard::call::{Way, at_once};
use crate::guard::holds::allowed;
use libc::mmsghdr;
use millpond_mmu::read;
use rustix::io::Errno;

/// The most messages of one call; the kernel takes no more.
const MOST: usize = 1024;
/// The most ranges that one piece has in all.
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

/// The number of messages at the beginning that fit into one piece: one at least.
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
            // SAFETY: the caller guarantees it for all messages, of which these are some.
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

/// Whether the rest of a call that receives may go on: its time is not over. A call that waits for the first message
/// alone takes only what is there from now on.
fn waits_on(args: &mut [usize; 6]) -> bool {
    if args[3] as i32 & libc::MSG_WAITFORONE != 0 {
        args[3] |= libc::MSG_DONTWAIT as usize;
    }
    let mut left = [0; size_of::<libc::timespec>()];
    args[4] == 0 || !read(args[4], &mut left) || left.iter().any(|&byte| byte != 0)
}
