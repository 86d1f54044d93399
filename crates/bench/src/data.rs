//! The data of the swap benchmark, and the order in which its pages are read.
//!
//! The first 1,024 bytes of a 4 KiB page are pseudo-random and the rest repeats the page's index. So a page
//! compresses to about a quarter, no two pages are equal, and every byte can be checked from the index alone. A page
//! of *noise* is entirely pseudo-random and does not compress.

use serde::{Deserialize, Serialize};
use std::hint::black_box;

/// Bytes in a page.
pub const PAGE: usize = 4096;
const RANDOM_BYTES: usize = 1024;

/// The contents of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Contents {
    /// Data that compresses to a quarter
    #[default]
    Quarter,
    /// Data that does not compress
    Noise,
}

impl Contents {
    fn random_bytes(self) -> usize {
        match self {
            Self::Quarter => RANDOM_BYTES,
            Self::Noise => PAGE,
        }
    }

    /// Writes page `index`.
    ///
    /// # Panics
    /// When `page` is not [`PAGE`] bytes.
    pub fn fill(self, page: &mut [u8], index: usize) {
        assert_eq!(page.len(), PAGE, "a page has {PAGE} bytes");
        // Two plain loops generate the data: that time is part of every measured fill, and should be a small part.
        let (random, rest) = page.split_at_mut(self.random_bytes());
        let mut numbers = random_part(index);
        for chunk in random.chunks_exact_mut(8) {
            chunk.copy_from_slice(&numbers.next().to_le_bytes());
        }
        for chunk in rest.chunks_exact_mut(8) {
            chunk.copy_from_slice(&(index as u64).to_le_bytes());
        }
    }

    /// Whether `page` is byte for byte what [`fill`](Self::fill) writes for `index`, after `rewritten` calls of
    /// [`rewrite`] on its first word.
    #[must_use]
    pub fn matches(self, page: &[u8], index: usize, rewritten: u8) -> bool {
        let Some((random, rest)) = page.split_at_checked(self.random_bytes()) else {
            return false;
        };
        let mut numbers = random_part(index);
        let word = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().unwrap_or_default());
        let (first, random) = random.split_at(8);
        let first = word(first) ^ numbers.next() ^ u64::from(rewritten);
        let differing = random
            .chunks_exact(8)
            .fold(first, |bits, chunk| bits | (word(chunk) ^ numbers.next()));
        let differing = rest
            .chunks_exact(8)
            .fold(differing, |bits, chunk| bits | (word(chunk) ^ index as u64));
        page.len() == PAGE && differing == 0
    }
}

/// Writes page `index` with data that compresses to a quarter.
///
/// # Panics
/// When `page` is not [`PAGE`] bytes.
pub fn fill(page: &mut [u8], index: usize) {
    Contents::Quarter.fill(page, index);
}

/// Writes all pages of `memory`, each with different contents.
pub fn fill_all(memory: &mut [u8]) {
    for (index, page) in memory.chunks_exact_mut(PAGE).enumerate() {
        fill(page, index);
    }
}

/// The number of pages of `memory` that differ from what [`fill_all`] writes.
#[must_use]
pub fn wrong_pages(memory: &[u8]) -> u64 {
    let pages = memory.chunks_exact(PAGE).enumerate();
    pages.filter(|&(index, page)| !matches(page, index)).count() as u64
}

/// Whether `page` is byte for byte what [`fill`] writes for `index`.
#[must_use]
pub fn matches(page: &[u8], index: usize) -> bool {
    Contents::Quarter.matches(page, index, 0)
}

/// Reads page `index` of `memory`, and returns whether its last word is the one that [`fill`] writes.
pub fn look(memory: &[u8], index: usize) -> bool {
    let page = &memory[index * PAGE..][..PAGE];
    black_box(read(page));
    page[PAGE - 8..] == (index as u64).to_le_bytes()
}

/// Rewrites the first word of a page that was rewritten `times` times before. Returns the new count, modulo 256.
pub fn rewrite(page: &mut [u8], times: u8) -> u8 {
    let next = times.wrapping_add(1);
    page[0] ^= times ^ next;
    next
}

/// Reads all of `page`. The returned sum keeps the compiler from removing the reads.
#[must_use]
pub fn read(page: &[u8]) -> u64 {
    page.chunks_exact(8).fold(0, |sum, chunk| {
        sum.wrapping_add(u64::from_le_bytes(chunk.try_into().unwrap_or_default()))
    })
}

fn random_part(index: usize) -> SplitMix {
    SplitMix((index as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93))
}

/// Uniformly distributed page numbers below `pages`, the same for the same `seed`.
pub fn random_pages(pages: usize, seed: u64) -> impl Iterator<Item = usize> {
    let mut random = SplitMix(seed);
    std::iter::repeat_with(move || ((u128::from(random.next()) * pages as u128) >> 64) as usize)
}

/// A source of random permutations, which are the same for the same seed.
pub struct Shuffle(SplitMix);

impl Shuffle {
    /// A source with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(SplitMix(seed))
    }

    /// Puts `items` into a random order; all orders are equally likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = (u128::from(self.0.next()) * (last as u128 + 1)) >> 64;
            items.swap(last, other as usize);
        }
    }
}

/// Steele, Lea and Flood's generator: one addition and one mix per number, and any seed is good.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_page_is_checked() {
        let mut page = [0; PAGE];
        fill(&mut page, 77);
        assert!(matches(&page, 77));
        assert!(!matches(&page, 78));
        for at in 0..PAGE {
            page[at] ^= 1;
            assert!(!matches(&page, 77), "byte {at}");
            page[at] ^= 1;
        }
        assert_eq!(page[1024..1032], 77u64.to_le_bytes());
        assert!(!matches(&page[..8], 77));
    }

    #[test]
    fn a_page_of_noise_is_checked_and_counts_how_often_it_was_rewritten() {
        let (mut page, noise) = ([0; PAGE], Contents::Noise);
        noise.fill(&mut page, 77);
        assert!(!matches(&page, 77));
        assert!(noise.matches(&page, 77, 0));
        let mut times = 0;
        for _ in 0..300 {
            let before = times;
            times = rewrite(&mut page, before);
            assert!(noise.matches(&page, 77, times));
            assert!(!noise.matches(&page, 77, before), "one was lost");
        }
        for at in 0..PAGE {
            page[at] ^= 1;
            assert!(!noise.matches(&page, 77, times), "byte {at}");
            page[at] ^= 1;
        }
    }

    #[test]
    fn random_pages_stay_inside_and_repeat_with_the_seed() {
        let once: Vec<_> = random_pages(1000, 3).take(10_000).collect();
        assert!(once.iter().all(|&page| page < 1000));
        assert!(
            once.iter().eq(random_pages(1000, 3)
                .take(10_000)
                .collect::<Vec<_>>()
                .iter())
        );
        let seen: std::collections::BTreeSet<_> = once.iter().collect();
        assert!(seen.len() > 990, "{}", seen.len());
    }
}
