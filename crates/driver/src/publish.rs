//! A manager's counters on a board, for `millpond stat`.
//!
//! A *board* is memory of this process that other processes of the same user (and root) can read; [`millpond_board`]
//! defines its format. The manager's own thread writes to it ten times a second, whatever the program does. A fault
//! neither writes to it nor waits for it.
//!
//! All managers of a process share a board, each with its own slot. The board is made with the first manager that asks
//! for it, and its descriptor stays open from then on: other processes find the board by the descriptor. A program that
//! closes unknown descriptors also closes this one; the only effect is that the board is no longer found.

mod figures;

pub use figures::{StorePeaks, fields, set_pressure};

use crate::pressure::Pressure;
use crate::stats::Stats;
use millpond_board::{Board, BoardError, Field, Fields, SlotWriter, State, now_ns};
use millpond_sync::{ForkOnce, OnceBox, Rank};
use rustix::fs::{Mode, OFlags};
use std::ffi::CStr;
use std::os::fd::OwnedFd;

/// The board of this process, and the descriptor that other processes open.
static OWN: OnceBox<(Board, OwnedFd)> = OnceBox::new();
static MADE: ForkOnce = ForkOnce::new(Rank::Board);

/// A manager's slot.
pub struct Publisher {
    slot: SlotWriter,
    /// The process that claimed the slot: a forked child has the mapping, but the slot is its parent's.
    pid: u32,
    since_ns: u64,
    peaks: StorePeaks,
}

impl Publisher {
    /// Claims a slot of the board of this process under `name`.
    ///
    /// # Errors
    /// The board could not be made, or has no free slot.
    pub fn new(name: &str) -> Result<Self, BoardError> {
        MADE.try_call(|| {
            let made = Board::create(name)?;
            OWN.get_or_init(|| Box::new(made));
            Ok(())
        })?;
        let (board, _) = OWN.get().expect("it was made");
        let pid = std::process::id();
        Ok(Self {
            slot: board.claim_beside(pid, name)?,
            pid,
            since_ns: now_ns(),
            peaks: StorePeaks::new(),
        })
    }

    /// Writes the counters to the board. A forked child writes nothing.
    pub fn publish(&self, stats: &Stats, pressure: &Pressure) {
        if std::process::id() != self.pid {
            return;
        }
        let mut fields = fields(stats, &self.peaks);
        set_pressure(&mut fields, pressure);
        resident().write_to(&mut fields);
        fields.set(Field::Wall, now_ns().saturating_sub(self.since_ns));
        self.slot.publish(State::Running, &fields);
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        if std::process::id() == self.pid {
            self.slot.release();
        }
    }
}

/// Resident bytes of the process, as the kernel counts them; zeros if `/proc` is missing.
#[derive(Clone, Copy, Default, Debug)]
pub struct Resident {
    /// Bytes that are resident now.
    pub now: u64,
    /// Most bytes that were resident so far.
    pub peak: u64,
    /// Bytes of files' pages among those that are resident now: code, libraries, mapped files.
    pub files: u64,
    /// Bytes of shared memory among those that are resident now.
    pub shared: u64,
}

impl Resident {
    /// Writes the figures to a board's fields.
    pub fn write_to(&self, fields: &mut Fields) {
        fields.set(Field::Rss, self.now);
        fields.set(Field::PeakRss, self.peak);
        fields.set(Field::RssFiles, self.files);
        fields.set(Field::RssShared, self.shared);
    }
}

/// Resident bytes of the process. Allocates nothing.
#[must_use]
pub fn resident() -> Resident {
    const STATUS: &CStr = c"/proc/self/status";
    let mut buffer = [0u8; 4096];
    let read = rustix::fs::open(STATUS, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|file| rustix::io::read(&file, &mut buffer[..]))
        .unwrap_or(0);
    let text = core::str::from_utf8(&buffer[..read]).unwrap_or("");
    let kib = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or("");
        line.split_whitespace()
            .next()
            .and_then(|n| n.parse::<u64>().ok())
            .unwrap_or(0)
            << 10
    };
    Resident {
        now: kib("VmRSS:"),
        peak: kib("VmHWM:"),
        files: kib("RssFile:"),
        shared: kib("RssShmem:"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_set_is_read_from_proc() {
        let resident = resident();
        assert!(resident.now > 1 << 20 && resident.peak >= resident.now);
        assert!(resident.files > 1 << 18 && resident.now > resident.files + resident.shared);
    }
}
