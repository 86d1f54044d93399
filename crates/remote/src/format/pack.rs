//! Packs: objects while they are being filled.

use super::{CHUNKS_MOST, ChunkName, Damaged, OBJECT_MOST, PREAMBLE, RunKey, TAG, UNIT};

/// Bytes in the directory for each chunk.
const ENTRY: usize = 16;
const MAGIC: &[u8; 8] = b"millpond";
const VERSION: u32 = 1;

/// A chunk in an object's directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkEntry {
    /// The chunk's name.
    pub name: ChunkName,
    /// The number of units that it takes when sealed.
    pub units: u32,
}

/// An object that is being filled.
pub struct Pack {
    number: u64,
    bytes: Vec<u8>,
    entries: Vec<ChunkEntry>,
    /// The places of the chunks, and the place after the last one.
    places: Vec<u32>,
}

/// An object that is ready to be sent.
pub struct Packed {
    /// The number of the object in its run.
    pub number: u64,
    /// All of its bytes.
    pub bytes: Vec<u8>,
    /// Its chunks, in order.
    pub entries: Vec<ChunkEntry>,
    /// The places of the chunks in units, and the place after the last one.
    pub places: Vec<u32>,
}

impl Pack {
    /// Starts the object of this number, which the run has never used before, with room for about `bytes`.
    #[must_use]
    pub fn new(number: u64, bytes: usize) -> Self {
        let mut this = Self {
            number,
            bytes: Vec::with_capacity(bytes.min(OBJECT_MOST)),
            entries: Vec::new(),
            places: vec![(PREAMBLE / UNIT) as u32],
        };
        this.bytes.resize(PREAMBLE, 0);
        this
    }

    /// Returns the number of bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing has been packed yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of chunks so far.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.entries.len()
    }

    /// Whether the object stays within its format's limits if `bytes` more are added in `chunks` chunks.
    #[must_use]
    pub fn has_room(&self, bytes: usize, chunks: usize) -> bool {
        let chunks = self.entries.len() + chunks;
        chunks <= CHUNKS_MOST && self.bytes.len() + bytes + chunks * ENTRY + TAG <= OBJECT_MOST
    }

    /// Seals `body` (made by an [`Encoder`](super::Encoder)) into the object.
    ///
    /// # Panics
    /// When the object has no room for it ([`Pack::has_room`]), or the body was not made by an encoder.
    pub fn push(&mut self, key: &RunKey, name: ChunkName, body: &[u8]) {
        assert!(
            (body.len() + TAG).is_multiple_of(UNIT),
            "a body of {} bytes",
            body.len()
        );
        assert!(self.has_room(body.len() + TAG, 1), "the object has no room");
        let start = self.bytes.len();
        self.bytes.extend_from_slice(body);
        let tag = key.seal(
            self.number,
            (start / UNIT) as u32,
            &name,
            &mut self.bytes[start..],
        );
        self.bytes.extend_from_slice(&tag);
        self.entries.push(ChunkEntry {
            name,
            units: ((body.len() + TAG) / UNIT) as u32,
        });
        self.places.push((self.bytes.len() / UNIT) as u32);
    }

    /// Completes the object: writes preamble and directory.
    #[must_use]
    pub fn finish(mut self, key: &RunKey) -> Packed {
        let mut preamble = [0; PREAMBLE];
        preamble[..8].copy_from_slice(MAGIC);
        preamble[8..12].copy_from_slice(&VERSION.to_le_bytes());
        preamble[12..].copy_from_slice(&(self.entries.len() as u32).to_le_bytes());
        self.bytes[..PREAMBLE].copy_from_slice(&preamble);
        let start = self.bytes.len();
        for entry in &self.entries {
            let name = &entry.name;
            self.bytes.extend_from_slice(&name.slot.to_le_bytes());
            self.bytes.extend_from_slice(&name.generation.to_le_bytes());
            self.bytes.extend_from_slice(&name.index.to_le_bytes());
            self.bytes.extend_from_slice(&name.pages.to_le_bytes());
            self.bytes.extend_from_slice(&entry.units.to_le_bytes());
        }
        let tag = key.seal_directory(self.number, &preamble, &mut self.bytes[start..]);
        self.bytes.extend_from_slice(&tag);
        Packed {
            number: self.number,
            bytes: self.bytes,
            entries: self.entries,
            places: self.places,
        }
    }
}

/// Reads the directory of a whole object, which must account for every byte of the object.
///
/// # Errors
/// The bytes are not the object of this number.
pub fn open_directory(
    key: &RunKey,
    number: u64,
    object: &[u8],
) -> Result<Vec<ChunkEntry>, Damaged> {
    let got = object.len();
    let short = Damaged::Length {
        got,
        want: PREAMBLE + TAG,
    };
    let (preamble, _) = object.split_first_chunk::<PREAMBLE>().ok_or(short)?;
    if preamble[..8] != *MAGIC || preamble[8..12] != VERSION.to_le_bytes() {
        return Err(Damaged::Seal);
    }
    let count = u32::from_le_bytes([preamble[12], preamble[13], preamble[14], preamble[15]]);
    let len = (count as usize).saturating_mul(ENTRY).saturating_add(TAG);
    let start = got.checked_sub(len).filter(|&start| start >= PREAMBLE);
    let start = start.ok_or(Damaged::Length {
        got,
        want: PREAMBLE + len,
    })?;
    let mut sealed = object[start..].to_vec();
    let directory = key.open_directory(number, preamble, &mut sealed)?;
    let entries: Vec<ChunkEntry> = directory.as_chunks::<ENTRY>().0.iter().map(entry).collect();
    let units: u64 = entries.iter().map(|entry| u64::from(entry.units)).sum();
    let want = PREAMBLE as u64 + units * UNIT as u64;
    if want != start as u64 {
        return Err(Damaged::Length {
            got,
            want: want as usize + len,
        });
    }
    Ok(entries)
}

fn entry(bytes: &[u8; ENTRY]) -> ChunkEntry {
    let long =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    ChunkEntry {
        name: ChunkName {
            slot: long(0),
            generation: long(4),
            index: short(8),
            pages: short(10),
        },
        units: long(12),
    }
}
