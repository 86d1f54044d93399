//! Bodies of chunks: pages, compressed if that pays.

use super::{BODY_MOST, CHUNK, Damaged, HEAD, TAG, UNIT};
use zstd::bulk::{Compressor, Decompressor};

/// Set in the head of a body whose bytes are compressed.
const COMPRESSED: u32 = 1 << 31;

/// Converts pages to bodies.
pub struct Encoder {
    zstd: Compressor<'static>,
    body: Vec<u8>,
}

impl Encoder {
    /// Makes an encoder. It uses zstd's first level: a better one takes several times as long to save a tenth of the
    /// bytes, and the processor belongs to the program.
    ///
    /// # Errors
    /// There is no memory for zstd's tables.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            zstd: Compressor::new(1)?,
            body: vec![0; BODY_MOST],
        })
    }

    /// Returns the body of `data`, one to 16 pages.
    ///
    /// # Panics
    /// When `data` is longer than a chunk.
    pub fn encode(&mut self, data: &[u8]) -> &mut [u8] {
        assert!(data.len() <= CHUNK, "a chunk has {CHUNK} bytes at most");
        let room = &mut self.body[HEAD..HEAD + data.len()];
        // Data that does not become shorter does not fit, and zstd reports that.
        let (len, flag) = match self.zstd.compress_to_buffer(data, room) {
            Ok(len) if len < data.len() => (len, COMPRESSED),
            _ => {
                room.copy_from_slice(data);
                (data.len(), 0)
            }
        };
        self.body[..HEAD].copy_from_slice(&(len as u32 | flag).to_le_bytes());
        let end = (HEAD + len + TAG).next_multiple_of(UNIT) - TAG;
        self.body[HEAD + len..end].fill(0);
        &mut self.body[..end]
    }
}

/// Converts bodies to pages.
pub struct Decoder {
    zstd: Decompressor<'static>,
}

impl Decoder {
    /// Makes a decoder.
    ///
    /// # Errors
    /// There is no memory for zstd's tables.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            zstd: Decompressor::new()?,
        })
    }

    /// Fills `out` with the pages of `body`. Their numbers must match.
    ///
    /// # Errors
    /// The bytes are not a body, or one of another length.
    pub fn decode(&mut self, body: &[u8], out: &mut [u8]) -> Result<(), Damaged> {
        let (head, rest) = body.split_first_chunk::<HEAD>().ok_or(Damaged::Contents)?;
        let head = u32::from_le_bytes(*head);
        let bytes = rest
            .get(..(head & !COMPRESSED) as usize)
            .ok_or(Damaged::Contents)?;
        if head & COMPRESSED == 0 {
            if bytes.len() != out.len() {
                return Err(Damaged::Contents);
            }
            out.copy_from_slice(bytes);
            return Ok(());
        }
        match self.zstd.decompress_to_buffer(bytes, out) {
            Ok(len) if len == out.len() => Ok(()),
            _ => Err(Damaged::Contents),
        }
    }
}
