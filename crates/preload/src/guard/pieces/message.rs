//! `sendmsg` and `recvmsg` on a stream: a header that names a long vector.
//!
//! A non-blocking program sends a long message with many calls, each with everything that is left (the transports of
//! Python's asyncio do so). Data that the socket does not accept need not be in memory.
//!
//! Each received piece has the program's full room for control data: descriptors arrive with the bytes that they were
//! sent with. A piece that brings some is the last, so control data is reported once and nothing is lost.

use super::descriptor::{self, Cut};
use super::vector::{PART, Place, total};
use super::{Further, MOST, shape};
use crate::guard::call::{Way, at_once};
use crate::guard::holds::{Holds, is_long};
use crate::raw::Entry;
use core::mem::{MaybeUninit, offset_of};
use libc::msghdr;
use millpond_mmu::{read, write};
use rustix::io::Errno;

/// A message that is sent or received in pieces.
pub struct Message {
    number: i64,
    fd: usize,
    /// The program's header, and a copy of it.
    at: usize,
    header: msghdr,
    flags: usize,
    len: usize,
    cut: Cut,
}

pub(super) fn of(number: i64, args: &[usize; 6]) -> Option<Message> {
    let writes = number == libc::SYS_sendmsg;
    let [fd, at, flags, ..] = *args;
    let header = header(at)?;
    let len = total(header.msg_iov as usize, header.msg_iovlen)?;
    let has_control = header.msg_controllen > 0 && !header.msg_control.is_null();
    let is_simple = shape::are_for_parts(writes, flags as i32) && !(writes && has_control);
    if !is_long(len) || !is_simple {
        return None;
    }
    let cut = descriptor::cut_message(fd, writes)?;
    let cut = cut.with_flags(!writes && shape::waits_for_all(flags as i32));
    (len > cut.piece).then_some(Message {
        number,
        fd,
        at,
        header,
        flags,
        len: len.min(MOST),
        cut,
    })
}

impl Message {
    pub(super) unsafe fn make(self, way: Way) -> Result<usize, Errno> {
        let Self {
            number,
            fd,
            at,
            header,
            mut flags,
            len,
            cut,
        } = self;
        let mut place = Place::of_vector(header.msg_iov as usize, header.msg_iovlen);
        let mut part = [Entry::default(); PART];
        let mut answer = header;
        let mut done = 0;
        while done < len {
            let (asked, ranges) = place.next((len - done).min(cut.piece), &mut part);
            if asked == 0 {
                break;
            }
            let mut now = msghdr {
                msg_iov: part.as_mut_ptr().cast(),
                msg_iovlen: ranges,
                ..header
            };
            if done > 0 && cut.further == Further::IfThere {
                flags |= libc::MSG_DONTWAIT as usize;
            }
            let args = [fd, &raw mut now as usize, flags, 0, 0, 0];
            // SAFETY: the caller guarantees this for the whole memory, of which this is a part.
            let moved = match unsafe { at_once(number, args, way) } {
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
                Ok(moved) => moved,
            };
            done += moved;
            answer = now;
            if moved != asked || number == libc::SYS_recvmsg && now.msg_controllen > 0 {
                break;
            }
        }
        match number == libc::SYS_sendmsg || told(at, &answer) {
            true => Ok(done),
            false => Err(Errno::FAULT),
        }
    }
}

/// Copies the program's header as the kernel would read it.
pub(super) fn header(at: usize) -> Option<msghdr> {
    let mut header = MaybeUninit::<msghdr>::zeroed();
    // SAFETY: the slice is the header's bytes, all of which are written.
    let bytes = unsafe {
        core::slice::from_raw_parts_mut(header.as_mut_ptr().cast::<u8>(), size_of::<msghdr>())
    };
    // SAFETY: zeros are a valid header, and so are any bytes.
    read(at, bytes).then(|| unsafe { header.assume_init() })
}

/// Passes on to the program what the kernel reported about a received message, in the fields that it writes.
fn told(at: usize, answer: &msghdr) -> bool {
    let mut holds = Holds::new();
    holds.add(at, size_of::<msghdr>());
    write(
        at + offset_of!(msghdr, msg_namelen),
        &answer.msg_namelen.to_ne_bytes(),
    ) && write(
        at + offset_of!(msghdr, msg_controllen),
        &answer.msg_controllen.to_ne_bytes(),
    ) && write(
        at + offset_of!(msghdr, msg_flags),
        &answer.msg_flags.to_ne_bytes(),
    )
}
