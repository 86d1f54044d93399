//! Reasons why there is no recording.

use crate::run::RunError;
use millpond_board::TapeError;
use std::io;
use std::path::PathBuf;

/// A reason why nothing was recorded, or not everything.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The program cannot be run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The tapes cannot be made.
    #[error(transparent)]
    Tapes(#[from] TapeError),
    /// The trace cannot be written.
    #[error("cannot write the trace {}: {source}; choose another place with -o", path.display())]
    Write {
        /// The file of the trace.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The program ended without touching any managed memory.
    #[error(
        "the program touched no memory that is recorded (malloc, anonymous mmap, brk): there is no trace"
    )]
    Nothing,
}

impl RecordError {
    /// The exit status for this error.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Run(error) => error.exit_code(),
            _ => 125,
        }
    }
}
