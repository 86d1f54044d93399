//! The report board: a small shared file on which every process of a `millpond run` writes its counters.
//!
//! A program under `millpond run` may start others, may fork, and may be killed at any moment. The report at the end
//! has to include all processes, so the numbers of a process must be readable even if it is no longer alive or ended
//! badly. Hence the memory is shared by all processes. `millpond run` creates it. The preloaded library of each process
//! claims a slot and writes its counters there about ten times a second and once more at exit. The report reads the
//! counters after the program has ended. A process killed by SIGKILL loses at most the last tick. A program that uses
//! the library may have a board of its own.
//!
//! A board is a memfd and has no name that could be left behind. To use it, a process opens the descriptor of the
//! process that created it, `/proc/PID/fd/N`, which the kernel allows for the same user and root; [`list`](mod@list)
//! finds all open boards.
//!
//! Other designs have flaws: counters sent at exit are lost by a kill; a pipe needs a reader and blocks a program when
//! the reader is slow; a file for each process has to be found and removed.
//!
//! Each slot has one writing process. Within it two threads may publish (the ticking thread and the exiting one), so a
//! slot has a sequence word that is odd while a thread writes. A reader that finds it odd retries for a while and then
//! takes the counters as they are, since the writer may have been killed half-way; [`SlotReading::torn`] says so.
//!
//! ```
//! use millpond_board::{Board, Field, Fields, State, View};
//! let (board, file) = Board::create("sort").unwrap();
//! let path = millpond_board::path_of(&file);
//! let slot = Board::open(&path).unwrap().claim(42, "sort").unwrap();
//! let mut fields = Fields::default();
//! fields.set(Field::MajorFaults, 7);
//! slot.publish(State::Exited, &fields);
//! let seen = View::open(&path).unwrap().slots().next().unwrap();
//! assert_eq!((seen.pid, seen.name.as_str(), seen.fields.get(Field::MajorFaults)), (42, "sort", 7));
//! ```

pub mod counters;
mod engaged;
mod fields;
mod latency;
mod layout;
pub mod list;
pub mod shared;
mod tape;
pub mod watch;

pub use engaged::EngagedFor;
pub use fields::{Field, Fields};
pub use latency::{FaultWay, Histogram, LATENCY_BUCKETS, latency_bucket, latency_end_ns};
pub use layout::{NAME_BYTES, SLOTS};
pub use tape::{PATIENCE_MS, TAPE_WORDS, TAPES, TapeError, TapeState, TapeWriter, Tapes};

use layout::{MAGIC, Page, Slot, VERSION};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use shared::Failed;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The state of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum State {
    /// The process runs, or was killed before it could say otherwise.
    Running = 1,
    /// The process has exited.
    Exited = 2,
    /// The process has executed another program, which has a slot of its own.
    Execed = 3,
    /// The process stopped because the library could not continue.
    Failed = 4,
}

/// The board, mapped for as long as the process lives.
#[derive(Clone, Copy, Debug)]
pub struct Board {
    page: &'static Page,
}

/// A read-only board, mapped for as long as the process lives.
#[derive(Clone, Copy, Debug)]
pub struct View {
    page: &'static Page,
}

/// The right to write one slot.
#[derive(Clone, Copy, Debug)]
pub struct SlotWriter {
    slot: &'static Slot,
}

/// The contents of one slot when it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotReading {
    /// The slot's number.
    pub number: usize,
    /// Number of the process.
    pub pid: u32,
    /// Number of the slot of the process from which this one was forked; `None` for a process that was not forked under
    /// Millpond.
    pub parent: Option<usize>,
    /// File name of the program, at most [`NAME_BYTES`] bytes.
    pub name: String,
    /// The state of the process.
    pub state: State,
    /// When the slot was claimed: nanoseconds of `CLOCK_MONOTONIC`.
    pub claimed_ns: u64,
    /// When the slot was last written: nanoseconds of `CLOCK_MONOTONIC`.
    pub published_ns: u64,
    /// The counters.
    pub fields: Fields,
    /// Whether the writer was stopped while it wrote: then the counters may mix two moments.
    pub torn: bool,
}

/// Why a board cannot be used.
#[derive(Debug)]
pub enum BoardError {
    /// A system call on the file failed.
    System {
        /// The action that failed.
        what: &'static str,
        /// Path of the board's file.
        path: PathBuf,
        /// The kernel's error.
        errno: Errno,
    },
    /// The file is not a board of this version.
    Foreign {
        /// Path of the file.
        path: PathBuf,
    },
    /// All slots are taken.
    Full,
}

impl fmt::Display for BoardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { what, path, errno } => {
                write!(
                    f,
                    "cannot {what} the report board {}: {errno}",
                    path.display()
                )
            }
            Self::Foreign { path } => write!(
                f,
                "{} is not a report board of this version; use the `millpond` that made it",
                path.display()
            ),
            Self::Full => write!(f, "all {SLOTS} slots of the report board are taken"),
        }
    }
}

impl std::error::Error for BoardError {}

impl BoardError {
    /// Makes the errors of the file at `path`.
    fn failed(path: &Path) -> impl Fn(Failed) -> Self + Copy {
        move |(what, errno)| Self::System {
            what,
            path: path.to_owned(),
            errno,
        }
    }
}

impl Board {
    /// Creates a board that only this user may open, with this process as its owner and with the given `name`. The
    /// board lives as long as it is mapped or its descriptor is open.
    ///
    /// # Errors
    /// When the kernel does not provide such memory.
    pub fn create(name: &str) -> Result<(Self, OwnedFd), BoardError> {
        let failed = BoardError::failed(Path::new(list::MEMFD));
        let file = shared::create(list::MEMFD, size_of::<Page>()).map_err(failed)?;
        let page = map(&file, ProtFlags::READ | ProtFlags::WRITE).map_err(failed)?;
        page.set_name(name);
        page.owner.store(
            rustix::process::getpid().as_raw_nonzero().get() as u32,
            Relaxed,
        );
        page.version.store(VERSION, Relaxed);
        page.magic.store(MAGIC, Release);
        Ok((Self { page }, file))
    }

    /// Maps a board that another process has created.
    ///
    /// # Errors
    /// When the file cannot be opened or mapped, or is not a board of this version.
    pub fn open(path: &Path) -> Result<Self, BoardError> {
        let page = open(path, OFlags::RDWR, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(Self { page })
    }

    /// Takes a slot for the process `pid` running `name`. If another slot says that the same process runs, that slot is
    /// marked as [`State::Execed`], because a process claims a second time only after it has executed another program.
    ///
    /// # Errors
    /// [`BoardError::Full`] when no slot is free.
    pub fn claim(&self, pid: u32, name: &str) -> Result<SlotWriter, BoardError> {
        for old in self.page.slots() {
            if old.pid.load(Acquire) == pid && old.state.load(Relaxed) == State::Running as u32 {
                old.state.store(State::Execed as u32, Relaxed);
            }
        }
        self.take(pid, name, 0)
    }

    /// Takes a slot for `pid`, a child forked from the process that writes `parent`.
    ///
    /// # Errors
    /// [`BoardError::Full`] when no slot is free.
    pub fn claim_forked(&self, pid: u32, parent: SlotWriter) -> Result<SlotWriter, BoardError> {
        let number = self.page.number_of(parent.slot) as u32 + 1;
        self.take(pid, &parent.slot.name(), number)
    }

    fn take(&self, pid: u32, name: &str, parent: u32) -> Result<SlotWriter, BoardError> {
        let slot = self.page.claim(pid).ok_or(BoardError::Full)?;
        slot.set_name(name);
        slot.parent.store(parent, Relaxed);
        slot.claimed_ns.store(now_ns(), Relaxed);
        slot.published_ns.store(now_ns(), Relaxed);
        slot.state.store(State::Running as u32, Relaxed);
        slot.pid.store(pid, Release);
        Ok(SlotWriter { slot })
    }

    /// Takes a slot for one of several users of the library in the process `pid`, in addition to the slots that the
    /// process already has.
    ///
    /// # Errors
    /// [`BoardError::Full`] when no slot is free.
    pub fn claim_beside(&self, pid: u32, name: &str) -> Result<SlotWriter, BoardError> {
        self.take(pid, name, 0)
    }

    /// Records the line that says why the process `pid` stops, if no process has set one before. Calls no allocator and
    /// waits for no thread, so that it may be called when everything else has failed.
    pub fn set_last_words(&self, pid: u32, line: &[u8]) {
        self.page.set_last_words(pid, line);
    }

    /// The first process that stopped because the library could not continue, and its line.
    #[must_use]
    pub fn last_words(&self) -> Option<(u32, String)> {
        self.page.last_words()
    }

    /// The contents of the claimed slots, in the order in which they were claimed.
    pub fn slots(&self) -> impl Iterator<Item = SlotReading> + use<> {
        View { page: self.page }.slots()
    }
}

impl View {
    /// Maps a board that another process has created, without the right to write.
    ///
    /// # Errors
    /// When the file cannot be opened or mapped, or is not a board of this version.
    pub fn open(path: &Path) -> Result<Self, BoardError> {
        let page = open(path, OFlags::RDONLY, ProtFlags::READ)?;
        Ok(Self { page })
    }

    /// The process that made the board.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.page.owner.load(Relaxed)
    }

    /// The program to which the board belongs: the one that runs, or that uses the library.
    #[must_use]
    pub fn name(&self) -> String {
        self.page.name()
    }

    /// The contents of the claimed slots, by their numbers.
    pub fn slots(&self) -> impl Iterator<Item = SlotReading> + use<> {
        let claimed = |(_, slot): &(usize, &Slot)| slot.pid.load(Acquire) != 0;
        let slots = self.page.slots().iter().enumerate().filter(claimed);
        slots.map(|(number, slot)| slot.read_slot(number))
    }
}

fn open(path: &Path, flags: OFlags, protection: ProtFlags) -> Result<&'static Page, BoardError> {
    let failed = BoardError::failed(path);
    let foreign = || BoardError::Foreign {
        path: path.to_owned(),
    };
    let file = shared::open(path, flags, size_of::<Page>()).map_err(failed)?;
    let page = map(file.ok_or_else(foreign)?, protection).map_err(failed)?;
    if page.magic.load(Acquire) == MAGIC && page.version.load(Relaxed) == VERSION {
        Ok(page)
    } else {
        Err(foreign())
    }
}

fn map(file: impl AsFd, protection: ProtFlags) -> Result<&'static Page, Failed> {
    let start = shared::map(file, size_of::<Page>(), protection)?;
    // SAFETY: the mapping is as long as a `Page`, aligned to 4 KiB, never unmapped, and `Page` is made of atomics only,
    // for which any bytes are valid and which other processes may write at any time. A process that maps it for reading
    // (`View`) does not write.
    Ok(unsafe { &*start.cast::<Page>() })
}

/// The path under which this user's processes can open a descriptor of this process as long as it stays open.
#[must_use]
pub fn path_of(file: &impl AsRawFd) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

impl SlotWriter {
    /// Writes `state` and all counters. Calls no allocator, and waits only for another thread of this process that
    /// publishes at the same moment. Returns `false`, with nothing written, if that thread does not finish.
    pub fn publish(&self, state: State, fields: &Fields) -> bool {
        self.slot.write(state, fields, now_ns())
    }

    /// Records that the process stops because the library cannot continue, and leaves its counters unchanged, so as not
    /// to wait for another writer.
    pub fn fail(&self) {
        self.slot.state.store(State::Failed as u32, Relaxed);
    }

    /// Gives the slot back for the next process that claims one.
    pub fn release(self) {
        self.slot.pid.store(0, Relaxed);
        self.slot.write(State::Running, &Fields::default(), 0);
        self.slot.owner.store(0, Release);
    }
}

/// Present time in nanoseconds, by the clock of a board's times.
#[must_use]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board() -> (PathBuf, Board, OwnedFd) {
        let (board, file) = Board::create("test").unwrap();
        (path_of(&file), board, file)
    }

    #[test]
    fn second_claim_by_a_process_marks_the_first_as_execed() {
        let (path, board, _file) = board();
        let other = Board::open(&path).unwrap();
        other.claim(7, "sh").unwrap();
        other.claim(7, "python3").unwrap();
        let seen: Vec<_> = board.slots().map(|s| (s.name, s.state)).collect();
        let expected = [
            ("sh".to_owned(), State::Execed),
            ("python3".to_owned(), State::Running),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_forked_child_names_its_parent() {
        let (_path, board, _file) = board();
        board.claim(1, "a").unwrap();
        let parent = board.claim(2, "b").unwrap();
        board.claim_forked(3, parent).unwrap();
        let child = board.slots().last().unwrap();
        assert_eq!(
            (child.pid, child.parent, child.name.as_str()),
            (3, Some(1), "b")
        );
    }

    #[test]
    fn long_name_is_truncated_and_a_full_board_is_an_error() {
        let (_path, board, _file) = board();
        for pid in 0..SLOTS as u32 {
            board.claim(pid + 1, &"é".repeat(100)).unwrap();
        }
        assert_eq!(
            board.slots().next().unwrap().name,
            "é".repeat(NAME_BYTES / 2)
        );
        assert!(matches!(board.claim(9_999, "x"), Err(BoardError::Full)));
    }

    #[test]
    fn a_file_that_is_not_a_board_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, b"hello").unwrap();
        for opened in [Board::open(&path).err(), View::open(&path).err()] {
            assert!(matches!(opened, Some(BoardError::Foreign { .. })));
        }
        let missing = Board::open(&dir.path().join("y")).unwrap_err();
        assert!(missing.to_string().contains("cannot open"), "{missing}");
    }

    #[test]
    fn a_board_in_use_cannot_be_truncated() {
        let (path, _board, file) = board();
        assert!(rustix::fs::ftruncate(&file, 0).is_err());
        assert_eq!(View::open(&path).unwrap().owner(), std::process::id());
        assert_eq!(View::open(&path).unwrap().name(), "test");
    }

    #[test]
    fn a_released_slot_is_claimed_again() {
        let (path, board, _file) = board();
        let first = board.claim_beside(1, "a").unwrap();
        let second = board.claim_beside(1, "b").unwrap();
        let seen = || -> Vec<_> {
            let slots = View::open(&path).unwrap().slots();
            slots.map(|s| (s.number, s.name, s.state)).collect()
        };
        let running = State::Running;
        assert_eq!(
            seen(),
            [(0, "a".to_owned(), running), (1, "b".to_owned(), running)]
        );
        let mut fields = Fields::default();
        fields.set(Field::MajorFaults, 7);
        first.publish(State::Running, &fields);
        first.release();
        assert_eq!(seen(), [(1, "b".to_owned(), running)]);
        board.claim_beside(1, "c").unwrap();
        let again = board.slots().next().unwrap();
        assert_eq!(
            (again.name.as_str(), again.fields.get(Field::MajorFaults)),
            ("c", 0)
        );
        second.release();
    }

    #[test]
    fn readers_never_see_half_a_write_while_writers_live() {
        let (_path, board, _file) = board();
        let slot = board.claim(5, "w").unwrap();
        std::thread::scope(|scope| {
            for start in [0u64, 1 << 32] {
                scope.spawn(move || {
                    for n in start..start + 20_000 {
                        let mut fields = Fields::default();
                        for field in Field::ALL {
                            fields.set(field, n);
                        }
                        for way in FaultWay::ALL {
                            fields.set_latency(way, [n; LATENCY_BUCKETS]);
                        }
                        slot.publish(State::Running, &fields);
                    }
                });
            }
            for _ in 0..2_000 {
                let seen = board.slots().next().unwrap();
                let first = seen.fields.get(Field::ALL[0]);
                let same = Field::ALL.iter().all(|&f| seen.fields.get(f) == first)
                    && FaultWay::ALL.map(|way| *seen.fields.latency(way))
                        == [[first; LATENCY_BUCKETS]; FaultWay::ALL.len()];
                assert!(seen.torn || same, "{seen:?}");
            }
        });
    }
}
