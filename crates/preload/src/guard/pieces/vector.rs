//! Vectors of the program, and a call's progress through them.

use crate::raw::{Entry, MAX_RANGES};
use millpond_mmu::read;

/// The maximum number of ranges in one piece of a vector.
pub(super) const PART: usize = 64;

/// A call's progress through the program's memory.
pub(super) struct Place {
    /// The address of the vector's current range. A single buffer is in [`now`](Self::now) from the start.
    at: usize,
    /// The number of ranges left in the vector.
    ranges: usize,
    /// The rest of the current range.
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

    /// Fills `part` with the ranges of the next piece. Returns its length in bytes and its number of ranges.
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

    /// Takes the next range of the vector. Returns `None` at its end, or if it cannot be read.
    fn further(&mut self) -> Option<Entry> {
        self.ranges = self.ranges.checked_sub(1)?;
        let range = entry(self.at)?;
        self.at = self.at.wrapping_add(size_of::<Entry>());
        Some(range)
    }
}

/// Reads a range from the program's vector.
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

/// Returns the length of a vector, or `None` if the kernel refuses the vector.
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
