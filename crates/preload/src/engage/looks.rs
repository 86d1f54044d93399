//! Looks: how a process that maps much more than it touches stays dormant.
//!
//! What such a process could have in memory at most, with all that it has mapped, is above its budget, so no lease of
//! mapped bytes can be given on that account. A thread of ours then *looks* at what the process has in memory, and
//! engages it when the rest of the budget is no longer enough for what its threads could fill until the next look.
//!
//! *How much that is.* Memory is filled at the rate at which the kernel can clear it, by each thread on a processor of
//! its own. The process stays dormant only while the budget has room for what that is in the time by which a look may
//! be late ([`LATE`]): with one thread that needs 80 MiB, and with a thread on each of eight processors 640. So small
//! budgets, and large machines with medium ones, have no looks at all, and their processes engage when the lease ends.
//! If there is more room, the next look is as far away as the room lasts.
//!
//! *Large areas count whole.* A `read` of a file into fresh memory ends when all is read: no signal stops it, and so
//! nobody can engage the process meanwhile. So an area of [`LARGE`] bytes or more counts with all of its pages, in
//! memory or not, and so do mapped files. What looks spare a program is many smaller ones: the stacks of its threads,
//! 8 MiB each, and the arenas of allocators.
//!
//! *A lease* goes with that, too: which areas there are is found out when a lease is given, and what the lease allows
//! counts as if it were in memory.
//!
//! *The thread* blocks the program's signals, touches nothing of the program's, and is not parked. It is made when it
//! is first needed, and again in a child of a fork, which could touch without a word what its parent has mapped.

use super::{FILES, IN_FLIGHT, IS_THREADED, LEASE, LEASES, Urgency, budget, is_dormant, most, now};
use crate::vma::{self, Kind};
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
/// Number of bytes from which an area counts whole.
const LARGE: usize = 16 << 20;
/// The least lease, as a fraction of the budget. With less the process engages: it would be asked at every call.
const LEAST: usize = 64;

/// The number of processors that the process may run on.
static PROCESSORS: AtomicUsize = AtomicUsize::new(1);
/// Whether the process is looked at.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// The thread that looks, once it has begun.
static THREAD: AtomicI32 = AtomicI32::new(0);
/// Bytes that count as if they were in memory: what is absent of large areas, files, and the lease.
static UNTOUCHED: AtomicUsize = AtomicUsize::new(0);
/// Bytes of the program's threads' stacks that are large. They are mapped by the C library, and never taken off.
static LARGE_STACKS: AtomicUsize = AtomicUsize::new(0);

/// Counts the processors. Called when the process begins dormant.
pub fn begin() {
    // If the kernel does not tell, no budget has room for looks.
    let processors = rustix::thread::sched_getaffinity(None);
    let count = processors.map_or(usize::MAX, |set| set.count() as usize);
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

/// Called before a thread with a stack of so many bytes is made.
pub fn before_stack(len: usize) {
    if len >= LARGE {
        LARGE_STACKS.fetch_add(len, Relaxed);
    }
}

/// Returns whether looks suffice for the process to stay dormant. If so it has a new lease, and is looked at from now
/// on. The caller holds no lock of ours.
pub fn suffice(ram: usize) -> bool {
    // A child of `vfork` would get a thread that runs in its parent's memory.
    !guard::signals::is_borrowed()
        && !first_thread::ended_dormant()
        && lease(ram).is_some()
        && (IS_ON.swap(true, AcqRel) || start())
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
    let own = rustix::thread::gettid();
    THREAD.store(own.as_raw_nonzero().get(), Release);
    let ram = budget();
    let mut since_tick = 0;
    while is_dormant() {
        // What was absent of large areas may have been touched, and is in memory by now.
        let pause = match spare(ram).or_else(|| lease(ram)) {
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

/// Gives the process a new lease, and returns how many bytes there are besides. `None` if there is no room for one, or
/// if that is unknown.
fn lease(ram: usize) -> Option<usize> {
    let is_large = |range: &vma::Range, kind: &Kind| {
        matches!(kind, Kind::Managed { prot, .. } if prot & libc::PROT_WRITE != 0)
            && range.len() >= LARGE
    };
    vma::locked(move |vmas| {
        // Nobody takes anything from the old lease from here on, nor does anybody else give one.
        let emptied = LEASE.next(0);
        let areas = vmas.map.opened();
        let large = areas.filter(|(range, kind)| is_large(range, kind));
        let large: Vec<_> = large.map(|(range, _)| range).collect();
        let counted = absent_bytes(&large)
            + FILES.load(Relaxed)
            + LARGE_STACKS.load(Relaxed)
            + IN_FLIGHT.load(SeqCst);
        UNTOUCHED.store(counted, Relaxed);
        let spare = spare(ram).filter(|&spare| spare >= ram / LEAST)?;
        let left = (spare / 2).min(ram / LEASES);
        UNTOUCHED.store(counted + left, Relaxed);
        LEASE.replace(emptied, left);
        Some(spare - left)
    })
    .flatten()
}

/// Returns how many bytes of these areas are not in memory, as far as the kernel tells.
fn absent_bytes(areas: &[vma::Range]) -> usize {
    let len: usize = areas.iter().map(ExactSizeIterator::len).sum();
    len - millpond_mmu::present_bytes(areas.iter().cloned()).unwrap_or(0)
}

/// Returns how many bytes the process may have in memory beside what it has, what counts as if it were there, and what
/// it could fill while a look is late. `None` if there is no such room, or if that is unknown.
fn spare(ram: usize) -> Option<usize> {
    let late = (RATE * LATE).saturating_mul(workers());
    let most = most(ram)?.checked_sub(late)?;
    most.checked_sub(UNTOUCHED.load(Relaxed))?
        .checked_sub(in_memory()?)
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
    let [pages] = words::statm([1])?;
    Some(pages * vma::PAGE)
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

    #[test]
    fn only_what_is_absent_of_an_area_counts() {
        const LEN: usize = 32 << 20;
        let start = raw::map_anonymous(LEN).unwrap();
        for page in 0..256 {
            // SAFETY: the page is in the mapping that was made above.
            unsafe { ((start + page * vma::PAGE) as *mut u8).write(1) };
        }
        let area = start..start + LEN;
        let absent = absent_bytes(&[area]);
        // SAFETY: nobody else knows of the mapping.
        unsafe { raw::munmap(start, LEN) }.unwrap();
        assert!(
            (LEN - (4 << 20)..=LEN - (1 << 20)).contains(&absent),
            "{absent}"
        );
    }
}
