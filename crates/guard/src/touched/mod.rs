//! The memory that one call touches, range by range.
//!
//! The walk goes through the arguments of a call. It reports a range to the [`Source`] before anything is read from it,
//! so that the source can bring the range in. Then it reports the memory that the range names: the buffers of a vector,
//! the address and the control data of a message. If the memory that names something cannot be read, the walk skips
//! that: the kernel will not be able to read it either, and answers `EFAULT`.
//!
//! The program may change a vector after the walk has read it. The kernel reads it again and may then touch memory that
//! is not held; if that is absent, the call answers `EFAULT`, as it may for any program that changes a vector during a
//! call.

mod by_command;
mod nested;

use crate::call::{ARGUMENTS, Access, Argument, Call, Extent};

/// The size of a page.
const PAGE: u64 = 4096;
/// The most bytes of one text: an argument of `execve` (`MAX_ARG_STRLEN`).
const MOST_TEXT: u64 = 32 * PAGE;
/// The most texts in a list: as many as fit into the 2 MiB that the kernel uses of a stack of 8.
const MOST_TEXTS: u64 = (2 << 20) / 8;

/// A piece of memory that a call touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The first address.
    pub start: u64,
    /// The length in bytes, not zero. The end does not wrap around.
    pub len: u64,
    /// What the kernel does with it.
    pub access: Access,
    /// Whether the kernel touches it again after the call has returned.
    pub is_kept: bool,
}

/// The program's memory. Each range is reported to it before the range is read.
pub trait Source {
    /// Takes note of a range.
    fn touch(&mut self, range: Range);

    /// Reads bytes of the program's memory, which were reported before. Returns false if they cannot be read.
    fn read(&mut self, at: u64, into: &mut [u8]) -> bool;
}

/// Reports to `source` the ranges that a call with these arguments touches.
///
/// ```
/// use millpond_guard::touched::{self, Range, Source};
/// use millpond_guard::{call::Access, table};
///
/// struct Seen(Vec<Range>);
/// impl Source for Seen {
///     fn touch(&mut self, range: Range) {
///         self.0.push(range);
///     }
///     fn read(&mut self, _: u64, _: &mut [u8]) -> bool {
///         false
///     }
/// }
///
/// let mut seen = Seen(Vec::new());
/// touched::tell(table::X86_64.call(0).unwrap(), &[3, 0x10_0000, 512, 0, 0, 0], &mut seen);
/// assert_eq!((seen.0[0].start, seen.0[0].len), (0x10_0000, 512));
/// assert_eq!(seen.0[0].access, Access::Writes);
/// ```
pub fn tell(call: &Call, arguments: &[u64; ARGUMENTS], source: &mut dyn Source) {
    for (index, argument) in call.arguments.iter().enumerate() {
        let (access, extent, is_kept) = match *argument {
            Argument::Value | Argument::Pages => continue,
            Argument::Memory(access, extent) => (access, extent, false),
            Argument::Kept(access, extent) => (access, extent, true),
        };
        let mut walk = Walk {
            arguments,
            access,
            is_kept,
            source,
        };
        match extent {
            Extent::ByCommand => walk.by_command(call.number, index),
            extent => walk.extent(arguments[index], extent),
        }
    }
}

/// The walk through the memory of one argument.
struct Walk<'a> {
    arguments: &'a [u64; ARGUMENTS],
    access: Access,
    is_kept: bool,
    source: &'a mut dyn Source,
}

impl Walk<'_> {
    /// Reports the memory at `at`, whose extent follows from the arguments or the memory itself.
    fn extent(&mut self, at: u64, extent: Extent) {
        if at == 0 {
            return;
        }
        let count = |of: u8| self.arguments[usize::from(of)];
        match extent {
            Extent::Bytes(bytes) => self.bytes(at, bytes.into()),
            Extent::Items { of, size } => self.bytes(at, count(of).saturating_mul(size.into())),
            Extent::Bits { of } => self.bytes(at, count(of).div_ceil(64).saturating_mul(8)),
            Extent::PageBytes { of } => self.bytes(at, count(of).div_ceil(PAGE)),
            Extent::PointedTo { of } => {
                let len = self.number(count(of));
                self.bytes(at, len.unwrap_or(0).into());
            }
            Extent::Sized {
                offset,
                least,
                plus,
            } => {
                self.bytes(at, least.into());
                let size = self.number(at.wrapping_add(offset.into()));
                self.bytes(at, u64::from(size.unwrap_or(0)) + u64::from(plus));
            }
            Extent::Text => self.text(at),
            Extent::Texts => self.texts(at),
            Extent::Vector { of } => self.vector(at, count(of)),
            Extent::Message => self.message(at),
            Extent::Messages { of } => self.messages(at, count(of)),
            Extent::ByCommand => unreachable!("the caller knows the command"),
        }
    }

    /// Reports `len` bytes, up to the end of the address space.
    fn bytes(&mut self, start: u64, len: u64) {
        self.bytes_as(self.access, start, len);
    }

    /// Reports `len` bytes whose access differs from that of the memory that they name.
    fn bytes_as(&mut self, access: Access, start: u64, len: u64) {
        let len = len.min(u64::MAX - start);
        if start == 0 || len == 0 {
            return;
        }
        self.source.touch(Range {
            start,
            len,
            access,
            is_kept: self.is_kept,
        });
    }

    /// The 4-byte number at an address, which is also reported.
    fn number(&mut self, at: u64) -> Option<u32> {
        self.bytes(at, 4);
        let mut bytes = [0; 4];
        (at != 0 && self.source.read(at, &mut bytes)).then(|| u32::from_le_bytes(bytes))
    }

    /// The 8-byte words at an address, which were reported before.
    fn words<const N: usize>(&mut self, at: u64) -> Option<[u64; N]> {
        let mut words = [0; N];
        for (index, word) in words.iter_mut().enumerate() {
            let mut bytes = [0; 8];
            if !self
                .source
                .read(at.checked_add(8 * index as u64)?, &mut bytes)
            {
                return None;
            }
            *word = u64::from_le_bytes(bytes);
        }
        Some(words)
    }

    /// The first words of a structure of `len` bytes, which were reported before. `None` if the structure is shorter:
    /// the kernel treats the missing part as zeros, or refuses the structure.
    fn words_of<const N: usize>(&mut self, at: u64, len: u64) -> Option<[u64; N]> {
        if len < 8 * N as u64 {
            return None;
        }
        self.words(at)
    }
}

#[cfg(test)]
mod tests;
