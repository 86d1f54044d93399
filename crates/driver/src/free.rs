//! Freeing memory that no thread can touch any longer: it is unhooked under the core's lock and given back outside it.
//!
//! Memory goes to the pool as far as that has room. The rest goes in chunks (8 MiB, 32 at most), each a [`Gather`]: one
//! lock for the tables, then one call for its pages, the store's releases and the pool's frames. Up to a threshold (256
//! Ki pages) the freeing thread gives back what it has gathered. Beyond that, full batches go to the workers while the
//! thread continues unhooking, and it waits for them at the end: when a free returns, it is complete. A free in the
//! background is done only by the workers.
//!
//! On two processors a second thread gains nothing here (the kernel's part runs under a single lock), so there is one
//! worker, for the background. All three figures can be changed while the driver runs.
//!
//! The queue has its own lock, which is held only for an insertion or a removal, and is first in, first out. Jobs start
//! workers, which end with the manager; a tick that finds much memory starts the first worker before any job. The
//! workers of a space are not started by jobs, as a thread of an arbitrary program cannot start any. The background
//! thread starts them at its first tick; before that, a thread that would queue a job does the job itself.
//!
//! *A part of a space* is moved to addresses behind the space and freed there as a separate region. Its former
//! addresses are closed when the call returns. A fork waits for all of this: a child has no worker that could finish
//! the work.

use crate::driver::Driver;
use crate::memory::Memory;
use crate::panics::Ours;
use crate::remap::{Beside, RemapRefusal};
use crate::signals::SignalsBlocked;
use crate::state::named::Ended;
use crate::state::named::Named;
use crate::state::pauses::Pauses;
use crate::state::queue::{FreedBy, Job, PAGES, Queue};
use millpond_core::gather::Gather;
use millpond_core::{
    Commands, GIGABYTE_PAGES, GroupId, LEAF_PAGES, PageCount, PageRange, Refusal, Reply,
};
use millpond_sync::atomic::{AtomicUsize, Ordering};
use millpond_sync::{Barrier, OwnThread};
use std::sync::Arc;

/// Number of mapped pages from which a worker is started ahead: 64 MiB.
const WORTH_A_WORKER: u64 = 1 << 14;

impl<M: Memory> Driver<M> {
    /// Gives back all that `range` holds. No thread can touch it any longer. A worker does all of it by itself, as it
    /// must not wait for itself.
    ///
    /// # Errors
    /// A pinned page; the part of the range before it is freed.
    pub fn free_range(self: &Arc<Self>, range: PageRange, by: FreedBy) -> Result<(), Refusal> {
        let _quiet = SignalsBlocked::new();
        let handed_over = Arc::new(AtomicUsize::new(0));
        let result = self.unhook(range, by, &handed_over);
        let mut queue = self.freer.lock();
        while handed_over.load(Ordering::SeqCst) > 0 {
            queue = self.freer.wait(queue);
        }
        result
    }

    fn unhook(
        self: &Arc<Self>,
        mut rest: PageRange,
        by: FreedBy,
        handed_over: &Arc<AtomicUsize>,
    ) -> Result<(), Refusal> {
        let new_batch = || Box::new(Gather::with_pages(PAGES));
        let mut gather = new_batch();
        let mut unhooked = 0;
        let mut pauses = Pauses::new();
        while !rest.is_empty() {
            let here = PageRange::new(rest.start, rest.len.min(self.freer.chunk()));
            if self.recycle(here, by)? {
                rest = rest.tail(here.end());
                continue;
            }
            let inside = self.gate.enter();
            let mut core = self.lock();
            match core.gather(here, &mut gather) {
                Reply::Done => rest = rest.tail(here.end()),
                Reply::More { from } => rest = rest.tail(from),
                Reply::Wait { .. } => {
                    drop(self.wait_settled(core));
                    continue;
                }
                Reply::Refused(refusal) => return Err(refusal),
                reply => unreachable!("{reply:?} is no answer to a gather"),
            }
            drop(core);
            // A fork waits until unhooked memory is given back; other threads that close the gate need not.
            drop(inside);
            if gather.is_empty() {
                continue;
            }
            unhooked += gather.zap().map_or(0, |range| range.len.0);
            let small = unhooked <= self.freer.batch_pages.load(Ordering::Relaxed);
            if small || by == FreedBy::Worker || self.freer.workers.load(Ordering::Relaxed) == 0 {
                self.give_back(&mut gather, by);
                pauses.pause_if_due();
                continue;
            }
            let full = std::mem::replace(&mut gather, new_batch());
            handed_over.fetch_add(1, Ordering::SeqCst);
            self.queue(Job::Batch(full, Arc::clone(handed_over)));
        }
        Ok(())
    }

    /// Frees `here` into the pool while demand requires more frames than are spare. Returns whether it did.
    fn recycle(&self, here: PageRange, by: FreedBy) -> Result<bool, Refusal> {
        let wanted = {
            let _inside = self.gate.enter();
            let core = self.lock();
            core.pool_room() >= here.len
        };
        if wanted {
            self.discard_chunk(&mut Commands::new(), here, by)?;
        }
        Ok(wanted)
    }

    /// Frees a region in the background. Its addresses are free at once, if equally many other addresses are available
    /// in the meantime.
    pub fn free_async(self: &Arc<Self>, region: Named) {
        let (id, range) = region;
        self.forget_volatile(range);
        self.forget_kept(id);
        // The next region at these addresses does not inherit this one's group.
        let order = self
            .order_of(id)
            .filter(|_| self.group_of(region) == GroupId::ROOT);
        let ended = self.detach(id);
        if self.freer.workers.load(Ordering::Relaxed) == 0 {
            self.end_region(region, FreedBy::Owner);
            return self.end_bases(ended, FreedBy::Owner);
        }
        let grave = self.addresses(range.len).and_then(|grave| {
            // SAFETY: the region has ended, so no thread touches it.
            match unsafe { self.remap(range, grave.1, Beside::default()) } {
                Ok(()) if self.reset(range) => {
                    self.forget_region(region);
                    Some(grave)
                }
                Ok(()) => Some(grave),
                Err(_) => {
                    self.take_back(grave);
                    None
                }
            }
        });
        match grave {
            Some(grave) if self.keep_whole(grave, order) => self.queue(Job::Whole(grave)),
            _ => self.queue(Job::Region(grave.unwrap_or(region))),
        }
        if let Some(base) = ended.orphan {
            self.queue(Job::Base(base));
        }
        if let Some(base) = ended.single {
            self.queue(Job::Merge(base));
        }
    }

    /// Waits until nothing is being freed, and no freed region is kept whole.
    pub fn quiesce(self: &Arc<Self>) {
        let _quiet = SignalsBlocked::new();
        self.wait_for_jobs();
        while self.end_oldest_whole() {}
        self.wait_for_jobs();
        loop {
            let core = self.lock();
            if core.stats().nr_unhooked == 0 {
                return;
            }
            drop(self.wait_settled(core));
        }
    }

    /// Frees a part of a region in the background: whole leaves, which threads may touch during the call. They are
    /// closed afterwards.
    ///
    /// # Errors
    /// After an error nothing has changed.
    pub fn free_part(self: &Arc<Self>, range: PageRange) -> Result<(), RemapRefusal> {
        if self.freer.workers.load(Ordering::Relaxed) == 0 {
            return Err(RemapRefusal::NoAddressSpace);
        }
        // The kernel moves a GiB by one pointer if source and destination have the same offset within a GiB.
        let spare = match range.len.0 >= GIGABYTE_PAGES {
            true => GIGABYTE_PAGES - LEAF_PAGES,
            false => 0,
        };
        let grave = (self.addresses(PageCount(range.len.0 + spare)))
            .or_else(|| self.addresses(range.len))
            .ok_or(RemapRefusal::NoAddressSpace)?;
        let shift = range.start.0.wrapping_sub(grave.1.start.0) % GIGABYTE_PAGES;
        let shift = shift.min(grave.1.len.0 - range.len.0);
        let to = PageRange::new(grave.1.start.plus(shift), range.len);
        match self.remap_watched(range, to, false) {
            Ok(()) => self.queue(Job::Region(grave)),
            Err(refusal) => {
                self.take_back(grave);
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// Waits until all queued jobs are done.
    pub fn wait_for_jobs(&self) {
        let mut queue = self.freer.lock();
        while !queue.jobs.is_empty() || queue.taken > 0 {
            queue = self.freer.wait(queue);
        }
    }

    /// Leaves `job` to a worker, or does it at once if there is none.
    pub fn queue(self: &Arc<Self>, job: Job) {
        let mut queue = self.freer.lock();
        queue.jobs.push_back(job);
        self.start_another(&mut queue);
        if queue.threads.is_empty() {
            let job = queue.jobs.pop_back();
            queue.taken += 1;
            drop(queue);
            self.do_job(job.expect("it was queued above"), FreedBy::Owner);
            return;
        }
        self.freer.changed.notify_all();
    }

    /// Starts a worker before it is needed, as soon as there is so much memory that giving it back takes longer than
    /// making a thread. Making one takes 100 to 160 µs, which was half of the time that a `free_async` took its caller.
    pub fn start_worker_ahead(self: &Arc<Self>) {
        if self.lock().stats().nr_mapped < WORTH_A_WORKER {
            return;
        }
        let mut queue = self.freer.lock();
        if queue.threads.is_empty() {
            self.start_another(&mut queue);
        }
    }

    /// Starts one more worker if all of them are busy and more are allowed.
    fn start_another(self: &Arc<Self>, queue: &mut Queue) {
        let most = self.freer.workers.load(Ordering::Relaxed);
        if queue.idle == 0 && queue.threads.len() < most && !queue.stop && !queue.complete {
            // If no thread can be made, a job is still done: by the thread that waits for it, or at the end of the
            // manager.
            queue
                .threads
                .extend(self.start_worker(|driver| driver.work()));
        }
    }

    fn start_worker(
        self: &Arc<Self>,
        life: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> std::io::Result<OwnThread> {
        let driver = Arc::clone(self);
        OwnThread::start(c"millpond-free", move || {
            let _ours = Ours::enter();
            life(&driver);
        })
    }

    /// The loop of a worker thread.
    fn work(self: &Arc<Self>) {
        let _quiet = SignalsBlocked::new();
        let mut pauses = Pauses::new();
        loop {
            #[cfg(feature = "provoke")]
            crate::provoke::here(crate::provoke::Kind::Freer);
            let mut queue = self.freer.lock();
            let job = loop {
                let wanted = self.freer.workers.load(Ordering::Relaxed).max(1);
                if queue.taken < wanted
                    && let Some(job) = queue.jobs.pop_front()
                {
                    break job;
                }
                if queue.stop && queue.jobs.is_empty() {
                    return;
                }
                queue.idle += 1;
                queue = self.freer.wait(queue);
                queue.idle -= 1;
            };
            queue.taken += 1;
            drop(queue);
            self.do_job(job, FreedBy::Worker);
            pauses.pause_if_due();
        }
    }

    /// Does a job. `by` names the thread that gives a batch back. A whole region is always ended in the manner of a
    /// worker, without waiting for others.
    fn do_job(self: &Arc<Self>, job: Job, by: FreedBy) {
        let mut waits = None;
        // Preparing a region and merging give nothing back.
        let busy = by == FreedBy::Worker && !matches!(job, Job::Whole(_) | Job::Merge(_));
        if busy {
            self.freer.busy.fetch_add(1, Ordering::Relaxed);
        }
        match job {
            Job::Batch(mut gather, owner) => {
                self.give_back(&mut gather, by);
                waits = Some(owner);
            }
            Job::Region(region) => self.end_region(region, FreedBy::Worker),
            Job::Whole(region) => self.prepare_whole(region),
            Job::Base(base) => {
                let ended = Ended {
                    orphan: Some(base),
                    single: None,
                };
                self.end_bases(ended, FreedBy::Worker);
            }
            Job::Merge(base) => self.merge(base),
        }
        if busy {
            {
                // A thread that waits for a batch has seen under the lock that a worker is busy. That thread may be
                // inside the gate, with a closing thread behind it, so this worker must not wait at the gate.
                let _core = self.lock();
                self.freer.busy.fetch_sub(1, Ordering::Relaxed);
            }
            self.wake_waiters();
        }
        let mut queue = self.freer.lock();
        queue.taken -= 1;
        // The count changes under the lock: once the owner continues, none of its batches is still queued or taken.
        if let Some(batches) = waits {
            batches.fetch_sub(1, Ordering::SeqCst);
        }
        drop(queue);
        self.freer.changed.notify_all();
    }

    /// Does all jobs that are queued and ends the workers, as the manager ends.
    pub fn stop_freeing(&self) {
        if self.freer.ended.swap(true, Ordering::SeqCst) {
            return;
        }
        let threads = {
            let mut queue = self.freer.lock();
            queue.stop = true;
            std::mem::take(&mut queue.threads)
        };
        self.freer.changed.notify_all();
        for thread in threads {
            thread.join();
        }
    }
}

impl Driver {
    /// Prevents jobs from starting workers: the background thread will start them, at its first tick.
    pub fn start_freeing_later(&self) {
        self.freer.lock().complete = true;
    }

    /// Starts the workers of a space, the only ones that the space will have, and waits until they no longer need
    /// anything of the program.
    ///
    /// # Errors
    /// No worker could be made. If only some could, these do the work.
    pub fn start_freeing(self: &Arc<Self>) -> std::io::Result<()> {
        let workers = self.freer.workers.load(Ordering::Relaxed);
        let _quiet = SignalsBlocked::new();
        let mut threads = Vec::with_capacity(workers);
        while threads.len() < workers {
            let ready = Arc::new(Barrier::new(2));
            let thread_ready = Arc::clone(&ready);
            let started = self.start_worker(move |driver| {
                thread_ready.wait();
                driver.isolate();
                thread_ready.wait();
                driver.work();
            });
            match started {
                Ok(thread) => threads.push(thread),
                Err(error) if threads.is_empty() => return Err(error),
                Err(_) => break,
            }
            // A fork comes before the thread changes its descriptor table, or after it.
            let _still = self.housekeeping.lock();
            ready.wait();
            ready.wait();
        }
        let mut queue = self.freer.lock();
        queue.threads = threads;
        queue.complete = true;
        Ok(())
    }
}
