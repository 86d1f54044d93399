//! The memory whose pages Millpond or the kernel replaces. Its pages are touched one by one, and major faults are
//! counted for the set of pages that was touched.
//!
//! Counters cover the whole process. To know which set of pages caused faults, the counters are read before and
//! after: sets of pages are touched in [`BATCH`]es, alternating with the scan that disturbs them.

use crate::data::{self, PAGE};
use crate::error::Failure;
use crate::mapping::{Mapping, Pages};
use crate::order::BenchOrder;
use crate::workingset::Side;
use crate::{cgroup, millpond_side, phases};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::path::PathBuf;

/// The number of pages of a set that are touched between two readings of the counters. A reading takes tens of
/// microseconds.
pub const BATCH: usize = 64;

/// The place of a side's memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    /// The side that owns the memory.
    pub side: Side,
    /// The order of Millpond's folios.
    pub order: BenchOrder,
    /// The kernel's cgroup.
    pub cgroup: Option<PathBuf>,
}

/// Does `work` on memory of `pages` pages in that place. `budget` bytes of it may be in RAM.
///
/// # Errors
/// When the memory cannot be had.
pub fn with<T>(
    place: &Place,
    budget: u64,
    pages: usize,
    work: impl FnOnce(Touched<'_>) -> T,
) -> Result<T, Failure> {
    let len = pages * PAGE;
    if place.side == Side::Kernel {
        if let Some(cgroup) = &place.cgroup {
            cgroup::enter(cgroup)?;
        }
        let mut memory = Mapping::new(len, Pages::Small)?;
        let majors = || phases::usage().major_faults;
        return Ok(work(Touched::new(memory.bytes_mut(), &majors)));
    }
    let manager = millpond_side::settings(budget).build()?;
    let mut region = manager.region_with(len, place.order.0)?;
    let majors = || manager.stats().vm.pgmajfault;
    Ok(work(Touched::new(region.as_mut_slice(), &majors)))
}

/// Memory, and the faults and wrong pages found when touching it.
pub struct Touched<'a> {
    memory: &'a mut [u8],
    majors: &'a dyn Fn() -> u64,
    /// Pages with wrong contents.
    pub wrong: u64,
}

impl<'a> Touched<'a> {
    /// Wraps untouched memory. `majors` returns the major faults so far.
    pub fn new(memory: &'a mut [u8], majors: &'a dyn Fn() -> u64) -> Self {
        let wrong = 0;
        Self {
            memory,
            majors,
            wrong,
        }
    }

    /// Writes pages, each with different contents.
    pub fn fill(&mut self, pages: impl Iterator<Item = usize>) {
        for index in pages {
            data::fill(&mut self.memory[index * PAGE..][..PAGE], index);
        }
    }

    /// Reads a word of each of these pages, and returns the number of major faults.
    pub fn read(&mut self, pages: impl Iterator<Item = usize>) -> u64 {
        let before = (self.majors)();
        for index in pages {
            let last = &self.memory[(index + 1) * PAGE - 8..][..8];
            let word = u64::from_le_bytes(black_box(last).try_into().unwrap_or_default());
            self.wrong += u64::from(word != index as u64);
        }
        (self.majors)() - before
    }
}

/// A set of pages that is read repeatedly, each time in another order, with a scan in between.
pub struct Mixed {
    set: Vec<usize>,
    random: data::Shuffle,
    scan: Option<Scan>,
}

/// Pages that are touched once each, in order, starting over at the end.
pub struct Scan {
    pages: std::ops::Range<usize>,
    next: usize,
    /// The number of pages of the scan that are touched for each 64 of the set.
    a_batch: usize,
}

/// Major faults during one pass over the set.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passed {
    /// Major faults by pages of the set.
    pub set: u64,
    /// Major faults by pages of the scan.
    pub scan: u64,
    /// The number of pages that the scan touched.
    pub scanned: u64,
}

impl Scan {
    /// Creates a scan that touches `for_each_of_64` of these `pages` for each 64 of a set.
    #[must_use]
    pub fn new(pages: std::ops::Range<usize>, for_each_of_64: usize) -> Self {
        let next = pages.start;
        Self {
            pages,
            next,
            a_batch: for_each_of_64,
        }
    }

    fn take(&mut self) -> impl Iterator<Item = usize> + use<> {
        let (start, len) = (self.pages.start, self.pages.len());
        let first = self.next - start;
        let count = self.a_batch;
        self.next = start + (first + count) % len;
        (0..count).map(move |n| start + (first + n) % len)
    }
}

impl Mixed {
    /// Combines this set with this scan.
    #[must_use]
    pub fn new(set: std::ops::Range<usize>, scan: Option<Scan>) -> Self {
        Self {
            set: set.collect(),
            random: data::Shuffle::new(7),
            scan,
        }
    }

    /// Makes one pass over the set.
    pub fn pass(&mut self, memory: &mut Touched<'_>) -> Passed {
        self.random.shuffle(&mut self.set);
        let mut passed = Passed::default();
        for batch in self.set.chunks(BATCH) {
            passed.set += memory.read(batch.iter().copied());
            if let Some(scan) = &mut self.scan {
                passed.scan += memory.read(scan.take());
                passed.scanned += scan.a_batch as u64;
            }
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn each_pass_touches_all_of_the_set_once_and_the_scan_goes_round() {
        let pages = 1000;
        let mut bytes = vec![0; pages * PAGE];
        let faults = Cell::new(0);
        let count = || faults.replace(faults.get() + 1);
        let mut memory = Touched::new(&mut bytes, &count);
        memory.fill(0..pages);
        let mut mixed = Mixed::new(0..200, Some(Scan::new(900..1000, 30)));
        let first = mixed.set.clone();
        let passed = mixed.pass(&mut memory);
        // The counters are read before and after each of four batches, and this test's counter counts the readings.
        assert_eq!((passed.set, passed.scan, passed.scanned), (4, 4, 120));
        assert_eq!(mixed.scan.as_ref().unwrap().next, 920);
        assert_ne!(mixed.set, first, "in another order");
        let mut sorted = mixed.set.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, first);
        assert_eq!(memory.wrong, 0);
        bytes[17 * PAGE - 1] ^= 1;
        let mut memory = Touched::new(&mut bytes, &count);
        mixed.pass(&mut memory);
        assert_eq!(memory.wrong, 1);
    }
}
