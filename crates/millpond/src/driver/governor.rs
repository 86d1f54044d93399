//! The governor: how much of the budget is left for frames.
//!
//! The budget is a promise about memory as the system counts it, but the core counts frames only. What else is there
//! has to come off: the core's tables, the compressed store, and, when the budget covers the whole process,
//! everything the program has that Millpond does not manage (its code, its libraries, thread stacks). The last is
//! not knowable from inside; it is the difference between what the kernel says is resident and the frames that
//! we know of. So the limit follows it: whenever reclaim has run, at every tick, and whenever faults have taken another
//! MiB. The last is for programs that fill their memory before the first tick: python3 had loaded 10 MiB of libraries
//! by then, filled what it believed to be left of 29 MiB in 20 ms, and stood at 38 MiB when reclaim first looked.
//!
//! What is left after that is shared with the store, where the store has another place than RAM: a third of it may hold
//! compressed folios at first, and what the program gains by more or less is weighed while it runs (`store_share.rs`).
//! A share of the whole budget would not do: python3 has 11 MiB of code in a budget of 22, its store filled its quarter
//! of them, and with the least that frames need the program stood at 24.
//!
//! While memory is given back, nobody knows how much of it the kernel still counts, so that the rest of the program is
//! known within bounds only: it is taken to be what it was, as far as that is possible. Taken for as small as it could
//! be, a program that unmapped 7 MB stood 7 MB above its budget: its other threads filled what the limit seemed to
//! leave.
//!
//! A floor keeps the frames workable when the rest of the process alone is larger than the budget. Then the budget is
//! exceeded, which the peak shows.

use super::fork::out_of_the_way;
use super::lock::{Rank, Ranked};
use super::{Charge, Driver, store_share};
use crate::signals::SignalsBlocked;
use millpond_core::{Commands, Event, PAGE_SIZE, PageCount, Reclaimer, VmStat};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::fs::{Mode, OFlags};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Share of a budget for the whole process that is kept for what is in flight, as a divisor: copies on their way in,
/// a batch on its way out, and what the program adds between two looks at its size. Without it the kernel's own high
/// mark was 1.7 MiB above a budget of 64 MiB in a program that faults 8,000 folios a second.
const HEADROOM: u64 = 32;
/// The least of it, in pages: a batch on its way is as large under a small budget as under a large one.
const LEAST_HEADROOM: u64 = 256;
/// The limit never goes below this many pages (2 MiB): with less, reclaim and fault would take turns on single folios.
const FLOOR: u64 = 512;
/// Pages that faults may take between two looks at the process's size, …
const LOOK_EVERY: u32 = 256;
/// … and where only tables have to come off, which grow by 56 bytes for a page of 4 KiB. A fill of 256 MiB that was
/// through before the first tick once stood 3.6 MiB above its budget.
const LOOK_AT_TABLES: u32 = 4096;

#[derive(Debug)]
pub(crate) struct Governor {
    ram: AtomicU64,
    /// What tables and pool were made for.
    most: u64,
    charge: Charge,
    peak: AtomicU64,
    /// Pages of the process that are not managed, when last looked at.
    others: AtomicU64,
    /// Available pages below which the next fault looks at the process's size.
    look_below: AtomicU32,
    /// The store's share of what the rest of the program leaves, in 1/[`store_share::WHOLE`].
    store_share: AtomicU32,
    /// `/proc/self/statm`, opened once: reading it again costs about a microsecond.
    statm: Ranked<Option<OwnedFd>>,
}

impl Governor {
    pub(crate) fn new(ram: u64, charge: Charge) -> Self {
        let statm = (charge == Charge::Process).then(open_statm).flatten();
        Self {
            ram: AtomicU64::new(ram),
            most: ram,
            charge,
            peak: AtomicU64::new(0),
            others: AtomicU64::new(0),
            look_below: AtomicU32::new(0),
            store_share: AtomicU32::new(store_share::BEGIN),
            statm: Ranked::new(Rank::Figures, statm),
        }
    }

    pub(crate) fn ram(&self) -> u64 {
        self.ram.load(Ordering::Relaxed)
    }

    /// Whether store and frames share the budget.
    pub(super) fn covers_store(&self) -> bool {
        self.charge != Charge::Frames
    }

    pub(super) fn store_share(&self) -> u32 {
        self.store_share.load(Ordering::Relaxed)
    }

    pub(super) fn set_store_share(&self, share: u32) {
        self.store_share.store(share, Ordering::Relaxed);
    }

    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Whether a fault that left `available` pages has to look at what the limit should be.
    pub(crate) fn is_look_due(&self, available: PageCount) -> bool {
        available.0 < self.look_below.load(Ordering::Relaxed)
    }

    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        self.statm.lock().as_ref().map(AsRawFd::as_raw_fd)
    }

    /// In a child: what was inherited tells of the parent.
    pub(crate) fn reopen(&self) {
        let mut statm = self.statm.lock();
        if statm.is_some() {
            *statm = open_statm();
        }
        self.peak.store(0, Ordering::Relaxed);
        self.others.store(0, Ordering::Relaxed);
    }

    /// Pages of the process that are not managed. `unhooked` of its frames may have left already.
    fn others(&self, resident: u64, frames: u64, unhooked: u64) -> u64 {
        let least = resident.saturating_sub(frames);
        let others = self.others.load(Ordering::Relaxed);
        let others = others.clamp(least, least + unhooked);
        self.others.store(others, Ordering::Relaxed);
        others
    }

    /// Resident pages of the process, as the kernel counts them.
    fn resident(&self) -> Option<u64> {
        let mut text = [0; 128];
        let n = rustix::io::pread(self.statm.lock().as_ref()?, &mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..n]).ok()?;
        text.split(' ').nth(1)?.parse().ok()
    }
}

fn open_statm() -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open(c"/proc/self/statm", flags, Mode::empty())
        .ok()
        .map(out_of_the_way)
}

fn headroom(ram: u64) -> u64 {
    (ram / HEADROOM).max(LEAST_HEADROOM)
}

impl Driver {
    /// Changes the budget, and makes the rest of it free when it is lower than before. `bytes` is within what the
    /// manager was made for.
    pub(crate) fn set_ram(&self, bytes: u64) {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        self.governor.ram.store(bytes, Ordering::Relaxed);
        self.adjust_limit();
        // What cannot be had now (pinned, or the store is full) is had as soon as it can be.
        while self.lock().available() == PageCount::ZERO
            && self.reclaim_for(PageCount(1), Reclaimer::Direct)
        {}
        self.give_spare_frames_back();
    }

    /// Sets the core's limit to what the budget leaves. Spare frames beyond it go back to the kernel at once: a fault
    /// that reclaimed 2 MiB stood at twice that, compressed and spare, until the next one looked. For threads inside
    /// the gate.
    pub(crate) fn adjust_limit(&self) {
        let ram = self.governor.ram() / PAGE_SIZE as u64;
        let frames_of =
            |vm: &VmStat| vm.nr_mapped + vm.nr_limbo + vm.nr_unhooked + vm.nr_free_frames;
        let seen = (self.governor.charge == Charge::Process)
            .then(|| {
                let before = self.lock().stats();
                Some((before, self.governor.resident()?))
            })
            .flatten();
        // Asked before the core's lock is taken.
        let store = match self.governor.charge {
            Charge::Frames => 0,
            _ => self.store.usage().ram_bytes / PAGE_SIZE as u64,
        };
        let mut core = self.lock();
        let now = core.stats();
        let frames = frames_of(&now);
        let others = match seen {
            // Faults go on while the kernel is asked: what they add must not hide what the program has. The store is in
            // it.
            Some((before, resident)) => {
                let unhooked = before.nr_unhooked.max(now.nr_unhooked);
                let least = frames.min(frames_of(&before));
                self.governor.others(resident, least, unhooked)
            }
            None => {
                let ahead = u64::from(self.mmu.huge_ready().0);
                store + core.metadata_bytes() / PAGE_SIZE as u64 + ahead
            }
        };
        let spoken_for = others + seen.map_or(0, |_| headroom(ram));
        let pages = ram.saturating_sub(spoken_for).max(FLOOR.min(ram));
        let mut commands = Commands::new();
        let pages = PageCount(pages as u32);
        core.handle(Event::SetLimit { pages }, &mut commands);
        let every = match self.governor.charge {
            Charge::Process => LOOK_EVERY,
            Charge::Frames | Charge::FramesAndStore => LOOK_AT_TABLES,
        };
        let available = core.available();
        let next = available.0.saturating_sub(every);
        self.governor.look_below.store(next, Ordering::Relaxed);
        drop(core);
        self.spare_ahead(available);
        if self.governor.covers_store() {
            let left = ram.saturating_sub(spoken_for.saturating_sub(store));
            let share = left * u64::from(self.governor.store_share()) / store_share::WHOLE;
            self.store.limit_ram(share * PAGE_SIZE as u64);
        }
        self.carry_out(&mut commands);
        self.governor
            .peak
            .fetch_max((frames + others) * PAGE_SIZE as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is given back has left the process, and is counted as a frame until its batch ends.
    #[test]
    fn what_is_being_given_back_does_not_hide_the_rest_of_the_program() {
        let governor = Governor::new(64 << 20, Charge::Frames);
        assert_eq!(governor.others(5000, 3000, 0), 2000);
        // 1800 pages go, and are still counted: none, some, all of them have left.
        assert_eq!(governor.others(5000, 3000, 1800), 2000);
        assert_eq!(governor.others(4000, 3000, 1800), 2000);
        assert_eq!(governor.others(3200, 3000, 1800), 2000);
        // The program grows, and shrinks, meanwhile, by more than can be explained so.
        assert_eq!(governor.others(5500, 3000, 1800), 2500);
        assert_eq!(governor.others(3100, 3000, 1800), 1900);
        // All is known again.
        assert_eq!(governor.others(3100, 1200, 0), 1900);
        assert_eq!(governor.others(2700, 1200, 0), 1500);
    }
}
