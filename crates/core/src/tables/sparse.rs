//! A table with an entry for each leaf of the arena, used sparsely.
//!
//! An arena has tens of thousands of leaves, most of which are never touched, and a table must not take memory for
//! those. It consists of words that are zero at first: an allocation of that size comes from the system as address
//! space, and words that are never written take no memory. (Creating a vector of structures writes all of it, including
//! default values. Three such tables took 850 KB in a program with 27 MB.) So every type that is kept here defines its
//! conversion to a word, with zero as its default.

use super::extent::extent;
use std::marker::PhantomData;
use std::ops::Range;

/// A value that fits into a word. Its default is zero.
pub(crate) trait Word: Copy + Default {
    fn to_word(self) -> u64;
    fn of_word(word: u64) -> Self;
}

/// Words in a page of memory.
const PAGE_WORDS: usize = 512;

/// A table of words whose unwritten part takes no memory; see the [module](self).
#[derive(Debug)]
pub(crate) struct Sparse<T> {
    words: Vec<u64>,
    /// The pages of `words` that were written.
    written: Vec<bool>,
    pages: u64,
    of: PhantomData<T>,
}

impl<T: Word> Sparse<T> {
    pub(crate) fn new(len: usize) -> Self {
        Self {
            words: vec![0; len],
            written: vec![false; len.div_ceil(PAGE_WORDS)],
            pages: 0,
            of: PhantomData,
        }
    }

    /// Calls `each` with the addresses of each long table.
    pub(crate) fn each_table(&self, each: &mut dyn FnMut(Range<usize>)) {
        each(extent(&self.words));
        each(extent(&self.written));
    }

    /// The entry `at`, or the default beyond the end.
    pub(crate) fn get(&self, at: usize) -> T {
        self.words
            .get(at)
            .copied()
            .map(T::of_word)
            .unwrap_or_default()
    }

    /// Sets the entry `at`. An equal value is not written again.
    ///
    /// # Panics
    /// When `at` is beyond the end.
    pub(crate) fn set(&mut self, at: usize, value: T) {
        let word = value.to_word();
        if self.words[at] == word {
            return;
        }
        self.words[at] = word;
        let first = !std::mem::replace(&mut self.written[at / PAGE_WORDS], true);
        self.pages += u64::from(first);
    }

    pub(crate) fn change(&mut self, at: usize, by: impl FnOnce(&mut T)) {
        let mut value = self.get(at);
        by(&mut value);
        self.set(at, value);
    }

    pub(crate) fn len(&self) -> usize {
        self.words.len()
    }

    /// Bytes of memory that the system has given to the table.
    pub(crate) fn bytes(&self) -> u64 {
        self.pages * (PAGE_WORDS * size_of::<u64>()) as u64 + self.written.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Word for u32 {
        fn to_word(self) -> u64 {
            self.into()
        }

        fn of_word(word: u64) -> Self {
            word as u32
        }
    }

    #[test]
    fn memory_is_counted_for_written_blocks_only() {
        let mut table: Sparse<u32> = Sparse::new(100_000);
        let empty = table.bytes();
        assert!(empty < 4096);
        table.set(70_000, 0);
        assert_eq!(table.bytes(), empty, "as it was");
        table.set(70_000, 7);
        table.change(70_001, |value| *value += 3);
        assert_eq!((table.get(70_000), table.get(70_001)), (7, 3));
        assert_eq!(table.bytes(), empty + 4096);
        table.set(1, 1);
        assert_eq!(table.bytes(), empty + 8192);
        assert_eq!((table.get(2), table.get(100_000)), (0, 0));
    }
}
