//! Shrinkers: caches of the host program that shrink under the same pressure as managed memory.
//!
//! # The thread that calls them
//! Shrinkers are called only by one dedicated thread. A reclaiming thread, which is a faulting thread or the background
//! thread, only changes a word and wakes the dedicated thread; it neither waits for that thread nor takes a lock that
//! is held during callbacks. During a callback the dedicated thread is outside the gate and holds no lock of the
//! driver. So a callback may take any lock of the program: a thread that holds that lock and faults is served without
//! the callback, continues, and releases the lock. Like any thread, a callback may also touch managed memory.
//!
//! # How much is requested
//! Each round uses the number of pages that reclaim has scanned in the shrinker's group since the last round, divided
//! by the pages charged there: [`millpond_core::policy::shrink`] has the arithmetic.

use crate::driver::Driver;
use crate::error::GroupError;
use crate::memory::Memory;
use crate::panics::{Ours, Outside};
use crate::state::shrink::{Callbacks, Registered};
use millpond_core::GroupId;
use millpond_core::policy::shrink::{DEFAULT_SEEKS, Owed, priority};
use millpond_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use millpond_sync::{OwnThread, Rank, Ranked, thread};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Time for which pressure accumulates before the caches are asked again.
const PAUSE: Duration = Duration::from_millis(5);

impl<M: Memory> Driver<M> {
    /// Registers a cache that shrinks when memory of `group` is short, until [`Driver::forget_shrinker`].
    ///
    /// # Errors
    /// The group was removed, or no thread could be started.
    pub fn add_shrinker(
        self: &Arc<Self>,
        group: GroupId,
        count: impl Fn() -> usize + Send + 'static,
        scan: impl Fn(usize) -> usize + Send + 'static,
    ) -> Result<Arc<Registered>, GroupError> {
        let stat = self.group_stat(group).ok_or(GroupError::Removed)?;
        let registered = Arc::new(Registered {
            group,
            callbacks: Ranked::new(
                Rank::ShrinkerCallbacks,
                Some(Callbacks {
                    count: Box::new(count),
                    scan: Box::new(scan),
                    owed: Owed::default(),
                    seen: stat.vm.pgscan_kswapd + stat.vm.pgscan_direct,
                }),
            ),
            gone: AtomicBool::new(false),
            scanned: AtomicU64::new(0),
            freed: AtomicU64::new(0),
        });
        self.start_shrinking().map_err(|error| GroupError::Thread {
            reason: error.to_string(),
        })?;
        self.shrinkers.all.lock().push(Arc::clone(&registered));
        Ok(registered)
    }

    /// Removes a shrinker. Its callbacks are not called again once this has returned. A callback that calls this itself
    /// runs to its end.
    pub fn forget_shrinker(&self, registered: &Arc<Registered>) {
        registered.gone.store(true, Ordering::SeqCst);
        self.shrinkers
            .all
            .lock()
            .retain(|other| !Arc::ptr_eq(other, registered));
        // A callback may drop its own shrinker: it is not called again, and its callbacks end when the call does.
        if !self.shrinkers.is_own_thread() {
            let callbacks = registered.callbacks.lock().take();
            drop(callbacks);
        }
    }

    fn start_shrinking(self: &Arc<Self>) -> std::io::Result<()> {
        let mut thread = self.shrinkers.thread.lock();
        if thread.is_none() {
            let driver = Arc::clone(self);
            let started = OwnThread::start_for_program(c"millpond-shrink", move || {
                let _ours = Ours::enter();
                driver.keep_shrinking();
            })?;
            *thread = Some(started);
        }
        Ok(())
    }

    /// Tells the thread that memory was reclaimed. Safe in the middle of a fault: the call does not wait.
    pub fn poke_shrinkers(&self) {
        if self.shrinkers.resting.swap(false, Ordering::SeqCst) {
            self.shrinkers.pokes.advance();
            self.shrinkers.pokes.wake();
        }
    }

    /// Ends the thread after its current call.
    pub fn stop_shrinking(&self) {
        self.shrinkers.stop.store(true, Ordering::SeqCst);
        self.shrinkers.resting.store(true, Ordering::SeqCst);
        self.poke_shrinkers();
        // A callback may drop the last manager: then this code runs on the thread itself, which cannot be joined.
        if self.shrinkers.is_own_thread() {
            return;
        }
        let thread = self.shrinkers.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
    }

    fn keep_shrinking(&self) {
        loop {
            let seen = self.shrinkers.pokes.load();
            self.shrinkers.resting.store(true, Ordering::SeqCst);
            if self.shrinkers.stop.load(Ordering::SeqCst) {
                return;
            }
            self.shrinkers.pokes.wait(seen, None);
            #[cfg(feature = "provoke")]
            crate::provoke::here(crate::provoke::Kind::Shrinker);
            let all = self.shrinkers.all.lock().clone();
            for shrinker in all {
                self.call(&shrinker);
            }
            thread::sleep(PAUSE);
        }
    }

    fn call(&self, shrinker: &Registered) {
        let mut callbacks = shrinker.callbacks.lock();
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
