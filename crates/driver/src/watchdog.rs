//! The watchdog: reports faults that wait too long.
//!
//! If a fault is not served, the program hangs silently, and its user only sees a thread in the kernel. So each fault
//! that has to wait writes its page into a small table, and a dedicated thread checks the table once a second. When a
//! fault has waited for ten seconds the thread reports it, with the cause of the wait, and again each time the wait has
//! doubled. The watchdog does not intervene: a file on a slow network may answer after a minute.
//!
//! *Independence.* The thread takes no lock that a fault needs. It tries the core's lock, and if every try finds it
//! held, the message says so. The watchdog is not the reclaim thread, which may be the one that hangs.
//!
//! *What it costs.* A fault that is served at once writes nothing; a fault that loads, reclaims or waits writes two
//! words. The table has a fixed size. If it is full, a fault is not watched, but those in the table show the same
//! problem.
//!
//! *Sleepers.* With a handler, a thread that finds its page in flight sleeps in the kernel and holds nothing here. Its
//! page stays in the table until a look finds it no longer in flight, so the length of such a wait is known only to the
//! second.

use crate::driver::Driver;
use crate::memory::Memory;
use crate::panics::Ours;
use crate::recent::Witnessed;
use crate::signals::SignalsBlocked;
use crate::state::watchdog::Slot;
use millpond_core::{PageIndex, PageState};
use millpond_mmu::report;
use millpond_sync::atomic::Ordering::SeqCst;
use millpond_sync::{Held, OwnThread, thread};
use std::sync::Arc;
use std::time::Duration;

/// Interval between looks.
const LOOK: Duration = Duration::from_secs(1);
/// How long a fault may wait before it is reported.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of tries for the core's lock at one look.
const TRIES: u32 = 1000;
/// The watchdog's stack: the thread formats a line.
const STACK: usize = 128 << 10;

impl<M: Memory> Driver<M> {
    /// Starts the thread, with all signals blocked. It uses no descriptor and takes no lock.
    pub fn start_watching(self: &Arc<Self>) -> std::io::Result<OwnThread> {
        self.watchdog.forget();
        self.watchdog.stop.store(0);
        let driver = Arc::clone(self);
        let _quiet = SignalsBlocked::new();
        OwnThread::start_with_stack(c"millpond-watch", STACK, move || {
            let _ours = Ours::enter();
            driver.watch();
        })
    }

    /// Asks the thread to end. The caller joins it.
    pub fn stop_watching(&self) {
        self.watchdog.stop.store(1);
        self.watchdog.stop.wake();
    }

    fn watch(&self) {
        while self.watchdog.stop.load() == 0 {
            self.watchdog.stop.wait(0, Some(LOOK));
            #[cfg(feature = "provoke")]
            crate::provoke::here(crate::provoke::Kind::Watchdog);
            let now = self.watchdog.now();
            for slot in &self.watchdog.slots {
                self.look_at(slot, now);
            }
        }
    }

    fn look_at(&self, slot: &Slot, now: u32) {
        let number = slot.page.load(SeqCst);
        if number == 0 {
            return;
        }
        let page = PageIndex(number - 1);
        let waited = now.saturating_sub(slot.since.load(SeqCst));
        if slot.asleep.load(SeqCst) == 1 && self.has_landed(page) {
            slot.page.store(0, SeqCst);
            return;
        }
        let due = (2 * slot.named.load(SeqCst)).max(PATIENCE.as_millis() as u32);
        if waited < due {
            return;
        }
        slot.named.store(waited, SeqCst);
        self.name_wait(page, waited / 1000);
    }

    /// Whether the page at which a thread slept is no longer in flight. False while the core is held, because then it
    /// is not known.
    fn has_landed(&self, page: PageIndex) -> bool {
        let in_flight = |core: &millpond_core::Core| {
            core.page_state(page) == PageState::InFlight || core.is_leaving(page)
        };
        self.try_core().is_some_and(|core| !in_flight(&core))
    }

    fn try_core(&self) -> Option<Held<'_, Witnessed>> {
        (0..TRIES).find_map(|_| {
            let core = self.core.try_lock();
            if core.is_none() {
                thread::yield_now();
            }
            core
        })
    }

    fn name_wait(&self, page: PageIndex, seconds: u32) {
        let addr = self.mmu.address(page);
        match self.try_core() {
            Some(core) => {
                let standing = core.standing(page);
                drop(core);
                report::line(format_args!(
                    "a fault at {addr:#x} has waited for {seconds} s: {standing}"
                ));
            }
            None => report::line(format_args!(
                "a fault at {addr:#x} has waited for {seconds} s: the core's lock is held by another thread"
            )),
        }
    }
}
