//! The budget, and how much of it the frames may have (`governor.rs`).

use crate::state::children::out_of_the_way;
use crate::state::config::Charge;
use crate::state::file_room::FileRoom;
use crate::state::store_share;
use millpond_core::PageCount;
use millpond_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use millpond_sync::time::Instant;
use millpond_sync::{Rank, Ranked};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::fs::{Mode, OFlags};
use std::time::Duration;

/// Divisor of a budget for the whole process: this share is kept for memory in flight. Such memory is copies on their
/// way in, a batch on its way out, and memory that the program adds between two looks at its size. Without headroom,
/// the kernel's own high mark was 1.7 MiB above a budget of 64 MiB in a program that faults 8,000 folios a second.
pub(crate) const HEADROOM: u64 = 32;

/// Least headroom, in pages: a batch on its way is as large under a small budget as under a large one.
pub(crate) const LEAST_HEADROOM: u64 = 256;

/// Least limit, in pages (2 MiB): with less, reclaim and fault would take turns on single folios.
pub(crate) const FLOOR: u64 = 512;

/// Pages that faults may take between two looks at the process's size.
pub(crate) const LOOK_EVERY: u32 = 256;

/// Pages that faults may take between two looks if only tables are subtracted, which grow by 56 bytes for a page of 4
/// KiB. A fill of 256 MiB that ended before the first tick once exceeded its budget by 3.6 MiB.
pub(crate) const LOOK_AT_TABLES: u32 = 4096;

/// Longest time between two looks at the process's size while faults come. When a compiler enters its next phase, the
/// kernel maps 500 pages of its code in three milliseconds, during which it faults too rarely to make a look due by the
/// number of faults. One look takes two microseconds.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Pages that a thread may have taken unreported on a kernel before Linux 6.2 (`TASK_RSS_EVENTS_THRESH`): there each
/// thread counts its own faults, and adds 64 at a time to the process's reported size.
const UNTOLD: u64 = 64;

/// Maximum part of the budget that is kept free for unreported pages of threads, as a divisor.
const UNTOLD_MOST: u64 = 12;

#[derive(Debug)]
pub struct Governor {
    pub(crate) ram: AtomicU64,
    /// The budget for which tables and pool were made.
    pub(crate) most: u64,
    pub(crate) charge: Charge,
    pub(crate) peak: AtomicU64,
    /// Maximum size seen of the program's own code and data, which are neither managed nor Millpond's.
    pub(crate) own_peak: AtomicU64,
    /// Pages of the process that are not managed, as of the last look.
    pub(crate) others: AtomicU64,
    /// Available pages below which the next fault looks at the process's size.
    pub(crate) look_below: AtomicU32,
    /// Time of the last look, in microseconds after `begun`.
    looked: AtomicU64,
    begun: Instant,
    /// Looks that have begun, and the latest of them whose limit was set.
    looks: AtomicU64,
    set_by: AtomicU64,
    /// The store's share of the budget that the rest of the program leaves, in 1/[`store_share::WHOLE`].
    pub(crate) store_share: AtomicU32,
    file_room: FileRoom,
    /// Pages that the process's threads may have unreported; none if the kernel counts per process.
    untold: AtomicU64,
    /// `/proc/self/statm`, opened once: reading it again costs about a microsecond.
    pub(crate) statm: Ranked<Option<OwnedFd>>,
}

impl Governor {
    pub fn new(ram: u64, charge: Charge) -> Self {
        let statm = (charge == Charge::Process).then(open_statm).flatten();
        let made = Self {
            ram: AtomicU64::new(ram),
            most: ram,
            charge,
            peak: AtomicU64::new(0),
            own_peak: AtomicU64::new(0),
            others: AtomicU64::new(0),
            look_below: AtomicU32::new(0),
            looked: AtomicU64::new(0),
            begun: Instant::now(),
            looks: AtomicU64::new(0),
            set_by: AtomicU64::new(0),
            store_share: AtomicU32::new(store_share::BEGIN),
            file_room: FileRoom::default(),
            untold: AtomicU64::new(0),
            statm: Ranked::new(Rank::Figures, statm),
        };
        made.count_untold();
        made
    }

    pub fn ram(&self) -> u64 {
        self.ram.load(Ordering::Relaxed)
    }

    /// Whether store and frames share the budget.
    pub fn covers_store(&self) -> bool {
        self.charge != Charge::Frames
    }

    /// Whether the budget covers all memory of the process.
    pub fn covers_process(&self) -> bool {
        self.charge == Charge::Process
    }

    pub fn store_share(&self) -> u32 {
        self.store_share.load(Ordering::Relaxed)
    }

    pub fn set_store_share(&self, share: u32) {
        self.store_share.store(share, Ordering::Relaxed);
    }

    pub fn most(&self) -> u64 {
        self.most
    }

    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    pub fn own_peak(&self) -> u64 {
        self.own_peak.load(Ordering::Relaxed)
    }

    /// Whether a fault that left `available` pages has to check what the limit should be.
    pub fn is_look_due(&self, available: PageCount) -> bool {
        available.0 < self.look_below.load(Ordering::Relaxed)
    }

    /// Whether at `now` the last look at the process's size is so old that a fault has to look again. Only the thread
    /// that gets this answer looks.
    pub fn is_look_old(&self, now: Instant) -> bool {
        if !self.covers_process() {
            return false;
        }
        let now = self.since_begun(now);
        let looked = self.looked.load(Ordering::Relaxed);
        now.saturating_sub(looked) >= LOOK_AGAIN.as_micros() as u64
            && self
                .looked
                .compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// The number of a look at the use of memory, which begins now.
    pub(crate) fn begin_look(&self) -> u64 {
        self.looks.fetch_add(1, Ordering::AcqRel)
    }

    /// Whether no look that began after the one with this number has set the limit; then this one should set it. The
    /// caller holds the core.
    pub(crate) fn is_latest(&self, look: u64) -> bool {
        self.set_by.fetch_max(look, Ordering::Relaxed) <= look
    }

    /// Notes that a thread has just looked at the process's size.
    pub(crate) fn has_looked(&self) {
        let now = self.since_begun(Instant::now());
        self.looked.store(now, Ordering::Relaxed);
    }

    fn since_begun(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.begun).as_micros() as u64
    }

    pub fn descriptor(&self) -> Option<RawFd> {
        self.statm.lock().as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Reopens the process's figures in a child: the inherited descriptor is about the parent.
    pub fn reopen(&self) {
        let mut statm = self.statm.lock();
        if statm.is_some() {
            *statm = open_statm();
        }
        self.peak.store(0, Ordering::Relaxed);
        self.own_peak.store(0, Ordering::Relaxed);
        self.others.store(0, Ordering::Relaxed);
        self.file_room.forget();
    }

    /// Finds out how many pages the process's threads may have unreported. Because of such pages, a python3 with five
    /// threads in 19 MiB once exceeded its budget by 1.5 MiB, on Linux 5.10 and 6.1.
    pub fn count_untold(&self) {
        if self.covers_process() && counts_by_thread(&rustix::system::uname()) {
            self.untold.store(UNTOLD * threads(), Ordering::Relaxed);
        }
    }

    /// Pages of a budget of `ram` pages that are kept free: for memory in flight, for files' pages that arrive at once,
    /// and for memory that the kernel does not report.
    pub(crate) fn headroom(&self, ram: u64) -> u64 {
        let untold = self.untold.load(Ordering::Relaxed).min(ram / UNTOLD_MOST);
        let in_flight = self.charge.headroom(ram);
        in_flight + self.file_room.burst(ram, in_flight) + untold
    }

    /// Pages of the process that are not managed. Of its frames, `unhooked` may have left already.
    pub(crate) fn others(&self, resident: u64, frames: u64, unhooked: u64) -> u64 {
        let least = resident.saturating_sub(frames);
        let others = self.others.load(Ordering::Relaxed);
        let others = others.clamp(least, least + unhooked);
        self.others.store(others, Ordering::Relaxed);
        others
    }

    /// Resident pages of the process, as the kernel counts them, and those that are kept free for pages of files.
    pub(crate) fn resident(&self) -> Option<u64> {
        let mut text = [0; 128];
        let n = rustix::io::pread(self.statm.lock().as_ref()?, &mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..n]).ok()?;
        let mut figures = text.split(' ').skip(1).map(str::parse::<u64>);
        let (resident, of_files) = (figures.next()?.ok()?, figures.next()?.ok()?);
        let now = self.since_begun(Instant::now());
        Some(resident + self.file_room.kept(of_files, now))
    }
}

/// Whether this kernel's threads count their own pages: kernels before Linux 6.2 do that.
fn counts_by_thread(kernel: &rustix::system::Uname) -> bool {
    is_before_6_2(&kernel.release().to_string_lossy())
}

fn is_before_6_2(release: &str) -> bool {
    let mut numbers = release.split(['.', '-', '+']).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < (6, 2),
        _ => false,
    }
}

/// The number of threads in the process: the eighteenth word behind its name, which may itself have several words.
fn threads() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let words = text.rsplit_once(')').map_or("", |(_, words)| words);
    let count = words.split_whitespace().nth(17).map(str::parse);
    count.and_then(Result::ok).unwrap_or(1)
}

pub(crate) fn open_statm() -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open(c"/proc/self/statm", flags, Mode::empty())
        .ok()
        .map(out_of_the_way)
}

impl Charge {
    /// Pages of a budget of `ram` pages that are kept free for memory in flight.
    ///
    /// If the budget covers the store, a leaving batch exists twice, as frames and as compressed data, until its frames
    /// are given back: a library with 16 MiB once had 1.1 too many, and one with 128 had 3.3. A small budget keeps less
    /// free, as its batches are smaller.
    pub(crate) fn headroom(self, ram: u64) -> u64 {
        match self {
            Self::Process => (ram / HEADROOM).max(LEAST_HEADROOM),
            Self::FramesAndStore => (ram / HEADROOM).max(LEAST_HEADROOM.min(ram / 16)),
            Self::Frames => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_count_by_thread_are_recognized_by_version() {
        for old in [
            "5.10.0-32-cloud-amd64",
            "6.1.176",
            "6.1.0-30-amd64",
            "5.15.0",
        ] {
            assert!(is_before_6_2(old), "{old}");
        }
        for new in [
            "6.2.0",
            "6.12.117+deb13-cloud-amd64",
            "7.3.4",
            "6.18.44-fc-v669",
            "?",
        ] {
            assert!(!is_before_6_2(new), "{new}");
        }
        assert!(threads() >= 1);
    }

    /// Memory that is being given back may have left the process, and is counted as a frame until its batch ends.
    #[test]
    fn memory_being_given_back_does_not_hide_the_programs_other_memory() {
        let governor = Governor::new(64 << 20, Charge::Frames);
        assert_eq!(governor.others(5000, 3000, 0), 2000);
        // 1800 pages are being given back and are still counted as frames: none, some, all of them have left.
        assert_eq!(governor.others(5000, 3000, 1800), 2000);
        assert_eq!(governor.others(4000, 3000, 1800), 2000);
        assert_eq!(governor.others(3200, 3000, 1800), 2000);
        // In the meantime the program grows, and shrinks, by more than these pages can explain.
        assert_eq!(governor.others(5500, 3000, 1800), 2500);
        assert_eq!(governor.others(3100, 3000, 1800), 1900);
        // Nothing is being given back any longer, so everything is known again.
        assert_eq!(governor.others(3100, 1200, 0), 1900);
        assert_eq!(governor.others(2700, 1200, 0), 1500);
    }

    #[test]
    fn one_fault_looks_again_when_the_last_look_is_old() {
        let governor = Governor::new(64 << 20, Charge::Process);
        let after = |time| governor.begun + time;
        assert!(!governor.is_look_old(after(LOOK_AGAIN / 2)));
        assert!(governor.is_look_old(after(LOOK_AGAIN)));
        assert!(!governor.is_look_old(after(LOOK_AGAIN)));
        assert!(governor.is_look_old(after(LOOK_AGAIN * 2)));
        assert!(!Governor::new(64 << 20, Charge::Frames).is_look_old(after(LOOK_AGAIN)));
    }
}
