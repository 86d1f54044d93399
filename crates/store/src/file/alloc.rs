//! The bitmap of the file's 4 KiB blocks: which are in use, and which must stay unchanged for a child process.
//!
//! A slot takes one contiguous extent, so that it is read and written by one call. Extents are found in a bitmap, first
//! fit from the position of the last one, so that slots saved together lie together.
//!
//! # Forks
//! A child reads from its parent's file the slots that were saved before the fork. So no block that was in use then may
//! be overwritten while the child lives, though the parent may release it at once. A list of released blocks would need
//! a tag for each child and could grow without bound. Instead each fork copies the bitmap (32 KiB for a file of 1 GiB),
//! and a block is taken only when it is free in the current bitmap and in all copies. When the child is gone, its copy
//! is dropped, and blocks kept only by this copy become free. Forks with no change in between share a copy.
//!
//! If a copy cannot be made (no memory, or too many children with copies of their own), no block is reused until that
//! child is gone: the file grows, but nothing is lost.
//!
//! Free blocks still take room on the device until they are given back ([`holes`](super::holes)).

use super::holes::Holes;
use crate::mem::Mapping;
use rustix::io::Errno;
use std::ops::Range;

/// Number of bytes in a block of the file.
pub(crate) const FILE_BLOCK: usize = 4096;
/// Number of blocks searched for a run: a gigabyte of file, ten microseconds.
pub(super) const LOOK_AT: u64 = 1 << 18;
/// A file with this many times the blocks in use does not grow for the sake of a longer run.
const SPARSE: u64 = 2;
/// A file of up to this many blocks grows regardless.
const GROWS_FREELY: u64 = 4096;
/// The most copies of the bitmap that may exist at once.
const COPIES: usize = 64;
/// The most children that may be remembered at once.
const CHILDREN: usize = 1 << 16;

/// One bit for each block of the file.
pub(super) struct Bits {
    map: Mapping,
    words: usize,
}

impl Bits {
    pub(super) fn new(blocks: u64) -> Result<Self, Errno> {
        let words = usize::try_from(blocks.div_ceil(64)).map_err(|_| Errno::NOMEM)?;
        Ok(Self {
            map: Mapping::new(words.checked_mul(8).ok_or(Errno::NOMEM)?)?,
            words,
        })
    }

    pub(super) fn words(&self) -> &[u64] {
        // SAFETY: the mapping has at least this many words, zeroed and aligned, and is only used through `self`.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.words) }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: the mapping has at least this many words, zeroed and aligned, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_ptr().cast(), self.words) }
    }

    /// Sets or clears the bits from `start`, whole words at a time, and returns how many have changed.
    pub(super) fn set(&mut self, start: u64, count: u64, to: bool) -> u64 {
        let mut changed = 0;
        for (word, mask) in masks(start, count) {
            let word = &mut self.words_mut()[word];
            let after = if to { *word | mask } else { *word & !mask };
            changed += u64::from((*word ^ after).count_ones());
            *word = after;
        }
        changed
    }

    /// The first bit in `from..end` that is `what`.
    fn next(&self, from: u64, end: u64, what: bool) -> Option<u64> {
        let flip = if what { 0 } else { u64::MAX };
        next(|word| self.words()[word] ^ flip, from, end)
    }
}

/// The first bit in `from..end` that is set in these words.
pub(super) fn next(words: impl Fn(usize) -> u64, from: u64, end: u64) -> Option<u64> {
    let mut first = u64::MAX << (from % 64);
    for word in from / 64..end.div_ceil(64) {
        let bits = words(word as usize) & first;
        if bits != 0 {
            let at = word * 64 + u64::from(bits.trailing_zeros());
            return (at < end).then_some(at);
        }
        first = u64::MAX;
    }
    None
}

/// The words, and the bits in each, of a run of bits.
fn masks(start: u64, count: u64) -> impl Iterator<Item = (usize, u64)> {
    let end = start + count;
    (start / 64..end.div_ceil(64)).map(move |word| {
        let low = start.saturating_sub(word * 64).min(63);
        let high = (end - word * 64).min(64);
        (
            (word as usize),
            (u64::MAX >> (64 - high)) & (u64::MAX << low),
        )
    })
}

/// The blocks that were in use at a fork.
struct Copy {
    bits: Bits,
    children: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Child {
    id: u64,
    /// The number of the child's copy, or `COPIES` if it has none and no block may be reused.
    copy: u64,
}

/// The map of the file's blocks. The module's documentation describes it.
pub(crate) struct BlockMap {
    /// The blocks in use by this process.
    used: Bits,
    /// The blocks in use by this process, or kept for a child.
    busy: Bits,
    copies: [Option<Copy>; COPIES],
    /// The latest copy, as long as it still equals `used`.
    newest: Option<usize>,
    children: Mapping,
    living: usize,
    /// Number of children for whose sake no block may be reused.
    hoarders: u64,
    /// One more than the last block that was ever busy; `busy` is clear from here on.
    end: u64,
    /// Number of busy blocks.
    taken: u64,
    /// The most blocks.
    limit: u64,
    hint: u64,
    /// No run of this many free blocks lies before `end`.
    hopeless: u64,
    pub(super) holes: Holes,
}

impl BlockMap {
    /// Makes a map of `limit` free blocks.
    pub(crate) fn new(limit: u64) -> Result<Self, Errno> {
        Ok(Self {
            used: Bits::new(limit)?,
            busy: Bits::new(limit)?,
            copies: [const { None }; COPIES],
            newest: None,
            children: Mapping::new(CHILDREN * size_of::<Child>())?,
            living: 0,
            hoarders: 0,
            end: 0,
            taken: 0,
            limit,
            hint: 0,
            hopeless: u64::MAX,
            holes: Holes::new(limit)?,
        })
    }

    /// Takes `count` contiguous blocks.
    pub(crate) fn alloc(&mut self, count: u64) -> Option<u64> {
        let start = self.find(count)?;
        self.take(start, count);
        Some(start)
    }

    fn take(&mut self, start: u64, count: u64) {
        self.used.set(start, count, true);
        self.busy.set(start, count, true);
        self.holes.fill(start..start + count);
        self.end = self.end.max(start + count);
        self.taken += count;
        self.hint = start + count;
        self.newest = None;
    }

    /// Takes up to `most` contiguous blocks, and returns the first block and their number. They are the longest run
    /// among the next free blocks, or new blocks at the end unless the file is too sparse for that. If callers insisted
    /// on a run of `most`, the file would grow forever: where single blocks are released here and there, no long run is
    /// free before all of its blocks are.
    pub(crate) fn alloc_run(&mut self, most: u64) -> Option<(u64, u64)> {
        let (start, count) = self.longest_run(most);
        let may_grow =
            self.end + most <= self.limit && self.end <= SPARSE * self.taken + GROWS_FREELY;
        let (start, count) = match count {
            _ if count < most && may_grow => (self.end, most),
            0 => (self.find(1)?, 1),
            _ => (start, count),
        };
        self.take(start, count);
        Some((start, count))
    }

    /// The longest run of free blocks among the next [`LOOK_AT`]. The search stops at a run of `most`.
    fn longest_run(&self, most: u64) -> (u64, u64) {
        let (mut best, mut best_count) = (0, 0);
        let (mut at, mut left) = (self.hint.min(self.end), LOOK_AT.min(self.end));
        while left > 0 && best_count < most {
            let end = self.end.min(at + left);
            let Some(start) = self.busy.next(at, end, false) else {
                left -= end - at;
                at = if end == self.end { 0 } else { end };
                continue;
            };
            let stop = end.min(start + most);
            let run_end = self.busy.next(start, stop, true).unwrap_or(stop);
            if run_end - start > best_count {
                (best, best_count) = (start, run_end - start);
            }
            left -= run_end - at;
            at = if run_end == self.end { 0 } else { run_end };
        }
        (best, best_count)
    }

    fn find(&mut self, count: u64) -> Option<u64> {
        if count < self.hopeless && self.end - self.taken >= count {
            let found = self
                .find_in(self.hint, self.end, count)
                .or_else(|| self.find_in(0, self.end, count));
            if found.is_some() {
                return found;
            }
            self.hopeless = count;
        }
        // The run consists of new blocks from the end on.
        (self.end + count <= self.limit).then_some(self.end)
    }

    fn find_in(&self, from: u64, end: u64, count: u64) -> Option<u64> {
        let mut at = from;
        loop {
            let start = self.busy.next(at, end, false)?;
            if start + count > end {
                return None;
            }
            match self.busy.next(start, start + count, true) {
                None => return Some(start),
                Some(busy) => at = busy,
            }
        }
    }

    /// Frees blocks that came from [`BlockMap::alloc`].
    pub(crate) fn free(&mut self, start: u64, count: u64) {
        self.used.set(start, count, false);
        self.newest = None;
        if self.hoarders > 0 {
            return;
        }
        for (word, mask) in masks(start, count) {
            let kept = self.kept(word);
            let word = &mut self.busy.words_mut()[word];
            let after = *word & !(mask & !kept);
            self.taken -= u64::from((*word ^ after).count_ones());
            *word = after;
        }
        self.hopeless = u64::MAX;
    }

    /// The blocks of one word that are kept for children, or until they have been returned to the file system.
    fn kept(&self, word: usize) -> u64 {
        self.copies
            .iter()
            .flatten()
            .fold(self.holes.leaving(word), |kept, copy| {
                kept | copy.bits.words()[word]
            })
    }

    /// Takes free blocks out of use for return to the file system, if some have not been needed for a while
    /// ([`Holes::begin`]). The caller returns them, and reports that with [`BlockMap::gone`].
    pub(super) fn begin_hole(&mut self) -> Option<Range<u64>> {
        if self.hoarders > 0 {
            return None;
        }
        let run = self.holes.begin(self.busy.words(), self.end, self.taken)?;
        self.taken += self.busy.set(run.start, run.end - run.start, true);
        Some(run)
    }

    /// Reports that the blocks of [`BlockMap::begin_hole`] were returned, or that the file system does not take any
    /// back.
    pub(super) fn gone(&mut self, taken_back: bool) {
        let run = self.holes.end(taken_back);
        // Blocks that must not be reused, because of a child forked in the meantime, stay busy.
        if self.hoarders == 0 {
            self.taken -= self.busy.set(run.start, run.end - run.start, false);
            self.hopeless = u64::MAX;
        }
    }

    fn children(&mut self) -> &mut [Child] {
        // SAFETY: the mapping has room for `CHILDREN` of these, zeros are valid, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.children.as_ptr().cast(), CHILDREN) }
    }

    /// Keeps the blocks that are now in use for `child`.
    pub(crate) fn before_fork(&mut self, child: u64) {
        let copy = self.newest.or_else(|| self.copy());
        match copy {
            Some(copy) => {
                self.newest = Some(copy);
                if let Some(copy) = &mut self.copies[copy] {
                    copy.children += 1;
                }
            }
            None => self.hoarders += 1,
        }
        let living = self.living;
        // The blocks of a child that cannot be recorded are kept forever.
        if let Some(entry) = self.children().get_mut(living) {
            *entry = Child {
                id: child,
                copy: copy.unwrap_or(COPIES) as u64,
            };
            self.living += 1;
        }
    }

    fn copy(&mut self) -> Option<usize> {
        let index = self.copies.iter().position(Option::is_none)?;
        let mut bits = Bits::new(self.limit).ok()?;
        let words = self.end.div_ceil(64) as usize;
        bits.words_mut()[..words].copy_from_slice(&self.used.words()[..words]);
        self.copies[index] = Some(Copy { bits, children: 0 });
        Some(index)
    }

    /// Stops keeping blocks for `child`.
    pub(crate) fn child_gone(&mut self, child: u64) {
        let living = self.living;
        let Some(at) = self.children()[..living]
            .iter()
            .position(|entry| entry.id == child)
        else {
            return;
        };
        let copy = self.children()[at].copy as usize;
        self.children()[at] = self.children()[living - 1];
        self.living -= 1;
        match self.copies.get_mut(copy) {
            None => self.hoarders -= 1,
            Some(entry) => {
                let Some(kept) = entry else { return };
                kept.children -= 1;
                if kept.children > 0 {
                    return;
                }
                *entry = None;
                self.newest = self.newest.filter(|newest| *newest != copy);
            }
        }
        if self.hoarders == 0 {
            self.taken = 0;
            for word in 0..self.end.div_ceil(64) as usize {
                let busy = self.used.words()[word] | self.kept(word);
                self.busy.words_mut()[word] = busy;
                self.taken += u64::from(busy.count_ones());
            }
            self.hopeless = u64::MAX;
        }
    }

    /// The RAM that the bitmaps take.
    pub(crate) fn ram_bytes(&self) -> u64 {
        (3 + self.copies.iter().flatten().count() as u64) * (self.end / 8).next_multiple_of(4096)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[derive(Default)]
    struct Model {
        held: Vec<(u64, u64)>,
        children: Vec<(u64, HashSet<u64>)>,
        /// The blocks that are leaving the device now.
        leaving: HashSet<u64>,
    }

    impl Model {
        fn used(&self) -> HashSet<u64> {
            self.held
                .iter()
                .flat_map(|(start, count)| *start..start + count)
                .collect()
        }

        /// The blocks that may not be taken.
        fn busy(&self) -> HashSet<u64> {
            let mut busy = self.used();
            busy.extend(self.children.iter().flat_map(|(_, kept)| kept));
            busy.extend(&self.leaving);
            busy
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn blocks_are_given_once_and_never_from_under_a_child(
            work in prop::collection::vec((0u8..12, 1u64..80, any::<prop::sample::Index>()), 1..200))
        {
            let mut map = BlockMap::new(4096).unwrap();
            let mut model = Model::default();
            for (i, (act, count, which)) in work.into_iter().enumerate() {
                match act {
                    0..5 => if let Some(start) = map.alloc(count) {
                        prop_assert!(start + count <= 4096);
                        prop_assert!((start..start + count).all(|block| !model.busy().contains(&block)));
                        model.held.push((start, count));
                    },
                    5 => if let Some((start, count)) = map.alloc_run(count) {
                        prop_assert!(count > 0 && start + count <= 4096);
                        prop_assert!((start..start + count).all(|block| !model.busy().contains(&block)));
                        model.held.push((start, count));
                    },
                    6..8 => if !model.held.is_empty() {
                        let (start, count) = model.held.swap_remove(which.index(model.held.len()));
                        map.free(start, count);
                    },
                    8 => {
                        map.before_fork(i as u64);
                        model.children.push((i as u64, model.used()));
                    }
                    9 => if !model.children.is_empty() {
                        let (id, _) = model.children.swap_remove(which.index(model.children.len()));
                        map.child_gone(id);
                    },
                    10 => {
                        map.holes.want(u64::MAX);
                        if let Some(run) = map.begin_hole() {
                            prop_assert!(run.clone().all(|block| !model.busy().contains(&block)));
                            model.leaving = run.collect();
                        }
                    }
                    _ => if !model.leaving.is_empty() {
                        model.leaving.clear();
                        map.gone(true);
                    },
                }
                if map.hoarders == 0 {
                    prop_assert_eq!(map.taken, model.busy().len() as u64);
                }
            }
            if !model.leaving.is_empty() { map.gone(true); }
            for (start, count) in model.held { map.free(start, count); }
            for (id, _) in model.children { map.child_gone(id); }
            prop_assert_eq!(map.taken, 0);
        }
    }

    /// Checks a file of single blocks that come and go at random: runs are found, and the file stays within three times
    /// the blocks held.
    #[test]
    fn runs_are_found_between_single_blocks_and_the_file_stays_small() {
        const HELD: usize = 20_000;
        let mut map = BlockMap::new(1 << 24).unwrap();
        let mut held: Vec<u64> = Vec::new();
        let (mut state, mut runs, mut blocks) = (1u64, 0, 0);
        for _ in 0..100_000 {
            let (start, count) = map.alloc_run(32).unwrap();
            (runs, blocks) = (runs + 1, blocks + count);
            held.extend(start..start + count);
            while held.len() > HELD {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                let at = (state >> 33) as usize % held.len();
                map.free(held.swap_remove(at), 1);
            }
            if blocks > 1_000_000 {
                break;
            }
        }
        assert!(map.end < 3 * HELD as u64, "{} blocks", map.end);
        assert!(blocks / runs >= 4, "{blocks} blocks in {runs} runs");
    }

    #[test]
    fn more_children_than_copies_make_the_file_grow_and_lose_nothing() {
        let mut map = BlockMap::new(10_000).unwrap();
        for child in 0..100 {
            map.alloc(1).unwrap();
            map.before_fork(child);
        }
        assert_eq!(map.hoarders, 36);
        map.free(0, 100);
        assert_eq!(map.alloc(1), Some(100));
        for child in 0..100 {
            map.child_gone(child);
        }
        assert_eq!((map.taken, map.hoarders), (1, 0));
    }
}
