//! Who waits too long is named.
//!
//! A fault that is not served is a program that hangs without a word, and whoever looks at it sees a thread in the
//! kernel. So each fault that has to wait writes its page into a small table, and a thread of its own looks at the
//! table once a second. Where one has waited for ten seconds it says so, with what it waits for, and again each time
//! the wait has doubled. It changes nothing: a file on a slow network may answer after a minute.
//!
//! *Apart from everything.* The thread takes no lock that a fault needs. It tries the core's, and if that is held each
//! time it looks, this is what it says. It is not the thread that reclaims, which may be what hangs.
//!
//! *What it costs.* A fault that is served at once writes nothing; one that loads, reclaims or waits writes two words.
//! The table is of fixed size. Where it is full the fault is not watched, and the others in it tell the same story.
//!
//! *Sleepers.* With a handler a thread that finds its page in flight sleeps in the kernel and holds nothing here. Its
//! page stays in the table until a look finds it in flight no more, so such a wait is known to the second only.

use super::Driver;
use millpond_core::{PAGE_SIZE, PageIndex, PageState};
use millpond_mmu::{panics::Ours, report};
use rustix::thread::futex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Faults that are watched at once.
const SLOTS: usize = 64;
/// How often the thread looks.
const LOOK: Duration = Duration::from_secs(1);
/// How long a fault may wait unnamed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Tries for the core's lock at one look.
const TRIES: u32 = 1000;
/// Its stack: it formats a line.
const STACK: usize = 128 << 10;

/// A page that is waited for. A number is one more than the page's, and zero where the slot is free.
struct Slot {
    page: AtomicU32,
    /// When the wait began, in milliseconds of the table's clock.
    since: AtomicU32,
    /// For how long it has been named, in milliseconds.
    named: AtomicU32,
    /// Nobody here holds the slot: the thread sleeps in the kernel.
    asleep: AtomicU32,
}

/// The table, and how its thread is stopped.
pub(crate) struct Watchdog {
    slots: [Slot; SLOTS],
    start: Instant,
    stop: AtomicU32,
}

/// A fault waits while the value lives.
pub(crate) struct Waiting<'a>(Option<&'a Slot>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            slot.page.store(0, SeqCst);
        }
    }
}

impl Watchdog {
    pub(super) fn new() -> Self {
        let slot = || Slot {
            page: AtomicU32::new(0),
            since: AtomicU32::new(0),
            named: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
        };
        Self {
            slots: std::array::from_fn(|_| slot()),
            start: Instant::now(),
            stop: AtomicU32::new(0),
        }
    }

    fn now(&self) -> u32 {
        self.start.elapsed().as_millis() as u32
    }

    /// A fault at `page` is not served at once.
    pub(super) fn waits(&self, page: PageIndex) -> Waiting<'_> {
        Waiting(self.take(page, 0))
    }

    /// A thread sleeps at `page`, and whoever lands that wakes it.
    pub(super) fn sleeps(&self, page: PageIndex) {
        let known =
            |slot: &Slot| slot.page.load(SeqCst) == page.0 + 1 && slot.asleep.load(SeqCst) == 1;
        if !self.slots.iter().any(known) {
            self.take(page, 1);
        }
    }

    fn take(&self, page: PageIndex, asleep: u32) -> Option<&Slot> {
        let number = page.0 + 1;
        let first = number as usize;
        let free = |slot: &&Slot| {
            slot.page.load(SeqCst) == 0
                && slot
                    .page
                    .compare_exchange(0, number, SeqCst, SeqCst)
                    .is_ok()
        };
        let mut slots = (0..SLOTS).map(|n| &self.slots[(first + n) % SLOTS]);
        let slot = slots.find(free)?;
        slot.since.store(self.now(), SeqCst);
        slot.named.store(0, SeqCst);
        slot.asleep.store(asleep, SeqCst);
        Some(slot)
    }

    /// In the child of a fork: nobody waits there.
    pub(super) fn forget(&self) {
        for slot in &self.slots {
            slot.page.store(0, SeqCst);
        }
    }
}

impl Driver {
    /// Starts the thread, with all signals blocked. It uses no descriptor and takes no lock.
    pub(crate) fn start_watching(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        self.watchdog.forget();
        self.watchdog.stop.store(0, SeqCst);
        let driver = Arc::clone(self);
        let _quiet = crate::signals::SignalsBlocked::new();
        let thread = std::thread::Builder::new().name("millpond-watch".into());
        thread.stack_size(STACK).spawn(move || {
            let _ours = Ours::enter();
            driver.watch();
        })
    }

    /// Asks the thread to end; joining it is the caller's.
    pub(crate) fn stop_watching(&self) {
        self.watchdog.stop.store(1, SeqCst);
        let _ = futex::wake(&self.watchdog.stop, futex::Flags::PRIVATE, 1);
    }

    fn watch(&self) {
        let limit = futex::Timespec {
            tv_sec: LOOK.as_secs() as i64,
            tv_nsec: 0,
        };
        while self.watchdog.stop.load(SeqCst) == 0 {
            let _ = futex::wait(&self.watchdog.stop, futex::Flags::PRIVATE, 0, Some(&limit));
            #[cfg(test)]
            super::provoke::here(super::provoke::Kind::Watchdog);
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

    /// Whether the page that somebody slept at is in flight no more. Not known while the core is held.
    fn has_landed(&self, page: PageIndex) -> bool {
        let in_flight = |core: &millpond_core::Core| {
            core.page_state(page) == PageState::InFlight || core.is_leaving(page)
        };
        self.try_core().is_some_and(|core| !in_flight(&core))
    }

    fn try_core(&self) -> Option<super::lock::Held<'_, super::recent::Witnessed>> {
        (0..TRIES).find_map(|_| {
            let core = self.core.try_lock();
            if core.is_none() {
                rustix::thread::sched_yield();
            }
            core
        })
    }

    fn name_wait(&self, page: PageIndex, seconds: u32) {
        let addr = self.mmu.addr_of(page) as usize & !(PAGE_SIZE - 1);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Manager, Order};
    use millpond_core::port::{LoadError, SaveError, Saved, Store, StoreUsage};
    use millpond_core::{SlotId, SlotPart};
    use millpond_store::{CompressedRam, CompressedRamConfig};
    use std::process::Command;

    /// A store whose next load takes longer than the watchdog's patience, as a device does that has gone away.
    struct Asleep(CompressedRam);

    static LOADS_ARE_SLOW: AtomicU32 = AtomicU32::new(0);

    impl Store for Asleep {
        fn save(
            &self,
            slot: SlotId,
            previous: Option<SlotPart>,
            data: &[u8],
        ) -> Result<Saved, SaveError> {
            self.0.save(slot, previous, data)
        }

        fn load(&self, slot: SlotId, first_page: u16, out: &mut [u8]) -> Result<(), LoadError> {
            if LOADS_ARE_SLOW.swap(0, SeqCst) == 1 {
                std::thread::sleep(PATIENCE + 2 * LOOK);
            }
            self.0.load(slot, first_page, out)
        }

        fn release(&self, slot: SlotId) {
            self.0.release(slot);
        }

        fn usage(&self) -> StoreUsage {
            self.0.usage()
        }

        fn after_fork_in_child(&self) -> Result<(), i32> {
            self.0.after_fork_in_child()
        }

        fn before_fork(&self, child: u64) {
            self.0.before_fork(child);
        }

        fn child_gone(&self, child: u64) {
            self.0.child_gone(child);
        }
    }

    /// Reads a page of a managed region whose load does not come back for twelve seconds.
    fn wait_for_a_load() {
        const RAM: usize = 16 << 20;
        let mut builder = Manager::builder().ram(RAM as u64).order(Order::ZERO);
        builder.test_store = Some(|| {
            let store = CompressedRam::new(CompressedRamConfig::default()).unwrap();
            Box::new(Asleep(store))
        });
        let manager = builder.build().unwrap();
        let mut region = manager.region(3 * RAM).unwrap();
        for (number, page) in region.as_mut_slice().chunks_mut(PAGE_SIZE).enumerate() {
            page.fill(number as u8 | 1);
        }
        LOADS_ARE_SLOW.store(1, SeqCst);
        let pages = region.as_slice().chunks(PAGE_SIZE).enumerate();
        let right = pages.filter(|(number, page)| page[1] == *number as u8 | 1);
        assert_eq!(right.count(), 3 * RAM / PAGE_SIZE);
        assert_eq!(LOADS_ARE_SLOW.load(SeqCst), 0, "nothing was loaded");
    }

    #[test]
    fn a_fault_that_has_waited_for_ten_seconds_is_named_with_what_it_waits_for() {
        const CHILD: &str = "MILLPOND_TEST_WAITS";
        if std::env::var_os(CHILD).is_some() {
            return wait_for_a_load();
        }
        let name = "driver::watchdog::tests::\
                    a_fault_that_has_waited_for_ten_seconds_is_named_with_what_it_waits_for";
        let run = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{said}");
        let lines: Vec<_> = said
            .lines()
            .filter(|line| line.contains("has waited for"))
            .collect();
        let [line] = lines[..] else {
            panic!("not one line: {said}");
        };
        assert!(line.starts_with("millpond: a fault at 0x"), "{line}");
        assert!(line.contains(" has waited for 1"), "{line}");
        assert!(line.contains("InFlight"), "{line}");
    }

    #[test]
    fn a_slot_is_free_again_when_the_wait_ends() {
        let dog = Watchdog::new();
        let used = || {
            dog.slots
                .iter()
                .filter(|slot| slot.page.load(SeqCst) != 0)
                .count()
        };
        let waits: Vec<_> = (0..SLOTS as u32 + 3)
            .map(|n| dog.waits(PageIndex(n * 7)))
            .collect();
        assert_eq!(used(), SLOTS);
        assert!(waits[SLOTS].0.is_none(), "the table is full");
        drop(waits);
        assert_eq!(used(), 0);
    }

    #[test]
    fn one_slot_tells_of_all_who_sleep_at_a_page() {
        let dog = Watchdog::new();
        dog.sleeps(PageIndex(5));
        dog.sleeps(PageIndex(5));
        let _waits = dog.waits(PageIndex(5));
        let used = dog
            .slots
            .iter()
            .filter(|slot| slot.page.load(SeqCst) != 0)
            .count();
        assert_eq!(used, 2);
    }
}
