//! Bytes of a trace file, decompressed if necessary, in bounded memory.

use crate::error::TraceError;
use std::cell::Cell;
use std::io::{self, ErrorKind, Read};
use std::rc::Rc;

/// Most bytes that are held at once. No reader looks further ahead.
pub(crate) const BUFFER: usize = 64 << 10;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A stream of bytes with lookahead.
pub struct Input<'a> {
    read: Box<dyn Read + 'a>,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    ended: bool,
    /// Number of bytes that were taken out of this stream.
    taken: u64,
    /// Number of bytes of the file that have been read, whether or not this stream decompresses them.
    stored: Rc<Cell<u64>>,
    decompressed: bool,
}

struct Counted<'a> {
    read: Box<dyn Read + 'a>,
    count: Rc<Cell<u64>>,
}

impl Read for Counted<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let n = self.read.read(bytes)?;
        self.count.set(self.count.get() + n as u64);
        Ok(n)
    }
}

impl<'a> Input<'a> {
    /// A stream of the unmodified bytes of `read`.
    pub fn new(read: impl Read + 'a) -> Self {
        let stored = Rc::new(Cell::new(0));
        let read = Counted {
            read: Box::new(read),
            count: Rc::clone(&stored),
        };
        Self::over(Box::new(read), stored, false)
    }

    fn over(read: Box<dyn Read + 'a>, stored: Rc<Cell<u64>>, decompressed: bool) -> Self {
        Self {
            read,
            buffer: vec![0; BUFFER],
            from: 0,
            to: 0,
            ended: false,
            taken: 0,
            stored,
            decompressed,
        }
    }

    /// This stream, decompressed if it is zstd.
    ///
    /// # Errors
    /// When the stream cannot be read.
    pub fn decompressed(mut self) -> Result<Self, TraceError> {
        if self.ahead(4)?.starts_with(&ZSTD_MAGIC) {
            self.zstd()
        } else {
            Ok(self)
        }
    }

    /// The contents of the zstd frames that make up the rest of this stream.
    pub(crate) fn zstd(mut self) -> Result<Self, TraceError> {
        if self.ahead(1)?.is_empty() {
            return Err(self.truncated("the beginning of the compressed part"));
        }
        let stored = Rc::clone(&self.stored);
        let offset = self.offset();
        let decoder =
            zstd::Decoder::new(self).map_err(|source| TraceError::Io { offset, source })?;
        Ok(Self::over(Box::new(decoder), stored, true))
    }

    /// At least `n` bytes from here on; fewer only at the end. No byte is taken.
    pub(crate) fn ahead(&mut self, n: usize) -> Result<&[u8], TraceError> {
        debug_assert!(n <= BUFFER);
        while self.to - self.from < n && !self.ended {
            if self.from > 0 {
                self.buffer.copy_within(self.from..self.to, 0);
                (self.from, self.to) = (0, self.to - self.from);
            }
            match self.read.read(&mut self.buffer[self.to..]) {
                Ok(0) => self.ended = true,
                Ok(read) => self.to += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(error)),
            }
        }
        Ok(&self.buffer[self.from..self.to])
    }

    /// The bytes available without further reading; none at the end.
    pub(crate) fn some(&mut self) -> Result<&[u8], TraceError> {
        self.ahead(1)
    }

    /// Takes `n` bytes that `ahead` or `some` has shown.
    pub(crate) fn take(&mut self, n: usize) {
        debug_assert!(n <= self.to - self.from);
        self.from += n;
        self.taken += n as u64;
    }

    /// The present position, in bytes of this stream.
    pub(crate) fn position(&self) -> u64 {
        self.taken
    }

    /// The present position in the file: exact if the file is not compressed, otherwise the position to which
    /// decompression has read.
    pub(crate) fn offset(&self) -> u64 {
        if self.decompressed {
            self.stored.get()
        } else {
            self.stored.get() - (self.to - self.from) as u64
        }
    }

    pub(crate) fn truncated(&self, what: &'static str) -> TraceError {
        TraceError::Truncated {
            offset: self.stored.get(),
            what,
        }
    }

    pub(crate) fn corrupt(&self, what: impl Into<String>) -> TraceError {
        TraceError::Corrupt {
            offset: self.offset(),
            what: what.into(),
        }
    }

    fn error(&self, error: io::Error) -> TraceError {
        if let Some(TraceError::Io { .. }) = error.get_ref().and_then(|inner| inner.downcast_ref())
        {
            return TraceError::Io {
                offset: self.stored.get(),
                source: error,
            };
        }
        match error.kind() {
            ErrorKind::UnexpectedEof => self.truncated("a compressed frame"),
            _ if self.decompressed => self.corrupt(format!("it does not decompress ({error})")),
            _ => TraceError::Io {
                offset: self.stored.get(),
                source: error,
            },
        }
    }
}

/// For the decompressor, which reads its input this way.
impl Read for Input<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let ahead = self.some().map_err(io::Error::other)?;
        let n = ahead.len().min(bytes.len());
        bytes[..n].copy_from_slice(&ahead[..n]);
        self.take(n);
        Ok(n)
    }
}

impl std::fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input")
            .field("offset", &self.offset())
            .finish_non_exhaustive()
    }
}
