//! Places of one kind in an area of the frame pool, and the choice of the next one to take.
//!
//! Places taken for neighbours should be adjacent, because one call moves neighbours. Places taken for a whole leaf
//! should be a whole *block*, 2 MiB that begin at a multiple of that size, because then the kernel moves one entry
//! instead of 512, and a huge page stays one. A place is *here* if it is in this set, and a block is whole if all its
//! places are here. The rules are:
//!
//! 1. a folio that follows the recipient of the last place gets the next place, if that is here;
//! 2. if enough folios to fill a leaf leave together, the first one gets the first place of a whole block, and the
//!    others follow by the first rule;
//! 3. every other folio gets the next place of a block that is already broken.
//!
//! The next place is the next by number after the last one taken, within its block. So folios that were taken out in
//! address order lie in that order, and keep it as they circulate. A stack, which uses the last place first, reverses
//! the order each time: with it a call moved 1.8 folios, and by number it moves 6. After the end of a block the search
//! continues at the [`End`] of the area.

use crate::addr::{LEAF_PAGES, Order, PageIndex};
use crate::limits::{RECLAIM_BATCH, SINGLE_PLACES_MOST};
use std::ops::Range;

/// Number of blocks that may be taken as a whole: each may become a separate mapping, and the number of mappings in a
/// process is limited.
const MOST_BLOCKS: usize = (SINGLE_PLACES_MOST / LEAF_PAGES) as usize;

/// A set of numbers below a bound. A level of bits for the numbers is followed by a level with a bit for each nonzero
/// word, and so on up to a single word.
#[derive(Debug)]
pub(crate) struct Bits(Vec<Vec<u64>>);

impl Bits {
    /// An empty set, for numbers below `len`.
    pub(crate) fn new(len: usize) -> Self {
        let mut levels = vec![vec![0; len.div_ceil(64).max(1)]];
        while let Some(last) = levels.last().filter(|last| last.len() > 1) {
            let len = last.len().div_ceil(64);
            levels.push(vec![0; len]);
        }
        Self(levels)
    }

    pub(crate) fn has(&self, number: usize) -> bool {
        let words = &self.0[0];
        words
            .get(number / 64)
            .is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Puts `len` numbers from `first` on in, or takes them out. `len` is a power of two, and `first` a multiple of
    /// it.
    pub(crate) fn set(&mut self, first: usize, len: usize, is_in: bool) {
        let mask = u64::MAX >> (64 - len.min(64)) << (first % 64);
        for word in first / 64..(first + len).div_ceil(64) {
            self.set_in_word(word, mask, is_in);
        }
    }

    fn set_in_word(&mut self, mut word: usize, mut mask: u64, is_in: bool) {
        for words in &mut self.0 {
            let before = words[word];
            words[word] = if is_in { before | mask } else { before & !mask };
            if (before == 0) == (words[word] == 0) {
                break;
            }
            mask = 1 << (word % 64);
            word /= 64;
        }
    }

    /// The first number of the set from `from` on, or from 0 on if there is none.
    fn next(&self, from: usize) -> Option<usize> {
        self.next_up(from).or_else(|| self.next_up(0))
    }

    fn next_up(&self, from: usize) -> Option<usize> {
        let mut from = from;
        for (level, words) in self.0.iter().enumerate() {
            let word = from / 64;
            let bits = words.get(word)? & (u64::MAX << (from % 64));
            if bits != 0 {
                let found = word * 64 + bits.trailing_zeros() as usize;
                let down =
                    |at: usize, words: &Vec<u64>| at * 64 + words[at].trailing_zeros() as usize;
                return Some(self.0[..level].iter().rev().fold(found, down));
            }
            from = word + 1;
        }
        None
    }

    /// The last number of the set.
    fn last(&self) -> Option<usize> {
        let top = self.0.last().filter(|top| top[0] != 0)?;
        let down = |at: usize, words: &Vec<u64>| {
            let from_top = words[at].leading_zeros() as usize;
            at * 64 + 63 - from_top
        };
        let lower = &self.0[..self.0.len() - 1];
        Some(lower.iter().rev().fold(down(0, top), down))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|words| 8 * words.len() as u64).sum()
    }
}

/// The end of the area at which broken blocks are used first. Holes are filled from one end and spare frames used from
/// the other, so that whole blocks of holes form: leaves that leave by their tables go to such blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    First,
    Last,
}

/// The places of one kind in an area. Numbers are counted from the start of a block.
#[derive(Debug)]
pub(crate) struct Places {
    /// Places of blocks that are not whole.
    loose: Bits,
    /// Blocks that are whole.
    whole: Bits,
    /// How many places of each block are here.
    here: Vec<u16>,
    count: u32,
    order: Order,
    from: End,
    /// The number behind the last place taken.
    next: usize,
    /// The page behind the folio that the last place was taken for.
    page: Option<PageIndex>,
}

impl Places {
    /// An empty set for `len` places for frames of `order`.
    pub(crate) fn new(order: Order, len: u32, from: End) -> Self {
        let (len, block) = (len as usize, block_of(order));
        Self {
            loose: Bits::new(len),
            whole: Bits::new(len.div_ceil(block)),
            here: vec![0; len.div_ceil(block)],
            count: 0,
            order,
            from,
            next: 0,
            page: None,
        }
    }

    /// A set of all the numbers in `places`, and none before them.
    pub(crate) fn full(order: Order, places: Range<u32>) -> Self {
        let mut all = Self::new(order, places.end, End::First);
        let (mut place, size) = (places.start, block_of(order) as u32);
        while place < places.end {
            if place.is_multiple_of(size) && places.end - place >= size {
                let block = (place / size) as usize;
                all.whole.set(block, 1, true);
                all.here[block] = size as u16;
                all.count += size;
                place += size;
            } else {
                all.put(place);
                place += 1;
            }
        }
        all
    }

    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    /// How many places of a block are here.
    pub(crate) fn in_block(&self, block: usize) -> usize {
        self.here[block].into()
    }

    pub(crate) fn has(&self, place: u32) -> bool {
        let place = place as usize;
        self.loose.has(place) || self.whole.has(place / block_of(self.order))
    }

    pub(crate) fn put(&mut self, place: u32) {
        debug_assert!(!self.has(place), "place {place} is here twice");
        let (place, size) = (place as usize, block_of(self.order));
        let block = place / size;
        self.count += 1;
        self.here[block] += 1;
        if usize::from(self.here[block]) < size {
            self.loose.set(place, 1, true);
            return;
        }
        self.whole.set(block, 1, true);
        if size > 1 {
            self.loose.set(block * size, size, false);
        }
    }

    /// Takes the place for the folio at `page`.
    pub(crate) fn take_for(&mut self, page: PageIndex) -> Option<u32> {
        let size = block_of(self.order);
        let at = (page.0 % LEAF_PAGES) as usize >> self.order.get();
        let follows = self.page == Some(page) && self.has(self.next as u32);
        let block = || self.whole.next(self.next.div_ceil(size));
        let place = if at > 0 && follows {
            Some(self.next)
        } else if at == 0
            && size <= RECLAIM_BATCH
            && let Some(block) = block()
        {
            Some(block * size)
        } else {
            // If a block has to be broken for the rest of a leaf, the rest has the same offset in the block as in the
            // leaf.
            self.next_loose().or_else(|| Some(block()? * size + at))
        };
        let place = place?;
        self.take(place);
        self.page = Some(page.plus(self.order.pages().0));
        Some(place as u32)
    }

    /// Takes all places of a whole block, one of the first [`MOST_BLOCKS`], and returns the first.
    pub(crate) fn take_block(&mut self) -> Option<u32> {
        let size = block_of(self.order);
        let from = self.next.div_ceil(size) % MOST_BLOCKS;
        let of_these = |&block: &usize| block < MOST_BLOCKS;
        let next = self.whole.next(from).filter(of_these);
        let block = next.or_else(|| self.whole.next(0).filter(of_these))?;
        self.whole.set(block, 1, false);
        self.here[block] = 0;
        self.count -= size as u32;
        Some((block * size) as u32)
    }

    /// Takes a place for a folio without neighbours. A whole block is broken only if there is no other place.
    pub(crate) fn take_any(&mut self) -> Option<u32> {
        let size = block_of(self.order);
        let whole = || Some(self.whole.next(self.next / size)? * size);
        let place = self.next_loose().or_else(whole)?;
        self.take(place);
        self.page = None;
        Some(place as u32)
    }

    /// The next place of a broken block: of the block used last, or else of the first or the last broken block.
    fn next_loose(&self) -> Option<usize> {
        let size = block_of(self.order);
        let here = self.next.saturating_sub(1) / size;
        let next = self.loose.next_up(self.next);
        next.filter(|place| place / size == here)
            .or_else(|| match self.from {
                End::First => self.loose.next(0),
                End::Last => self.loose.next_up(self.loose.last()? / size * size),
            })
    }

    fn take(&mut self, place: usize) {
        let size = block_of(self.order);
        let block = place / size;
        if self.whole.has(block) {
            self.whole.set(block, 1, false);
            if size > 1 {
                self.loose.set(block * size, size, true);
                self.loose.set(place, 1, false);
            }
        } else {
            self.loose.set(place, 1, false);
        }
        self.count -= 1;
        self.here[block] -= 1;
        self.next = place + 1;
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.loose.bytes() + self.whole.bytes() + 2 * self.here.len() as u64
    }
}

/// Places in a block of frames of `order`.
pub(crate) fn block_of(order: Order) -> usize {
    LEAF_PAGES as usize >> order.get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const FOUR: Order = Order::new(4).expect("4 is an order");

    /// The places for the `count` folios of 64 KiB from number `first` on.
    fn take(places: &mut Places, first: u32, count: u32) -> Vec<u32> {
        let page = |folio: u32| PageIndex(folio * 16);
        let folios = (first..first + count).map(page);
        folios.map(|page| places.take_for(page).unwrap()).collect()
    }

    #[test]
    fn bit_set_finds_the_same_numbers_as_a_btree_set() {
        let len = 5000;
        let (mut bits, mut naive) = (Bits::new(len), BTreeSet::new());
        let mut state = 7u64;
        for _ in 0..20_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let size = 1 << ((state >> 33) % 9);
            let first = (state >> 40) as usize % (len - 512) / size * size;
            let is_in = state >> 63 == 1;
            bits.set(first, size, is_in);
            for number in first..first + size {
                if is_in {
                    naive.insert(number);
                } else {
                    naive.remove(&number);
                }
            }
            let from = (state >> 20) as usize % len;
            let next = naive.range(from..).next().or_else(|| naive.first());
            assert_eq!(bits.next(from), next.copied());
            assert_eq!(bits.last(), naive.last().copied());
            assert_eq!(bits.has(from), naive.contains(&from));
        }
    }

    #[test]
    fn a_leaf_gets_a_block_and_a_stream_all_of_them_in_order() {
        let mut places = Places::full(FOUR, 0..128);
        assert_eq!(take(&mut places, 0, 64), (0..64).collect::<Vec<_>>());
        for place in 0..64 {
            places.put(place);
        }
        assert_eq!(
            take(&mut places, 320, 96),
            [64..128, 0..32].map(Vec::from_iter).concat()
        );
    }

    #[test]
    fn unaligned_range_breaks_a_block_and_broken_blocks_are_used_first() {
        let mut places = Places::full(FOUR, 0..96);
        assert_eq!(take(&mut places, 10, 22), (10..32).collect::<Vec<_>>());
        // The next leaf leaves the broken block alone.
        assert_eq!(take(&mut places, 32, 2), [32, 33]);
        // Single folios leave whole blocks alone.
        let singles = [200, 300, 400, 500].map(|folio| take(&mut places, folio + 1, 1)[0]);
        assert!(singles.iter().all(|place| *place < 64), "{singles:?}");
        assert!(places.whole.has(2));
    }

    #[test]
    fn a_block_is_whole_again_when_its_last_place_is_back() {
        let mut places = Places::full(FOUR, 0..32);
        let taken = take(&mut places, 5, 3);
        assert_eq!(taken, [5, 6, 7]);
        assert!(places.take_any().is_some_and(|place| place == 8));
        for place in [8, 7, 5] {
            places.put(place);
            assert!(!places.whole.has(0));
        }
        places.put(6);
        assert!(places.whole.has(0));
        assert_eq!(places.len(), 32);
        assert_eq!(take(&mut places, 64, 1), [0]);
    }

    #[test]
    fn blocks_beyond_the_number_of_mappings_are_not_taken_as_a_whole() {
        let size = LEAF_PAGES;
        let mut places = Places::full(Order::ZERO, 0..SINGLE_PLACES_MOST + 2 * size);
        for block in 0..MOST_BLOCKS as u32 {
            assert_eq!(places.take_block(), Some(block * size));
        }
        assert_eq!(places.take_block(), None);
        for place in 3 * size..4 * size {
            places.put(place);
        }
        assert_eq!(places.take_block(), Some(3 * size));
    }

    #[test]
    fn places_after_the_last_whole_block_serve_single_folios() {
        let mut places = Places::full(Order::ZERO, 0..600);
        for number in 0..600 {
            assert!(places.take_for(PageIndex(number * 7 + 1)).is_some());
        }
        assert_eq!(places.take_for(PageIndex(0)), None);
        assert_eq!(places.take_any(), None);
    }
}
