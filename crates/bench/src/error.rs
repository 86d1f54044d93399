//! Reasons why there is no result, or only a partial one.

use std::io;
use std::path::PathBuf;

/// A reason why a side of the benchmark cannot run on this machine.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Skip(pub String);

impl Skip {
    /// Only root may set up swap and cgroups.
    #[must_use]
    pub fn needs_root() -> Self {
        Self("making swap and cgroups needs root".to_owned())
    }
}

/// A reason why a measured process failed.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A reason why a benchmark gave no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A side cannot run here; the benchmark goes on without it.
    #[error(transparent)]
    Skipped(#[from] Skip),
    /// Another benchmark holds the lock.
    #[error("another benchmark is running (it holds {}); wait until it ends", .0.display())]
    Busy(PathBuf),
    /// The lock cannot be taken.
    #[error("cannot lock {}: {error}; run the benchmark as root", .path.display())]
    Lock {
        /// The lock's file.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// The record of what the benchmark sets up cannot be written.
    #[error("cannot record what the benchmark sets up: {0}; make sure that /run has room")]
    Record(#[source] io::Error),
    /// Something could not be restored.
    #[error(
        "cannot restore swap, zram or cgroup: {0}; start the benchmark again: it first tries once more"
    )]
    PutBack(#[source] io::Error),
    /// The measured process cannot be started.
    #[error("cannot start the measured process: {0}")]
    Start(#[source] io::Error),
    /// Another process killed the measured process.
    #[error(
        "the measured process was killed; in a memory cgroup the kernel does this when memory runs out"
    )]
    Killed,
    /// The measured process failed.
    #[error("the measured process failed: {0}")]
    Worker(String),
    /// The measured process reports that it cannot get its memory.
    #[error("cannot get the memory to measure: {0}")]
    Memory(Failure),
    /// Traces cannot be replayed.
    #[error("{0}")]
    Traces(String),
    /// A signal ended the benchmark.
    #[error("ended by signal {0}")]
    Interrupted(i32),
    /// The result cannot be printed.
    #[error("cannot print the result: {0}")]
    Print(#[source] io::Error),
}

impl BenchError {
    /// The exit status for this error.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted(signal) => 128u8.saturating_add(*signal as u8),
            _ => 1,
        }
    }
}
