//! Tapes: rings in a shared file through which the processes of a `millpond record` report the pages that they touch.
//!
//! The pages that a program touches are known in its fault handler. That is a thread with a descriptor table of its
//! own, which may not allocate, and the program may be killed between two instructions. So it stores page numbers in
//! shared memory. The recording process, which outlives all the others, takes them out and writes the files. A kill
//! loses only the pages that the dead process had not yet stored.
//!
//! Each process has a tape, with one writer (the thread that holds the recorder's lock in that process) and one reader.
//! `written` and `read` only grow; a word belongs to the writer while `written - read` leaves room for it and to the
//! reader after `written` has passed it. A writer that finds the tape full sleeps until the reader makes room; after
//! [`PATIENCE_MS`] it drops the word and counts it, because a program must not hang for lack of a recorder.
//!
//! ```
//! use millpond_board::{Tapes, path_of};
//! let (tapes, file) = Tapes::create().unwrap();
//! let tape = Tapes::open(&path_of(&file)).unwrap().claim(42, "sort").unwrap();
//! tape.push(7);
//! let mut seen = Vec::new();
//! let about = tapes.drain(0, &mut |words| seen.extend_from_slice(words)).unwrap();
//! assert_eq!((about.pid, about.name.as_str(), seen.as_slice()), (42, "sort", &[7][..]));
//! ```

use crate::layout::Name;
use crate::shared::{self, Failed};
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use rustix::thread::{NanosleepRelativeResult, Timespec, nanosleep};
use std::fmt;
use std::path::{Path, PathBuf};

/// Most processes that record at the same time.
pub const TAPES: usize = 128;
/// Words that a tape holds: 256 KiB, all of which are resident in a recorded process.
pub const TAPE_WORDS: usize = 1 << 15;
/// Longest time that a writer waits for the reader, in milliseconds.
pub const PATIENCE_MS: u32 = 1000;

const MAGIC: u64 = u64::from_le_bytes(*b"MillTape");
const VERSION: u32 = 1;

#[repr(C, align(4096))]
#[derive(Debug)]
struct TapesFile {
    magic: AtomicU64,
    version: AtomicU32,
    /// Number of processes that found no tape.
    refused: AtomicU32,
    /// Number of claims so far.
    claims: AtomicU64,
    tapes: [Tape; TAPES],
}

#[repr(C, align(4096))]
#[derive(Debug)]
struct Tape {
    /// The process that changes this from zero owns the tape.
    owner: AtomicU32,
    /// Zero until the description is complete.
    pid: AtomicU32,
    /// Not zero if the process has executed another program, which has a tape of its own.
    ended: AtomicU32,
    _unused: AtomicU32,
    claim: AtomicU64,
    name: Name,
    written: AtomicU64,
    lost: AtomicU64,
    /// The reader's word, separate from those that the writer writes.
    read: Reader,
    words: [AtomicU64; TAPE_WORDS],
}

#[repr(C, align(64))]
#[derive(Debug)]
struct Reader(AtomicU64);

/// All tapes of a recording, mapped for as long as the process lives.
#[derive(Clone, Copy, Debug)]
pub struct Tapes {
    file: &'static TapesFile,
}

/// The right to write one tape. Only one thread at a time of its process uses it.
#[derive(Clone, Copy, Debug)]
pub struct TapeWriter {
    tape: &'static Tape,
}

/// The state of a tape, as its reader sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TapeState {
    /// Number of this claim, counted across all tapes from 0.
    pub claim: u64,
    /// Number of the process.
    pub pid: u32,
    /// File name of the program, at most [`NAME_BYTES`](crate::NAME_BYTES) bytes.
    pub name: String,
    /// Whether the process has executed another program, and no longer writes here.
    pub ended: bool,
    /// Words dropped because the tape was full for too long.
    pub lost: u64,
}

/// Why tapes cannot be used.
#[derive(Debug)]
pub enum TapeError {
    /// A system call failed.
    System {
        /// The action that failed.
        what: &'static str,
        /// Path of the tapes' file.
        path: PathBuf,
        /// The kernel's error.
        errno: Errno,
    },
    /// The file holds no tapes of this version.
    Foreign {
        /// Path of the file.
        path: PathBuf,
    },
    /// All tapes are taken.
    Full,
}

impl fmt::Display for TapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { what, path, errno } => {
                write!(f, "cannot {what} the tapes {}: {errno}", path.display())
            }
            Self::Foreign { path } => write!(
                f,
                "{} holds no tapes of this version; use the `millpond` that made it",
                path.display()
            ),
            Self::Full => write!(f, "all {TAPES} tapes are taken"),
        }
    }
}

impl std::error::Error for TapeError {}

impl TapeError {
    /// Makes the errors of the file at `path`.
    fn failed(path: &Path) -> impl Fn(Failed) -> Self + Copy {
        move |(what, errno)| Self::System {
            what,
            path: path.to_owned(),
            errno,
        }
    }
}

impl Tapes {
    /// Makes tapes that only this user may open. They live as long as they are mapped or their descriptor is open.
    ///
    /// # Errors
    /// When the kernel does not provide such memory.
    pub fn create() -> Result<(Self, OwnedFd), TapeError> {
        const NAME: &str = "millpond-tapes";
        let failed = TapeError::failed(Path::new(NAME));
        let fd = shared::create(NAME, size_of::<TapesFile>()).map_err(failed)?;
        let file = map(&fd).map_err(failed)?;
        file.version.store(VERSION, Relaxed);
        file.magic.store(MAGIC, Release);
        Ok((Self { file }, fd))
    }

    /// Maps tapes that another process has created.
    ///
    /// # Errors
    /// When the file cannot be opened or mapped, or holds no tapes of this version.
    pub fn open(path: &Path) -> Result<Self, TapeError> {
        let failed = TapeError::failed(path);
        let foreign = || TapeError::Foreign {
            path: path.to_owned(),
        };
        let fd = shared::open(path, OFlags::RDWR, size_of::<TapesFile>()).map_err(failed)?;
        let file = map(fd.ok_or_else(foreign)?).map_err(failed)?;
        if file.magic.load(Acquire) == MAGIC && file.version.load(Relaxed) == VERSION {
            Ok(Self { file })
        } else {
            Err(foreign())
        }
    }

    /// Takes a tape for the process `pid` running `name`. A tape that this process already has is marked as ended,
    /// because a process claims a second time only after it has executed another program. Allocates nothing.
    ///
    /// # Errors
    /// [`TapeError::Full`] when no tape is free.
    pub fn claim(&self, pid: u32, name: &str) -> Result<TapeWriter, TapeError> {
        for old in &self.file.tapes {
            if old.pid.load(Acquire) == pid {
                old.ended.store(1, Release);
            }
        }
        let free = |tape: &&Tape| {
            tape.owner
                .compare_exchange(0, pid, Acquire, Relaxed)
                .is_ok()
        };
        let Some(tape) = self.file.tapes.iter().find(free) else {
            self.file.refused.fetch_add(1, Relaxed);
            return Err(TapeError::Full);
        };
        tape.name.set(name);
        tape.claim
            .store(self.file.claims.fetch_add(1, Relaxed), Relaxed);
        tape.ended.store(0, Relaxed);
        tape.lost.store(0, Relaxed);
        tape.pid.store(pid, Release);
        Ok(TapeWriter { tape })
    }

    /// Number of processes that found no tape free and were not recorded.
    #[must_use]
    pub fn refused(&self) -> u32 {
        self.file.refused.load(Relaxed)
    }

    /// Takes out the words on the tape with this number, in order, and returns the tape's state; `None` if no process
    /// owns the tape. Only for the one reader.
    ///
    /// # Panics
    /// When the number is not below [`TAPES`].
    pub fn drain(&self, number: usize, take: &mut dyn FnMut(&[u64])) -> Option<TapeState> {
        const CHUNK: usize = 512;
        let tape = &self.file.tapes[number];
        let pid = tape.pid.load(Acquire);
        if pid == 0 {
            return None;
        }
        let ended = tape.ended.load(Acquire) != 0;
        let mut chunk = [0; CHUNK];
        let mut read = tape.read.0.load(Relaxed);
        let written = tape.written.load(Acquire);
        while read < written {
            let n = CHUNK.min((written - read) as usize);
            for (i, word) in chunk[..n].iter_mut().enumerate() {
                *word = tape.words[(read as usize + i) % TAPE_WORDS].load(Relaxed);
            }
            take(&chunk[..n]);
            read += n as u64;
            tape.read.0.store(read, Release);
        }
        Some(TapeState {
            claim: tape.claim.load(Relaxed),
            pid,
            name: tape.name.get(),
            ended,
            lost: tape.lost.load(Relaxed),
        })
    }

    /// The process that owns the tape with this number.
    ///
    /// # Panics
    /// When the number is not below [`TAPES`].
    #[must_use]
    pub fn owner(&self, number: usize) -> Option<u32> {
        let pid = self.file.tapes[number].pid.load(Acquire);
        (pid != 0).then_some(pid)
    }

    /// Frees the tape with this number for another process. Only for the one reader, once the tape's process no longer
    /// writes.
    ///
    /// # Panics
    /// When the number is not below [`TAPES`].
    pub fn free(&self, number: usize) {
        let tape = &self.file.tapes[number];
        tape.written.store(0, Relaxed);
        tape.read.0.store(0, Relaxed);
        tape.pid.store(0, Relaxed);
        tape.owner.store(0, Release);
    }
}

impl TapeWriter {
    /// Adds a word. Calls no allocator. Waits for the reader while the tape is full.
    pub fn push(&self, word: u64) {
        let tape = self.tape;
        let written = tape.written.load(Relaxed);
        let full = || written - tape.read.0.load(Acquire) >= TAPE_WORDS as u64;
        let mut waited = 0;
        while full() {
            if waited == PATIENCE_MS || tape.lost.load(Relaxed) > 0 {
                tape.lost.fetch_add(1, Relaxed);
                return;
            }
            sleep_1_ms();
            waited += 1;
        }
        tape.words[written as usize % TAPE_WORDS].store(word, Relaxed);
        tape.written.store(written + 1, Release);
    }
}

fn map(file: impl AsFd) -> Result<&'static TapesFile, Failed> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let start = shared::map(file, size_of::<TapesFile>(), protection)?;
    // SAFETY: the mapping is as long as a `TapesFile`, aligned to 4 KiB, never unmapped, and `TapesFile` is made of
    // atomics only, for which any bytes are valid and which other processes may write at any time.
    Ok(unsafe { &*start.cast::<TapesFile>() })
}

fn sleep_1_ms() {
    let mut left = Timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    while let NanosleepRelativeResult::Interrupted(rest) = nanosleep(&left) {
        left = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tapes() -> (Tapes, Tapes) {
        let (reader, file) = Tapes::create().unwrap();
        (reader, Tapes::open(&crate::path_of(&file)).unwrap())
    }

    #[test]
    fn a_file_that_holds_no_tapes_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let error = Tapes::open(&path).unwrap_err();
        assert!(matches!(error, TapeError::System { .. }), "{error}");
        std::fs::write(&path, b"hello").unwrap();
        let error = Tapes::open(&path).unwrap_err();
        assert!(matches!(error, TapeError::Foreign { .. }), "{error}");
    }

    #[test]
    fn words_come_out_in_order_while_more_are_written() {
        const WORDS: u64 = 5 * TAPE_WORDS as u64 + 3;
        let (reader, other) = tapes();
        let tape = other.claim(7, "w").unwrap();
        let mut seen = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| (0..WORDS).for_each(|word| tape.push(word)));
            while seen < WORDS {
                let state = reader.drain(0, &mut |words| {
                    for &word in words {
                        assert_eq!(word, seen);
                        seen += 1;
                    }
                });
                assert_eq!(state.unwrap().lost, 0);
            }
        });
    }

    #[test]
    fn without_a_reader_a_writer_waits_once_and_counts_what_it_drops() {
        let (reader, other) = tapes();
        let tape = other.claim(7, "w").unwrap();
        let start = std::time::Instant::now();
        (0..TAPE_WORDS as u64 + 5).for_each(|word| tape.push(word));
        assert!(start.elapsed().as_millis() < 10 * u128::from(PATIENCE_MS));
        let mut n = 0;
        let state = reader.drain(0, &mut |words| n += words.len()).unwrap();
        assert_eq!((n, state.lost), (TAPE_WORDS, 5));
    }

    #[test]
    fn another_program_of_the_same_process_has_another_tape() {
        let (reader, other) = tapes();
        other.claim(7, "sh").unwrap().push(1);
        other.claim(7, "python3").unwrap().push(2);
        let state = |number| reader.drain(number, &mut |_| {});
        let (sh, python) = (state(0).unwrap(), state(1).unwrap());
        assert_eq!((sh.ended, python.ended), (true, false));
        assert_eq!(
            (sh.claim, python.claim, python.name.as_str()),
            (0, 1, "python3")
        );
        reader.free(0);
        assert_eq!(state(0), None);
        other.claim(8, "new").unwrap();
        assert_eq!(state(0).unwrap().claim, 2);
    }

    #[test]
    fn claims_refused_for_lack_of_a_tape_are_counted() {
        let (reader, other) = tapes();
        for pid in 1..=TAPES as u32 {
            other.claim(pid, "x").unwrap();
        }
        assert!(matches!(other.claim(9999, "x"), Err(TapeError::Full)));
        assert_eq!(reader.refused(), 1);
    }
}
