//! Objects: what one request writes, and how each part of it is read alone and believed.
//!
//! A request to a remote store costs the same for 4 KiB as for some hundred, so slots are packed into objects of a few
//! MiB. A fault wants a single page, so a slot is cut into *chunks* of 64 KiB, each of which is compressed and sealed
//! by itself: one request for a range of bytes brings what the fault wants and no more.
//!
//! ```text
//! offset 0    preamble, 16 bytes, not encrypted: "millpond", version (u32), number of chunks (u32)
//! offset 16   the chunks, side by side. Each takes a multiple of 16 bytes
//! then        the directory: 16 bytes for each chunk, sealed, and its tag
//! ```
//!
//! A sealed chunk is the encryption of four bytes (the length of what follows, and whether that is zstd), of the bytes
//! themselves, and of zeros up to a multiple of 16, followed by the tag of 16 bytes.
//!
//! # What a seal promises
//! The store is somebody else's machine. It can read, change, keep and swap what it is given, and lose it. ChaCha20-
//! Poly1305 keeps it from reading, and notices every change. The key is drawn for one run and is nowhere but in memory,
//! so no object of another run opens. What the seal names beside the bytes keeps one part from passing for another: the
//! run, the object's number, the slot, how often the slot had been used before (its *generation*), the chunk in the
//! slot, the slot's length, and the length of what was sealed. A reader takes all of these from its own table and none
//! from the store, so an object that is old or was swapped for another does not open.
//!
//! A nonce must never be used twice with one key. It is the number of the object and the place in it. Numbers of
//! objects are counted and never used again, an object is made once and never changed, and two chunks of an object are
//! at two places. The directory's place is one where no chunk can be. To send an object again after an error is to send
//! the same bytes.
//!
//! The lengths of chunks are not hidden: they tell how well each 64 KiB compress. Nor is it hidden when and in what
//! order parts are read.

mod encode;
mod pack;
mod seal;

pub use encode::{Decoder, Encoder};
pub use pack::{ChunkEntry, Pack, Packed, open_directory};
#[cfg(test)]
pub(crate) use seal::Weakness;
pub(crate) use seal::fill_at_random;
pub use seal::{ChunkName, RunKey};

use millpond_core::PAGE_SIZE;

/// Places in an object are counted in units of so many bytes.
pub const UNIT: usize = 16;
/// Bytes in the tag of a seal.
pub const TAG: usize = 16;
/// Bytes in the preamble.
pub const PREAMBLE: usize = 16;
/// Pages in a whole chunk.
pub const CHUNK_PAGES: usize = 16;
/// Bytes in a whole chunk, before compression.
pub const CHUNK: usize = CHUNK_PAGES * PAGE_SIZE;
/// Most chunks of a slot.
pub const SLOT_CHUNKS: usize = (PAGE_SIZE << millpond_core::addr::MAX_ORDER) / CHUNK;
/// Bytes before the contents of a chunk that say how long they are.
const HEAD: usize = 4;
/// Most bytes of a chunk before it is sealed.
pub const BODY_MOST: usize = (CHUNK + HEAD + TAG).next_multiple_of(UNIT) - TAG;
/// Most chunks of an object.
pub const CHUNKS_MOST: usize = 1 << 20;
/// Most bytes of an object.
pub const OBJECT_MOST: usize = 64 << 20;

const _: () = assert!(UNIT == TAG && PREAMBLE == UNIT);
const _: () =
    assert!(OBJECT_MOST / UNIT < u32::MAX as usize && OBJECT_MOST / UNIT <= 4 * CHUNKS_MOST);

/// Why bytes from the store are not what was put there. Nothing of them is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Damaged {
    /// There are fewer or more bytes than the table says.
    #[error("the store gave {got} bytes where {want} were put")]
    Length {
        /// Bytes that came.
        got: usize,
        /// Bytes that were put.
        want: usize,
    },
    /// The bytes were changed, or are those of something else.
    #[error("the store gave other bytes than were put")]
    Seal,
    /// The bytes are as they were put, and yet make no sense.
    #[error(
        "what was put into the store cannot be read: this is a fault of Millpond, please report it"
    )]
    Contents,
}

/// Number of chunks of a slot of so many pages.
#[must_use]
pub fn chunks_of(pages: usize) -> usize {
    pages.div_ceil(CHUNK_PAGES)
}
