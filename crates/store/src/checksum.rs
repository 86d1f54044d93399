//! The checksum of stored bytes: 128 bits of keyed XXH3 for each page.
//!
//! The checksum of a block of several pages is that of its pages' checksums. So a page that was read alone can be
//! checked, and later recognized as unchanged, without its neighbours.
//!
//! The checksum has two uses. At load it verifies that the bytes read are the bytes written. At save it shows, without
//! a second copy to compare with, that a folio equals the contents of its earlier slot; that is ten times cheaper than
//! compressing it again. The second use loses data on a collision, so each store has a random key: colliding contents
//! cannot be prepared beforehand, and accidental collisions happen once in 2^128 pairs.

use crate::image::BLOCK;
use crate::mem::PAGE;
use crate::pieces::Entry;
use crate::random;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use twox_hash::XxHash3_128;

/// Number of pages in the longest block.
pub(crate) const BLOCK_PAGES: usize = BLOCK / PAGE;

/// A checksum in a table, the lower half first. Readers must know by other means that no thread writes it at the same
/// time.
pub(crate) struct KeptSum([AtomicU64; 2]);

// SAFETY: these are atomics, for which zeros are valid and which any thread may use.
unsafe impl Entry for KeptSum {}

impl KeptSum {
    pub(crate) fn set(&self, sum: u128) {
        self.0[0].store(sum as u64, Relaxed);
        self.0[1].store((sum >> 64) as u64, Relaxed);
    }

    pub(crate) fn get(&self) -> u128 {
        u128::from(self.0[0].load(Relaxed)) | u128::from(self.0[1].load(Relaxed)) << 64
    }
}

/// The key of one store's checksums.
#[derive(Clone)]
pub(crate) struct Checksums {
    secret: [u8; 192],
}

impl Checksums {
    /// Makes a new random key.
    pub(crate) fn new() -> Result<Self, Errno> {
        let mut secret = [0; 192];
        random::fill(&mut secret)?;
        Ok(Self { secret })
    }

    /// The checksum of one page, or of other bytes that are treated as a whole.
    pub(crate) fn of(&self, bytes: &[u8]) -> u128 {
        XxHash3_128::oneshot_with_secret(&self.secret, bytes).expect("the secret is long enough")
    }

    /// The checksum of a block whose pages have these checksums.
    pub(crate) fn of_pages(&self, pages: &[u128]) -> u128 {
        if let [page] = pages {
            return *page;
        }
        let mut bytes = [0; BLOCK_PAGES * size_of::<u128>()];
        let bytes = &mut bytes[..size_of_val(pages)];
        for (to, page) in bytes.as_chunks_mut().0.iter_mut().zip(pages) {
            *to = page.to_le_bytes();
        }
        self.of(bytes)
    }

    /// The checksum of a block, from its bytes.
    pub(crate) fn of_block(&self, bytes: &[u8]) -> u128 {
        let mut pages = [0; BLOCK_PAGES];
        let mut count = 0;
        for page in bytes.chunks(PAGE) {
            pages[count] = self.of(page);
            count += 1;
        }
        self.of_pages(&pages[..count])
    }

    /// The checksum of `len` bytes that repeat `word`, computed from these two alone.
    pub(crate) fn of_fill(&self, word: u64, len: usize) -> u128 {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&word.to_le_bytes());
        bytes[8..].copy_from_slice(&(len as u64).to_le_bytes());
        self.of(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_stores_have_two_keys() {
        let (one, other) = (Checksums::new().unwrap(), Checksums::new().unwrap());
        assert_ne!(one.of(&[1; 4096]), other.of(&[1; 4096]));
        assert_eq!(one.of(&[1; 4096]), one.clone().of(&[1; 4096]));
        assert_ne!(one.of_fill(1, 4096), one.of_fill(1, 8192));
    }

    #[test]
    fn the_checksum_of_a_block_follows_from_those_of_its_pages() {
        let sums = Checksums::new().unwrap();
        let mut block: Vec<u8> = (0..BLOCK).map(|i| (i / 77) as u8).collect();
        let pages: Vec<u128> = block.chunks(PAGE).map(|page| sums.of(page)).collect();
        let before = sums.of_block(&block);
        assert_eq!(before, sums.of_pages(&pages));
        assert_eq!(sums.of_block(&block[..PAGE]), pages[0]);
        block.rotate_left(PAGE);
        assert_ne!(before, sums.of_block(&block));
    }
}
