//! The background thread: it reclaims ahead of need, and does the checks that come at every tick.
//!
//! The thread sleeps on a futex word until a fault finds less than the low mark available, or a tick has passed. It
//! holds the housekeeping lock while it works, so that a fork finds it between two pieces of work. It releases the lock
//! while it makes threads: the C library takes memory for a new thread from the program's allocator, and a forking
//! thread may hold the allocator's lock while it waits for ours.

use crate::ahead;
use crate::driver::Driver;
use crate::memory::Memory;
use crate::others::Others;
use crate::panics::Ours;
use crate::signals::SignalsBlocked;
use crate::state::config::Background;
use crate::state::growth::Growth;
use crate::state::ram_worth::{Looked, RamWorth};
use crate::state::reclaim_cpu::ReclaimCpu;
use crate::state::recompress::Pace;
use crate::state::refault_cost::RefaultCost;
use crate::state::store_share::StoreShare;
use millpond_core::port::Upkeep;
use millpond_core::{Commands, Event, GroupId, PageCount};
use millpond_mmu::Delivery;
use millpond_sync::atomic::Ordering;
use millpond_sync::time::Instant;
use millpond_sync::{Barrier, OwnThread};
use std::sync::Arc;
use std::time::Duration;

/// Time between two ticks when no fault wakes the thread.
const TICK: Duration = Duration::from_millis(100);
/// Cost of a major fault, in sixteenths of a rescue, from which threads count as having to wait for the store. With
/// compressed RAM a major fault costs 16 to 30, with a file 100 and more.
const WAITED_FOR: u32 = 64;
/// Longest time for which the thread lets the store move excess data out of RAM, or give room back.
const AT_ONCE: Duration = Duration::from_millis(20);
/// Time for which a store that was full or failing is not asked.
const STORE_RETRY: Duration = Duration::from_secs(1);

impl Driver {
    /// Starts the thread, with all signals blocked, and waits until it no longer needs anything of the program. The
    /// thread takes no ranked lock before that. A child of a fork no longer holds any when it starts its own thread:
    /// the C library may touch absent memory while it does so. The caller knows the refault cost that the core assumes.
    ///
    /// In a process under `run`, and in the child of a fork, this thread makes the other threads that a process has, at
    /// its first tick: most processes end before that, and most children become another program. Making a thread and
    /// waiting for it takes most of the time of a fork, and a good part of that of a start.
    pub fn start_housekeeping(
        self: &Arc<Self>,
        refault_cost: u32,
        others: Others,
    ) -> std::io::Result<OwnThread> {
        let driver = Arc::clone(self);
        let ready = Arc::new(Barrier::new(2));
        let thread_ready = Arc::clone(&ready);
        self.others.begin(others);
        self.note_store_cost(refault_cost);
        // The table is made here, so that a manager has taken all its memory when it is built.
        let refault_cost = RefaultCost::new(refault_cost, self.delivery);
        let _quiet = SignalsBlocked::new();
        let thread = OwnThread::start(c"millpond-reclaim", move || {
            let _ours = Ours::enter();
            driver.isolate();
            thread_ready.wait();
            driver.keep_house(refault_cost);
        })?;
        ready.wait();
        Ok(thread)
    }

    fn keep_house(self: &Arc<Self>, mut refault_cost: RefaultCost) {
        let mut last_tick = Instant::now();
        let mut last_retry = Instant::now();
        let mut fruitless = false;
        let mut reclaim_cpu = ReclaimCpu::new(self.delivery);
        let mut worth = RamWorth::new(self.delivery, self.lock().keeps_copies());
        let mut store_share = StoreShare::new(self.delivery, self.governor.store_share());
        let (mut pace, began) = (Pace::new(), Instant::now());
        let (mut growth, mut last_look) = (Growth::new(), began);
        self.store.write_behind();
        self.publish();
        while !self.stop.load(Ordering::SeqCst) {
            let seen = self.kicks.load();
            self.resting.store(true, Ordering::SeqCst);
            let gap = self.look_gap(&growth, TICK);
            self.rest(seen, fruitless, gap);
            self.resting.store(false, Ordering::SeqCst);
            let working = self.housekeeping.lock();
            // A stream wakes the thread by a kick: on its own the thread would continue even after something else has
            // followed the stream.
            let asked = self.kicks.load() != seen;
            let is_tick = last_tick.elapsed() >= TICK;
            if asked || self.goes_on(fruitless, is_tick) {
                fruitless = true;
                self.reclaim_to_high_mark(|| {
                    fruitless = false;
                    reclaim_cpu.settle(&self.traces);
                    // A stop must not wait for the high mark.
                    !self.stop.load(Ordering::Relaxed)
                });
            }
            self.make_ahead();
            if last_look.elapsed() >= gap {
                last_look = Instant::now();
                self.keep_within(&mut growth, last_look - began);
            }
            if is_tick {
                last_tick = Instant::now();
                reclaim_cpu.leave(&self.traces);
                self.share_with_store(&mut store_share);
                self.for_a_while(|store| store.move_away());
                self.tick();
                let measured = refault_cost.measure(&self.latency);
                self.weigh_ram(&mut worth, refault_cost.load_ns());
                if let Some(sixteenths) = measured.store {
                    self.note_store_cost(sixteenths);
                    self.tell(Event::SetRefaultCost { sixteenths });
                }
                if let Some(sixteenths) = measured.file {
                    self.tell(Event::SetFileCost { sixteenths });
                }
            }
            if last_retry.elapsed() >= STORE_RETRY {
                last_retry = Instant::now();
                self.tell(Event::RetryStore);
                self.for_a_while(|store| store.give_room_back());
            }
            // The processor that faults come from has more urgent work.
            let go_away = || reclaim_cpu.leave(&self.traces);
            let dense = worth.is_dense_worth_it();
            self.recompress(&mut pace, began, seen, dense, go_away);
            drop(working);
            self.start_others(is_tick);
        }
    }

    /// Gives the service threads of a manager for arbitrary programs their own descriptor table: the program may close
    /// every descriptor that it finds, and memory must keep working.
    pub fn isolate(&self) {
        if self.delivery.is_for_any_program() {
            millpond_mmu::isolate_descriptors(&mut self.service_descriptors());
        }
    }
}

/// The background thread's work, for threads of a test scheduler that do it instead.
#[cfg(feature = "shuttle")]
impl<M: Memory> Driver<M> {
    /// Reclaims as far as the background thread does, and calls `between` after each batch.
    pub fn reclaim_in_background(&self, mut between: impl FnMut()) {
        let _working = self.housekeeping.lock();
        self.reclaim_to_high_mark(|| {
            between();
            true
        });
    }

    /// Does the work that is due at a tick.
    pub fn tick_in_background(self: &Arc<Self>) {
        let _working = self.housekeeping.lock();
        self.tick();
    }
}

impl<M: Memory> Driver<M> {
    /// Asks the thread to end. The caller joins it.
    pub fn stop_housekeeping(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.resting.store(true, Ordering::SeqCst);
        self.kick();
    }

    /// Wakes the thread if it sleeps.
    pub fn kick(&self) {
        if self.resting.swap(false, Ordering::SeqCst) {
            self.kicks.advance();
            self.kicks.wake();
        }
    }

    /// Divides the budget again between compressed RAM and the program, if that is due, and moves out excess data of
    /// compressed RAM.
    fn share_with_store(&self, share: &mut StoreShare) {
        let shared = self.governor.covers_store();
        let Some(tiers) = self.store.tiers().filter(|_| shared) else {
            return;
        };
        let vm = {
            let _inside = self.gate.enter();
            self.lock().stats()
        };
        let limit = PageCount(vm.nr_limit as u32);
        if let Some(share) = share.look(tiers, vm.refaults_at, limit) {
            self.governor.set_store_share(share);
        }
        self.for_a_while(|store| store.trim_ram());
    }

    /// Decides again what to do for RAM, if the store uses a part of the budget. A load takes `load` nanoseconds.
    fn weigh_ram(&self, worth: &mut RamWorth, load: Option<u64>) {
        if !self.governor.covers_store() {
            return;
        }
        let vm = {
            let _inside = self.gate.enter();
            self.lock().stats()
        };
        let looked = Looked {
            vm: &vm,
            usage: self.store.usage(),
            tiers: self.store.tiers(),
            saves: &self.saves,
            recompressed: self.store.recompressed(),
            load,
        };
        if let Some(keep) = worth.look(&looked) {
            self.tell(Event::KeepCopies { keep });
        }
    }

    /// Has the store do a piece of work after the other, until there is no more or the thread has other things to do.
    /// A fork need not wait for more than one piece.
    fn for_a_while(&self, piece: impl Fn(&dyn Upkeep) -> bool) {
        let since = Instant::now();
        let work = || {
            let _inside = self.gate.enter();
            piece(&*self.store)
        };
        while work() && since.elapsed() < AT_ONCE {}
    }

    /// Notes whether threads have to wait for the store, from which a load costs this many sixteenths of a rescue.
    fn note_store_cost(&self, sixteenths: u32) {
        self.store_waits
            .store(sixteenths >= WAITED_FOR, Ordering::Relaxed);
    }

    /// Whether only one thread has recently faulted.
    fn one_thread_faults(&self) -> bool {
        match self.delivery {
            Delivery::InThread | Delivery::Direct => self.stalls.one_uses(GroupId::ROOT),
            Delivery::Handler => self.handler_serves_one.load(Ordering::Relaxed),
        }
    }

    /// Whether the thread works without being woken.
    fn is_always_on(&self) -> bool {
        matches!(self.background(), Background::Apart | Background::Always)
    }

    /// Whether the thread reclaims without being asked. A look at the process's size alone is no reason: memory between
    /// the marks stays, and a round that achieved nothing is tried again at a tick.
    fn goes_on(&self, fruitless: bool, is_tick: bool) -> bool {
        self.is_always_on() && (is_tick || !fruitless && self.lock().below_low_mark())
    }

    /// Sleeps until the thread is needed, for at most `gap`. After a round that could do nothing there is no hurry to
    /// try again.
    fn rest(&self, seen: u32, fruitless: bool, gap: Duration) {
        if self.goes_on(fruitless, false) {
            return;
        }
        let time = if self.looks_again_soon() {
            ahead::LOOK
        } else {
            gap
        };
        self.kicks.wait(seen, Some(time));
    }

    fn tick(self: &Arc<Self>) {
        {
            let _inside = self.gate.enter();
            self.lock().handle(Event::Tick, &mut Commands::new());
            self.give_spare_frames_back();
            self.governor.count_untold();
            self.adjust_limit();
            self.say_excess();
            self.children.collect(&*self.store);
            self.tick_stalls();
            self.store.stay_awake(self.one_thread_faults());
            self.mmu.settle_huge_ready();
        }
        self.give_kept_back();
        self.start_worker_ahead();
        {
            let _inside = self.gate.enter();
            self.give_spare_frames_back();
        }
        if let Some(on_tick) = self.on_tick {
            on_tick();
        }
        self.publish();
    }

    fn publish(&self) {
        if let Some(publisher) = &self.publisher {
            publisher.publish(&self.stats(), &self.root_pressure());
        }
    }
}
