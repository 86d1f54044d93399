//! The processor of the background thread: a different one from the program's, or the program's own, shared in turn.
//!
//! Every processor that runs the program has to forget a removed page-table entry. So a call that takes pages out on
//! another processor interrupts the program's processor and waits for it: 5 to 8 µs there, and 10 on the calling
//! processor, while the work itself takes one. On the program's own processor nothing is interrupted, but one of the
//! two threads waits.
//!
//! *Which place is better* depends on how much leaves by one call. Compressing a folio of 2 MiB takes a millisecond,
//! which another processor can spend in parallel, and its interruption is negligible. Single pages cost an interruption
//! each. With random access to folios of 4 KiB, where some leaves leave as a whole and the rest page by page, one fault
//! in twenty met an interruption, and the slowest hundredth took 4.5 times the median, and 7.9 times with adaptive
//! orders. In turn on one processor it takes 2.0 and 2.7 times the median, one processor instead of two, and a fifth
//! more time in total. So the thread moves to the processor that faults come from unless whole leaves leave by a call,
//! as they do when a region is filled. (With a bound of 128 or 256 pages, the slowest hundredth took 3.0 and 5.0 times
//! the median.)
//!
//! *When that is wrong.* Threads that fault on several processors are interrupted in any case: then the scheduler
//! places the background thread. Sharing the program's processor also gains nothing if the program's other threads run
//! on other processors: the time of a call shows this, and the thread stays away for a while. When it leaves the
//! program's processor, it may again use all processors that it was allowed at its start.
//!
//! With a handler's thread none of this is done: that thread already shares the faulting thread's processor, and a
//! third one there makes the faulting thread move away (`mmu/src/delivery/follow.rs`).

use millpond_core::PageRange;
use millpond_mmu::{Affinity, Delivery, processor_time};
use rustix::thread::sched_getcpu;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Pages per call below which the thread goes to the program's processor.
const FEW: u64 = 400;
/// Pages per call above which the thread leaves the program's processor.
const MANY: u64 = 480;
/// Number of calls that suffice for a judgement.
const TELLING: u64 = 16;
/// Time of a call, in nanoseconds, above which it interrupts another processor.
const INTERRUPTS: u64 = 5000;
/// Looks in a row with such calls after which the thread does not belong there: following a thread that was moved takes
/// one.
const DEAR: u32 = 4;
/// Looks for which the thread stays away from a place where calls interrupt.
const AWAY: u32 = 1024;
/// Number of faults in a batch, each from another processor than the fault before, that one moved thread causes.
const MOVED: u32 = 2;

/// Traces that faults and calls leave for the choice of a processor.
#[derive(Debug)]
pub struct Traces {
    /// The processor of the last fault.
    cpu: AtomicU32,
    /// Number of faults that came from another processor than the fault before.
    moves: AtomicU32,
    calls: AtomicU64,
    pages: AtomicU64,
    /// Calls that moved entries while the thread was near, and the thread's own time in them.
    near_calls: AtomicU64,
    ns: AtomicU64,
    near: AtomicBool,
}

impl Traces {
    pub fn new() -> Self {
        Self {
            cpu: AtomicU32::new(u32::MAX),
            moves: AtomicU32::new(0),
            calls: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            near_calls: AtomicU64::new(0),
            ns: AtomicU64::new(0),
            near: AtomicBool::new(false),
        }
    }

    /// Notes a fault on this thread's processor.
    pub fn fault(&self) {
        let cpu = sched_getcpu() as u32;
        if self.cpu.load(Relaxed) != cpu {
            self.cpu.store(cpu, Relaxed);
            self.moves.fetch_add(1, Relaxed);
        }
    }

    /// Notes that a leaf left by its table, which is not timed.
    pub fn leaf(&self, at: PageRange) {
        self.calls.fetch_add(1, Relaxed);
        self.pages.fetch_add(at.len.0.into(), Relaxed);
    }

    /// Runs `take_out`, which takes out these ranges, and notes the call.
    pub fn call<T>(
        &self,
        ranges: impl IntoIterator<Item = PageRange>,
        take_out: impl FnOnce() -> T,
    ) -> T {
        let mut runs = 0;
        let mut pages = 0;
        let mut end = None;
        for at in ranges {
            runs += u64::from(end != Some(at.start));
            pages += u64::from(at.len.0);
            end = Some(at.end());
        }
        self.calls.fetch_add(runs, Relaxed);
        self.pages.fetch_add(pages, Relaxed);
        if !self.near.load(Relaxed) {
            return take_out();
        }
        let started = processor_time();
        let answer = take_out();
        let took = processor_time() - started;
        self.ns.fetch_add(took.as_nanos() as u64, Relaxed);
        self.near_calls.fetch_add(runs, Relaxed);
        answer
    }
}

/// The background thread's place. See the [module](self).
pub struct ReclaimCpu {
    affinity: Option<Affinity>,
    /// Whether little leaves by one call, so that the thread should be near.
    near: bool,
    moves: u32,
    /// Number of looks in a row at which calls nevertheless interrupted another processor.
    dear: u32,
    away: u32,
}

impl ReclaimCpu {
    /// Makes the place for the calling thread.
    pub fn new(delivery: Delivery) -> Self {
        // A handler's thread already shares the faulting thread's processor. A test scheduler's threads are not kernel
        // threads.
        let moves = delivery.is_by_signal() && !cfg!(feature = "shuttle");
        Self {
            affinity: moves
                .then(Affinity::of_this_thread)
                .filter(Affinity::can_leave),
            near: false,
            moves: 0,
            dear: 0,
            away: 0,
        }
    }

    /// Moves the thread to the right processor after a batch of reclaim.
    pub fn settle(&mut self, traces: &Traces) {
        let Some(affinity) = &mut self.affinity else {
            return;
        };
        let moves = traces.moves.load(Relaxed);
        let several = moves.wrapping_sub(std::mem::replace(&mut self.moves, moves)) > MOVED;
        self.away = self.away.saturating_sub(1);
        let calls = traces.calls.load(Relaxed);
        let mut near = self.near;
        if calls >= TELLING {
            traces.calls.store(0, Relaxed);
            let pages = traces.pages.swap(0, Relaxed) / calls;
            let near_calls = traces.near_calls.swap(0, Relaxed);
            let dear = traces.ns.swap(0, Relaxed) > INTERRUPTS * near_calls;
            self.dear = if dear { self.dear + 1 } else { 0 };
            if self.dear >= DEAR {
                (self.dear, self.away) = (0, AWAY);
            }
            near = pages < if near { MANY } else { FEW };
        }
        self.near = near;
        if near && !several && self.away == 0 {
            affinity.pin(traces.cpu.load(Relaxed));
            traces.near.store(affinity.pinned().is_some(), Relaxed);
        } else {
            self.leave(traces);
        }
    }

    /// Lets the scheduler place the thread: a thread started now may then run on the same processors as this one.
    pub fn leave(&mut self, traces: &Traces) {
        if let Some(affinity) = &mut self.affinity
            && affinity.pinned().is_some()
        {
            affinity.unpin();
            traces.near.store(false, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_core::{PageCount, PageIndex};
    use rustix::thread::sched_getaffinity;

    impl ReclaimCpu {
        fn pinned(&self) -> Option<u32> {
            self.affinity.as_ref()?.pinned()
        }
    }

    fn reclaim_cpu() -> ReclaimCpu {
        ReclaimCpu::new(Delivery::InThread)
    }

    fn calls(traces: &Traces, count: u32, pages: u32) {
        for n in 0..count {
            let at = PageRange {
                start: PageIndex(n * 2 * pages),
                len: PageCount(pages),
            };
            traces.call([at], || ());
        }
    }

    fn in_a_thread(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn small_pieces_pin_the_thread_to_the_faults_and_large_ones_unpin_it() {
        in_a_thread(|| {
            let (traces, mut place) = (Traces::new(), reclaim_cpu());
            let allowed = sched_getaffinity(None).unwrap();
            traces.fault();
            calls(&traces, 20, 1);
            place.settle(&traces);
            assert_eq!(place.pinned(), Some(traces.cpu.load(Relaxed)));
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
            place.leave(&traces);
            assert_eq!(sched_getaffinity(None).unwrap().count(), allowed.count());
            place.settle(&traces);
            // First the calls are too few to judge by, and then they are somewhat larger.
            calls(&traces, 2, 512);
            place.settle(&traces);
            assert!(place.pinned().is_some());
            calls(&traces, 20, 512);
            place.settle(&traces);
            assert_eq!(place.pinned(), None);
            assert_eq!(sched_getaffinity(None).unwrap().count(), allowed.count());
        });
    }

    #[test]
    fn adjacent_ranges_count_as_one_call() {
        let traces = Traces::new();
        let at = |start| PageRange {
            start: PageIndex(start),
            len: PageCount(4),
        };
        traces.call([at(0), at(4), at(16), at(8)], || ());
        assert_eq!(
            (traces.calls.load(Relaxed), traces.pages.load(Relaxed)),
            (3, 16)
        );
    }

    #[test]
    fn faults_on_several_processors_are_not_followed() {
        in_a_thread(|| {
            let (traces, mut place) = (Traces::new(), reclaim_cpu());
            traces.fault();
            traces.moves.fetch_add(MOVED + 1, Relaxed);
            calls(&traces, 20, 1);
            place.settle(&traces);
            assert_eq!(place.pinned(), None);
            calls(&traces, 20, 1);
            place.settle(&traces);
            assert!(place.pinned().is_some(), "they come from one again");
        });
    }

    #[test]
    fn calls_that_still_interrupt_others_keep_the_thread_away_for_a_while() {
        in_a_thread(|| {
            let (traces, mut place) = (Traces::new(), reclaim_cpu());
            traces.fault();
            calls(&traces, 20, 1);
            place.settle(&traces);
            assert!(place.pinned().is_some());
            for dear in 1..=DEAR {
                assert!(place.pinned().is_some(), "{dear}");
                calls(&traces, 20, 1);
                traces.ns.fetch_add(20 * INTERRUPTS, Relaxed);
                place.settle(&traces);
            }
            assert_eq!(place.pinned(), None);
            for _ in 1..AWAY {
                calls(&traces, 20, 1);
                place.settle(&traces);
                assert_eq!(place.pinned(), None);
            }
            calls(&traces, 20, 1);
            place.settle(&traces);
            assert!(place.pinned().is_some());
        });
    }
}
