//! Simulated pages as the driver sees them: bytes.
//!
//! A page of `sim` is four words. The driver and the traits use 4096 bytes, so each word stands at the beginning of a
//! quarter of them, and the rest is zeros.

use millpond_core::PAGE_SIZE;
use millpond_sim::mmu::{BLANK, Content, LINES};

const QUARTER: usize = PAGE_SIZE / LINES;

/// The bytes of pages.
#[must_use]
pub fn bytes_of(pages: &[Content]) -> Vec<u8> {
    let mut bytes = vec![0; pages.len() * PAGE_SIZE];
    write_bytes(pages, &mut bytes);
    bytes
}

/// Writes pages as bytes, over all of `bytes`.
pub fn write_bytes(pages: &[Content], bytes: &mut [u8]) {
    bytes.fill(0);
    for (word, quarter) in pages.as_flattened().iter().zip(bytes.chunks_mut(QUARTER)) {
        quarter[..8].copy_from_slice(&word.to_le_bytes());
    }
}

/// The pages of bytes.
///
/// # Panics
/// When there is something outside the words: bytes were mixed up.
#[must_use]
pub fn pages_of(bytes: &[u8]) -> Vec<Content> {
    let mut pages = vec![BLANK; bytes.len() / PAGE_SIZE];
    for (word, quarter) in pages
        .as_flattened_mut()
        .iter_mut()
        .zip(bytes.chunks(QUARTER))
    {
        let (here, rest) = quarter.split_at(8);
        assert!(
            rest.iter().all(|&byte| byte == 0),
            "bytes where no word stands"
        );
        *word = u64::from_le_bytes(here.try_into().expect("eight bytes"));
    }
    pages
}
