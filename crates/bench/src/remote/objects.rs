//! The objects of the client sides: as large as Millpond's, with their own names and contents.

use crate::data::{self, Contents, PAGE};
use crate::remote::work::Task;
use std::ops::Range;

/// The number of objects sent at once, as by Millpond. Millpond reads with one thread, so one request at a time.
pub const SENT_AT_ONCE: usize = 2;
/// The number of pages read for one random page: Millpond seals 64 KiB as a unit.
const CHUNK_PAGES: usize = 16;

/// All objects of a measurement.
#[derive(Clone, Copy)]
pub struct Objects {
    /// The number of pages in all of them.
    pub pages: usize,
    /// The number of pages in each but the last.
    each: usize,
    /// The number of pages read at random.
    pub accesses: usize,
}

/// A page to read at random, with those around it.
pub struct Access {
    /// The object that contains it.
    pub path: String,
    /// The bytes of the object to read.
    pub bytes: Range<usize>,
    page: usize,
    at: usize,
}

impl Objects {
    /// The objects of a task.
    pub fn new(task: &Task) -> Self {
        // Millpond's are a thirty-second of the budget, from 512 KiB to 4 MiB.
        let bytes = (task.sizes.budget_bytes / 32).clamp(512 << 10, 4 << 20);
        Self {
            pages: task.beyond(),
            each: bytes as usize / PAGE,
            accesses: task.sizes.accesses as usize,
        }
    }

    /// The number of objects.
    pub fn count(&self) -> usize {
        self.pages.div_ceil(self.each)
    }

    /// The name of an object.
    pub fn path(object: usize) -> String {
        format!("objects/{object}")
    }

    fn pages_of(&self, object: usize) -> usize {
        self.each.min(self.pages - object * self.each)
    }

    /// Generates the contents of an object.
    pub fn make(&self, object: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.pages_of(object) * PAGE];
        for (number, page) in bytes.chunks_exact_mut(PAGE).enumerate() {
            Contents::Noise.fill(page, object * self.each + number);
        }
        bytes
    }

    /// The number of wrong pages in an object.
    pub fn wrong(&self, object: usize, bytes: &[u8]) -> u64 {
        let first = object * self.each;
        let right = bytes
            .chunks(PAGE)
            .enumerate()
            .filter(|(number, page)| Contents::Noise.matches(page, first + number, 0))
            .count();
        self.pages_of(object).abs_diff(right) as u64
    }

    /// The pages to read at random, the same each time.
    pub fn at_random(self) -> impl Iterator<Item = Access> {
        data::random_pages(self.pages, 7)
            .take(self.accesses)
            .map(move |page| self.access(page))
    }

    fn access(&self, page: usize) -> Access {
        let (object, within) = (page / self.each, page % self.each);
        let first = within / CHUNK_PAGES * CHUNK_PAGES;
        let end = (first + CHUNK_PAGES).min(self.pages_of(object));
        Access {
            path: Self::path(object),
            bytes: first * PAGE..end * PAGE,
            page,
            at: (within - first) * PAGE,
        }
    }
}

impl Access {
    /// Whether the page is right in the bytes that were read.
    pub fn is_right(&self, bytes: &[u8]) -> bool {
        bytes
            .get(self.at..self.at + PAGE)
            .is_some_and(|page| Contents::Noise.matches(page, self.page, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECTS: Objects = Objects {
        pages: 70,
        each: 32,
        accesses: 200,
    };

    #[test]
    fn wrong_and_truncated_pages_are_counted() {
        assert_eq!(OBJECTS.count(), 3);
        let mut bytes = OBJECTS.make(2);
        assert_eq!((bytes.len(), OBJECTS.wrong(2, &bytes)), (6 * PAGE, 0));
        assert_eq!(OBJECTS.wrong(1, &bytes), 32);
        bytes[PAGE + 7] ^= 1;
        assert_eq!(OBJECTS.wrong(2, &bytes), 1);
        assert_eq!(OBJECTS.wrong(2, &bytes[..5 * PAGE + 1]), 2);
        assert_eq!(OBJECTS.wrong(2, &[]), 6);
    }

    #[test]
    fn random_reads_contain_their_page_and_stay_within_the_object() {
        let all: Vec<Vec<u8>> = (0..3).map(|object| OBJECTS.make(object)).collect();
        let mut accesses = 0;
        for access in OBJECTS.at_random() {
            let object: usize = access.path.trim_start_matches("objects/").parse().unwrap();
            let mut bytes = all[object][access.bytes.clone()].to_vec();
            assert!(bytes.len() <= CHUNK_PAGES * PAGE);
            assert!(access.is_right(&bytes));
            bytes[access.at] ^= 1;
            assert!(!access.is_right(&bytes) && !access.is_right(&bytes[..access.at]));
            accesses += 1;
        }
        assert_eq!(accesses, 200);
    }
}
