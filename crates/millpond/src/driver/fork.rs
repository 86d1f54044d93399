//! Fork: parent and child both go on, each with memory of its own.
//!
//! The kernel copies managed memory, the frame pool, our tables and the compressed store by copy-on-write, but not the
//! registration with userfaultfd: a page that is not in memory would read as zeros in the child, silently. So:
//!
//! 1. *before*: nothing may be half done. The forking thread takes the housekeeping lock, waits until all who work on
//!    memory have left the gate and closes it, and takes the core lock; then no command is out and no lock is held
//!    by anybody else. The pages that the child touches before it is set up are resident.
//! 2. *in the parent*: the locks are let go. Pages that are now shared with the child cannot be moved until they are
//!    written; the backend unshares them when it takes them out.
//! 3. *in the child*: a new descriptor, the ranges registered with it, new service threads, a store that does not write
//!    where the parent does. Then the page tables are compared with our own: a page that is present but should not
//!    be was touched too early and reads as zeros. That is said, and the child does not go on.
//!
//! What the parent's store keeps for the child ends when the last holder of a pipe's write end is gone: the child has
//! it in its service threads' descriptor table, where the program cannot close it, until it exits or runs another
//! program.

use super::Driver;
use super::closed::Closed;
use super::free::AtRest;
use super::housekeeping::Others;
use super::lock::{Held, LocksOf, Rank, Ranked};
use super::recent::Witnessed;
use crate::error::ForkError;
use crate::signals::SignalsBlocked;
use millpond_core::{Core, PageCount, PageIndex, PageRange, PageState, Store};
use millpond_mmu::report;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Children that may still read what this process saved; more are not waited for, their slots stay.
const MAX_CHILDREN: usize = 64;

/// One child's pipe.
#[derive(Debug)]
struct Child {
    number: u64,
    /// Read end in the program's descriptor table; closed by a program thread once adopted.
    ours: Option<OwnedFd>,
    /// The same in the service thread's table.
    service: Option<OwnedFd>,
}

/// The children that a store keeps slots for.
#[derive(Debug)]
pub(crate) struct Children {
    next: AtomicU64,
    alive: Ranked<[Option<Child>; MAX_CHILDREN]>,
    /// In a child: the write end of its own pipe.
    lifeline: Ranked<Option<OwnedFd>>,
}

/// What the forking thread holds from before the fork until after it, in parent and child.
pub(crate) struct Hold<'a> {
    driver: &'a Arc<Driver>,
    core: Held<'a, Witnessed>,
    frees: AtRest<'a>,
    _gate: Closed<'a>,
    _housekeeping: Held<'a, ()>,
    child_number: Option<u64>,
    /// Write end of the new child's pipe.
    lifeline: Option<OwnedFd>,
    locks: LocksOf,
    _quiet: SignalsBlocked,
}

impl Children {
    pub(crate) fn new() -> Self {
        Self {
            next: AtomicU64::new(1),
            alive: Ranked::new(Rank::Figures, [const { None }; MAX_CHILDREN]),
            lifeline: Ranked::new(Rank::Figures, None),
        }
    }

    /// Tells the store of children that are gone and of whom the service thread knows nothing yet, so that a program
    /// that forks one after the other finds a seat for the next.
    fn collect_young(&self, store: &dyn Store) {
        self.tell_gone(store, |seat| {
            let is_gone = |child: &&mut Child| {
                child.service.is_none() && child.ours.as_ref().is_some_and(hung_up)
            };
            let number = seat.as_mut().filter(is_gone)?.number;
            *seat = None;
            Some(number)
        });
    }

    /// Tells the store of the children that `gone` names, in whichever seats it finds them, once the seats are let go.
    /// Zero is a child that was told of before.
    fn tell_gone(
        &self,
        store: &dyn Store,
        mut gone: impl FnMut(&mut Option<Child>) -> Option<u64>,
    ) {
        let mut numbers = [0; MAX_CHILDREN];
        for (number, seat) in numbers.iter_mut().zip(self.alive.lock().iter_mut()) {
            *number = gone(seat).unwrap_or(0);
        }
        for number in numbers.into_iter().filter(|&number| number != 0) {
            store.child_gone(number);
        }
    }

    /// Notes a child to come. Answers its number and the end of the pipe that it is to hold.
    fn expect(&self) -> Option<(u64, OwnedFd)> {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).ok()?;
        let (read, write) = (out_of_the_way(read), out_of_the_way(write));
        let mut alive = self.alive.lock();
        // Read ends that the service thread has by now are not needed twice.
        for child in alive
            .iter_mut()
            .flatten()
            .filter(|child| child.service.is_some())
        {
            child.ours = None;
        }
        let seat = alive.iter_mut().find(|seat| seat.is_none())?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        *seat = Some(Child {
            number,
            ours: Some(read),
            service: None,
        });
        Some((number, write))
    }

    /// Tells the store of children that are gone. Called by the service thread, which sees its own descriptors only.
    pub(crate) fn collect(&self, store: &dyn Store) {
        self.tell_gone(store, |seat| {
            let child = seat.as_mut()?;
            if child.service.is_none() {
                child.service = child.ours.as_ref().and_then(|fd| adopt(fd.as_raw_fd()));
            }
            if !child.service.as_ref().is_some_and(hung_up) {
                return None;
            }
            let number = child.number;
            // The program's copy cannot be closed from here; keep it for a program thread to close.
            if child.ours.is_none() {
                *seat = None;
            } else {
                child.number = 0;
            }
            Some(number)
        });
    }

    /// In a child: its siblings are not its children.
    fn orphaned(&self, lifeline: Option<OwnedFd>) {
        for seat in self.alive.lock().iter_mut() {
            if let Some(child) = seat {
                // The service thread's descriptors were never in this table: only their numbers were inherited.
                if let Some(service) = child.service.take() {
                    std::mem::forget(service);
                }
            }
            *seat = None;
        }
        *self.lifeline.lock() = lifeline;
    }

    pub(crate) fn lifeline(&self) -> Option<RawFd> {
        self.lifeline.lock().as_ref().map(AsRawFd::as_raw_fd)
    }
}

/// High descriptor numbers stay clear of programs that count or close low ones.
pub(crate) fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    const HIGH: RawFd = 512;
    rustix::io::fcntl_dupfd_cloexec(&fd, HIGH).unwrap_or(fd)
}

/// A duplicate of the program's descriptor in the calling service thread's own table.
fn adopt(fd: RawFd) -> Option<OwnedFd> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let process = pidfd_open(getpid(), PidfdFlags::empty()).ok()?;
    pidfd_getfd(process, fd, PidfdGetfdFlags::empty()).ok()
}

fn hung_up(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&now)).is_ok_and(|n| n > 0) && fds[0].revents().contains(PollFlags::HUP)
}

/// Whether the page tables have a page in this state, while nothing is under way.
fn is_mapped(state: PageState) -> bool {
    matches!(
        state,
        PageState::Resident | PageState::LazyFree { mapped: true }
    )
}

impl Driver {
    /// Descriptors that a service thread needs in its own table.
    pub(crate) fn service_descriptors(&self) -> Vec<RawFd> {
        let mut fds = self.mmu.descriptors();
        self.store.descriptors(&mut |fd| fds.push(fd));
        fds.extend(self.governor.descriptor());
        fds.extend(self.children.lifeline());
        fds
    }

    /// Waits until nothing is under way and everything in `resident` is in memory, and holds it so.
    pub(crate) fn before_fork<'a>(self: &'a Arc<Self>, resident: &[PageRange]) -> Hold<'a> {
        let quiet = SignalsBlocked::new();
        {
            let _inside = self.gate.enter();
            self.children.collect_young(&*self.store);
        }
        let expected = self.children.expect();
        self.wait_for_jobs();
        let housekeeping = self.housekeeping.lock();
        // What cannot be brought in is not in a region, or lost: touching it in the child fails as it would here. It
        // keeps nothing else from being brought in.
        let mut hopeless = Vec::new();
        let (gate, core, frees) = loop {
            let (gate, core, frees) = self.close_at_rest();
            debug_assert!(core.is_quiet(), "a command is out, and nobody is inside");
            let wanted =
                |page: &PageIndex| !is_mapped(core.page_state(*page)) && !hopeless.contains(page);
            let mut pages = resident.iter().flat_map(|range| range.pages());
            let Some(absent) = pages.find(wanted) else {
                break (gate, core, frees);
            };
            drop(frees);
            drop(core);
            drop(gate);
            if self.populate(PageRange::new(absent, PageCount(1))).is_err() {
                hopeless.push(absent);
            }
        };
        self.mmu.before_fork();
        let (child_number, lifeline) = expected.unzip();
        if let Some(number) = child_number {
            self.store.before_fork(number);
        }
        Hold {
            driver: self,
            core,
            frees,
            _gate: gate,
            _housekeeping: housekeeping,
            child_number,
            lifeline,
            locks: LocksOf::this_thread(),
            _quiet: quiet,
        }
    }
}

impl Driver {
    /// Closes the gate when nothing is being freed in the background.
    fn close_at_rest(&self) -> (Closed<'_>, Held<'_, Witnessed>, AtRest<'_>) {
        loop {
            let gate = self.close_gate();
            let core = self.lock();
            if let Some(frees) = self.freer.at_rest() {
                return (gate, core, frees);
            }
            drop(core);
            drop(gate);
            self.wait_for_jobs();
        }
    }
}

impl Hold<'_> {
    /// Goes on in the parent.
    pub(crate) fn parent(self) {
        self.driver.mmu.after_fork_in_parent();
    }

    /// Goes on in the child. The reclaim thread and the fault handler are new.
    ///
    /// Everything is let go once the account is found right, before the reclaim thread is made: from then on the
    /// handler serves faults, and whatever the C library touches when it makes a thread must not wait for this one.
    ///
    /// What is `foreign` is not managed, whatever is mapped there.
    ///
    /// # Errors
    /// The child must not touch managed memory.
    pub(crate) fn child(mut self, foreign: &[PageRange]) -> Result<(), ForkError> {
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
        driver.check_untorn(&self.core, foreign)?;
        driver.inherit(&self.core);
        let Hold {
            core,
            frees,
            _gate,
            _housekeeping,
            child_number,
            _quiet,
            ..
        } = self;
        frees.forget_workers();
        let refault_cost = core.refault_cost();
        drop(core);
        drop(_gate);
        drop(_housekeeping);
        driver
            .start_housekeeping(refault_cost, Others::AtFirstTick)
            .map_err(ForkError::Thread)?;
        if child_number.is_none() {
            report::line(format_args!(
                "too many children at once: the store's file keeps what it would free until they end"
            ));
        }
        Ok(())
    }
}

impl Driver {
    /// Every page that is mapped must be one that we know to be mapped.
    fn check_untorn(&self, core: &Core, foreign: &[PageRange]) -> Result<(), ForkError> {
        let mut torn = None;
        let arena = PageRange::new(PageIndex(0), core.arena());
        for ours in arena.without(foreign) {
            self.mmu.present_pages(ours, &mut |range| {
                let strange = |&page: &PageIndex| !is_mapped(core.page_state(page));
                torn = torn.or_else(|| range.pages().find(strange));
            });
        }
        match torn {
            Some(page) => Err(ForkError::Torn {
                address: self.mmu.addr_of(page) as usize,
            }),
            None => Ok(()),
        }
    }

    /// The child's figures begin at zero.
    fn inherit(&self, core: &Core) {
        *self.inherited.lock() = core.stats();
        self.freer.begin_anew();
        self.latency.clear();
        self.reclaim_ns.store(0, Ordering::Relaxed);
        self.direct_ns.store(0, Ordering::Relaxed);
        self.store_failures.store(0, Ordering::Relaxed);
    }
}
