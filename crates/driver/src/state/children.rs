//! The children that this process has forked, as long as they still need something from it (`fork.rs`).

use millpond_core::Forks;
use millpond_sync::atomic::{AtomicU64, Ordering};
use millpond_sync::{Rank, Ranked};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};

/// Most children that may still read data that this process saved. The slots of further children are never released.
pub(crate) const MAX_CHILDREN: usize = 64;

/// One child's pipe.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) number: u64,
    /// The read end in the program's descriptor table. A program thread closes it once the service thread has its own
    /// copy.
    pub(crate) ours: Option<OwnedFd>,
    /// The read end in the service thread's table.
    pub(crate) service: Option<OwnedFd>,
}

/// The children for which a store keeps slots.
#[derive(Debug)]
pub struct Children {
    pub(crate) next: AtomicU64,
    pub(crate) alive: Ranked<[Option<Child>; MAX_CHILDREN]>,
    /// In a child, the write end of its own pipe.
    pub(crate) lifeline: Ranked<Option<OwnedFd>>,
}

impl Children {
    pub fn new() -> Self {
        Self {
            next: AtomicU64::new(1),
            alive: Ranked::new(Rank::Figures, [const { None }; MAX_CHILDREN]),
            lifeline: Ranked::new(Rank::Figures, None),
        }
    }

    /// Tells the store of children that are gone and that the service thread does not know yet, so that a program that
    /// forks one child after the other finds a seat for the next.
    pub(crate) fn collect_young(&self, store: &dyn Forks) {
        self.tell_gone(store, |seat| {
            let is_gone = |child: &&mut Child| {
                child.service.is_none() && child.ours.as_ref().is_some_and(hung_up)
            };
            let number = seat.as_mut().filter(is_gone)?.number;
            *seat = None;
            Some(number)
        });
    }

    /// Tells the store about the children that `gone` names, in any of the seats, once the lock of the seats is
    /// released. The number zero means a child that the store was already told about.
    pub(crate) fn tell_gone(
        &self,
        store: &dyn Forks,
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

    /// Prepares for a child. Returns its number and the end of the pipe that the child will hold.
    pub(crate) fn expect(&self) -> Option<(u64, OwnedFd)> {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).ok()?;
        let (read, write) = (out_of_the_way(read), out_of_the_way(write));
        let mut alive = self.alive.lock();
        // Read ends of which the service thread has its own copy are not needed twice.
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
    pub fn collect(&self, store: &dyn Forks) {
        self.tell_gone(store, |seat| {
            let child = seat.as_mut()?;
            if child.service.is_none() {
                child.service = child.ours.as_ref().and_then(|fd| adopt(fd.as_raw_fd()));
            }
            if !child.service.as_ref().is_some_and(hung_up) {
                return None;
            }
            let number = child.number;
            // The program's copy cannot be closed from here; it is kept for a program thread to close.
            if child.ours.is_none() {
                *seat = None;
            } else {
                child.number = 0;
            }
            Some(number)
        });
    }

    /// Empties the seats in a child: its siblings are not its children.
    pub(crate) fn orphaned(&self, lifeline: Option<OwnedFd>) {
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

    pub fn lifeline(&self) -> Option<RawFd> {
        self.lifeline.lock().as_ref().map(AsRawFd::as_raw_fd)
    }
}

/// Moves a descriptor to a high number, because programs may count or close low ones.
pub fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    const HIGH: RawFd = 512;
    rustix::io::fcntl_dupfd_cloexec(&fd, HIGH).unwrap_or(fd)
}

/// A duplicate of the program's descriptor in the calling service thread's own table.
pub(crate) fn adopt(fd: RawFd) -> Option<OwnedFd> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let process = pidfd_open(getpid(), PidfdFlags::empty()).ok()?;
    pidfd_getfd(process, fd, PidfdGetfdFlags::empty()).ok()
}

pub(crate) fn hung_up(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&now)).is_ok_and(|n| n > 0) && fds[0].revents().contains(PollFlags::HUP)
}
