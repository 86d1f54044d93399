//! Engaging: a process that may wait pays for Millpond only when its memory comes near the budget.
//!
//! With `--engage needed` a process begins *dormant*. Its mappings lie in the space, as always, and the account of
//! them is kept, but the kernel backs them: there is no userfaultfd, no filter, no thread, no store. Only the signals
//! of faults are ours from the start, and a few descriptors are in reserve. The process *engages* once, from a call
//! of its own, and is from then on as if it had been managed from its start.
//!
//! *When.* The process has a lease: it may map so many bytes before anybody looks. When they are used up, the kernel
//! is asked what the process could have in memory at most: all that it may write to, written or not, what it has of
//! libraries, and all of the other files that it has mapped. As long as that fits into the budget, the lease is
//! renewed. So no thread has to look, and the budget cannot be exceeded between two looks. A program that maps far
//! more than it touches engages early, and pays what it would have paid from its start.
//!
//! *Where it is safe.* The process has one thread when it engages: what it calls to make another one engages first.
//! So no thread touches the memory that is being taken over, and none is inside a system call when the filter comes.
//! A signal handler may be what engages: the call that it interrupted has ended by then, and is looked at by the
//! filter when it is made again. The signals of faults are ours from the start, in every mask. Calls that leave
//! something behind that the kernel works on later (helper threads of the C library, rings, references to pages), and
//! calls after which the process might no longer be able to engage (filters of its own, another root), engage first
//! as well ([`before_lasting`]).
//!
//! *Who begins engaged.* Everything but direct delivery by userfaultfd on a kernel that moves pages (Linux 6.8), a
//! process that has inherited the filter, and a run that is recorded. So does a program with an allocator of its own:
//! such an allocator maps memory while it holds its lock, and for each thread of ours the C library asks it for memory.
//! A thread that engaged there waited for itself.
//!
//! A child of `vfork` has its parent's memory and none of its own descriptors, and never engages.

use crate::guard;
use crate::signals::Blocked;
use crate::stack_switch::on_safe_stack;
use crate::vma::{self, Kind, PAGE};
use crate::{descriptors, exit, init, malloc, space, words};
use core::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::*};
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
/// The fraction of the budget, as a divisor, that is leased at a time. In the meantime resident pages of libraries grow
/// unseen.
const LEASES: usize = 8;

static STATE: AtomicU8 = AtomicU8::new(ENGAGED);
/// The number of bytes that may still be mapped before the next look.
static LEASE: AtomicUsize = AtomicUsize::new(0);
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
    // The constructor runs once.
    let _ = SETTINGS.set((settings.clone(), sizes));
    STATE.store(DORMANT, Relaxed);
    Ok(made)
}

/// Called before `len` more bytes are mapped or opened. A dormant process that might exceed its budget with them
/// engages.
#[inline]
pub fn before_growth(len: usize) {
    if is_dormant() {
        grow(len);
    }
}

/// Called before the program makes a call whose effect lasts, and which a dormant process could not serve later.
#[inline]
pub fn before_lasting() {
    if is_dormant() {
        now(EngagedFor::Call);
    }
}

/// Called before the program makes a thread, or something like one.
#[inline]
pub fn before_thread() {
    if is_dormant() {
        now(EngagedFor::Thread);
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
        let files = FILES.load(Relaxed);
        FILES.store(files.saturating_sub(len), Relaxed);
    }
}

#[cold]
fn grow(len: usize) {
    let left = LEASE.load(Relaxed);
    if len <= left {
        LEASE.store(left - len, Relaxed);
        return;
    }
    let ram = SETTINGS.get().map_or(0, |(_, sizes)| sizes.ram as usize);
    match room(ram) {
        Some(room) if len <= room => LEASE.store((room - len).min(ram / LEASES), Relaxed),
        _ => now(EngagedFor::Memory),
    }
}

/// Returns how many more bytes of memory the process can use of this budget without engaging, or `None` if that is
/// unknown.
fn room(ram: usize) -> Option<usize> {
    let (divisor, tables) = TABLES;
    let most = (ram - ram / divisor).checked_sub(tables)?;
    let taken = at_most_in_memory()? + READ_ONLY.load(Relaxed) + FILES.load(Relaxed);
    Some(most.saturating_sub(taken))
}

/// Returns an upper bound of the process's resident bytes, however much of its memory it touches: all private memory
/// that it may write to (`data` of `/proc/self/statm`, which includes the stack), and its resident pages of files and
/// shared memory. Files that it has mapped and not touched come on top.
fn at_most_in_memory() -> Option<usize> {
    let mut text = [0u8; 128];
    let line = words::read_path(c"/proc/self/statm", &mut text)?;
    pages_of(line).map(|pages| pages * PAGE)
}

/// Returns the sum of the third and the sixth number of a line: shared pages, and data.
fn pages_of(line: &[u8]) -> Option<usize> {
    let line = core::str::from_utf8(line).ok()?;
    let number = |place| line.split_ascii_whitespace().nth(place)?.parse().ok();
    let (shared, data): (usize, usize) = (number(2)?, number(5)?);
    Some(shared + data)
}

/// Engages a dormant process. Does nothing in any other process, or in the child of a `vfork`.
#[cold]
fn now(why: EngagedFor) {
    if guard::signals::is_borrowed() {
        return;
    }
    // A handler of the program's may have interrupted this very function.
    if STATE
        .compare_exchange(DORMANT, ENGAGING, Relaxed, Relaxed)
        .is_err()
    {
        return;
    }
    on_safe_stack(|| {
        let _blocked = Blocked::new();
        if let (Some(space), Some((settings, sizes))) = (space::get(), SETTINGS.get()) {
            // The program may have opened all descriptors that it can have.
            descriptors::lend_reserve();
            match init::starting(|| engage(space, settings, *sizes)) {
                Ok(()) => descriptors::learn(space),
                Err(error) => exit::fail(&format!(
                    "millpond: the process cannot be managed now: {error}; use --engage start"
                )),
            }
        }
        ENGAGED_FOR.store(why as u64, Relaxed);
        ENGAGED_AT.store(millpond_board::now_ns(), Release);
        STATE.store(ENGAGED, Relaxed);
    });
}

/// Returns whether the process has other threads, which were made past the C library. The links of the directory are
/// one for each thread, and two.
fn has_other_threads() -> bool {
    rustix::fs::stat(c"/proc/self/task").is_ok_and(|found| found.st_nlink > 3)
}

fn engage(space: &Space, settings: &Settings, sizes: init::Sizes) -> Result<(), String> {
    if has_other_threads() {
        millpond_mmu::report::line(format_args!(
            "the process engages while threads run that were made past the C library: their calls on memory that \
             leaves may fail; use --engage start"
        ));
    }
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
        assert_eq!(pages_of(b"1000 300 20 5 0 400 0\n"), Some(420));
        for odd in [&b""[..], b"1 2 3", b"1 2 x 4 5 6 7", &[0xff; 8]] {
            assert_eq!(pages_of(odd), None, "{odd:?}");
        }
        let before = at_most_in_memory().unwrap();
        let more = raw::map_anonymous(64 << 20).unwrap();
        let after = at_most_in_memory().unwrap();
        // SAFETY: the mapping was made above, and nobody knows of it.
        unsafe { raw::munmap(more, 64 << 20) }.unwrap();
        assert!(after >= before + (60 << 20), "{before} {after}");
    }
}
