//! Memory that names memory: texts, vectors, messages.

use super::{MOST_TEXT, MOST_TEXTS, PAGE, Walk};
use crate::call::Access;

/// The most ranges of a vector (`UIO_MAXIOV`). The kernel refuses a longer one before it reads it.
const MOST_RANGES: u64 = 1024;
/// The most bytes that one call reads or writes (`MAX_RW_COUNT`).
const MOST_BYTES: u64 = 0x7fff_f000;
/// The size of an `iovec`.
const IOVEC: u64 = 16;
/// The sizes of a `msghdr` and of a `mmsghdr`, which has the count of bytes at its end.
const MSGHDR: u64 = 56;
const MMSGHDR: u64 = 64;
/// The most messages of one call; the kernel accepts no more.
const MOST_MESSAGES: u64 = 1024;
/// Bytes of a text that are examined together.
const LOOK: usize = 64;

impl Walk<'_> {
    /// Reports a text page by page, up to the page with its zero.
    pub(super) fn text(&mut self, start: u64) {
        let mut at = start;
        while at != 0 && at - start < MOST_TEXT {
            let next = (at / PAGE + 1).saturating_mul(PAGE);
            self.bytes(at, next - at);
            if self.ends_before(at, next) {
                return;
            }
            at = next;
        }
    }

    /// Whether a text has its zero in this part of a page, or cannot be read.
    fn ends_before(&mut self, mut at: u64, end: u64) -> bool {
        let mut bytes = [0; LOOK];
        while at < end {
            let len = (end - at).min(LOOK as u64) as usize;
            let bytes = &mut bytes[..len];
            if !self.source.read(at, bytes) || bytes.contains(&0) {
                return true;
            }
            at += len as u64;
        }
        false
    }

    /// Reports a list of texts, which ends with a zero, and the texts.
    pub(super) fn texts(&mut self, start: u64) {
        for index in 0..MOST_TEXTS {
            let at = start.wrapping_add(8 * index);
            self.bytes(at, 8);
            match self.words::<1>(at) {
                None | Some([0]) => return,
                Some([text]) => self.text(text),
            }
        }
    }

    /// Reports a vector, and the memory that it names.
    pub(super) fn vector(&mut self, start: u64, count: u64) {
        if count > MOST_RANGES {
            return;
        }
        self.bytes_as(Access::Reads, start, count * IOVEC);
        let mut left = MOST_BYTES;
        for index in 0..count {
            let Some([at, len]) = self.words(start.wrapping_add(IOVEC * index)) else {
                return;
            };
            let len = len.min(left);
            left -= len;
            self.bytes(at, len);
        }
    }

    /// Reports a `msghdr`, and everything that it names. On receipt, the address and the control data are written along
    /// with the data; the header's lengths and flags are written as well.
    pub(super) fn message(&mut self, start: u64) {
        self.bytes(start, MSGHDR);
        let Some([name, name_len, vector, count, control, control_len]) = self.words(start) else {
            return;
        };
        self.bytes(name, name_len as u32 as u64);
        self.vector(vector, count);
        self.bytes(control, control_len.min(MOST_BYTES));
    }

    /// Reports `mmsghdr`s, and everything that they name. The kernel writes the count of bytes of each.
    pub(super) fn messages(&mut self, start: u64, count: u64) {
        for index in 0..count.min(MOST_MESSAGES) {
            let at = start.wrapping_add(MMSGHDR * index);
            self.bytes_as(Access::Writes, at, MMSGHDR);
            self.message(at);
        }
    }

    /// Reports a `sock_fprog` and the instructions that it names.
    pub(super) fn program(&mut self, start: u64) {
        self.bytes_as(Access::Reads, start, 16);
        if let Some([len, at]) = self.words(start) {
            self.bytes_as(Access::Reads, at, 8 * u64::from(len as u16));
        }
    }
}
