//! Shrinkers: caches of the host program that give way under the same pressure as managed memory.
//!
//! # Who calls them
//! One thread of our own, and nobody else. Whoever reclaims, a faulting thread or the background, only changes a word
//! and wakes that thread; it neither waits for it nor takes a lock that it holds while it calls. The thread is outside
//! of the gate and holds no lock of the driver's meanwhile. So a callback may take any lock of the program: whoever
//! holds it and faults is served without the callback, goes on, and lets it go. It may touch managed memory, too, as
//! any thread may.
//!
//! # How much
//! Each round looks at what reclaim has scanned in the shrinker's group since the last one, over what is charged there:
//! [`millpond_core::policy::shrink`] has the arithmetic.

use super::Driver;
use crate::error::GroupError;
use crate::group::Group;
use crate::manager::{Manager, Pond};
use millpond_core::GroupId;
use millpond_core::policy::shrink::{DEFAULT_SEEKS, Owed, priority};
use millpond_mmu::panics::{Ours, Outside};
use rustix::thread::futex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

/// Pressure is gathered for this long before the caches are asked again.
const PAUSE: Duration = Duration::from_millis(5);

/// How many objects could be given up, and: look at so many, give up what can be, say how many were.
struct Callbacks {
    count: Box<dyn Fn() -> usize + Send>,
    scan: Box<dyn Fn(usize) -> usize + Send>,
    owed: Owed,
    /// Pages of its group that reclaim had scanned at the last round.
    seen: u64,
}

/// One that is registered. The lock is held while it is called, so that it is not called once its guard is gone.
struct Registered {
    group: GroupId,
    callbacks: Mutex<Option<Callbacks>>,
    gone: AtomicBool,
    scanned: AtomicU64,
    freed: AtomicU64,
}

/// What a shrinker was asked for so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShrinkerStats {
    /// Objects that it was asked to look at.
    pub scanned: u64,
    /// Objects that it gave up.
    pub freed: u64,
}

/// Keeps a shrinker registered while it lives. See [`Manager::register_shrinker`].
#[must_use = "the shrinker is registered only while the guard lives"]
pub struct ShrinkerGuard {
    registered: Arc<Registered>,
    pond: Arc<Pond>,
}

pub(crate) struct Shrinkers {
    all: Mutex<Vec<Arc<Registered>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Futex word: changes when somebody has reclaimed.
    pokes: AtomicU32,
    /// Whether the thread sleeps.
    resting: AtomicBool,
    stop: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shrinkers {
    pub(crate) fn new() -> Self {
        Self {
            all: Mutex::default(),
            thread: Mutex::default(),
            pokes: AtomicU32::new(0),
            resting: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        }
    }

    fn is_own_thread(&self, me: ThreadId) -> bool {
        lock(&self.thread)
            .as_ref()
            .is_some_and(|thread| thread.thread().id() == me)
    }
}

impl Manager {
    /// Lets a cache of the program shrink when memory of `group` is short. `count` says how many objects could be given
    /// up; `scan` is asked to look at a number of them, gives up those that it can, and says how many that were.
    ///
    /// Both are called by a thread of their own and never by one that faults, so they may take locks that threads hold
    /// while they touch managed memory. They must not wait for the guard's drop, which waits for them.
    ///
    /// # Errors
    /// The group was removed or is another manager's, or no thread could be started.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// let manager = millpond::Manager::builder().ram(16 << 20).build()?;
    /// let cache = Arc::new(Mutex::new(vec![[0u8; 64]; 100_000]));
    /// let (counted, scanned) = (Arc::clone(&cache), Arc::clone(&cache));
    /// let guard = manager.register_shrinker(
    ///     &manager.root(),
    ///     move || counted.lock().unwrap().len(),
    ///     move |objects| {
    ///         let mut cache = scanned.lock().unwrap();
    ///         let keep = cache.len().saturating_sub(objects);
    ///         let freed = cache.len() - keep;
    ///         cache.truncate(keep);
    ///         freed
    ///     },
    /// )?;
    /// manager.region(64 << 20)?.as_mut_slice().fill(7);
    /// while guard.stats().freed == 0 {
    ///     std::thread::yield_now();
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn register_shrinker(
        &self,
        group: &Group,
        count: impl Fn() -> usize + Send + 'static,
        scan: impl Fn(usize) -> usize + Send + 'static,
    ) -> Result<ShrinkerGuard, GroupError> {
        if !group.is_of(self.pond()) {
            return Err(GroupError::OtherManager);
        }
        let driver = self.pond().driver();
        let stat = driver.group_stat(group.id()).ok_or(GroupError::Removed)?;
        let registered = Arc::new(Registered {
            group: group.id(),
            callbacks: Mutex::new(Some(Callbacks {
                count: Box::new(count),
                scan: Box::new(scan),
                owed: Owed::default(),
                seen: stat.vm.pgscan_kswapd + stat.vm.pgscan_direct,
            })),
            gone: AtomicBool::new(false),
            scanned: AtomicU64::new(0),
            freed: AtomicU64::new(0),
        });
        driver
            .start_shrinking()
            .map_err(|error| GroupError::Thread {
                reason: error.to_string(),
            })?;
        lock(&driver.shrinkers.all).push(Arc::clone(&registered));
        Ok(ShrinkerGuard {
            registered,
            pond: Arc::clone(self.pond()),
        })
    }
}

impl ShrinkerGuard {
    /// What it was asked for so far.
    #[must_use]
    pub fn stats(&self) -> ShrinkerStats {
        ShrinkerStats {
            scanned: self.registered.scanned.load(Ordering::Relaxed),
            freed: self.registered.freed.load(Ordering::Relaxed),
        }
    }
}

impl Drop for ShrinkerGuard {
    fn drop(&mut self) {
        if !self.pond.is_ours() {
            return;
        }
        self.registered.gone.store(true, Ordering::SeqCst);
        let shrinkers = &self.pond.driver().shrinkers;
        lock(&shrinkers.all).retain(|other| !Arc::ptr_eq(other, &self.registered));
        // Its own callback drops it: it is not called again, and ends when the call does.
        if !shrinkers.is_own_thread(std::thread::current().id()) {
            drop(lock(&self.registered.callbacks).take());
        }
    }
}

impl std::fmt::Debug for ShrinkerGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShrinkerGuard")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Driver {
    fn start_shrinking(self: &Arc<Self>) -> std::io::Result<()> {
        let mut thread = lock(&self.shrinkers.thread);
        if thread.is_none() {
            let driver = Arc::clone(self);
            let started = std::thread::Builder::new()
                .name("millpond-shrink".into())
                .spawn(move || {
                    let _ours = Ours::enter();
                    driver.keep_shrinking();
                })?;
            *thread = Some(started);
        }
        Ok(())
    }

    /// Somebody has reclaimed. For threads in the middle of a fault: nothing is waited for.
    pub(super) fn poke_shrinkers(&self) {
        if self.shrinkers.resting.swap(false, Ordering::SeqCst) {
            self.shrinkers.pokes.fetch_add(1, Ordering::SeqCst);
            let _ = futex::wake(&self.shrinkers.pokes, futex::Flags::PRIVATE, 1);
        }
    }

    /// Ends the thread, when it has ended the call that it is in.
    pub(crate) fn stop_shrinking(&self) {
        self.shrinkers.stop.store(true, Ordering::SeqCst);
        self.shrinkers.resting.store(true, Ordering::SeqCst);
        self.poke_shrinkers();
        // The last manager may be dropped by a callback.
        if !self.shrinkers.is_own_thread(std::thread::current().id())
            && let Some(thread) = lock(&self.shrinkers.thread).take()
        {
            // Panics of callbacks were caught and told.
            let _ = thread.join();
        }
    }

    fn keep_shrinking(&self) {
        loop {
            let seen = self.shrinkers.pokes.load(Ordering::SeqCst);
            self.shrinkers.resting.store(true, Ordering::SeqCst);
            if self.shrinkers.stop.load(Ordering::SeqCst) {
                return;
            }
            let _ = futex::wait(&self.shrinkers.pokes, futex::Flags::PRIVATE, seen, None);
            #[cfg(test)]
            super::provoke::here(super::provoke::Kind::Shrinker);
            let all = lock(&self.shrinkers.all).clone();
            for shrinker in all {
                self.call(&shrinker);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn call(&self, shrinker: &Registered) {
        let mut callbacks = lock(&shrinker.callbacks);
        let Some(live) = callbacks.as_mut() else {
            return;
        };
        let Some(stat) = self.group_stat(shrinker.group) else {
            return;
        };
        let scans = stat.vm.pgscan_kswapd + stat.vm.pgscan_direct;
        let scanned = scans - std::mem::replace(&mut live.seen, scans);
        let Some(priority) = priority(scanned, u64::from(stat.usage.0)) else {
            return;
        };
        let called = catch_unwind(AssertUnwindSafe(|| {
            let _theirs = Outside::enter();
            let freeable = (live.count)() as u64;
            let mut round = live.owed.begin(freeable, priority, DEFAULT_SEEKS);
            while let Some(objects) = round.next() {
                if shrinker.gone.load(Ordering::SeqCst) {
                    break;
                }
                let freed = (live.scan)(objects as usize) as u64;
                round.looked_at(objects);
                shrinker.scanned.fetch_add(objects, Ordering::Relaxed);
                shrinker.freed.fetch_add(freed, Ordering::Relaxed);
            }
            live.owed.end(round);
        }));
        if called.is_err() {
            millpond_mmu::report::line(format_args!(
                "a shrinker panicked, and is not called any more"
            ));
            *callbacks = None;
        }
    }
}
