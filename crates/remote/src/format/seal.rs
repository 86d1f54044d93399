//! The key of a run, and the seals made with it.

use super::{Damaged, TAG};
use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{ChaCha20Poly1305, Nonce, Tag};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt;
use zeroize::Zeroize;

/// The name of a chunk. It must be known completely to open the chunk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ChunkName {
    /// The slot that the chunk is a part of.
    pub slot: u32,
    /// How many times the number of the slot had been used before.
    pub generation: u32,
    /// The number of the chunk in the slot.
    pub index: u16,
    /// The number of pages in the whole slot.
    pub pages: u16,
}

/// The nominal place of an object's directory.
const DIRECTORY: u32 = u32::MAX;

/// What a test omits from the seals, to check that the simulator detects it.
#[cfg(test)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Weakness {
    /// Nothing.
    None,
    /// Seals do not cover the chunk's object, nor how many times the number of its slot was used before.
    Nameless,
    /// There are no seals.
    Unsealed,
}

/// The key of one run and the run's name. `Debug` shows neither key nor cipher.
pub struct RunKey {
    cipher: ChaCha20Poly1305,
    run: [u8; 16],
    #[cfg(test)]
    weakness: Weakness,
}

impl fmt::Debug for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunKey").finish_non_exhaustive()
    }
}

impl RunKey {
    /// Draws a key for the run of this name.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub fn draw(run: [u8; 16]) -> Result<Self, rustix::io::Errno> {
        let mut key = [0; 32];
        fill_at_random(&mut key)?;
        let this = Self::of(&key, run);
        key.zeroize();
        Ok(this)
    }

    /// Makes a key from these bytes. Only a test should choose them.
    #[must_use]
    pub fn of(key: &[u8; 32], run: [u8; 16]) -> Self {
        Self {
            cipher: ChaCha20Poly1305::new(key.into()),
            run,
            #[cfg(test)]
            weakness: Weakness::None,
        }
    }

    /// Makes a key whose seals are incomplete.
    #[cfg(test)]
    pub(crate) fn weakened(mut self, weakness: Weakness) -> Self {
        self.weakness = weakness;
        self
    }

    /// Returns what the seal of a chunk covers: everything, unless a test omits something.
    fn named(&self, object: u64, name: &ChunkName) -> (u64, ChunkName) {
        #[cfg(test)]
        if self.weakness == Weakness::Nameless {
            let name = ChunkName {
                generation: 0,
                ..*name
            };
            return (0, name);
        }
        (object, *name)
    }

    /// Whether there are seals: always, except in a test.
    fn has_seals(&self) -> bool {
        #[cfg(test)]
        if self.weakness == Weakness::Unsealed {
            return false;
        }
        true
    }

    /// Seals `body` in place as a chunk at `unit` of an object. Returns the tag.
    pub(super) fn seal(
        &self,
        object: u64,
        unit: u32,
        name: &ChunkName,
        body: &mut [u8],
    ) -> [u8; TAG] {
        let (object, name) = self.named(object, name);
        let about = self.about_chunk(object, &name, body.len());
        self.seal_as(object, unit, &about, body)
    }

    /// Opens a sealed chunk, followed by its tag, in place. Returns the body.
    ///
    /// # Errors
    /// The bytes are not this chunk. They must not be used.
    pub fn open<'a>(
        &self,
        object: u64,
        unit: u32,
        name: &ChunkName,
        sealed: &'a mut [u8],
    ) -> Result<&'a [u8], Damaged> {
        let len = sealed.len().checked_sub(TAG);
        let Some(len) = len else {
            return Err(Damaged::Length {
                got: sealed.len(),
                want: TAG,
            });
        };
        let (object, name) = self.named(object, name);
        let about = self.about_chunk(object, &name, len);
        self.open_as(object, unit, &about, sealed)
    }

    /// Seals a directory.
    pub(super) fn seal_directory(
        &self,
        object: u64,
        preamble: &[u8],
        bytes: &mut [u8],
    ) -> [u8; TAG] {
        let about = self.about_directory(object, preamble);
        self.seal_as(object, DIRECTORY, &about, bytes)
    }

    /// Opens a directory in place.
    pub(super) fn open_directory<'a>(
        &self,
        object: u64,
        preamble: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a [u8], Damaged> {
        let about = self.about_directory(object, preamble);
        self.open_as(object, DIRECTORY, &about, sealed)
    }

    fn about_chunk(&self, object: u64, name: &ChunkName, len: usize) -> [u8; 40] {
        let mut about = [0; 40];
        about[..16].copy_from_slice(&self.run);
        about[16..24].copy_from_slice(&object.to_le_bytes());
        about[24..28].copy_from_slice(&name.slot.to_le_bytes());
        about[28..32].copy_from_slice(&name.generation.to_le_bytes());
        about[32..34].copy_from_slice(&name.index.to_le_bytes());
        about[34..36].copy_from_slice(&name.pages.to_le_bytes());
        about[36..].copy_from_slice(&(len as u32).to_le_bytes());
        about
    }

    fn about_directory(&self, object: u64, preamble: &[u8]) -> [u8; 40] {
        let mut about = [0; 40];
        about[..16].copy_from_slice(&self.run);
        about[16..24].copy_from_slice(&object.to_le_bytes());
        about[24..].copy_from_slice(preamble);
        about
    }

    fn seal_as(&self, object: u64, unit: u32, about: &[u8], bytes: &mut [u8]) -> [u8; TAG] {
        if !self.has_seals() {
            return [0; TAG];
        }
        let sealed = self
            .cipher
            .encrypt_inout_detached(&nonce(object, unit), about, bytes.into());
        sealed
            .expect("a chunk is far shorter than the cipher's limit of 256 GiB")
            .into()
    }

    fn open_as<'a>(
        &self,
        object: u64,
        unit: u32,
        about: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a [u8], Damaged> {
        let got = sealed.len();
        let Some((bytes, tag)) = sealed.split_last_chunk_mut::<TAG>() else {
            return Err(Damaged::Length { got, want: TAG });
        };
        if !self.has_seals() {
            return Ok(bytes);
        }
        let tag = Tag::from(*tag);
        self.cipher
            .decrypt_inout_detached(&nonce(object, unit), about, (&mut *bytes).into(), &tag)
            .map_err(|_| Damaged::Seal)?;
        Ok(bytes)
    }
}

/// Combines the object's number and the place in it: used only once in a run.
fn nonce(object: u64, unit: u32) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&object.to_le_bytes());
    nonce[8..].copy_from_slice(&unit.to_le_bytes());
    nonce.into()
}

/// Fills `bytes` with unpredictable values.
pub(crate) fn fill_at_random(bytes: &mut [u8]) -> Result<(), rustix::io::Errno> {
    let mut done = 0;
    while done < bytes.len() {
        done += getrandom(&mut bytes[done..], GetRandomFlags::empty())?;
    }
    Ok(())
}
