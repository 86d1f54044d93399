//! Engaging: a process that may wait pays for Millpond only when its memory comes near the budget.
//!
//! By default (`--engage needed`) a process begins *dormant*. Its mappings lie in the space, as always, and the account
//! of them is kept, but the kernel backs them: there is no userfaultfd, no filter, no thread, no store. Only the
//! signals of faults are ours from the start, and a few descriptors are in reserve. The process *engages* once, from a
//! call of its own, and is from then on as if it had been managed from its start.
//!
//! *When.* The process has a lease: it may map so many bytes before anybody looks. When they are used up, the kernel
//! is asked what the process could have in memory at most: all that it may write to, written or not, what it has of
//! libraries, and all of the other files that it has mapped. As long as that fits into the budget, the lease is
//! renewed. So no thread has to look, and the budget cannot be exceeded between two looks. When it does not fit, a
//! thread looks at what the process really has in memory, as long as there is time for that ([`looks`]): programs
//! that map far more than they touch would engage for nothing. Small budgets leave no such time.
//!
//! *Where it is safe.* No other thread may touch the memory that is being taken over, and none may be inside a system
//! call when the filter comes. So the program's other threads are parked outside of calls ([`park`](crate::park)),
//! and run on when their memory has been adopted and everything is in place to serve it. Our own threads are made
//! after that. If a thread cannot be parked (one that waits for the child of a `vfork`, or is in a debugger), the
//! process stays dormant for a while longer, and says so if that goes on. A signal handler may be what engages: the
//! call that it interrupted has ended by then, and is looked at by the filter when it is made again. The signals of
//! faults are ours from the start, in every mask and in every thread. Some calls engage first ([`before_lasting`]):
//! those that leave something behind that the kernel works on later (helper threads of the C library, rings,
//! references to pages), those after which the process might no longer be able to engage (filters of its own, another
//! root), and those that make threads which have no stack for our handlers, by `clone`.
//!
//! *Who begins engaged.* Everything but direct delivery by userfaultfd on a kernel that moves pages (Linux 6.8), a
//! process that has inherited the filter, and a run that is recorded. So does a program with an allocator of its own:
//! such an allocator maps memory while it holds its lock, and for each thread of ours the C library asks it for memory.
//! A thread that engaged there waited for itself.
//!
//! A child of `vfork` has its parent's memory and none of its own descriptors, and never engages.

mod lease;
mod looks;

use crate::guard;
use crate::park::Unparked;
use crate::signals::Blocked;
use crate::stack_switch::on_large_stack;
use crate::vma::{self, Kind, PAGE};
use crate::{descriptors, exit, first_thread, init, malloc, park, raw, space, threads, words};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use lease::Lease;
use millpond::BuildError;
use millpond::space::{Opened, Space};
use millpond_board::EngagedFor;
use millpond_settings::{DeliveryChoice, Engage, Settings};
use std::sync::OnceLock;

/// The state of a process that is managed, or has no budget.
const ENGAGED: u8 = 0;
/// The state of a process that the kernel serves alone so far.
const DORMANT: u8 = 1;
/// The state while the process engages.
const ENGAGING: u8 = 2;

/// The memory that a process's tables take when it engages: a fraction of the budget, as a divisor, and some bytes in
/// addition.
const TABLES: (usize, usize) = (32, 4 << 20);
/// How often, and after how many nanoseconds, a process tries to engage that must.
const ATTEMPTS: u32 = 500;
const PAUSE: u64 = 1_000_000;
/// The fraction of the budget, as a divisor, that is leased to a process that could not engage, and after how many such
/// leases a line says so.
const LITTLE: usize = 64;
const TOLD_AFTER: u32 = 8;
/// How long a process waits for its threads at first, in nanoseconds.
const PATIENCE: u64 = 20_000_000;
/// The fraction of the budget, as a divisor, that is leased at a time. In the meantime resident pages of libraries grow
/// unseen.
const LEASES: usize = 8;

static STATE: AtomicU8 = AtomicU8::new(ENGAGED);
/// The number of bytes that may still be mapped before the next look.
static LEASE: Lease = Lease(AtomicU64::new(0));
/// The number of bytes that are about to be mapped ([`Growing`]).
static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);
/// Whether a thread engages the process, or tries to.
static ENGAGER: AtomicBool = AtomicBool::new(false);
/// Whether the program has made threads.
static IS_THREADED: AtomicBool = AtomicBool::new(false);
/// How often the process could not engage when it should have.
static POSTPONED: AtomicU32 = AtomicU32::new(0);
/// The number of bytes that became read-only and may hold something: the kernel does not count them as data.
static READ_ONLY: AtomicUsize = AtomicUsize::new(0);
/// The number of bytes of files and shared memory that the program has mapped, present or not. (Libraries are mapped by
/// the dynamic linker, which calls the kernel itself.)
static FILES: AtomicUsize = AtomicUsize::new(0);

/// The time at which the process engaged, in nanoseconds, or 0.
static ENGAGED_AT: AtomicU64 = AtomicU64::new(0);
/// The number of the reason.
static ENGAGED_FOR: AtomicU64 = AtomicU64::new(0);

/// What a dormant process keeps of its start.
static SETTINGS: OnceLock<(Settings, init::Sizes)> = OnceLock::new();

/// Returns whether only the kernel serves this process so far.
#[inline]
pub fn is_dormant() -> bool {
    STATE.load(Relaxed) == DORMANT
}

/// Starts in a new child, of whose parent another thread may have been about to engage.
pub fn after_fork_in_child() {
    ENGAGER.store(false, Relaxed);
    IN_FLIGHT.store(0, Relaxed);
    IS_THREADED.store(false, Relaxed);
    POSTPONED.store(0, Relaxed);
    park::after_fork_in_child();
    looks::after_fork_in_child();
}

/// Makes the thread that a dormant child of a fork needs, if its parent had one. Called where an engaged child gets its
/// threads.
pub fn start_threads_in_child() {
    looks::begin_in_child();
}

/// Called before the first thread ends. It must be there while our threads make others (`first_thread.rs`), and a
/// thread that looks may have to do that at any time.
pub fn before_first_thread_ends() {
    if is_dormant() && looks::are_on() {
        now(EngagedFor::Thread, Urgency::Must);
    }
}

/// Returns when and why the process engaged, if it did not begin engaged.
pub fn engaged() -> Option<(u64, EngagedFor)> {
    let why = EngagedFor::of_number(ENGAGED_FOR.load(Relaxed))?;
    Some((ENGAGED_AT.load(Acquire), why)).filter(|&(at, _)| at > 0)
}

/// Returns whether a process with these settings may begin dormant.
pub fn may_wait(settings: &Settings) -> bool {
    settings.engage == Engage::Needed
        && settings.delivery != DeliveryChoice::Handler
        && settings.record.is_none()
        && !malloc::is_anothers()
        && guard::can_wait()
        && millpond_mmu::can_take_over(settings.mask)
}

/// Reserves the space of a dormant process. Its signals have been prepared.
///
/// # Errors
/// The addresses cannot be had.
pub fn begin(settings: &Settings, sizes: init::Sizes) -> Result<&'static Space, BuildError> {
    let made = Space::dormant(sizes.space as u64, &[guard::START], sizes.ram)?;
    if made.base() != guard::START {
        return Err(init::is_taken());
    }
    park::find();
    looks::begin();
    // The constructor runs once.
    let _ = SETTINGS.set((settings.clone(), sizes));
    STATE.store(DORMANT, Relaxed);
    Ok(made)
}

/// Bytes that are about to be mapped or opened. They count until this is dropped, when the kernel counts them.
#[must_use]
pub struct Growing(usize);

impl Drop for Growing {
    fn drop(&mut self) {
        if self.0 > 0 {
            IN_FLIGHT.fetch_sub(self.0, SeqCst);
        }
    }
}

/// Called before `len` more bytes are mapped or opened. A dormant process that might exceed its budget with them
/// engages. The caller keeps the result until the kernel counts the bytes.
#[inline]
pub fn before_growth(len: usize) -> Growing {
    match is_dormant() && len > 0 {
        true => grow(len),
        false => Growing(0),
    }
}

/// Called before the program makes a call whose effect lasts, and which a dormant process could not serve later.
#[inline]
pub fn before_lasting() {
    if is_dormant() {
        now(EngagedFor::Call, Urgency::Must);
    }
}

/// Called before the program makes a thread without our stack for signal handlers, or something like one.
#[inline]
pub fn before_thread() {
    if is_dormant() {
        now(EngagedFor::Thread, Urgency::Must);
    }
}

/// Called before the C library makes a thread for the program, with a stack of so many bytes.
#[inline]
pub fn before_own_thread(stack: impl FnOnce() -> usize) -> Growing {
    if !is_dormant() {
        return Growing(0);
    }
    if !IS_THREADED.swap(true, SeqCst) && looks::are_on() {
        // Looks are late sooner with several threads.
        LEASE.next(0);
    }
    let stack = stack();
    looks::before_stack(stack);
    before_growth(stack)
}

/// Called before a function of the C library that reads the program's memory and then waits for a command with signals
/// blocked. A thread that waits there could not be parked.
#[inline]
pub fn before_command() {
    if IS_THREADED.load(Relaxed) {
        before_lasting();
    }
}

/// Waits until a process that is just engaging has the thread that reads the kernel's events. Called before memory is
/// moved, which the kernel reports in one; the caller holds no lock of ours.
pub fn wait_for_threads() {
    while ENGAGER.load(Acquire) && !is_dormant() {
        raw::sleep(PAUSE / 10);
    }
}

/// Called before a child is created with these flags of `clone`. With a child that runs concurrently in the same
/// memory, or shares the descriptor table, the process could no longer engage safely.
pub fn before_clone(flags: u64) {
    let shares = (libc::CLONE_VM | libc::CLONE_FILES) as u64;
    if flags & shares != 0 && flags & libc::CLONE_VFORK as u64 == 0 {
        before_thread();
    }
}

/// Notes that `len` bytes of managed memory cannot be written any more.
pub fn became_read_only(len: usize) {
    if is_dormant() {
        READ_ONLY.fetch_add(len, Relaxed);
    }
}

/// Notes that `len` bytes were mapped that are not private memory.
pub fn mapped_file(len: usize) {
    if is_dormant() {
        FILES.fetch_add(len, Relaxed);
    }
}

/// Notes that `len` bytes outside the space are not mapped any more.
pub fn unmapped_file(len: usize) {
    if is_dormant() {
        let _ = FILES.fetch_update(Relaxed, Relaxed, |files| Some(files.saturating_sub(len)));
    }
}

#[cold]
fn grow(len: usize) -> Growing {
    // What is in flight is known before anything is asked, so of two threads that grow at once one knows of the other.
    IN_FLIGHT.fetch_add(len, SeqCst);
    let growing = Growing(len);
    if !LEASE.take(len) && !renew() {
        now(EngagedFor::Memory, Urgency::Should);
    }
    growing
}

/// Gives the process a new lease, if what is in flight fits into the budget as well, or if looks suffice. Returns false
/// if not.
fn renew() -> bool {
    // Nobody takes anything from the old lease from here on.
    let emptied = LEASE.next(0);
    let in_flight = IN_FLIGHT.load(SeqCst);
    let ram = budget();
    let Some(left) = room(ram).and_then(|room| room.checked_sub(in_flight)) else {
        return looks::suffice(ram);
    };
    LEASE.replace(emptied, left.min(ram / LEASES));
    true
}

fn budget() -> usize {
    SETTINGS.get().map_or(0, |(_, sizes)| sizes.ram as usize)
}

/// Returns how much of this budget the process may have in memory when it engages.
fn most(ram: usize) -> Option<usize> {
    let (divisor, tables) = TABLES;
    (ram - ram / divisor).checked_sub(tables)
}

/// Returns how many bytes of memory the process can have of this budget, beside those that it has, without engaging, or
/// `None` if that is unknown.
fn room(ram: usize) -> Option<usize> {
    let taken = at_most_in_memory()? + READ_ONLY.load(Relaxed) + FILES.load(Relaxed);
    most(ram)?.checked_sub(taken)
}

/// Returns an upper bound of the process's resident bytes, however much of its memory it touches: all private memory
/// that it may write to (`data` of `/proc/self/statm`, which includes the stack), and its resident pages of files and
/// shared memory. Files that it has mapped and not touched come on top. A large table of this library, which only an
/// engaged process uses, does not count.
fn at_most_in_memory() -> Option<usize> {
    let [shared, data] = words::statm([2, 5])?;
    let bytes = (shared + data) * PAGE;
    Some(bytes.saturating_sub(millpond_mmu::unused_bytes_of_holds()))
}

/// Whether a process may stay dormant for a while if it cannot engage at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Urgency {
    Should,
    Must,
}

/// Engages a dormant process. Does nothing in any other process, or in the child of a `vfork`.
#[cold]
fn now(why: EngagedFor, urgency: Urgency) {
    if guard::signals::is_borrowed() {
        return;
    }
    for _ in 0..ATTEMPTS {
        let Err(hindrance) = on_large_stack(move || attempt(why)) else {
            return;
        };
        if urgency == Urgency::Should {
            postpone(hindrance);
            return;
        }
        raw::sleep(PAUSE);
    }
    exit::fail(
        "millpond: the process cannot be managed now: a thread does not stop (a debugger, or a child of vfork that is \
         not done); use --engage start",
    );
}

/// Lets the process map a little more before it tries again.
fn postpone(hindrance: Hindrance) {
    LEASE.next(budget() / LITTLE);
    let Hindrance::Thread(why) = hindrance else {
        return;
    };
    if POSTPONED.fetch_add(1, Relaxed) + 1 != TOLD_AFTER {
        return;
    }
    match why {
        Unparked::Runs(thread) => millpond_mmu::report::line(format_args!(
            "the process is not managed yet although its memory may not fit: thread {thread} does not stop (a \
             debugger, or a child of vfork that is not done); use --engage start"
        )),
        Unparked::Held | Unparked::Unknown => millpond_mmu::report::line(format_args!(
            "the process is not managed yet although its memory may not fit: its threads cannot be listed or \
             stopped; use --engage start"
        )),
    }
}

/// Why the process is not engaged.
enum Hindrance {
    /// Another thread is engaging it.
    Engager,
    /// Not all threads could be parked.
    Thread(Unparked),
}

/// Engages the process unless another thread is doing that, or one cannot be parked.
fn attempt(why: EngagedFor) -> Result<(), Hindrance> {
    // A handler of the program's could otherwise interrupt this very function, and come here.
    let _blocked = Blocked::new();
    if ENGAGER.swap(true, Acquire) {
        return match is_dormant() {
            true => Err(Hindrance::Engager),
            false => Ok(()),
        };
    }
    let result = match is_dormant() {
        true => engage_now(why).map_err(Hindrance::Thread),
        false => Ok(()),
    };
    ENGAGER.store(false, Release);
    result
}

fn engage_now(why: EngagedFor) -> Result<(), Unparked> {
    let (Some(space), Some((settings, sizes))) = (space::get(), SETTINGS.get()) else {
        return Ok(());
    };
    // The program may have opened all descriptors that it can have.
    descriptors::lend_reserve();
    let others = has_other_threads().then(|| park::others(patience()));
    let others = others
        .transpose()
        .inspect_err(|_| descriptors::keep_reserve())?;
    STATE.store(ENGAGING, Relaxed);
    let made = init::starting(|| engage(space, settings, *sizes));
    ENGAGED_FOR.store(why as u64, Relaxed);
    ENGAGED_AT.store(millpond_board::now_ns(), Release);
    STATE.store(ENGAGED, Relaxed);
    drop(others);
    let made = made.and_then(|()| {
        threads::making(|| space.start_threads()).map_err(|error| error.to_string())
    });
    if let Err(error) = made {
        exit::fail(&format!(
            "millpond: the process cannot be managed now: {error}; use --engage start"
        ));
    }
    descriptors::learn(space);
    first_thread::has_threads_of_ours();
    Ok(())
}

/// Returns how long the others may take to be parked, in nanoseconds: at first not longer than a program could notice,
/// and longer each time. On a busy machine a thread may not run for as long.
fn patience() -> u64 {
    PATIENCE << POSTPONED.load(Relaxed).min(5)
}

/// Returns the ID of a thread of ours that a dormant process has, or 0. It is not parked.
pub fn own_thread() -> i32 {
    looks::thread()
}

/// Returns whether the process has other threads. The links of the directory are one for each thread, and two.
fn has_other_threads() -> bool {
    rustix::fs::stat(c"/proc/self/task")
        .map_or_else(|_| IS_THREADED.load(Relaxed), |found| found.st_nlink > 3)
}

fn engage(space: &Space, settings: &Settings, sizes: init::Sizes) -> Result<(), String> {
    guard::start(sizes.ram)?;
    let (opened, held, foreign) = vma::locked(|vmas| {
        (
            vmas.map.opened().map(to_take_over).collect::<Vec<_>>(),
            vmas.in_memory(),
            vmas.map.foreign(),
        )
    })
    .ok_or("there is no account of its mappings")?;
    init::with_store(settings, sizes, millpond_mmu::Delivery::Direct, |options| {
        space.engage(options, &opened, &held, &foreign)
    })
    .map_err(|error| error.to_string())
}

fn to_take_over((range, kind): (vma::Range, Kind)) -> Opened {
    let usable = matches!(kind, Kind::Managed { prot, .. } if prot != libc::PROT_NONE);
    Opened {
        start: range.start,
        len: range.len(),
        usable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw;

    #[test]
    fn a_process_has_at_most_its_data_and_its_files_in_memory() {
        let before = at_most_in_memory().unwrap();
        let more = raw::map_anonymous(64 << 20).unwrap();
        let after = at_most_in_memory().unwrap();
        // SAFETY: the mapping was made above, and nobody knows of it.
        unsafe { raw::munmap(more, 64 << 20) }.unwrap();
        assert!(after >= before + (60 << 20), "{before} {after}");
    }
}
