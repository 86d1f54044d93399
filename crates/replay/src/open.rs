//! Opens a trace file: finds its format, and decompresses it if necessary.

use crate::error::{OpenError, TraceError};
use crate::import::{Accesses, Format, Input, Reading};
use crate::trace::Trace;
use std::fs::File;
use std::path::Path;

/// Opens a file as a stream of accesses, and says whether they distinguish writes. The format is guessed if `format`
/// does not name it.
///
/// # Errors
/// When the file does not exist, its format is not clear, or its beginning is not as it should be.
pub fn open(
    path: &Path,
    format: Option<Format>,
    reading: Reading,
) -> Result<(Accesses<'static>, bool), OpenError> {
    let file = File::open(path).map_err(|source| OpenError::Open {
        path: path.to_owned(),
        source,
    })?;
    let read = |source: TraceError| OpenError::Read {
        path: path.to_owned(),
        source,
    };
    let mut input = Input::new(file).decompressed().map_err(read)?;
    let format = match format {
        Some(format) => format,
        None => Format::guess(path, &mut input)
            .map_err(read)?
            .ok_or_else(|| OpenError::UnknownFormat {
                path: path.to_owned(),
            })?,
    };
    format.read(input, reading).map_err(read)
}

/// Reads a whole file for a replay.
///
/// # Errors
/// As [`open`], and when the file is damaged further on, empty, or has too many pages.
pub fn load(path: &Path, format: Option<Format>, reading: Reading) -> Result<Trace, OpenError> {
    let (accesses, has_writes) = open(path, format, reading)?;
    Trace::read(accesses, has_writes).map_err(|source| OpenError::Read {
        path: path.to_owned(),
        source,
    })
}
