//! How a thread makes one request to the server: it takes a *desk*, writes its request there, and sleeps until the
//! answer is ready.
//!
//! ```text
//!   the thread:   Free ─▶ Taken ─▶ Asked           ─sleeps─           Done ─▶ Free
//!   the server:                     Asked ─▶ Working ─────▶ Done
//!                                            Left ─────────────▶ Free     (the thread had no patience left)
//! ```
//!
//! The word that says who holds a desk is the first to be set and the last to be cleared. So a desk of a process that
//! was killed always names it, and the server, which checks the processes once a second, frees the desk.
//!
//! Loads, saves and notes have separate desks: slots on their way out, which may wait for the network, do not delay
//! faults, and a process that forks waits for neither.
//!
//! A server that has ended says so in the page of words, unless it was killed. Then its process is gone *and* its
//! count of seconds stands still. One of the two alone proves nothing: a process in another namespace does not see
//! the server's process, and a server that was stopped counts no seconds and may continue later.

use crate::layout::{Desk, Phase, RelayError, Shared};
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering::*};
use millpond_core::port::{LoadError, SaveError};
use rustix::fs::{CWD, readlinkat_raw};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use rustix::thread::futex;
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest sleep before a thread checks whether the server is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long the server's count of seconds must have stood still before the server is considered dead.
const STILL_FOR: Duration = Duration::from_secs(5);

/// A thread's request. `number` and `account` are those of the desk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Act {
    /// The process `number` begins to use the relay. The answer is its account.
    Begin = 1,
    /// The process is about to fork. The answer is the child's account, which has all of the process's slots.
    Fork = 2,
    /// The process `number` is the child for which an account was made.
    Adopt = 3,
    /// The account is no longer needed.
    End = 4,
    /// Keep the bytes in the window. The answer is the slot that contains them.
    Save = 5,
    /// Copy pages of the slot `number` into the window.
    Load = 6,
    /// Release the slots whose numbers are in the window.
    Release = 7,
}

impl Act {
    pub(crate) fn from_word(word: u32) -> Option<Self> {
        let all = [
            Self::Begin,
            Self::Fork,
            Self::Adopt,
            Self::End,
            Self::Save,
            Self::Load,
            Self::Release,
        ];
        all.into_iter().find(|&act| act as u32 == word)
    }
}

/// Why the server did not do what it was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There is no room beyond the machine, or the store there does not answer.
    Full,
    /// The slot or account contains nothing.
    Missing,
    /// The bytes are not those that were saved.
    Corrupt,
    /// The store failed, with this errno.
    Io(i32),
    /// The server has ended, or did not answer in time.
    Gone,
}

const IO: u32 = 16;

impl Refusal {
    /// Returns the answer as a word. Zero means success.
    pub(crate) fn word(self) -> u32 {
        match self {
            Self::Full => 1,
            Self::Missing => 2,
            Self::Corrupt => 3,
            Self::Gone => 4,
            Self::Io(errno) => IO + errno.unsigned_abs().min(4095),
        }
    }

    pub(crate) fn from_word(word: u32) -> Option<Self> {
        match word {
            0 => None,
            1 => Some(Self::Full),
            2 => Some(Self::Missing),
            3 => Some(Self::Corrupt),
            IO.. => Some(Self::Io((word - IO).min(4095) as i32)),
            _ => Some(Self::Gone),
        }
    }
}

impl From<LoadError> for Refusal {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Corrupt => Self::Corrupt,
            LoadError::Io(errno) => Self::Io(errno),
            LoadError::Missing => Self::Missing,
        }
    }
}

impl From<SaveError> for Refusal {
    fn from(error: SaveError) -> Self {
        match error {
            SaveError::Full => Self::Full,
            SaveError::Io(errno) => Self::Io(errno),
        }
    }
}

impl From<Refusal> for LoadError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Corrupt => Self::Corrupt,
            Refusal::Missing => Self::Missing,
            Refusal::Io(errno) => Self::Io(errno),
            Refusal::Full | Refusal::Gone => Self::Io(Errno::TIMEDOUT.raw_os_error()),
        }
    }
}

/// The parameters of a request, apart from the window.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) act: Act,
    pub(crate) account: u64,
    pub(crate) number: u64,
    pub(crate) first_page: u16,
    /// The number of bytes of the window that are concerned.
    pub(crate) len: usize,
}

/// The way to this run's server, for a process of the program. See the [crate](crate).
#[derive(Debug)]
pub struct Relay {
    pub(crate) shared: Shared,
    /// This process's number, as the server sees it.
    process: AtomicU32,
}

impl Relay {
    /// Maps the memory of the server that published this path. It stays mapped as long as the process lives.
    ///
    /// # Errors
    /// The file cannot be opened or mapped, or is not a relay of this version.
    pub fn open(path: &Path) -> Result<Self, RelayError> {
        let relay = Self {
            shared: Shared::open(path)?,
            process: AtomicU32::new(0),
        };
        relay.note_process();
        Ok(relay)
    }

    /// Records which process this is: a forked child is a different one. In its own namespace, a process has a
    /// different number from the one that the server knows; `/proc`, through which the process found the server, has
    /// the latter.
    pub(crate) fn note_process(&self) {
        let mut text = [MaybeUninit::uninit(); 16];
        let seen = readlinkat_raw(CWD, c"/proc/self", &mut text).map(|(text, _)| &*text);
        let number = seen
            .ok()
            .and_then(|text| core::str::from_utf8(text).ok()?.parse().ok())
            .unwrap_or_else(|| rustix::process::getpid().as_raw_nonzero().get() as u32);
        self.process.store(number, Relaxed);
    }

    pub(crate) fn process(&self) -> u32 {
        self.process.load(Relaxed)
    }

    /// Returns how long the store beyond the machine has not answered, in milliseconds.
    pub(crate) fn away_ms(&self) -> u64 {
        self.shared.page.away_ms.load(Relaxed)
    }

    /// Takes one of these desks, and waits for one until `until`.
    pub(crate) fn sit(&self, desks: Range<usize>, until: Instant) -> Result<AtDesk<'_>, Refusal> {
        let mut server = Heart::of(self);
        loop {
            let left = self.shared.page.left.load(Acquire);
            for number in desks.clone() {
                let desk = &self.shared.page.desks[number];
                let me = self.process();
                let got = desk.holder.compare_exchange(0, me, AcqRel, Acquire);
                if got.is_ok() {
                    desk.phase.store(Phase::Taken as u32, Release);
                    return Ok(AtDesk {
                        relay: self,
                        number,
                        used: 0,
                        left: false,
                    });
                }
            }
            if server.has_stopped(self) || Instant::now() >= until {
                return Err(Refusal::Gone);
            }
            sleep_at(&self.shared.page.left, left, until);
        }
    }
}

/// A desk that this thread holds.
pub(crate) struct AtDesk<'a> {
    relay: &'a Relay,
    number: usize,
    /// Bytes of the window that were used.
    used: usize,
    /// Set if the server frees the desk because this thread ran out of patience.
    left: bool,
}

impl AtDesk<'_> {
    fn desk(&self) -> &Desk {
        &self.relay.shared.page.desks[self.number]
    }

    /// Lets the caller write the first `len` bytes of the window.
    pub(crate) fn fill<R>(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        self.used = self.used.max(len);
        self.relay.shared.fill(self.number, len, fill)
    }

    /// Copies `bytes` into the window.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.used = self.used.max(bytes.len());
        self.relay.shared.put(self.number, bytes);
    }

    /// Copies out what the server put into the window.
    pub(crate) fn take(&mut self, out: &mut [u8]) {
        self.used = self.used.max(out.len());
        self.relay.shared.take(self.number, out);
    }

    /// Makes a request, and waits for the answer until `until`.
    pub(crate) fn ask(&mut self, ask: Ask, until: Instant) -> Result<u64, Refusal> {
        let desk = self.desk();
        desk.act.store(ask.act as u32, Relaxed);
        desk.account.store(ask.account, Relaxed);
        desk.number.store(ask.number, Relaxed);
        desk.first_page.store(u32::from(ask.first_page), Relaxed);
        desk.len.store(ask.len as u32, Relaxed);
        desk.phase.store(Phase::Asked as u32, Release);
        wake_at(&desk.phase);
        let mut server = Heart::of(self.relay);
        loop {
            let phase = desk.phase.load(Acquire);
            if phase == Phase::Done as u32 {
                let answer = desk.answer.load(Relaxed);
                let number = desk.number.load(Relaxed);
                return Refusal::from_word(answer).map_or(Ok(number), Err);
            }
            if server.has_stopped(self.relay) || Instant::now() >= until {
                if desk.turn(Phase::Asked, Phase::Taken) {
                    return Err(Refusal::Gone);
                }
                if desk.turn(Phase::Working, Phase::Left) {
                    self.left = true;
                    return Err(Refusal::Gone);
                }
                continue;
            }
            sleep_at(&desk.phase, phase, until);
        }
    }
}

impl Drop for AtDesk<'_> {
    fn drop(&mut self) {
        self.relay.shared.unmap(self.number, self.used);
        if !self.left {
            leave(&self.relay.shared, self.number);
        }
    }
}

/// Frees a desk that the caller holds.
pub(crate) fn leave(shared: &Shared, number: usize) {
    let desk = &shared.page.desks[number];
    desk.phase.store(Phase::Free as u32, Release);
    desk.holder.store(0, Release);
    shared.page.left.fetch_add(1, AcqRel);
    wake_at(&shared.page.left);
}

/// Whether the server still lives.
struct Heart {
    beats: u32,
    since: Instant,
}

impl Heart {
    fn of(relay: &Relay) -> Self {
        Self {
            beats: relay.shared.page.beats.load(Relaxed),
            since: Instant::now(),
        }
    }

    fn has_stopped(&mut self, relay: &Relay) -> bool {
        let page = relay.shared.page;
        if page.closed.load(Acquire) != 0 {
            return true;
        }
        let beats = page.beats.load(Relaxed);
        if beats != self.beats {
            *self = Self::of(relay);
        }
        self.since.elapsed() >= STILL_FOR && is_gone(page.owner.load(Relaxed))
    }
}

fn is_gone(process: u32) -> bool {
    let process = Pid::from_raw(process as i32);
    process.is_none_or(|process| test_kill_process(process) == Err(Errno::SRCH))
}

/// Sleeps until somebody wakes the sleepers on `word`. Does not sleep if its value already differs from `seen`.
pub(crate) fn sleep_at(word: &AtomicU32, seen: u32, until: Instant) {
    let left = until.saturating_duration_since(Instant::now());
    let left = left.min(LOOK_EVERY);
    let limit = futex::Timespec {
        tv_sec: left.as_secs() as i64,
        tv_nsec: i64::from(left.subsec_nanos()),
    };
    // Whatever ended the sleep, the caller checks again.
    let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&limit));
}

/// Wakes all sleepers on `word`, in all processes.
pub(crate) fn wake_at(word: &AtomicU32) {
    // This cannot fail for a mapped word.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}
