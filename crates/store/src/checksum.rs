//! The checksum of what is stored: 128 bits of keyed XXH3.
//!
//! It has two uses. At load it tells that the bytes read are the bytes written. At save it tells,
//! without a second copy to compare with, that a folio is what its earlier slot already holds, ten
//! times cheaper than compressing it again. The second use loses data on a collision, so the key is
//! random for each store: contents that collide cannot be prepared beforehand, and accidents happen
//! once in 2^128 pairs.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use twox_hash::XxHash3_128;

/// The key of one store's checksums.
#[derive(Clone)]
pub(crate) struct Checksums {
    secret: [u8; 192],
}

impl Checksums {
    /// A new random key.
    pub(crate) fn new() -> Result<Self, Errno> {
        let mut secret = [0; 192];
        let mut filled = 0;
        while filled < secret.len() {
            match getrandom(&mut secret[filled..], GetRandomFlags::empty()) {
                Ok(n) => filled += n,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(Self { secret })
    }

    /// The checksum of a block.
    pub(crate) fn of(&self, bytes: &[u8]) -> u128 {
        XxHash3_128::oneshot_with_secret(&self.secret, bytes).expect("the secret is long enough")
    }

    /// The checksum of `len` bytes that repeat `word`, made from these two alone.
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
}
