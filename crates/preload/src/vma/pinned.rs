//! Memory that stays resident for good, and how it is given back all the same.
//!
//! Stacks that a program brought for its threads are pinned ([`crate::threads`]). The space refuses to forget pinned
//! pages, but the program may unmap its stack when the thread is gone, or discard it, and must find zeros at the next
//! use of the addresses. As the pages are in memory, zeroing them here by hand cannot fault.

use super::{Range, Vmas};
use crate::space;
use libc::{PROT_NONE, PROT_READ, PROT_WRITE};
use rustix::io::Errno;

/// The pinned ranges, in order and apart.
#[derive(Default)]
pub struct Pinned(Vec<Range>);

impl Pinned {
    fn add(&mut self, range: Range) {
        let mut whole = range;
        self.0.retain(|old| {
            let joins = old.start <= whole.end && whole.start <= old.end;
            if joins {
                whole = whole.start.min(old.start)..whole.end.max(old.end);
            }
            !joins
        });
        let place = self.0.partition_point(|old| old.start < whole.start);
        self.0.insert(place, whole);
    }

    /// `range` in parts, each with whether it is pinned.
    fn parts(&self, range: Range) -> Vec<(Range, bool)> {
        let mut parts = Vec::new();
        let mut at = range.start;
        for pinned in &self.0 {
            let start = pinned.start.clamp(at, range.end);
            let end = pinned.end.clamp(at, range.end);
            if start < end {
                if at < start {
                    parts.push((at..start, false));
                }
                parts.push((start..end, true));
                at = end;
            }
        }
        if at < range.end {
            parts.push((at..range.end, false));
        }
        parts
    }
}

impl Vmas {
    /// Brings `range` in and keeps it there for good.
    pub fn pin(&mut self, range: Range) -> Result<(), Errno> {
        for (part, pinned) in self.pinned.parts(range) {
            if !pinned {
                self.space.pin_forever(part.start, part.len())?;
                self.pinned.add(part);
            }
        }
        Ok(())
    }

    /// Makes opened pages with protection `prot` read as zeros.
    pub fn discard(&self, range: Range, prot: i32) -> Result<(), Errno> {
        for (part, pinned) in self.pinned.parts(range) {
            if pinned {
                self.zero(&part)?;
                self.set_protection(&part, prot, None)?;
            } else {
                self.space.discard(part.start, part.len())?;
            }
        }
        Ok(())
    }

    /// Makes opened pages read as zeros or as before, which is the kernel's promise about `MADV_FREE`.
    pub fn free_lazily(&self, range: Range) -> Result<(), Errno> {
        for (part, pinned) in self.pinned.parts(range) {
            // What stays in memory for good gains nothing by being free.
            if pinned {
                continue;
            }
            if space::is_lazy() {
                self.space.lazy_free_shared(part.start, part.len())?;
            } else {
                self.space.discard(part.start, part.len())?;
            }
        }
        Ok(())
    }

    /// Forgets opened pages and takes access away.
    pub fn close(&self, range: Range) -> Result<(), Errno> {
        super::locked::unlock(&range);
        for (part, pinned) in self.pinned.parts(range) {
            if pinned {
                self.zero(&part)?;
                self.reprotect(&part, PROT_NONE, None)?;
            } else {
                self.space.close(part.start, part.len())?;
            }
        }
        Ok(())
    }

    fn zero(&self, pinned: &Range) -> Result<(), Errno> {
        self.reprotect(pinned, PROT_READ | PROT_WRITE, None)?;
        // SAFETY: the pages belong to the program, which has asked for zeros in them; they are writable, and in memory,
        // so that nothing here waits for the space.
        unsafe { (pinned.start as *mut u8).write_bytes(0, pinned.len()) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_range_and_name_what_is_pinned() {
        let mut pinned = Pinned::default();
        pinned.add(30..40);
        pinned.add(10..20);
        pinned.add(20..25);
        let expected = vec![
            (5..10, false),
            (10..25, true),
            (25..30, false),
            (30..35, true),
        ];
        assert_eq!(pinned.parts(5..35), expected);
        assert_eq!(pinned.parts(12..14), vec![(12..14, true)]);
        assert_eq!(pinned.parts(50..60), vec![(50..60, false)]);
        pinned.add(0..100);
        assert_eq!(pinned.parts(5..35), vec![(5..35, true)]);
    }
}
