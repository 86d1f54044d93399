//! Objects: what one request writes, and how each part of it is read separately and trusted.
//!
//! A request to a remote store costs the same for 4 KiB as for a few hundred, so slots are packed into objects of a
//! few MiB. A fault wants a single page, so a slot is cut into *chunks* of 64 KiB, each of which is compressed and
//! sealed separately: one request for a range of bytes brings exactly what the fault wants.
//!
//! ```text
//! offset 0    preamble, 16 bytes, not encrypted: "millpond", version (u32), number of chunks (u32)
//! offset 16   the chunks, side by side. Each takes a multiple of 16 bytes
//! then        the directory: 16 bytes for each chunk, sealed, and its tag
//! ```
//!
//! A sealed chunk is the encryption of four bytes (the length of what follows, and whether that is zstd), of the
//! bytes themselves, and of zeros up to a multiple of 16, followed by the tag of 16 bytes.
//!
//! # What a seal promises
//! The store is somebody else's machine. It can read, change, keep and swap what it is given, and lose it.
//! ChaCha20-Poly1305 prevents it from reading, and detects every change. The key is drawn for one run and exists only
//! in memory, so no object of another run opens. In addition to the bytes, the seal covers these names, so that one
//! part cannot pass for another: the run, the object's number, the slot, how many times the slot had been used before
//! (its *generation*), the chunk in the slot, the slot's length, and the length of what was sealed. A reader takes
//! all of these from its own table and none from the store, so an object that is old or was swapped for another does
//! not open.
//!
//! A nonce must never be used twice with one key. It consists of the number of the object and the place in it.
//! Numbers of objects are counted up and never reused, an object is written once and never changed, and two chunks of
//! an object are at different places. The directory's place is one where no chunk can be. Sending an object again
//! after an error sends the same bytes.
//!
//! The lengths of chunks are not hidden: they reveal how well each 64 KiB compress. Nor are the times and the order
//! in which parts are read.

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

/// Places in an object are counted in units of this many bytes.
pub const UNIT: usize = 16;
/// Bytes in the tag of a seal.
pub const TAG: usize = 16;
/// Bytes in the preamble.
pub const PREAMBLE: usize = 16;
/// Pages in a whole chunk.
pub const CHUNK_PAGES: usize = 16;
/// Bytes in a whole chunk, before compression.
pub const CHUNK: usize = CHUNK_PAGES * PAGE_SIZE;
/// The maximum number of chunks in a slot.
pub const SLOT_CHUNKS: usize = (PAGE_SIZE << millpond_core::addr::MAX_ORDER) / CHUNK;
/// Bytes before the contents of a chunk that give their length.
const HEAD: usize = 4;
/// The maximum number of bytes in a chunk before it is sealed.
pub const BODY_MOST: usize = (CHUNK + HEAD + TAG).next_multiple_of(UNIT) - TAG;
/// The maximum number of chunks in an object.
pub const CHUNKS_MOST: usize = 1 << 20;
/// The maximum number of bytes in an object.
pub const OBJECT_MOST: usize = 64 << 20;

const _: () = assert!(UNIT == TAG && PREAMBLE == UNIT);
const _: () =
    assert!(OBJECT_MOST / UNIT < u32::MAX as usize && OBJECT_MOST / UNIT <= 4 * CHUNKS_MOST);

/// How bytes from the store differ from what was written. None of them are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Damaged {
    /// There are fewer or more bytes than the table says.
    #[error("the store gave {got} bytes where {want} were put")]
    Length {
        /// Bytes received.
        got: usize,
        /// Bytes written.
        want: usize,
    },
    /// The bytes were changed, or belong to something else.
    #[error("the store gave other bytes than were put")]
    Seal,
    /// The bytes are as they were written, and yet make no sense.
    #[error(
        "what was put into the store cannot be read: this is a fault of Millpond, please report it"
    )]
    Contents,
}

/// Returns the number of chunks in a slot of `pages` pages.
#[must_use]
pub fn chunks_of(pages: usize) -> usize {
    pages.div_ceil(CHUNK_PAGES)
}
