//! What can be wrong with a trace: each error names the place and the way out.

use std::io;
use std::path::PathBuf;

/// Why a trace cannot be read, or not further.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The operating system could not read.
    #[error("cannot read at byte {offset}: {source}")]
    Io {
        /// Bytes of the file that were read before.
        offset: u64,
        /// What it said.
        source: io::Error,
    },
    /// The file ends where there should be more.
    #[error(
        "the file ends in the middle, at byte {offset} ({what}); it was not written to its end, or is only a part: record or copy it again"
    )]
    Truncated {
        /// Where, in bytes of the file as it is stored.
        offset: u64,
        /// What was being read.
        what: &'static str,
    },
    /// The bytes are not what they should be.
    #[error("damaged at byte {offset}: {what}; copy it again, or name what it is with --format")]
    Corrupt {
        /// Where, in bytes of the file as it is stored; in a compressed one, up to a few KiB after the damage.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// It is written in a way that this version does not know.
    #[error("{what} {value}, and this version of millpond reads {known}; use a newer one")]
    Unknown {
        /// Which part of the header.
        what: &'static str,
        /// What it says.
        value: u64,
        /// What is understood.
        known: &'static str,
    },
    /// A line of text is not what it should be.
    #[error(
        "line {line} (at byte {offset}) is {text:?}, which is not {wanted}; name what the file is with --format"
    )]
    BadLine {
        /// Which one, counted from 1.
        line: u64,
        /// Where it begins, in bytes of the text after decompression.
        offset: u64,
        /// The line, or its beginning.
        text: String,
        /// What a line looks like.
        wanted: &'static str,
    },
    /// It has more pages than can be replayed.
    #[error("the trace has more than {most} different pages; replay a part of it")]
    TooManyPages {
        /// The bound.
        most: u32,
    },
    /// It has no access at all.
    #[error("the trace has no accesses; was it recorded to its end?")]
    Empty,
}

/// Why a trace cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such file, or it may not be read.
    #[error("{}: {source}", path.display())]
    Open {
        /// Which one.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Neither its name nor its first bytes tell what it is.
    #[error(
        "{}: neither name nor contents tell what it is; name it with --format {names}",
        path.display(), names = crate::import::Format::NAMES
    )]
    UnknownFormat {
        /// Which one.
        path: PathBuf,
    },
    /// It is a trace, but cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// What is wrong.
        source: TraceError,
    },
}
