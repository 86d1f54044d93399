//! The shared memory: a page of words, and a window of 2 MiB for each desk.
//!
//! The words are atomics. The bytes of a window belong to one side at a time, according to the state of its desk;
//! they are accessed by plain copies. Another process of the same user may write anything there at any time. That can
//! corrupt the bytes of its own user's programs, which it could also do by other means, and nothing else: each length
//! and number read here is checked by the code that uses it.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use millpond_board::shared::{self, Failed};
use millpond_core::PAGE_SIZE;
use millpond_core::addr::MAX_ORDER;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, ProtFlags, madvise};
use std::path::{Path, PathBuf};

/// Desks where faults request pages.
pub(crate) const FOR_LOADS: core::ops::Range<usize> = 0..6;
/// Desks where slots are handed over.
pub(crate) const FOR_SAVES: core::ops::Range<usize> = 6..8;
/// The desk for quick notes: a process begins, forks, releases slots.
pub(crate) const FOR_NOTES: core::ops::Range<usize> = 8..9;
/// Number of desks: this many threads of a run ask concurrently, and others wait.
pub const DESKS: usize = FOR_NOTES.end;
/// Bytes in a window: the length of the longest slot.
pub(crate) const WINDOW: usize = PAGE_SIZE << MAX_ORDER;

const MAGIC: u64 = u64::from_le_bytes(*b"MillRely");
const VERSION: u32 = 1;
const NAME: &str = "millpond-relay";
/// Bytes for the page of words, chosen so that the windows begin at a huge page's border.
const HEADER: usize = WINDOW;
const BYTES: usize = HEADER + DESKS * WINDOW;
/// From this length on, a window's pages are unmapped when its desk is left, so that they do not stay in the
/// process's resident set. They stay in the shared memory.
const UNMAPPED_FROM: usize = 64 << 10;

/// The progress of the work at a desk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Phase {
    /// Nobody is here.
    Free = 0,
    /// A process is writing its request.
    Taken = 1,
    /// A process is waiting for the server.
    Asked = 2,
    /// The server is working on the request.
    Working = 3,
    /// The answer is ready.
    Done = 4,
    /// The process has left while the server was working on its request.
    Left = 5,
}

/// A desk's words. Both sides know which phase comes next, so any other value breaks the protocol.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Desk {
    /// A [`Phase`]; both sides sleep on this word.
    pub(crate) phase: AtomicU32,
    /// The process that has taken the desk.
    pub(crate) holder: AtomicU32,
    /// The request: an `Act`.
    pub(crate) act: AtomicU32,
    /// The first page of a slot to load.
    pub(crate) first_page: AtomicU32,
    /// Bytes in the window: the number handed over, or requested.
    pub(crate) len: AtomicU32,
    /// The result.
    pub(crate) answer: AtomicU32,
    /// The account of the requesting process.
    pub(crate) account: AtomicU64,
    /// The slot, or account, of the request, and that of the answer.
    pub(crate) number: AtomicU64,
}

impl Desk {
    /// Turns the desk from phase `from` to `to`. Returns false if it was in another phase.
    pub(crate) fn turn(&self, from: Phase, to: Phase) -> bool {
        let turned = self
            .phase
            .compare_exchange(from as u32, to as u32, AcqRel, Acquire);
        turned.is_ok()
    }

    pub(crate) fn is(&self, phase: Phase) -> bool {
        self.phase.load(Acquire) == phase as u32
    }
}

/// The page of words.
#[repr(C, align(4096))]
#[derive(Debug)]
pub(crate) struct Page {
    magic: AtomicU64,
    version: AtomicU32,
    /// The server's process.
    pub(crate) owner: AtomicU32,
    /// Nonzero once the server has ended.
    pub(crate) closed: AtomicU32,
    /// Counts seconds while the server lives.
    pub(crate) beats: AtomicU32,
    /// Counts desks that were left: a thread that finds no free desk sleeps on this word.
    pub(crate) left: AtomicU32,
    /// How long the store beyond the machine has not answered, in milliseconds.
    pub(crate) away_ms: AtomicU64,
    pub(crate) desks: [Desk; DESKS],
}

/// Why the memory cannot be used.
#[derive(Debug)]
pub enum RelayError {
    /// A system call on the file failed.
    System {
        /// The action that failed.
        what: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The kernel's error.
        errno: Errno,
    },
    /// The file is not a relay of this version.
    Foreign {
        /// The path of the file.
        path: PathBuf,
    },
}

impl fmt::Display for RelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { what, path, errno } => {
                write!(f, "cannot {what} the relay {}: {errno}", path.display())
            }
            Self::Foreign { path } => write!(
                f,
                "{} is no relay of this version; use the `millpond` that made it",
                path.display()
            ),
        }
    }
}

impl std::error::Error for RelayError {}

/// The memory, mapped for as long as the process lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    pub(crate) page: &'static Page,
    windows: NonNull<u8>,
}

// SAFETY: the page consists of atomics. A window is only accessed by the holder of its desk.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Makes the memory in this process, which is the server.
    pub(crate) fn create() -> Result<(Self, OwnedFd), RelayError> {
        let failed = failed(Path::new(NAME));
        let file = shared::create(NAME, BYTES).map_err(&failed)?;
        let this = Self::map(&file).map_err(&failed)?;
        let owner = rustix::process::getpid().as_raw_nonzero().get() as u32;
        this.page.owner.store(owner, Relaxed);
        this.page.version.store(VERSION, Relaxed);
        this.page.magic.store(MAGIC, Release);
        Ok((this, file))
    }

    /// Maps the memory that a server made.
    pub(crate) fn open(path: &Path) -> Result<Self, RelayError> {
        let foreign = || RelayError::Foreign {
            path: path.to_owned(),
        };
        let file = shared::open(path, OFlags::RDWR, BYTES).map_err(failed(path))?;
        let this = Self::map(file.ok_or_else(foreign)?).map_err(failed(path))?;
        let is_ours =
            this.page.magic.load(Acquire) == MAGIC && this.page.version.load(Relaxed) == VERSION;
        is_ours.then_some(this).ok_or_else(foreign)
    }

    fn map(file: impl AsFd) -> Result<Self, Failed> {
        let start = shared::map(file, BYTES, ProtFlags::READ | ProtFlags::WRITE)?.cast::<u8>();
        // SAFETY: the mapping covers the page of words and the windows, is aligned to 4 KiB, and is never unmapped.
        // `Page` consists only of atomics, for which any bytes are valid and which other processes may write.
        let page = unsafe { &*start.cast::<Page>() };
        // SAFETY: the windows lie inside the mapping, which does not begin at address zero.
        let windows = unsafe { NonNull::new_unchecked(start.add(HEADER)) };
        Ok(Self { page, windows })
    }

    fn window(&self, desk: usize) -> NonNull<u8> {
        debug_assert!(desk < DESKS);
        // SAFETY: there are that many windows of this length, one after the other.
        unsafe { self.windows.add(desk * WINDOW) }
    }

    /// Copies `bytes` into the window of a desk that the caller holds.
    pub(crate) fn put(&self, desk: usize, bytes: &[u8]) {
        let len = bytes.len().min(WINDOW);
        // SAFETY: the window is that long, and the only reference to it in this process is the desk holder's.
        unsafe {
            self.window(desk)
                .copy_from_nonoverlapping(NonNull::from(bytes).cast(), len)
        };
    }

    /// Copies the beginning of the window of a desk that the caller holds.
    pub(crate) fn take(&self, desk: usize, out: &mut [u8]) {
        let len = out.len().min(WINDOW);
        // SAFETY: as in `put`.
        unsafe {
            self.window(desk)
                .copy_to_nonoverlapping(NonNull::from(out).cast(), len)
        };
    }

    /// Lets the caller, who holds the desk, write into the first `len` bytes of its window.
    pub(crate) fn fill<R>(&self, desk: usize, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        // SAFETY: the window is that long. The caller holds the desk, so nobody else in this process makes a
        // reference to the window, and the server does not look at it before it is asked to.
        let bytes =
            unsafe { core::slice::from_raw_parts_mut(self.window(desk).as_ptr(), len.min(WINDOW)) };
        fill(bytes)
    }

    /// Removes the pages of a window from this process's resident set, if `len` bytes of it were used.
    pub(crate) fn unmap(&self, desk: usize, len: usize) {
        if len >= UNMAPPED_FROM {
            // SAFETY: the range is a part of a shared mapping of this process: its bytes stay in the file.
            let _ = unsafe {
                madvise(
                    self.window(desk).as_ptr().cast(),
                    WINDOW,
                    Advice::LinuxDontNeed,
                )
            };
        }
    }
}

fn failed(path: &Path) -> impl Fn(Failed) -> RelayError {
    move |(what, errno)| RelayError::System {
        what,
        path: path.to_owned(),
        errno,
    }
}

const _: () = assert!(size_of::<Page>() <= HEADER);
