//! Fork: parent and child both continue, each with its own memory.
//!
//! The kernel copies managed memory, the frame pool, our tables and the compressed store by copy-on-write, but not the
//! registration with userfaultfd: a page that is not in memory would read as zeros in the child, silently. So:
//!
//! 1. *before*: nothing may be half done. The forking thread takes the housekeeping lock, waits until all threads that
//!    work on memory have left the gate and closes it, and takes the core lock. Then no command is in progress, and no
//!    other thread holds a lock. The pages that the child touches before it is set up are resident. If one of our
//!    threads is just being made, the forking thread waits for it, but not forever: making a thread may need the
//!    program's allocator, whose lock the forking thread may hold.
//! 2. *in the parent*: the locks are released. Pages that are now shared with the child cannot be moved until they are
//!    written; the backend unshares them when it takes them out.
//! 3. *in the child*: it gets a new descriptor, the ranges registered with it, a new fault handler if one is used, and
//!    a store that does not write where the parent does. Then the page tables are compared with our own: a page that is
//!    present but should not be was touched too early and reads as zeros. In that case the child reports it and does
//!    not continue. The other service threads start as soon as the C library may take memory from the program's
//!    allocator for them: a program that locks its allocator across a fork unlocks it after this step.
//!
//! The slots that the parent's store keeps for the child are released when the last holder of a pipe's write end is
//! gone. The child has that end in its service threads' descriptor table, where the program cannot close it, until it
//! exits or runs another program.

use crate::closed_gate::ClosedGate;
use crate::driver::Driver;
use crate::error::ForkError;
use crate::memory::Memory;
use crate::others::Others;
use crate::recent::Witnessed;
use crate::signals::SignalsBlocked;
use crate::state::queue::AtRest;
use millpond_core::{Core, PageCount, PageIndex, PageRange, PageState};
use millpond_mmu::{MmuError, RealMemory, report};
use millpond_sync::atomic::Ordering;
use millpond_sync::time::Instant;
use millpond_sync::{Held, LocksOf, thread};
use rustix::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// Number of attempts to bring in a page, if it is not lost, for a child.
const TRIES: usize = 3;
/// Maximum wait for threads that are being made: a thousand times what one takes.
const MAKING: Duration = Duration::from_millis(100);

/// Nothing is under way, and nothing begins, while the value lives.
pub struct Still<'a, M: Memory = RealMemory> {
    core: Held<'a, Witnessed>,
    frees: AtRest<'a>,
    _gate: ClosedGate<'a, M>,
    _housekeeping: Held<'a, ()>,
}

/// The locks and values that the forking thread holds from before the fork until after it, in parent and child.
pub struct Hold<'a> {
    driver: &'a Arc<Driver>,
    still: Still<'a>,
    child_number: Option<u64>,
    /// Write end of the new child's pipe.
    lifeline: Option<OwnedFd>,
    locks: LocksOf,
    _quiet: SignalsBlocked,
}

/// Whether the page tables contain a page in this state, while nothing is in progress.
fn is_mapped(state: PageState) -> bool {
    matches!(
        state,
        PageState::Resident | PageState::LazyFree { mapped: true }
    )
}

impl Driver {
    /// Descriptors that a service thread needs in its own table.
    pub fn service_descriptors(&self) -> Vec<RawFd> {
        let mut fds = self.mmu.descriptors();
        self.store.descriptors(&mut |fd| fds.push(fd));
        fds.extend(self.governor.descriptor());
        fds.extend(self.children.lifeline());
        fds
    }

    /// Waits until nothing is in progress and all pages in `resident` are in memory, and holds that state.
    pub fn before_fork<'a>(self: &'a Arc<Self>, resident: &[PageRange]) -> Hold<'a> {
        let quiet = SignalsBlocked::new();
        {
            let _inside = self.gate.enter();
            self.children.collect_young(&*self.store);
        }
        let expected = self.children.expect();
        let still = self.hold_still(resident);
        self.mmu.before_fork_using(resident);
        let (child_number, lifeline) = expected.unzip();
        self.store.expect_child();
        if let Some(number) = child_number {
            self.store.before_fork(number);
        }
        Hold {
            driver: self,
            still,
            child_number,
            lifeline,
            locks: LocksOf::this_thread(),
            _quiet: quiet,
        }
    }
}

impl<M: Memory> Driver<M> {
    /// Waits until nothing is in progress and all pages in `resident` are in memory, and prevents all threads from
    /// beginning anything. For threads with signals blocked.
    pub fn hold_still(&self, resident: &[PageRange]) -> Still<'_, M> {
        self.wait_for_jobs();
        let housekeeping = self.lock_between_threads();
        // A page that cannot be brought in is not in a region, or lost: touching it in the child fails as it would
        // here. It does not prevent other pages from being brought in. A lost page may have been discarded since.
        let mut failed: Vec<PageIndex> = Vec::new();
        let (gate, core, frees) = loop {
            let (gate, core, frees) = self.close_at_rest();
            let wanted = |page: &PageIndex| {
                let tries = failed.iter().filter(|other| *other == page).count();
                match core.page_state(*page) {
                    PageState::Poisoned => tries == 0,
                    state => !is_mapped(state) && tries < TRIES,
                }
            };
            let mut pages = resident.iter().flat_map(|range| range.pages());
            let Some(absent) = pages.find(wanted) else {
                break (gate, core, frees);
            };
            drop(frees);
            drop(core);
            drop(gate);
            if self.populate(PageRange::new(absent, PageCount(1))).is_err() {
                failed.push(absent);
            }
        };
        Still {
            core,
            frees,
            _gate: gate,
            _housekeeping: housekeeping,
        }
    }

    /// Takes the reclaim thread's lock when that thread is not making threads, or has been making them for so long that
    /// it must be waiting for a lock of the program.
    fn lock_between_threads(&self) -> Held<'_, ()> {
        let begun = Instant::now();
        loop {
            let housekeeping = self.housekeeping.lock();
            if !self.others.are_being_made() || begun.elapsed() >= MAKING {
                return housekeeping;
            }
            drop(housekeeping);
            thread::sleep(Duration::from_micros(50));
        }
    }

    /// Closes the gate once nothing is being freed, by a worker or by its owner.
    fn close_at_rest(&self) -> (ClosedGate<'_, M>, Held<'_, Witnessed>, AtRest<'_>) {
        loop {
            let gate = self.close_gate();
            let core = self.lock();
            if !core.is_quiet() {
                // A freeing thread has left the gate, and is giving back what it has unhooked.
                drop(gate);
                drop(self.wait_for_any(core));
                continue;
            }
            if let Some(frees) = self.freer.at_rest() {
                return (gate, core, frees);
            }
            drop(core);
            drop(gate);
            self.wait_for_jobs();
        }
    }
}

#[cfg(feature = "shuttle")]
impl<M: Memory> Driver<M> {
    /// Holds everything still and checks the invariants for when no thread of the program is in a call. `Err` describes
    /// the violation.
    pub fn all_at_rest(&self) -> Result<Still<'_, M>, String> {
        self.wait_for_jobs();
        let kept = self.reuse.lock().told();
        let still = self.hold_still(&[]);
        let told = *self.reuse.told();
        if kept.pages != told.pages {
            return Err(format!(
                "{:?} are in the book of what is kept, and the core was told of {:?}",
                kept.pages, told.pages
            ));
        }
        let waiters = self.waiters.load(Ordering::SeqCst);
        match (waiters, self.purging.load(Ordering::SeqCst)) {
            (0, 0) => Ok(still),
            (waiters, purging) => Err(format!(
                "{waiters} wait and {purging} purge, and nobody is inside"
            )),
        }
    }
}

impl<M: Memory> Still<'_, M> {
    /// The core, with nothing in flight.
    pub fn core(&self) -> &Core {
        &self.core
    }
}

impl Hold<'_> {
    /// Releases the locks in the parent.
    pub fn parent(self) {
        self.driver.mmu.after_fork_in_parent();
    }

    /// Sets the child up and releases the locks. From then on faults are served, and
    /// [`Driver::start_threads_in_child`] comes next.
    ///
    /// The ranges in `foreign` are not managed, whatever is mapped there.
    ///
    /// # Errors
    /// An error means that the child must not touch managed memory.
    pub fn child(mut self, foreign: &[PageRange]) -> Result<(), ForkError> {
        let driver = self.driver;
        self.locks.inherit();
        driver.forget_deferred();
        driver.children.orphaned(self.lifeline.take());
        driver
            .store
            .after_fork_in_child()
            .map_err(ForkError::Store)?;
        driver.governor.reopen();
        driver.mmu.after_fork_in_child(foreign)?;
        driver.check_untorn(self.still.core(), foreign)?;
        driver.inherit(self.still.core());
        let Hold {
            still,
            child_number,
            _quiet,
            ..
        } = self;
        let Still {
            core,
            frees,
            _gate,
            _housekeeping,
        } = still;
        frees.forget_workers();
        drop(core);
        drop(_gate);
        drop(_housekeeping);
        if child_number.is_none() {
            report::line(format_args!(
                "too many children at once: the store's file keeps what it would free until they end"
            ));
        }
        Ok(())
    }
}

impl Driver {
    /// Starts the threads that a child of a fork lacks after [`Hold::child`]: the reclaim thread, and the one that
    /// reads the kernel's events where each thread serves its own faults. The caller holds no lock: the C library may
    /// touch absent memory when it makes a thread.
    ///
    /// # Errors
    /// The system could not make a thread. Then the child must not continue: a call that the kernel reports in an event
    /// would wait forever.
    pub fn start_threads_in_child(self: &Arc<Self>) -> Result<(), ForkError> {
        self.start_threads(ForkError::Thread)
    }

    /// Starts the threads that a process lacks whose memory was first served without any: as
    /// [`start_threads_in_child`](Self::start_threads_in_child), but for the error, which `no_thread` makes.
    ///
    /// # Errors
    /// A thread could not be made.
    pub fn start_threads<E: From<MmuError>>(
        self: &Arc<Self>,
        no_thread: impl FnOnce(std::io::Error) -> E,
    ) -> Result<(), E> {
        self.mmu.read_events()?;
        let refault_cost = self.lock().refault_cost();
        self.start_housekeeping(refault_cost, Others::AtFirstTick)
            .map_err(no_thread)?;
        Ok(())
    }

    /// Checks that every mapped page is one that we know to be mapped.
    fn check_untorn(&self, core: &Core, foreign: &[PageRange]) -> Result<(), ForkError> {
        let mut torn = None;
        let arena = PageRange::new(PageIndex(0), core.arena());
        for ours in arena.without(foreign) {
            self.mmu.present_pages_of_sparse(ours, &mut |range| {
                let strange = |&page: &PageIndex| !is_mapped(core.page_state(page));
                torn = torn.or_else(|| range.pages().find(strange));
            });
        }
        match torn {
            Some(page) => Err(ForkError::Torn {
                address: self.mmu.address(page),
            }),
            None => Ok(()),
        }
    }

    /// Lets the child's figures begin at zero.
    fn inherit(&self, core: &Core) {
        *self.inherited.lock() = core.stats();
        *self.inherited_recompressed.lock() = self.store.recompressed();
        self.freer.begin_anew();
        self.latency.clear();
        self.reclaim_ns.store(0, Ordering::Relaxed);
        self.direct_ns.store(0, Ordering::Relaxed);
        self.recompress_ns.store(0, Ordering::Relaxed);
        self.store_failures.store(0, Ordering::Relaxed);
    }
}
