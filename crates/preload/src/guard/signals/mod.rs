//! Signals under direct delivery: three of them are ours, and the program must not notice.
//!
//! An absent page raises SIGBUS, a call on managed memory SIGSYS, and a probe of closed memory SIGSEGV. Our handlers
//! must be installed at all times, and SIGBUS and SIGSYS must never be blocked: a thread that faults with the signal
//! blocked is killed. Programs install handlers for all signals, block all signals, and set stacks for their
//! handlers. So we replace every function with which they do so:
//!
//! | concern | file |
//! | --- | --- |
//! | our handlers, and how they call the program's; the stacks that these run on | `handlers`; `frames` of `arch` |
//! | the program's response to a signal | `actions`, `table`; `older` for the functions of System V and BSD |
//! | masks of threads; calls that wait under a mask | `masks`, `waits` |
//! | alternate stacks; a thread's start, its own stack | `alternate`; `begin`, `given` |
//! | the state of each thread | `thread` |
//! | memory that a new thread reads before its signals are unblocked | `locale` |
//!
//! *Without userfaultfd* an absent page is closed, and its fault is SIGSEGV. In that case SIGSEGV is treated like
//! SIGBUS: never blocked, and served before the program learns of it ([`serve_sigsegv`]). One thing shows: if the
//! program's handler for SIGSEGV asks for its mask, it does not find SIGSEGV in it.
//!
//! Without direct delivery each export goes straight to the C library.
//!
//! *Calls by number.* The same calls come from the program's own instructions, if the memory that they name is
//! managed and the filter stops them ([`by_number`]). They are made inside the handler of SIGSYS. Changes to a mask
//! or a stack there would be undone when the handler returns, so they are made in its context. The program's
//! arguments are read in such a way that a bad address is an error; its results are written after the kernel has
//! written to the same place, which checks that it may be written.

pub mod actions;
mod alternate;
mod begin;
mod given;
pub mod handlers;
mod locale;
mod masks;
mod older;
mod table;
mod thread;
mod waits;

pub use actions::{is_borrowed, process};
pub use begin::create as create_thread;
pub use given::copy_mask;
pub use handlers::block_all;
pub use thread::this;

use super::holds::Holds;
use super::real;
use crate::arch;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use rustix::io::Errno;

/// The signals that are raised by a thread's own actions. If they are blocked, it is killed.
pub const RAISED: u64 = bit(libc::SIGBUS) | bit(libc::SIGSYS) | bit(libc::SIGSEGV);

static NEVER_BLOCKED: AtomicU64 = AtomicU64::new(bit(libc::SIGBUS) | bit(libc::SIGSYS));

/// Returns the signals that are blocked only in the program's eyes: SIGBUS and SIGSYS, and SIGSEGV if it is raised
/// for absent pages.
pub fn never_blocked() -> u64 {
    NEVER_BLOCKED.load(Relaxed)
}

/// The calls about signals that are served by number.
pub const SERVED: &[i64] = &[
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigsuspend,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
];

/// Looks up the C library's functions. The program must not be running yet.
pub fn find() {
    for functions in [
        actions::FUNCTIONS,
        alternate::FUNCTIONS,
        given::FUNCTIONS,
        locale::FUNCTIONS,
        masks::FUNCTIONS,
        older::FUNCTIONS,
        waits::FUNCTIONS,
        arch::FUNCTIONS,
    ] {
        real::find(functions);
    }
}

/// Returns a signal's bit in a mask.
const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// Installs our handlers, and gives the first thread its stack and mask.
///
/// # Errors
/// A line that says what the system refuses.
pub fn start() -> Result<(), String> {
    millpond_mmu::sigbus_is_served();
    millpond_mmu::sigsegv_is_served();
    alternate::start()?;
    actions::start()?;
    masks::start()
}

/// Takes the signals of faults back from a program that has changed them by instructions of its own, which nobody sees
/// before there is a filter.
///
/// # Errors
/// A line that says what the system refuses.
pub fn take_back() -> Result<(), String> {
    alternate::take_back();
    actions::take_back()?;
    masks::unblock_too(never_blocked())
}

/// Makes sure that SIGSEGV always arrives, like SIGBUS, because absent pages are closed. This must be called before
/// any thread touches managed memory.
///
/// # Errors
/// A line that says what the system refuses.
pub fn serve_sigsegv() -> Result<(), String> {
    let segv = bit(libc::SIGSEGV);
    NEVER_BLOCKED.fetch_or(segv, Relaxed);
    masks::unblock_too(segv)?;
    actions::install_again(libc::SIGSEGV)
}

/// Starts in a new child.
pub fn after_fork_in_child() {
    actions::after_fork_in_child();
}

/// Serves a call about signals by number. `context` is that of the handler that makes the call for the program, if it
/// is made in one. Returns `None` for all other calls.
///
/// # Safety
/// The conditions are those of the system call.
pub unsafe fn by_number(
    number: i64,
    args: [usize; 6],
    context: Option<&mut libc::ucontext_t>,
) -> Option<Result<usize, Errno>> {
    Some(match number {
        libc::SYS_rt_sigaction => actions::by_number(args),
        libc::SYS_rt_sigprocmask => masks::by_number(args, context),
        libc::SYS_sigaltstack => alternate::by_number(args, context),
        // SAFETY: the caller guarantees what this call needs.
        _ => return unsafe { waits::by_number(number, args) },
    })
}

/// Writes an answer to the program's memory. `write` makes the kernel write the same number of bytes to the same
/// place, which checks that they may be written.
///
/// # Safety
/// `write` writes no more bytes than `T` has.
unsafe fn put<T: Copy>(
    at: usize,
    answer: &T,
    write: impl FnOnce(usize) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    let mut holds = Holds::new();
    holds.add(at, size_of::<T>());
    write(at)?;
    // SAFETY: the kernel has just written this many bytes there, and they are held.
    unsafe { (at as *mut T).write_unaligned(*answer) };
    Ok(())
}
