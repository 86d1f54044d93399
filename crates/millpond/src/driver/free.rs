//! Freeing what nobody can touch any more: unhooked under the core's lock, given back outside of it.
//!
//! What the pool has room for goes there. The rest goes in chunks (8 MiB, 32 at most), each a [`Gather`]: one lock for
//! the tables, then one call for its pages, the store's releases and the pool's frames. Up to a threshold (256 Ki
//! pages) the thread that frees gives back what it has gathered; from there on full batches go to the workers while it
//! goes on unhooking, and it waits for them at the end: a free is done when it says so. What is freed in the background
//! is done by the workers alone.
//!
//! On two processors a second thread gains nothing here (the kernel's part is one lock's), so there is one worker, for
//! the background. All three figures can be changed while it runs.
//!
//! The queue has a lock of its own, which is held for an insertion or a removal; the first in is the first given back.
//! Workers are started by jobs, the first of them before that by the tick that finds much memory, and end with the
//! manager. Those of a space are started with it, as a program's thread that knows nothing of us cannot start any.
//!
//! *A part of a space* is moved to addresses behind the space and freed there as a region of its own. Its own addresses
//! are closed when the call returns. A fork waits for all of this: a child has no worker that has begun something.

use super::Driver;
use super::remap::{Beside, RemapRefusal};
use super::snapshot::Named;
use super::turns::Turns;
use crate::signals::SignalsBlocked;
use millpond_core::gather::{GATHER_PAGE, Gather};
use millpond_core::limits::DISCARD_WALK;
use millpond_core::{
    Commands, GIGABYTE_PAGES, GroupId, LEAF_PAGES, PAGE_SIZE, PageCount, PageRange, Refusal, Reply,
};
use millpond_mmu::panics::Ours;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pages of a batch: the slots of 32 MiB in single pages, and a frame for each.
const PAGES: usize = 2 * DISCARD_WALK as usize / GATHER_PAGE + 1;
/// The same for 8 MiB.
const DISCARD_PAGES: usize = PAGES / 4;

/// Mapped pages from which on a worker is started ahead: 64 MiB.
const WORTH_A_WORKER: u64 = 1 << 14;

/// How freeing is done; see [`Manager::set_free_tuning`](crate::Manager::set_free_tuning).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeTuning {
    /// Threads that give memory back in the background. With none, everything is done by the thread that frees.
    pub workers: usize,
    /// Pages that a free unhooks before it hands full batches to the workers.
    pub batch_pages: u32,
    /// Most bytes that go to the kernel by one call, rounded to 2 MiB, 32 MiB at most: nobody else's fault or mmap
    /// waits for longer than that takes.
    pub chunk_bytes: usize,
}

impl Default for FreeTuning {
    fn default() -> Self {
        Self {
            workers: 1,
            batch_pages: 256 << 10,
            chunk_bytes: 8 << 20,
        }
    }
}

/// What freeing has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeStats {
    /// As it is set now.
    pub tuning: FreeTuning,
    /// Jobs that wait for a worker, or are with one.
    pub queued: usize,
    /// Batches that were given back.
    pub batches: u64,
    /// Of these, the ones that a worker gave back.
    pub by_workers: u64,
    /// Bytes of mapped pages and of frames that went to the kernel with these batches. What the pool took for the next
    /// faults is not in it.
    pub bytes: u64,
    /// Slots that the store released with them.
    pub slots: u64,
    /// Time that giving back took, in all threads together.
    pub time: Duration,
}

/// Who frees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freed {
    ByOwner,
    ByWorker,
}

pub(super) enum Job {
    /// A full batch of somebody who frees, and waits for his batches.
    Batch(Box<Gather>, Arc<AtomicUsize>),
    /// A region that is nobody's any more.
    Region(Named),
    /// A region that is kept for the next one of its length.
    Whole(Named),
    /// A base without heirs.
    Base(Named),
    /// A base with one heir.
    Merge(Named),
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Jobs in the hands of workers.
    taken: usize,
    threads: Vec<JoinHandle<()>>,
    /// Workers that wait for a job.
    idle: usize,
    stop: bool,
    /// No more workers than there are.
    complete: bool,
}

/// Nothing is being freed, and nobody begins to, while the value lives.
pub(super) struct AtRest<'a>(MutexGuard<'a, Queue>);

impl AtRest<'_> {
    /// In the child of a fork: the workers are the parent's.
    pub(super) fn forget_workers(mut self) {
        std::mem::forget(std::mem::take(&mut self.0.threads));
        self.0.idle = 0;
    }
}

/// What was given back so far; see [`FreeStats`].
#[derive(Default)]
pub(super) struct Counts {
    batches: AtomicU64,
    by_workers: AtomicU64,
    pages: AtomicU64,
    slots: AtomicU64,
    nanos: AtomicU64,
}

impl Counts {
    /// A batch of `pages` and `slots` was given back, in the time since `begun`.
    pub(super) fn add(&self, by: Freed, pages: PageCount, slots: u64, begun: Instant) {
        let add = |count: &AtomicU64, more| count.fetch_add(more, Ordering::Relaxed);
        add(&self.batches, 1);
        add(&self.by_workers, u64::from(by == Freed::ByWorker));
        add(&self.pages, u64::from(pages.0));
        add(&self.slots, slots);
        add(&self.nanos, begun.elapsed().as_nanos() as u64);
    }
}

/// The queue and what it is tuned by.
pub(crate) struct Freer {
    queue: Mutex<Queue>,
    /// A job has come, or is done.
    changed: Condvar,
    workers: AtomicUsize,
    batch_pages: AtomicU32,
    chunk_pages: AtomicU32,
    pub(super) counts: Counts,
    /// Workers that give memory back; read without the queue's lock.
    busy: AtomicUsize,
    /// The batch for spare frames, as nobody may allocate where these are given back.
    pub(super) spare: Mutex<Gather>,
    /// The same for large discards. Everybody only tries it: who holds it enters the gate.
    pub(super) discards: Mutex<Gather>,
    ended: AtomicBool,
}

impl Freer {
    pub(crate) fn new() -> Self {
        let freer = Self {
            queue: Mutex::default(),
            changed: Condvar::new(),
            workers: AtomicUsize::new(0),
            batch_pages: AtomicU32::new(0),
            chunk_pages: AtomicU32::new(0),
            counts: Counts::default(),
            busy: AtomicUsize::new(0),
            spare: Mutex::new(Gather::with_pages(PAGES)),
            discards: Mutex::new(Gather::with_pages(DISCARD_PAGES)),
            ended: AtomicBool::new(false),
        };
        freer.set_tuning(FreeTuning::default());
        freer
    }

    pub(crate) fn set_tuning(&self, tuning: FreeTuning) {
        let chunk = (tuning.chunk_bytes / PAGE_SIZE).min(DISCARD_WALK as usize) as u32;
        let chunk = chunk.next_multiple_of(LEAF_PAGES).max(LEAF_PAGES);
        self.workers.store(tuning.workers, Ordering::Relaxed);
        self.batch_pages
            .store(tuning.batch_pages, Ordering::Relaxed);
        self.chunk_pages.store(chunk, Ordering::Relaxed);
    }

    /// Most pages that go to the kernel by one call.
    pub(super) fn chunk(&self) -> PageCount {
        PageCount(self.chunk_pages.load(Ordering::Relaxed))
    }

    pub(crate) fn stats(&self) -> FreeStats {
        let queue = self.lock();
        FreeStats {
            tuning: FreeTuning {
                workers: self.workers.load(Ordering::Relaxed),
                batch_pages: self.batch_pages.load(Ordering::Relaxed),
                chunk_bytes: self.chunk_pages.load(Ordering::Relaxed) as usize * PAGE_SIZE,
            },
            queued: queue.jobs.len() + queue.taken,
            batches: self.counts.batches.load(Ordering::Relaxed),
            by_workers: self.counts.by_workers.load(Ordering::Relaxed),
            bytes: self.counts.pages.load(Ordering::Relaxed) * PAGE_SIZE as u64,
            slots: self.counts.slots.load(Ordering::Relaxed),
            time: Duration::from_nanos(self.counts.nanos.load(Ordering::Relaxed)),
        }
    }

    /// In the child of a fork, whose figures begin at zero.
    pub(super) fn begin_anew(&self) {
        self.busy.store(0, Ordering::Relaxed);
        let counts = &self.counts;
        for count in [
            &counts.batches,
            &counts.by_workers,
            &counts.pages,
            &counts.slots,
            &counts.nanos,
        ] {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// Whether a worker gives memory back.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    /// Keeps everybody from freeing in the background, if nothing is being freed now.
    pub(super) fn at_rest(&self) -> Option<AtRest<'_>> {
        let queue = self.lock();
        (queue.jobs.is_empty() && queue.taken == 0).then_some(AtRest(queue))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        self.changed
            .wait(queue)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver {
    /// Gives back all that `range` holds. Nobody can touch it any more. A worker does all of it by itself, as it must
    /// not wait for itself.
    ///
    /// # Errors
    /// A pinned page; what came before it is gone.
    pub(super) fn free_range(self: &Arc<Self>, range: PageRange, by: Freed) -> Result<(), Refusal> {
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
        by: Freed,
        handed_over: &Arc<AtomicUsize>,
    ) -> Result<(), Refusal> {
        let new_batch = || Box::new(Gather::with_pages(PAGES));
        let mut gather = new_batch();
        let mut unhooked = 0;
        let mut turns = Turns::new();
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
            // A fork waits until what was unhooked is given back; whoever else closes the gate need not.
            drop(inside);
            if gather.is_empty() {
                continue;
            }
            unhooked += gather.zap().map_or(0, |range| range.len.0);
            let small = unhooked <= self.freer.batch_pages.load(Ordering::Relaxed);
            if small || by == Freed::ByWorker || self.freer.workers.load(Ordering::Relaxed) == 0 {
                self.give_back(&mut gather, by);
                turns.next();
                continue;
            }
            let full = std::mem::replace(&mut gather, new_batch());
            handed_over.fetch_add(1, Ordering::SeqCst);
            self.queue(Job::Batch(full, Arc::clone(handed_over)));
        }
        Ok(())
    }

    /// As long as demand asks for more frames than are spare, what is freed goes to the pool. Whether it did.
    fn recycle(&self, here: PageRange, by: Freed) -> Result<bool, Refusal> {
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

    /// Frees a region in the background. Its addresses are free at once, if there are as many others for the meantime.
    pub(crate) fn free_async(self: &Arc<Self>, region: Named) {
        let (id, range) = region;
        self.forget_volatile(range);
        self.forget_kept(id);
        // The next one begins in no group of its own.
        let order = self
            .order_of(id)
            .filter(|_| self.group_of(region) == GroupId::ROOT);
        let ended = self.detach(id);
        if self.freer.workers.load(Ordering::Relaxed) == 0 {
            self.end_region(region, Freed::ByOwner);
            return self.end_bases(ended, Freed::ByOwner);
        }
        let grave = self.addresses(range.len).and_then(|grave| {
            // SAFETY: the region has ended, so nobody touches it.
            match unsafe { self.remap(range, grave.1, Beside::default()) } {
                Ok(()) if self.reset(range) => {
                    self.forget_region(region);
                    Some(grave)
                }
                Ok(()) => Some(grave),
                Err(_) => {
                    self.forget_region(grave);
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

    /// Waits until nothing is being freed, and nothing that was is kept whole.
    pub(crate) fn quiesce(self: &Arc<Self>) {
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

    /// Frees a part of a region in the background: whole leaves, which threads may touch meanwhile. They are closed
    /// afterwards.
    ///
    /// # Errors
    /// Nothing has changed.
    pub(crate) fn free_part(self: &Arc<Self>, range: PageRange) -> Result<(), RemapRefusal> {
        if self.freer.workers.load(Ordering::Relaxed) == 0 {
            return Err(RemapRefusal::NoAddressSpace);
        }
        // The kernel moves a GiB by one pointer where both places lie alike in theirs.
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
                self.forget_region(grave);
                return Err(refusal);
            }
        }
        Ok(())
    }

    pub(super) fn wait_for_jobs(&self) {
        let mut queue = self.freer.lock();
        while !queue.jobs.is_empty() || queue.taken > 0 {
            queue = self.freer.wait(queue);
        }
    }

    pub(super) fn queue(self: &Arc<Self>, job: Job) {
        let mut queue = self.freer.lock();
        queue.jobs.push_back(job);
        self.start_another(&mut queue);
        if queue.threads.is_empty() {
            let job = queue.jobs.pop_back();
            queue.taken += 1;
            drop(queue);
            self.do_job(job.expect("it was queued above"), Freed::ByOwner);
            return;
        }
        self.freer.changed.notify_all();
    }

    /// Starts a worker before it is wanted, as soon as there is so much memory that giving it back takes longer than
    /// making a thread, 100 to 160 µs: half of what a `free_async` took its caller.
    pub(super) fn start_worker_ahead(self: &Arc<Self>) {
        if self.lock().stats().nr_mapped < WORTH_A_WORKER {
            return;
        }
        let mut queue = self.freer.lock();
        if queue.threads.is_empty() {
            self.start_another(&mut queue);
        }
    }

    /// Starts one more worker if all of them have something to do and more are allowed.
    fn start_another(self: &Arc<Self>, queue: &mut Queue) {
        let most = self.freer.workers.load(Ordering::Relaxed);
        if queue.idle == 0 && queue.threads.len() < most && !queue.stop && !queue.complete {
            // Without a thread somebody does it all the same: who waits for it, or the end of the manager.
            queue
                .threads
                .extend(self.start_worker(|driver| driver.work()));
        }
    }

    fn start_worker(
        self: &Arc<Self>,
        life: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> std::io::Result<JoinHandle<()>> {
        let driver = Arc::clone(self);
        let thread = std::thread::Builder::new().name("millpond-free".into());
        thread.spawn(move || {
            let _ours = Ours::enter();
            life(&driver);
        })
    }

    /// Starts the workers of a space, the only ones that it will have, and waits until they need nothing of the
    /// program's any more.
    pub(crate) fn start_freeing(self: &Arc<Self>) -> std::io::Result<()> {
        let workers = self.freer.workers.load(Ordering::Relaxed);
        let ready = Arc::new(Barrier::new(workers + 1));
        let _quiet = SignalsBlocked::new();
        let mut threads = Vec::with_capacity(workers);
        for _ in 0..workers {
            let ready = Arc::clone(&ready);
            threads.push(self.start_worker(move |driver| {
                driver.isolate();
                ready.wait();
                driver.work();
            })?);
        }
        ready.wait();
        let mut queue = self.freer.lock();
        queue.threads = threads;
        queue.complete = true;
        Ok(())
    }

    /// A worker's life.
    fn work(self: &Arc<Self>) {
        let _quiet = SignalsBlocked::new();
        let mut turns = Turns::new();
        loop {
            #[cfg(test)]
            super::provoke::here(super::provoke::Kind::Freer);
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
            // What is cleared or merged is not given back.
            let gives_back = !matches!(job, Job::Whole(_) | Job::Merge(_));
            let busy = usize::from(gives_back);
            self.freer.busy.fetch_add(busy, Ordering::Relaxed);
            self.do_job(job, Freed::ByWorker);
            self.freer.busy.fetch_sub(busy, Ordering::Relaxed);
            turns.next();
        }
    }

    /// `by` is who gives a batch back. A whole region is always ended as a worker does it, without waiting for others.
    fn do_job(self: &Arc<Self>, job: Job, by: Freed) {
        let mut waits = None;
        match job {
            Job::Batch(mut gather, owner) => {
                self.give_back(&mut gather, by);
                waits = Some(owner);
            }
            Job::Region(region) => self.end_region(region, Freed::ByWorker),
            Job::Whole(region) => self.clear_whole(region),
            Job::Base(base) => {
                let ended = super::snapshot::Ended {
                    orphan: Some(base),
                    single: None,
                };
                self.end_bases(ended, Freed::ByWorker);
            }
            Job::Merge(base) => self.merge(base),
        }
        let mut queue = self.freer.lock();
        queue.taken -= 1;
        // Under the lock: once the owner goes on, nothing of his is queued or taken any more.
        if let Some(batches) = waits {
            batches.fetch_sub(1, Ordering::SeqCst);
        }
        drop(queue);
        self.freer.changed.notify_all();
    }

    /// The manager ends: what is queued is done first.
    pub(crate) fn stop_freeing(&self) {
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
            // A panic there has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Manager, Order};
    use std::sync::Arc;

    /// Row 3.4: the end of a manager goes the same way, and is the end of all that is queued. (From outside nobody can
    /// ask any more.)
    #[test]
    fn the_end_of_a_manager_gives_back_in_batches_what_is_queued() {
        // Not to be kept for the next region of that length.
        let order = Order::new(5).expect("128 KiB");
        let manager = Manager::builder()
            .store(crate::StoreKind::compressed_ram())
            .order(crate::Order::new(4).unwrap())
            .ram(128 << 20)
            .build()
            .unwrap();
        let driver = Arc::clone(manager.pond().driver());
        let mut region = manager.region_with(112 << 20, order).unwrap();
        region.as_mut_slice().fill(7);
        region.free_async();
        drop(manager);
        let (stats, vm) = (driver.freer.stats(), driver.lock().stats());
        assert_eq!(stats.queued, 0);
        // Half of the budget may be spare.
        assert!(stats.bytes >= 32 << 20, "{stats:?}");
        assert!(stats.by_workers > 0, "{stats:?}");
        let left = (vm.nr_mapped, vm.nr_limbo, vm.nr_swapped, vm.nr_unhooked);
        assert_eq!(left, (0, 0, 0, 0));
    }
}
