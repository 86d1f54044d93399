//! Stalls: who waits for memory, as pressure figures want to know it.
//!
//! A thread *stalls* while its fault reclaims, or brings back what had to leave. Time in which at least one thread of a
//! group stalls is *some*; time in which all of its threads do is *full*. A group has no threads of its own but those
//! that touch its memory, so these are counted: each fault sets a bit of its thread's in its group's set, and twice a
//! second the oldest bits are forgotten. (Two threads may share a bit, which makes full longer; with handler delivery
//! all faults are the handler's, and full is some.) A stall counts for the group of the page and for all above it.
//!
//! One lock is held for a few instructions when a stall because of reclaim begins or ends. Loads are shorter and far
//! more: each adds at its end what no other that ended before it has covered, without a lock, and is full time where
//! one thread uses the group. A fault that does not stall looks at one word.

use super::Driver;
use super::lock::{Rank, Ranked};
use crate::group::Pressure;
use crate::signals::SignalsBlocked;
use millpond_core::limits::{MAX_GROUP_DEPTH, MAX_GROUPS};
use millpond_core::policy::pressure::PressureMeter;
use millpond_core::{Core, GroupId, PageIndex};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Ticks for which a thread counts as one that uses a group.
const REMEMBERED: u32 = 5;

/// A group and those above it.
#[derive(Clone, Copy)]
pub(super) struct Path {
    groups: [GroupId; MAX_GROUP_DEPTH],
    len: usize,
}

impl Path {
    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.groups[..self.len].iter().map(|id| usize::from(id.0))
    }
}

/// A stall under way.
pub(super) struct Stall<'a> {
    driver: &'a Driver,
    path: Path,
}

#[derive(Clone, Copy, Default)]
struct Waiting {
    threads: u32,
    since: Option<Instant>,
    full_since: Option<Instant>,
    some: Duration,
    full: Duration,
    meters: [PressureMeter; 2],
}

impl Waiting {
    /// Closes what was open up to now, and opens what is so from now on.
    fn update(&mut self, now: Instant, users: u32) {
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
    fn add_loads(&mut self, lost: Duration, users: u32) {
        self.some += lost;
        if users <= 1 {
            self.full += lost;
        }
    }
}

/// What the groups' threads wait for.
pub(super) struct Stalls {
    /// Bits of threads that have faulted since the last change of sets, and in the time before.
    users: Box<[[AtomicU64; 2]]>,
    /// Loads: until when their time was added, in nanoseconds since the start, and how much of it was not taken in yet.
    loads: Box<[[AtomicU64; 2]]>,
    start: Instant,
    waiting: Ranked<(Box<[Waiting]>, Instant, u32)>,
}

/// Averages in per cent over 10, 60 and 300 seconds, and all the time: some, then full.
pub(crate) type Averages = [([f64; 3], Duration); 2];

impl Stalls {
    pub(super) fn new() -> Self {
        let waiting = vec![Waiting::default(); MAX_GROUPS].into_boxed_slice();
        Self {
            users: (0..MAX_GROUPS).map(|_| Default::default()).collect(),
            loads: (0..MAX_GROUPS).map(|_| Default::default()).collect(),
            start: Instant::now(),
            waiting: Ranked::new(Rank::Figures, (waiting, Instant::now(), 0)),
        }
    }

    fn users_of(&self, group: usize) -> u32 {
        let [new, old] = &self.users[group];
        (new.load(Ordering::Relaxed) | old.load(Ordering::Relaxed)).count_ones()
    }

    /// Whether a single thread has faulted in the group lately.
    pub(super) fn one_uses(&self, group: GroupId) -> bool {
        self.users_of(group.0.into()) == 1
    }
}

/// This thread's bit.
fn own_bit() -> u64 {
    // SAFETY: it only reads the thread's own register.
    let name = unsafe { libc::pthread_self() } as u64;
    1 << (name.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

impl Driver {
    /// The thread has faulted at a page of this path.
    pub(super) fn uses(&self, path: &Path) {
        let bit = own_bit();
        let nearest = path.iter().next();
        let known = |group: usize| self.stalls.users[group][0].load(Ordering::Relaxed) & bit != 0;
        if nearest.is_none_or(known) {
            return;
        }
        let mut all = self.stalls.waiting.lock();
        let now = Instant::now();
        for group in path.iter() {
            self.stalls.users[group][0].fetch_or(bit, Ordering::Relaxed);
            all.0[group].update(now, self.stalls.users_of(group));
        }
    }

    pub(super) fn path_of(core: &Core, page: PageIndex) -> Path {
        let mut path = Path {
            groups: [GroupId::ROOT; MAX_GROUP_DEPTH],
            len: 0,
        };
        for group in core.group_path(core.group_at(page)).take(MAX_GROUP_DEPTH) {
            path.groups[path.len] = group;
            path.len += 1;
        }
        path
    }

    /// The thread has waited for a load, until now.
    pub(super) fn loaded(&self, path: &Path, began: Instant, ns: u64) {
        let began = began
            .saturating_duration_since(self.stalls.start)
            .as_nanos() as u64;
        for group in path.iter() {
            let [covered, lost] = &self.stalls.loads[group];
            let before = covered.fetch_max(began + ns, Ordering::Relaxed);
            let new = (began + ns).saturating_sub(began.max(before));
            lost.fetch_add(new, Ordering::Relaxed);
        }
    }

    /// The thread waits for memory until the value is dropped.
    pub(super) fn stall(&self, path: Path) -> Stall<'_> {
        self.change(&path, |threads| threads + 1);
        Stall { driver: self, path }
    }

    fn change(&self, path: &Path, change: fn(u32) -> u32) {
        let mut all = self.stalls.waiting.lock();
        let now = Instant::now();
        for group in path.iter() {
            let waiting = &mut all.0[group];
            waiting.update(now, u32::MAX);
            waiting.threads = change(waiting.threads);
            waiting.update(now, self.stalls.users_of(group));
        }
    }

    /// Takes what was lost since the last time into the averages.
    pub(super) fn tick_stalls(&self) {
        let mut all = self.stalls.waiting.lock();
        let now = Instant::now();
        let (groups, last, ticks) = &mut *all;
        let elapsed = (now - *last).as_nanos() as u64;
        (*last, *ticks) = (now, *ticks + 1);
        for (group, waiting) in groups.iter_mut().enumerate() {
            if *ticks % REMEMBERED == 0 {
                let [new, old] = &self.stalls.users[group];
                old.store(new.swap(0, Ordering::Relaxed), Ordering::Relaxed);
            }
            let users = self.stalls.users_of(group);
            waiting.update(now, users);
            let loads = self.stalls.loads[group][1].swap(0, Ordering::Relaxed);
            waiting.add_loads(Duration::from_nanos(loads), users);
            let lost = [&mut waiting.some, &mut waiting.full].map(std::mem::take);
            for (meter, lost) in waiting.meters.iter_mut().zip(lost) {
                meter.tick(elapsed, lost.as_nanos() as u64);
            }
        }
    }

    /// A group's number is somebody else's from now on.
    pub(crate) fn forget_stalls(&self, group: GroupId) {
        let waiting = &mut self.stalls.waiting.lock().0[usize::from(group.0)];
        waiting.meters = Default::default();
    }

    /// Of all its memory.
    pub(crate) fn root_pressure(&self) -> Pressure {
        let _quiet = SignalsBlocked::new();
        Pressure::new(self.pressure(GroupId::ROOT))
    }

    pub(crate) fn pressure(&self, group: GroupId) -> Averages {
        let mut all = self.stalls.waiting.lock();
        let place = usize::from(group.0);
        let waiting = &mut all.0[place];
        let users = self.stalls.users_of(place);
        waiting.update(Instant::now(), users);
        let loads = self.stalls.loads[place][1].swap(0, Ordering::Relaxed);
        waiting.add_loads(Duration::from_nanos(loads), users);
        let lost = [waiting.some, waiting.full];
        [0, 1].map(|kind| {
            let meter = &waiting.meters[kind];
            let before = Duration::from_nanos(meter.total_ns());
            (meter.averages(), before + lost[kind])
        })
    }
}

impl Drop for Stall<'_> {
    fn drop(&mut self) {
        self.driver.change(&self.path, |threads| threads - 1);
    }
}
