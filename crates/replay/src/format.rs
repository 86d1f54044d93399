//! Millpond's own trace files: small, written and read in one pass, with reliable detection of damage.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..8 | `millpond` in ASCII |
//! | 8 | version: 1 |
//! | 9 | log2 of the page size |
//! | 10 | flags: bit 0 is set when accesses say whether they write |
//! | 11 | 0 |
//! | 12..16 | the lowest 32 bits of XXH3-128 of the 12 bytes before, little endian |
//! | 16.. | zstd, with its checksum: for each access the LEB128 bytes of a zigzag delta of 64 bits |
//!
//! The sum of the deltas is the number of the page. If accesses say whether they write, it is the number times two,
//! plus one for a write. An access in a loop or a stream takes one byte before compression.
//!
//! The header's checksum and zstd's detect truncation and damage: no change of a byte, and no truncation, results in a
//! different valid trace (`tests/format.rs` tries all of them on small traces). For both reading and writing, zstd's
//! window and a buffer bound the memory.

use crate::error::TraceError;
use crate::import::{Access, Input};
use integer_encoding::VarInt;
use std::io::{self, Write};

pub(crate) const MAGIC: &[u8; 8] = b"millpond";
const VERSION: u8 = 1;
const HAS_WRITES: u8 = 1;
const HEADER: usize = 16;
const LEVEL: i32 = 6;
const BUFFER: usize = 64 << 10;
/// The most bytes that one number takes.
const MAX_BYTES: usize = 10;
/// Page sizes that can be read, as log2: 512 bytes to 1 GiB.
const PAGE_SHIFTS: std::ops::RangeInclusive<u8> = 9..=30;

/// The header of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// log2 of the size of a page, in bytes.
    pub page_shift: u8,
    /// Whether accesses say if they write.
    pub has_writes: bool,
}

impl Header {
    /// A header for pages of 4 KiB.
    #[must_use]
    pub fn pages_of_4k(has_writes: bool) -> Self {
        Self {
            page_shift: 12,
            has_writes,
        }
    }

    fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8] = VERSION;
        bytes[9] = self.page_shift;
        bytes[10] = u8::from(self.has_writes) * HAS_WRITES;
        let sum = sum_of(&bytes[..12]);
        bytes[12..].copy_from_slice(&sum);
        bytes
    }
}

fn sum_of(bytes: &[u8]) -> [u8; 4] {
    (twox_hash::XxHash3_128::oneshot(bytes) as u32).to_le_bytes()
}

/// Writes a trace, access by access.
///
/// ```
/// use millpond_replay::format::{Header, Reader, Writer};
/// use millpond_replay::import::{Access, Input};
///
/// let mut file = Vec::new();
/// let mut writer = Writer::new(&mut file, Header::pages_of_4k(true)).unwrap();
/// let access = Access { page: 7, write: true };
/// writer.push(access).unwrap();
/// writer.finish().unwrap();
/// let reader = Reader::new(Input::new(&file[..])).unwrap();
/// assert_eq!(reader.map(Result::unwrap).collect::<Vec<_>>(), [access]);
/// ```
pub struct Writer<W: Write> {
    out: zstd::Encoder<'static, W>,
    header: Header,
    /// The value before.
    last: u64,
    buffer: Vec<u8>,
    accesses: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the header to `out`; accesses follow.
    ///
    /// # Errors
    /// When `out` cannot be written.
    ///
    /// # Panics
    /// When the size of a page is not between 512 bytes and 1 GiB.
    pub fn new(mut out: W, header: Header) -> io::Result<Self> {
        assert!(
            PAGE_SHIFTS.contains(&header.page_shift),
            "pages of 2^{} bytes",
            header.page_shift
        );
        out.write_all(&header.to_bytes())?;
        let mut out = zstd::Encoder::new(out, LEVEL)?;
        out.include_checksum(true)?;
        Ok(Self {
            out,
            header,
            last: 0,
            buffer: Vec::with_capacity(BUFFER),
            accesses: 0,
        })
    }

    /// Adds an access. If the header says that accesses do not distinguish writes, `write` is not kept; if they do, the
    /// highest bit of the page's number is not kept.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn push(&mut self, access: Access) -> io::Result<()> {
        let value = if self.header.has_writes {
            access.page << 1 | u64::from(access.write)
        } else {
            access.page
        };
        // The difference is taken modulo 2^64, so that any two numbers have one.
        let delta = value.wrapping_sub(self.last) as i64;
        self.last = value;
        let mut bytes = [0; MAX_BYTES];
        let len = delta.encode_var(&mut bytes);
        self.buffer.extend_from_slice(&bytes[..len]);
        self.accesses += 1;
        if self.buffer.len() + bytes.len() > BUFFER {
            self.flush()?;
        }
        Ok(())
    }

    /// Number of accesses added.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Ends the trace; without this call the trace counts as truncated. Returns the output.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        let mut out = self.out.finish()?;
        out.flush()?;
        Ok(out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

impl<W: Write> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("header", &self.header)
            .field("accesses", &self.accesses)
            .finish_non_exhaustive()
    }
}

/// Reads a trace, access by access.
#[derive(Debug)]
pub struct Reader<'a> {
    input: Input<'a>,
    header: Header,
    last: u64,
    failed: bool,
}

impl<'a> Reader<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// When the input is not a trace, is damaged, or has a newer version.
    pub fn new(mut input: Input<'a>) -> Result<Self, TraceError> {
        let header = input.ahead(HEADER)?;
        if header.len() < HEADER {
            return Err(input.truncated("the header"));
        }
        let bytes: [u8; HEADER] = header[..HEADER].try_into().expect("as long as that");
        if bytes[..8] != *MAGIC {
            return Err(input.corrupt("it does not begin like a trace of millpond"));
        }
        if bytes[12..] != sum_of(&bytes[..12]) {
            return Err(input.corrupt("the header does not agree with its checksum"));
        }
        let unknown = |what, value: u8, known| TraceError::Unknown {
            what,
            value: u64::from(value),
            known,
        };
        if bytes[8] != VERSION {
            return Err(unknown("the format's version is", bytes[8], "version 1"));
        }
        if !PAGE_SHIFTS.contains(&bytes[9]) {
            return Err(unknown("log2 of the page size is", bytes[9], "9 to 30"));
        }
        if bytes[10] & !HAS_WRITES != 0 || bytes[11] != 0 {
            return Err(unknown("the flags are", bytes[10], "flag 1"));
        }
        input.take(HEADER);
        Ok(Self {
            input: input.zstd()?,
            header: Header {
                page_shift: bytes[9],
                has_writes: bytes[10] & HAS_WRITES != 0,
            },
            last: 0,
            failed: false,
        })
    }

    /// The trace's header.
    #[must_use]
    pub fn header(&self) -> Header {
        self.header
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Access, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let value = next_value(&mut self.input, &mut self.last);
        self.failed = value.is_err();
        value
            .map(|value| {
                value.map(|value| match self.header.has_writes {
                    true => Access::with_write_bit(value),
                    false => Access::read(value),
                })
            })
            .transpose()
    }
}

/// The next value of a sequence of varints, where `last` is the previous value; `None` at its end.
pub(crate) fn next_value(input: &mut Input<'_>, last: &mut u64) -> Result<Option<u64>, TraceError> {
    let mut next = i64::decode_var(input.some()?);
    if next.is_none() {
        next = i64::decode_var(input.ahead(MAX_BYTES)?);
    }
    let Some((delta, len)) = next else {
        return match input.some()?.len() {
            0 => Ok(None),
            1..MAX_BYTES => Err(input.truncated("the last access")),
            _ => Err(input.corrupt("a number has more than 64 bits")),
        };
    };
    input.take(len);
    *last = last.wrapping_add(delta as u64);
    Ok(Some(*last))
}
