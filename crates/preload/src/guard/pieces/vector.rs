//! Vectors of the program's, and how far a call has come in one.

use crate::raw::{Entry, MAX_RANGES};
use millpond_mmu::read;

/// The ranges that one piece of a vector has.
pub(super) const PART: usize = 64;

/// How far a call has come in the program's memory.
pub(super) struct Place {
    /// The address of the vector's present range. A single buffer is [`now`](Self::now) from the beginning.
    at: usize,
    /// The ranges that are left in the vector.
    ranges: usize,
    /// What is left of the present range.
    now: Entry,
}

impl Place {
    pub(super) fn of_buffer(base: usize, len: usize) -> Self {
        Self {
            at: 0,
            ranges: 0,
            now: Entry { base, len },
        }
    }

    pub(super) fn of_vector(at: usize, ranges: usize) -> Self {
        Self {
            at,
            ranges,
            now: Entry::default(),
        }
    }

    /// Fills `part` with the ranges of the next piece. The answer is its bytes, and its number of ranges.
    pub(super) fn next(&mut self, wanted: usize, part: &mut [Entry; PART]) -> (usize, usize) {
        let (mut bytes, mut count) = (0, 0);
        while count < PART && bytes < wanted {
            if self.now.len == 0 {
                match self.further() {
                    Some(range) => self.now = range,
                    None => break,
                }
                continue;
            }
            let len = self.now.len.min(wanted - bytes);
            part[count] = Entry {
                base: self.now.base,
                len,
            };
            self.now.base = self.now.base.wrapping_add(len);
            self.now.len -= len;
            bytes += len;
            count += 1;
        }
        (bytes, count)
    }

    /// Takes the next range of the vector. The answer is `None` at its end, and where it cannot be read.
    fn further(&mut self) -> Option<Entry> {
        self.ranges = self.ranges.checked_sub(1)?;
        let range = entry(self.at)?;
        self.at = self.at.wrapping_add(size_of::<Entry>());
        Some(range)
    }
}

/// Reads a range of a vector of the program's.
pub fn entry(at: usize) -> Option<Entry> {
    let mut bytes = [0; size_of::<Entry>()];
    if !read(at, &mut bytes) {
        return None;
    }
    let (base, len) = bytes.split_at(size_of::<usize>());
    Some(Entry {
        base: usize::from_ne_bytes(base.try_into().ok()?),
        len: usize::from_ne_bytes(len.try_into().ok()?),
    })
}

/// The length of a vector. The answer is `None` for a vector that the kernel refuses.
pub(super) fn total(at: usize, count: usize) -> Option<usize> {
    if count > MAX_RANGES {
        return None;
    }
    let mut sum = 0usize;
    for index in 0..count {
        let len = entry(at.wrapping_add(index * size_of::<Entry>()))?.len;
        if len > isize::MAX as usize {
            return None;
        }
        sum = sum.saturating_add(len).min(isize::MAX as usize);
    }
    Some(sum)
}
