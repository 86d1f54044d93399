//! The governor: it decides how much of the budget is left for frames.
//!
//! The budget is a promise about memory as the system counts it, but the core counts only frames. All other memory has
//! to be subtracted: the core's tables, the compressed store, and, if the budget covers the whole process, everything
//! in the program that Millpond does not manage (its code, its libraries, thread stacks). That last part cannot be
//! known from inside; it is the difference between the memory that the kernel reports as resident and the frames that
//! we know about. So the limit is adjusted to it: whenever reclaim has run, at every tick, whenever faults have taken
//! another MiB, and at a fault if the last look is a millisecond old. The look after each MiB is for programs that fill
//! their memory before the first tick: python3 had loaded 10 MiB of libraries by then, filled what it believed to be
//! left of 29 MiB in 20 ms, and was at 38 MiB when reclaim first looked.
//!
//! The rest of the budget is shared with the store, if the store has another place besides RAM: a third of the rest may
//! hold compressed folios at first, and while the program runs, the gain from more or less is evaluated
//! (`store_share.rs`). A share of the whole budget does not work: python3 has 11 MiB of code in a budget of 22 MiB, its
//! store filled its quarter of them, and with the minimum that frames need the program was at 24 MiB. Neither does a
//! share that leaves the frames less than their minimum: with fifteen sixteenths of 16 MiB for compressed data, and 3
//! MiB of tables and buffers that no share covers, a program that sorted a vector was at 21 MiB for a minute.
//!
//! While memory is being given back, it is not known how much of it the kernel still counts, so the size of the rest of
//! the program is known only within bounds. It is assumed to be unchanged, as far as the bounds allow. When the
//! smallest possible size was assumed, a program that unmapped 7 MB exceeded its budget by 7 MB: its other threads
//! filled what the limit seemed to leave.
//!
//! Several threads look at once, and a thread may be descheduled between its look and its report. A look that began
//! before another one whose limit is already set is ignored. On a machine with ten threads for two processors a limit
//! from before a burst of saves was once set after them, and a program with a budget of 16 MiB was at 18.4 until the
//! next look.
//!
//! A floor keeps the frames usable even if the rest of the process alone is larger than the budget. Then the budget is
//! exceeded, which the peak shows.

use crate::driver::Driver;
use crate::fault::Patience;
use crate::memory::Memory;
use crate::signals::SignalsBlocked;
use crate::state::config::Charge;
use crate::state::governor::{FLOOR, LOOK_AT_TABLES, LOOK_EVERY};
use crate::state::store_share;
use millpond_core::{Commands, Event, PAGE_SIZE, PageCount, Reclaimer, VmStat};
use millpond_sync::atomic::Ordering;

impl<M: Memory> Driver<M> {
    /// Gives the compressed data of a store that takes `store` pages its share of the `left` pages, of which the frames
    /// have `frames`.
    fn limit_store(&self, store: u64, left: u64, frames: u32) {
        let most = match self.store.tiers() {
            // The limit is for compressed data. The store's tables and buffers come on top.
            Some(tiers) => {
                let share = left * u64::from(self.governor.store_share()) / store_share::WHOLE;
                let beside = store.saturating_sub(tiers.ram_bytes / PAGE_SIZE as u64);
                store_share::beside_frames(share, left.saturating_sub(beside), frames)
            }
            // Data that does not fit has no other place.
            None => left.saturating_sub(FLOOR),
        };
        self.store.limit_ram(most * PAGE_SIZE as u64);
    }

    /// Changes the budget, and frees the difference if it is lower than before. `bytes` is within the budget for which
    /// the manager was made.
    pub fn set_ram(&self, bytes: u64) {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        self.governor.ram.store(bytes, Ordering::Relaxed);
        self.adjust_limit();
        // Memory that cannot leave now (pinned, or the store is full) leaves as soon as it can.
        while self.lock().available() == PageCount::ZERO
            && self.reclaim_for(PageCount(1), Reclaimer::Direct, Patience::Wait)
        {}
        self.give_spare_frames_back();
    }

    /// [`adjust_limit`](Self::adjust_limit) for a thread outside the gate, as in tests.
    pub fn look(&self) {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        self.adjust_limit();
    }

    /// Sets the core's limit to what the budget leaves. Spare frames beyond the limit go back to the kernel at once:
    /// otherwise a fault that reclaimed 2 MiB held twice that, compressed and spare, until the next fault looked. So do
    /// those of a large excess, which the core leaves to batches: otherwise, if something else had grown by more than 2
    /// MiB between two looks, the reclaimed memory stayed, spare, until the next tick. For threads inside the gate.
    pub fn adjust_limit(&self) {
        let look = self.governor.begin_look();
        let ram = self.governor.ram() / PAGE_SIZE as u64;
        let frames_of =
            |vm: &VmStat| vm.nr_mapped + vm.nr_limbo + vm.nr_unhooked + vm.nr_free_frames;
        let seen = (self.governor.covers_process())
            .then(|| {
                let before = self.lock().stats();
                let resident = self.governor.resident()?;
                self.governor.has_looked();
                Some((before, resident))
            })
            .flatten();
        // The store is asked before the core's lock is taken.
        let store = match self.governor.charge {
            Charge::Frames => 0,
            _ => self.store.usage().ram_bytes / PAGE_SIZE as u64,
        };
        let mut core = self.lock();
        if !self.governor.is_latest(look) {
            return;
        }
        let now = core.stats();
        let frames = frames_of(&now);
        let tables = (core.metadata_bytes() + self.files.ram_bytes()) / PAGE_SIZE as u64;
        let others = match seen {
            // Faults continue while the kernel is asked: the frames that they add must not hide the program's own
            // memory. The store is included in the resident pages.
            Some((before, resident)) => {
                let unhooked = before.nr_unhooked.max(now.nr_unhooked);
                let least = frames.min(frames_of(&before));
                self.governor.others(resident, least, unhooked)
            }
            None => {
                let ahead = u64::from(self.mmu.huge_ready().0);
                store + tables + ahead
            }
        };
        if seen.is_some() {
            let own = others.saturating_sub(store + tables) * PAGE_SIZE as u64;
            self.governor.own_peak.fetch_max(own, Ordering::Relaxed);
        }
        let spoken_for = others + self.governor.headroom(ram);
        let pages = ram.saturating_sub(spoken_for).max(FLOOR.min(ram));
        let mut commands = Commands::new();
        let pages = PageCount(pages as u32);
        core.handle(Event::SetLimit { pages }, &mut commands);
        let every = match self.governor.charge {
            Charge::Process => LOOK_EVERY,
            Charge::Frames | Charge::FramesAndStore => LOOK_AT_TABLES,
        };
        let excess = core.spare_excess();
        let available = core.available();
        let next = available.0.saturating_sub(every);
        self.governor.look_below.store(next, Ordering::Relaxed);
        drop(core);
        self.spare_ahead(available);
        if self.governor.covers_store() {
            let left = ram.saturating_sub(spoken_for.saturating_sub(store));
            self.limit_store(store, left, pages.0);
        }
        self.carry_out(&mut commands);
        if excess > PageCount::ZERO {
            self.give_excess_back();
        }
        self.governor
            .peak
            .fetch_max((frames + others) * PAGE_SIZE as u64, Ordering::Relaxed);
    }
}
