//! Bare sequences of 64-bit numbers: LEB128 of zigzag deltas (`.vz`), and words (`.u64`).

use super::input::Input;
use crate::error::TraceError;
use crate::format::next_value;

/// A reader of LEB128 of zigzag deltas: the format of [`crate::format`] without the header.
#[derive(Debug)]
pub struct Deltas<'a> {
    input: Input<'a>,
    last: u64,
    failed: bool,
}

impl<'a> Deltas<'a> {
    /// A reader of the numbers of `input`.
    #[must_use]
    pub fn new(input: Input<'a>) -> Self {
        Self {
            input,
            last: 0,
            failed: false,
        }
    }
}

impl Iterator for Deltas<'_> {
    type Item = Result<u64, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let value = next_value(&mut self.input, &mut self.last);
        self.failed = value.is_err();
        value.transpose()
    }
}

/// A reader of words of 64 bits, little endian.
#[derive(Debug)]
pub struct Words<'a> {
    input: Input<'a>,
    failed: bool,
}

impl<'a> Words<'a> {
    /// A reader of the words of `input`.
    #[must_use]
    pub fn new(input: Input<'a>) -> Self {
        Self {
            input,
            failed: false,
        }
    }
}

impl Iterator for Words<'_> {
    type Item = Result<u64, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let record = next_record(&mut self.input, "a word of 8 bytes");
        self.failed = record.is_err();
        record
            .map(|record| record.map(u64::from_le_bytes))
            .transpose()
    }
}

/// The next `N` bytes; `None` at the end.
pub(crate) fn next_record<const N: usize>(
    input: &mut Input<'_>,
    what: &'static str,
) -> Result<Option<[u8; N]>, TraceError> {
    let bytes = input.ahead(N)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let Some(record) = bytes.first_chunk::<N>().copied() else {
        return Err(input.truncated(what));
    };
    input.take(N);
    Ok(Some(record))
}
