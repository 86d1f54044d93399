//! Encryption of the file, so that no one else can read it.
//!
//! Memory holds data that a program would never write down: keys, passwords, other people's data. A file that receives
//! memory's contents can outlive the process: if not under its name, then as disk blocks that were never overwritten.
//! So a store may encrypt everything it writes, with a random key that exists only in its memory. The key disappears
//! with the process, and what remains of the file is noise.
//!
//! # How
//! The cipher is AES-256 in XTS mode, as in disk encryption (IEEE 1619), with a block of the file as the sector. Its
//! tweak consists of the numbers of the block and of the file. So equal blocks at two places differ in the file, and a
//! child that writes a file of its own uses none of its parent's tweaks. A block keeps its length, so nothing else
//! changes: places, batches, clusters.
//!
//! Bytes are encrypted on their way into the file or into a batch that waits for it. They are decrypted when they are
//! handed out to be restored: a batch and the kept clusters (`clusters.rs`) hold the encrypted bytes of the file.
//! Encryption takes 3 µs for 4 KiB each way, where a read takes 40 and more.
//!
//! # Limits
//! XTS hides contents, but not the fact that a block changes, and does not prove that a block is the one that was
//! written. The checksums do that: they are of the plain bytes, keyed with a secret, and kept in memory, so a block
//! that was changed, or replaced by its earlier contents, is detected as damage. (The checksums are XXH3, designed
//! against accidents. An attacker who can repeatedly write to the file and observe the effects is outside what is
//! promised here.) Compressed sizes can be read off the file. Memory itself, and the machine's own swap if it has any,
//! are not encrypted.

use super::FILE_SHIFT;
use super::alloc::FILE_BLOCK;
use super::areas::FILES;
use crate::random;
use aes::Aes256;
use aes::cipher::KeyInit;
use rustix::io::Errno;
use xts_mode::{Xts128, get_tweak_default};

const KEY: usize = 32;

/// Encrypts and decrypts blocks of the file, or leaves them unchanged without a key.
pub(crate) struct Cipher(Option<Xts128<Aes256>>);

impl Cipher {
    /// Makes a cipher without a key, which leaves everything unchanged.
    pub(super) const fn none() -> Self {
        Self(None)
    }

    /// Makes a cipher with a random key of its own.
    pub(super) fn random() -> Result<Self, Errno> {
        let mut keys = [0; 2 * KEY];
        random::fill(&mut keys)?;
        let made = Self::with_keys(&keys);
        // The keys must not be left on the stack. The key schedules are erased with the store.
        keys.fill(0);
        std::hint::black_box(&mut keys);
        made.ok_or(Errno::INVAL)
    }

    fn with_keys(keys: &[u8; 2 * KEY]) -> Option<Self> {
        let (data, tweak) = keys.split_at(KEY);
        let cipher = |key| Aes256::new_from_slice(key).ok();
        Some(Self(Some(Xts128::new(cipher(data)?, cipher(tweak)?))))
    }

    /// Whether there is a key.
    pub(super) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Encrypts whole blocks that begin with block `first` of a file.
    pub(super) fn seal(&self, file: usize, first: u64, blocks: &mut [u8]) {
        if let Some(xts) = &self.0 {
            xts.encrypt_area(blocks, FILE_BLOCK, sector(file, first), get_tweak_default);
        }
    }

    /// Decrypts whole blocks that begin with block `first` of a file.
    pub(super) fn open(&self, file: usize, first: u64, blocks: &mut [u8]) {
        if let Some(xts) = &self.0 {
            xts.decrypt_area(blocks, FILE_BLOCK, sector(file, first), get_tweak_default);
        }
    }
}

/// The number of a sector, unique among the blocks of all files.
fn sector(file: usize, block: u64) -> u128 {
    debug_assert!(file < FILES && block < 1 << FILE_SHIFT);
    (file as u128) << FILE_SHIFT | u128::from(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses IEEE 1619-2007, annex B, vector 10: XTS-AES-256 of sector 0xff, whose first 32 bytes follow from its
    /// first two blocks alone.
    #[test]
    fn the_cipher_matches_the_standards_test_vector() {
        let mut keys = [0; 2 * KEY];
        keys[..KEY].copy_from_slice(&hex(
            "2718281828459045235360287471352662497757247093699959574966967627",
        ));
        keys[KEY..].copy_from_slice(&hex(
            "3141592653589793238462643383279502884197169399375105820974944592",
        ));
        let cipher = Cipher::with_keys(&keys).unwrap();
        let mut block: Vec<u8> = (0..FILE_BLOCK).map(|n| n as u8).collect();
        cipher.seal(0, 0xff, &mut block);
        let begins = hex("1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b");
        assert_eq!(block[..32], begins[..]);
        cipher.open(0, 0xff, &mut block);
        assert!(block.iter().enumerate().all(|(n, &byte)| byte == n as u8));
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(digits).collect()
    }

    #[test]
    fn the_ciphertext_depends_on_place_file_and_key() {
        let (one, other) = (Cipher::random().unwrap(), Cipher::random().unwrap());
        let sealed = |cipher: &Cipher, file, first| {
            let mut blocks = vec![7; 2 * FILE_BLOCK];
            cipher.seal(file, first, &mut blocks);
            blocks
        };
        let blocks = sealed(&one, 0, 5);
        assert!(blocks[..FILE_BLOCK] != blocks[FILE_BLOCK..]);
        assert_eq!(blocks[FILE_BLOCK..], sealed(&one, 0, 6)[..FILE_BLOCK]);
        for different in [sealed(&one, 1, 5), sealed(&other, 0, 5)] {
            assert!(blocks != different);
        }
        assert_eq!(sealed(&Cipher::none(), 0, 5), vec![7; 2 * FILE_BLOCK]);
    }
}
