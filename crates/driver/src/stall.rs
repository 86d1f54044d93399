//! Stalls: the threads that wait for memory, counted for the pressure figures.
//!
//! A thread *stalls* while its fault reclaims, or brings back a page that had to leave. Time in which at least one
//! thread of a group stalls is *some*; time in which all of its threads do is *full*. A group's threads are those that
//! touch its memory, so these are counted: each fault sets its thread's bit in the group's set, and twice a second the
//! oldest bits are forgotten. (Two threads may share a bit, which lengthens full; with handler delivery all faults are
//! the handler's, and full equals some.) A stall counts for the group of the page and for all above it.
//!
//! One lock is held for a few instructions when a stall because of reclaim begins or ends. Loads are shorter and far
//! more numerous. Each load adds, at its end and without a lock, the part of its time that no earlier load has covered.
//! That time counts as full if only one thread uses the group. A fault that does not stall reads one word.

use crate::driver::Driver;
use crate::memory::Memory;
use crate::pressure::{Averages, Pressure};
use crate::signals::SignalsBlocked;
use crate::state::stall::REMEMBERED;
use millpond_core::limits::MAX_GROUP_DEPTH;
use millpond_core::{Core, GroupId, PageIndex};
use millpond_sync::atomic::Ordering;
use millpond_sync::time::Instant;
use std::time::Duration;

/// A group and those above it.
#[derive(Clone, Copy)]
pub struct Path {
    groups: [GroupId; MAX_GROUP_DEPTH],
    len: usize,
}

impl Path {
    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.groups[..self.len].iter().map(|id| usize::from(id.0))
    }
}

/// A stall in progress.
pub struct Stall<'a, M: Memory> {
    driver: &'a Driver<M>,
    path: Path,
}

/// This thread's bit.
fn own_bit() -> u64 {
    // SAFETY: the call only reads the thread's own register.
    let name = unsafe { libc::pthread_self() } as u64;
    1 << (name.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

impl<M: Memory> Driver<M> {
    /// Notes that the thread has faulted at a page of this path.
    pub fn uses(&self, path: &Path) {
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

    /// The group of `page` and the groups above it.
    pub fn path_of(core: &Core, page: PageIndex) -> Path {
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

    /// Notes that the thread has waited for a load, from `began` until now.
    pub fn loaded(&self, path: &Path, began: Instant, ns: u64) {
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

    /// Counts the thread as waiting for memory until the value is dropped.
    pub fn stall(&self, path: Path) -> Stall<'_, M> {
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

    /// Adds the time lost since the last tick to the averages.
    pub fn tick_stalls(&self) {
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

    /// Clears the averages of a group whose number is given to another group from now on.
    pub fn forget_stalls(&self, group: GroupId) {
        let waiting = &mut self.stalls.waiting.lock().0[usize::from(group.0)];
        waiting.meters = Default::default();
    }

    /// Pressure on all of the driver's memory.
    pub fn root_pressure(&self) -> Pressure {
        let _quiet = SignalsBlocked::new();
        Pressure::new(self.pressure(GroupId::ROOT))
    }

    /// The averages of waiting in `group`.
    pub fn pressure(&self, group: GroupId) -> Averages {
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

impl<M: Memory> Drop for Stall<'_, M> {
    fn drop(&mut self) {
        self.driver.change(&self.path, |threads| threads - 1);
    }
}
