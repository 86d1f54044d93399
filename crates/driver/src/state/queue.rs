//! Freeing in the background: its tuning, the queue, and the counts (`free.rs`).

use crate::state::named::Named;
use millpond_core::gather::{GATHER_PAGE, Gather};
use millpond_core::limits::DISCARD_WALK;
use millpond_core::{LEAF_PAGES, PAGE_SIZE, PageCount};
use millpond_sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use millpond_sync::time::Instant;
use millpond_sync::{Condvar, Held, OwnThread, Rank, Ranked};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Pages of a batch: the slots of 32 MiB in single pages, and a frame for each.
pub(crate) const PAGES: usize = 2 * DISCARD_WALK as usize / GATHER_PAGE + 1;

/// Pages of a batch for discards: those of 8 MiB.
pub(crate) const DISCARD_PAGES: usize = PAGES / 4;

/// Tuning of freeing; see `Manager::set_free_tuning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeTuning {
    /// Threads that give memory back in the background. With none, everything is done by the thread that frees.
    pub workers: usize,
    /// Pages that a free unhooks before it hands full batches to the workers.
    pub batch_pages: u32,
    /// Maximum number of bytes given to the kernel by one call, rounded to 2 MiB, at most 32 MiB: no fault or mmap of
    /// another thread waits for longer than that takes.
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

/// Figures of freeing so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeStats {
    /// The present tuning.
    pub tuning: FreeTuning,
    /// Jobs that wait for a worker, or that one is doing.
    pub queued: usize,
    /// Batches that were given back.
    pub batches: u64,
    /// Batches that a worker gave back; included in `batches`.
    pub by_workers: u64,
    /// Bytes of mapped pages and of frames that these batches gave to the kernel. Frames that the pool took for the
    /// next faults are not included.
    pub bytes: u64,
    /// Slots that the store released for these batches.
    pub slots: u64,
    /// Time that giving back took, in all threads together.
    pub time: Duration,
}

/// The thread that frees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum FreedBy {
    /// The thread that gave the memory up.
    Owner,
    /// A worker.
    Worker,
}

/// A job: something to give back.
pub enum Job {
    /// A full batch of a freeing thread, and the count of its batches for which that thread waits.
    Batch(Box<Gather>, Arc<AtomicUsize>),
    /// A region that no longer has an owner.
    Region(Named),
    /// A region that is kept for the next one of its length.
    Whole(Named),
    /// A base without heirs.
    Base(Named),
    /// A base with one heir.
    Merge(Named),
}

#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) jobs: VecDeque<Job>,
    /// Jobs in the hands of workers.
    pub(crate) taken: usize,
    pub(crate) threads: Vec<OwnThread>,
    /// Workers that wait for a job.
    pub(crate) idle: usize,
    pub(crate) stop: bool,
    /// Whether no job may start a worker: the queue has all the workers that it will ever have, or the background
    /// thread will start them.
    pub(crate) complete: bool,
}

/// A guard: nothing is being freed, and no thread begins to free, while the value lives.
pub struct AtRest<'a>(pub(crate) Held<'a, Queue>);

impl AtRest<'_> {
    /// Forgets the workers in the child of a fork: they are the parent's.
    pub fn forget_workers(mut self) {
        std::mem::forget(std::mem::take(&mut self.0.threads));
        self.0.idle = 0;
    }
}

/// Counts of memory that was given back so far; see [`FreeStats`].
#[derive(Default)]
pub struct Counts {
    pub(crate) batches: AtomicU64,
    pub(crate) by_workers: AtomicU64,
    pub(crate) pages: AtomicU64,
    pub(crate) slots: AtomicU64,
    pub(crate) nanos: AtomicU64,
}

impl Counts {
    /// Counts a batch of `pages` and `slots` that was given back, in the time since `begun`.
    pub fn add(&self, by: FreedBy, pages: PageCount, slots: u64, begun: Instant) {
        let add = |count: &AtomicU64, more| count.fetch_add(more, Ordering::Relaxed);
        add(&self.batches, 1);
        add(&self.by_workers, u64::from(by == FreedBy::Worker));
        add(&self.pages, u64::from(pages.0));
        add(&self.slots, slots);
        add(&self.nanos, begun.elapsed().as_nanos() as u64);
    }
}

/// The queue and its tuning.
pub struct Freer {
    pub(crate) queue: Ranked<Queue>,
    /// Notified when a job has come or is done.
    pub(crate) changed: Condvar,
    pub(crate) workers: AtomicUsize,
    pub(crate) batch_pages: AtomicU32,
    pub(crate) chunk_pages: AtomicU32,
    /// Counts of memory that was given back so far.
    pub counts: Counts,
    /// Workers that give memory back; read without the queue's lock.
    pub(crate) busy: AtomicUsize,
    /// The batch for spare frames, as the code that gives these back may not allocate.
    pub spare: Ranked<Gather>,
    /// The batch for large discards. Threads only try its lock, as its holder enters the gate.
    pub discards: Ranked<Gather>,
    pub(crate) ended: AtomicBool,
}

impl Freer {
    /// Makes an empty queue.
    pub(crate) fn new() -> Self {
        let freer = Self {
            queue: Ranked::new(Rank::Frees, Queue::default()),
            changed: Condvar::new(),
            workers: AtomicUsize::new(0),
            batch_pages: AtomicU32::new(0),
            chunk_pages: AtomicU32::new(0),
            counts: Counts::default(),
            busy: AtomicUsize::new(0),
            spare: Ranked::new(Rank::SpareFrames, Gather::with_pages(PAGES)),
            discards: Ranked::new(Rank::Discards, Gather::with_pages(DISCARD_PAGES)),
            ended: AtomicBool::new(false),
        };
        freer.set_tuning(FreeTuning::default());
        freer
    }

    /// Changes how later jobs are done.
    pub fn set_tuning(&self, tuning: FreeTuning) {
        let chunk = (tuning.chunk_bytes / PAGE_SIZE).min(DISCARD_WALK as usize) as u32;
        let chunk = chunk.next_multiple_of(LEAF_PAGES).max(LEAF_PAGES);
        self.workers.store(tuning.workers, Ordering::Relaxed);
        self.batch_pages
            .store(tuning.batch_pages, Ordering::Relaxed);
        self.chunk_pages.store(chunk, Ordering::Relaxed);
    }

    /// Most pages that go to the kernel by one call.
    pub fn chunk(&self) -> PageCount {
        PageCount(self.chunk_pages.load(Ordering::Relaxed))
    }

    /// The tuning, and the counts of memory that was given back so far.
    pub fn stats(&self) -> FreeStats {
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

    /// Clears the figures in the child of a fork, so that they begin at zero.
    pub fn begin_anew(&self) {
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
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    /// Stops all threads from freeing in the background, if nothing is being freed now.
    pub fn at_rest(&self) -> Option<AtRest<'_>> {
        let queue = self.lock();
        (queue.jobs.is_empty() && queue.taken == 0).then_some(AtRest(queue))
    }

    pub(crate) fn lock(&self) -> Held<'_, Queue> {
        self.queue.lock()
    }

    pub(crate) fn wait<'a>(&self, queue: Held<'a, Queue>) -> Held<'a, Queue> {
        queue.wait(&self.changed)
    }
}
