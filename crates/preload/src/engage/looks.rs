//! Looks: how a process that maps much more than it touches stays dormant.
//!
//! What such a process could have in memory at most, with all that it has mapped, is above its budget, so a lease of
//! mapped bytes cannot be given. A thread of ours then *looks* at what the process has in memory, and engages it when
//! the rest of the budget is no longer enough for what its threads could fill until the next look.
//!
//! *How much that is.* Memory is filled at the rate at which the kernel can clear it, by each thread on a processor of
//! its own. The process stays dormant only while the budget has room for what that is in the time by which a look may
//! be late ([`LATE`]): with one thread that needs 80 MiB, and with a thread on each of eight processors 640. So small
//! budgets, and large machines with medium ones, have no looks at all, and their processes engage when the lease ends.
//! If there is more room, the next look is as far away as the room lasts.
//!
//! *The thread* blocks the program's signals, touches nothing of the program's, and is not parked. It is made when it
//! is first needed, and again in a child of a fork, which could touch without a word what its parent has mapped.

use super::{IS_THREADED, SETTINGS, Urgency, is_dormant, most, now};
use crate::{first_thread, guard, last_thread, raw, threads, words};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::*};
use millpond_board::EngagedFor;
use millpond_sync::OwnThread;

/// Bytes that one thread can fill in a nanosecond, and how late a look may be, in nanoseconds.
const RATE: usize = 8;
const LATE: usize = 10_000_000;
/// The shortest and the longest time between two looks, in nanoseconds. The end of the program is noticed by looks too.
const SHORTEST: usize = 2_000_000;
const LONGEST: usize = 100_000_000;

/// The number of processors that the process may run on.
static PROCESSORS: AtomicUsize = AtomicUsize::new(1);
/// Whether the process is looked at.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// The thread that looks, once it has begun.
static THREAD: AtomicI32 = AtomicI32::new(0);

/// Counts the processors. Called when the process begins dormant.
pub fn begin() {
    // If the kernel does not tell, no budget has room for looks.
    let count =
        rustix::thread::sched_getaffinity(None).map_or(usize::MAX, |set| set.count() as usize);
    PROCESSORS.store(count.max(1), Relaxed);
}

/// Returns whether a thread looks at the process, or will in this child.
pub fn are_on() -> bool {
    IS_ON.load(Relaxed)
}

/// Returns the ID of the thread that looks, or 0.
pub fn thread() -> i32 {
    THREAD.load(Acquire)
}

/// Returns whether looks suffice for the process to stay dormant. If so, the process is looked at from now on. The
/// caller holds no lock of ours.
pub fn suffice(ram: usize) -> bool {
    // A child of `vfork` would get a thread that runs in its parent's memory.
    if guard::signals::is_borrowed() || first_thread::ended_dormant() || spare(ram).is_none() {
        return false;
    }
    IS_ON.swap(true, AcqRel) || start()
}

/// Forgets the thread in a new child, where it does not exist.
pub fn after_fork_in_child() {
    THREAD.store(0, Relaxed);
}

/// Makes the thread that a child of a fork needs in place of its parent's.
pub fn begin_in_child() {
    if are_on() && is_dormant() && !start() {
        now(EngagedFor::Memory, Urgency::Must);
    }
}

/// Makes the thread. Returns false if that cannot be done.
fn start() -> bool {
    let made = threads::making(|| OwnThread::start(c"millpond-looks", look));
    if made.is_err() {
        IS_ON.store(false, Release);
    }
    made.is_ok()
}

fn look() {
    THREAD.store(rustix::thread::gettid().as_raw_nonzero().get(), Release);
    let ram = SETTINGS.get().map_or(0, |(_, sizes)| sizes.ram as usize);
    let mut since_tick = 0;
    while is_dormant() {
        let pause = match spare(ram) {
            Some(spare) => (spare / (RATE * workers())).clamp(SHORTEST, LONGEST),
            None => {
                now(EngagedFor::Memory, Urgency::Should);
                SHORTEST
            }
        };
        since_tick += pause;
        if since_tick >= LONGEST {
            since_tick = 0;
            last_thread::tick();
        }
        raw::sleep(pause as u64);
    }
}

/// Returns how many bytes the process may have in memory beside what it has, and what it could fill while a look is
/// late. `None` if there is no such room, or if that is unknown.
fn spare(ram: usize) -> Option<usize> {
    let late = (RATE * LATE).saturating_mul(workers());
    most(ram)?.checked_sub(late)?.checked_sub(in_memory()?)
}

/// Returns how many threads can fill memory at a time.
fn workers() -> usize {
    match IS_THREADED.load(Relaxed) {
        true => PROCESSORS.load(Relaxed),
        false => 1,
    }
}

/// Returns the number of bytes that the process has in memory.
fn in_memory() -> Option<usize> {
    let mut text = [0u8; 128];
    let line = core::str::from_utf8(words::read_path(c"/proc/self/statm", &mut text)?).ok()?;
    let pages: usize = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * crate::vma::PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_budget_has_no_room_for_looks_and_a_large_one_has() {
        let has = in_memory().unwrap();
        assert!(has > 1 << 20, "{has}");
        assert_eq!(spare(has + (60 << 20)), None);
        let spare = spare(has + (1 << 30)).unwrap();
        assert!(((800 << 20)..(1 << 30)).contains(&spare), "{spare}");
    }
}
