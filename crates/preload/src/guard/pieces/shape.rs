//! The meaning of the arguments of calls that transfer bytes.

use super::vector::Place;
use super::{OWN_POSITION, PART};
use crate::raw::Entry;

/// Flags of socket calls that mean the same for a part as for the whole.
const SENT_IN_PARTS: i32 = libc::MSG_DONTWAIT
    | libc::MSG_NOSIGNAL
    | libc::MSG_MORE
    | libc::MSG_DONTROUTE
    | libc::MSG_CONFIRM
    | libc::MSG_ZEROCOPY;
const RECEIVED_IN_PARTS: i32 =
    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_WAITALL | libc::MSG_CMSG_CLOEXEC;
/// The same for `preadv2` and `pwritev2`: all flags up to Linux 6.18 except `RWF_ATOMIC`.
const WITH_FILES_IN_PARTS: i32 = 0x01 | 0x02 | 0x04 | 0x08 | 0x10 | 0x20 | 0x80;

/// How a call names its memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Buffer {
    /// By the arguments with these indices, an address and a length.
    At(usize, usize),
    /// By a vector: the second argument is its address, the third its number of ranges.
    Vector,
}

/// A call that transfers bytes, and may transfer fewer than requested.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) writes: bool,
    pub(super) buffer: Buffer,
    /// Whether the first argument is a descriptor.
    pub(super) has_descriptor: bool,
    /// The index of the argument with the file offset, if there is one.
    pub(super) offset: Option<usize>,
    /// The index of the argument with the flags, if there is one, and the flags that mean the same for a part.
    pub(super) flags: Option<usize>,
    in_parts: i32,
}

impl Shape {
    pub(super) fn of(number: i64) -> Option<Self> {
        let shape = |writes, buffer, offset| Self {
            writes,
            buffer,
            has_descriptor: true,
            offset,
            flags: None,
            in_parts: 0,
        };
        let flagged = |shape: Self, flags, in_parts| Self {
            flags: Some(flags),
            in_parts,
            ..shape
        };
        let (one, vector) = (Buffer::At(1, 2), Buffer::Vector);
        Some(match number {
            libc::SYS_read => shape(false, one, None),
            libc::SYS_write => shape(true, one, None),
            libc::SYS_recvfrom => flagged(shape(false, one, None), 3, RECEIVED_IN_PARTS),
            libc::SYS_sendto => flagged(shape(true, one, None), 3, SENT_IN_PARTS),
            libc::SYS_pread64 => shape(false, one, Some(3)),
            libc::SYS_pwrite64 => shape(true, one, Some(3)),
            libc::SYS_readv => shape(false, vector, None),
            libc::SYS_writev => shape(true, vector, None),
            libc::SYS_preadv => shape(false, vector, Some(3)),
            libc::SYS_pwritev => shape(true, vector, Some(3)),
            libc::SYS_preadv2 => flagged(shape(false, vector, Some(3)), 5, WITH_FILES_IN_PARTS),
            libc::SYS_pwritev2 => flagged(shape(true, vector, Some(3)), 5, WITH_FILES_IN_PARTS),
            libc::SYS_getrandom => Self {
                has_descriptor: false,
                ..shape(false, Buffer::At(0, 1), None)
            },
            _ => return None,
        })
    }

    /// Returns whether all flags of the call mean the same for its parts.
    pub(super) fn has_only_known_flags(self, args: &[usize; 6]) -> bool {
        self.flags
            .is_none_or(|flags| args[flags] as i32 & !self.in_parts == 0)
    }

    /// Returns whether a read waits until its whole buffer is full.
    pub(super) fn waits_for_all(self, args: &[usize; 6]) -> bool {
        let is_received = self.in_parts == RECEIVED_IN_PARTS;
        let flags = self.flags.filter(|_| is_received);
        flags.is_some_and(|flags| waits_for_all(args[flags] as i32))
    }

    /// Returns whether all addresses, lengths and offsets are multiples of a page, as direct I/O requires.
    pub(super) fn is_of_whole_pages(self, args: &[usize; 6]) -> bool {
        let is_whole = |value: usize| value.is_multiple_of(4096);
        let place = self.offset.map_or(0, |offset| args[offset]);
        if place != OWN_POSITION && !is_whole(place) {
            return false;
        }
        let mut at = match self.buffer {
            Buffer::At(at, len) => return is_whole(args[at]) && is_whole(args[len]),
            Buffer::Vector => Place::of_vector(args[1], args[2]),
        };
        let mut part = [Entry::default(); PART];
        loop {
            let (bytes, ranges) = at.next(usize::MAX, &mut part);
            if bytes == 0 {
                return true;
            }
            if part[..ranges]
                .iter()
                .any(|range| !is_whole(range.base) || !is_whole(range.len))
            {
                return false;
            }
        }
    }
}

/// Returns whether all flags of a call for a message mean the same for its parts.
pub(super) fn are_for_parts(writes: bool, flags: i32) -> bool {
    let in_parts = if writes {
        SENT_IN_PARTS
    } else {
        RECEIVED_IN_PARTS
    };
    flags & !in_parts == 0
}

/// Returns whether a receiving socket call waits until all of its memory is full.
pub(super) fn waits_for_all(flags: i32) -> bool {
    flags & libc::MSG_WAITALL != 0
}
