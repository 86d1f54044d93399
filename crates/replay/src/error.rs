//! Errors in traces: each names the place and a remedy.

use std::io;
use std::path::PathBuf;

/// Why a trace cannot be read, or cannot be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The operating system could not read the file.
    #[error("cannot read at byte {offset}: {source}")]
    Io {
        /// Bytes of the file that had been read.
        offset: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file ends prematurely.
    #[error(
        "the file ends in the middle, at byte {offset} ({what}); it was not written to its end, or is only a part: record or copy it again"
    )]
    Truncated {
        /// Offset of the place, in bytes of the file as it is stored.
        offset: u64,
        /// The part that was being read.
        what: &'static str,
    },
    /// The bytes are not what they should be.
    #[error("damaged at byte {offset}: {what}; copy it again, or name what it is with --format")]
    Corrupt {
        /// Offset of the place, in bytes of the file as it is stored; in a compressed file, up to a few KiB after the
        /// damage.
        offset: u64,
        /// What is wrong with the bytes.
        what: String,
    },
    /// The file is in a form that this version does not know.
    #[error("{what} {value}, and this version of millpond reads {known}; use a newer one")]
    Unknown {
        /// The unknown part of the header.
        what: &'static str,
        /// The value that it has.
        value: u64,
        /// The values that are known.
        known: &'static str,
    },
    /// A line of text is not what it should be.
    #[error(
        "line {line} (at byte {offset}) is {text:?}, which is not {wanted}; name what the file is with --format"
    )]
    BadLine {
        /// Number of the line, counted from 1.
        line: u64,
        /// Offset at which the line begins, in bytes of the text after decompression.
        offset: u64,
        /// Text of the line, or its beginning.
        text: String,
        /// What a line should look like.
        wanted: &'static str,
    },
    /// The trace has more pages than can be replayed.
    #[error("the trace has more than {most} different pages; replay a part of it")]
    TooManyPages {
        /// The largest number of pages.
        most: u32,
    },
    /// The trace has no access at all.
    #[error("the trace has no accesses; was it recorded to its end?")]
    Empty,
}

/// Why a trace cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file does not exist, or may not be read.
    #[error("{}: {source}", path.display())]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Neither the file's name nor its first bytes tell its format.
    #[error(
        "{}: neither name nor contents tell what it is; name it with --format {names}",
        path.display(), names = crate::import::Format::NAMES
    )]
    UnknownFormat {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is a trace, but cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with the trace.
        source: TraceError,
    },
}
