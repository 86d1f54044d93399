//! The threads that wait for memory, and since when (`stall.rs`).

use millpond_core::GroupId;
use millpond_core::limits::MAX_GROUPS;
use millpond_core::policy::pressure::PressureMeter;
use millpond_sync::time::Instant;
use millpond_sync::{Rank, Ranked};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Ticks for which a thread counts as one that uses a group.
pub(crate) const REMEMBERED: u32 = 5;

#[derive(Clone, Copy, Default)]
pub(crate) struct Waiting {
    pub(crate) threads: u32,
    pub(crate) since: Option<Instant>,
    pub(crate) full_since: Option<Instant>,
    pub(crate) some: Duration,
    pub(crate) full: Duration,
    pub(crate) meters: [PressureMeter; 2],
}

impl Waiting {
    /// Adds the time up to now to the open periods, and opens the ones that apply from now on.
    pub(crate) fn update(&mut self, now: Instant, users: u32) {
        if let Some(since) = self.since.take() {
            self.some += now - since;
        }
        if let Some(since) = self.full_since.take() {
            self.full += now - since;
        }
        if self.threads > 0 {
            self.since = Some(now);
            self.full_since = (self.threads >= users).then_some(now);
        }
    }
}

impl Waiting {
    pub(crate) fn add_loads(&mut self, lost: Duration, users: u32) {
        self.some += lost;
        if users <= 1 {
            self.full += lost;
        }
    }
}

/// The waits of the groups' threads.
pub struct Stalls {
    /// Bits of threads that have faulted since the last change of sets, and in the period before.
    pub(crate) users: Box<[[AtomicU64; 2]]>,
    /// Loads: the time up to which their waiting was added, in nanoseconds since the start, and how much of it is not
    /// yet in the averages.
    pub(crate) loads: Box<[[AtomicU64; 2]]>,
    pub(crate) start: Instant,
    pub(crate) waiting: Ranked<(Box<[Waiting]>, Instant, u32)>,
}

impl Stalls {
    pub fn new() -> Self {
        let waiting = vec![Waiting::default(); MAX_GROUPS].into_boxed_slice();
        Self {
            users: (0..MAX_GROUPS).map(|_| Default::default()).collect(),
            loads: (0..MAX_GROUPS).map(|_| Default::default()).collect(),
            start: Instant::now(),
            waiting: Ranked::new(Rank::Figures, (waiting, Instant::now(), 0)),
        }
    }

    pub(crate) fn users_of(&self, group: usize) -> u32 {
        let [new, old] = &self.users[group];
        (new.load(Ordering::Relaxed) | old.load(Ordering::Relaxed)).count_ones()
    }

    /// Whether only one thread has recently faulted in the group.
    pub fn one_uses(&self, group: GroupId) -> bool {
        self.users_of(group.0.into()) == 1
    }
}
