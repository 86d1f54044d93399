//! Signals under direct delivery: three of them are ours, and the program must not notice.
//!
//! A page that is out raises SIGBUS, a call on managed memory SIGSYS, and a look at memory that is closed SIGSEGV. Our
//! handlers must be there at all times, and SIGBUS and SIGSYS must never be blocked: a thread that faults with the
//! signal blocked is killed. Programs install handlers for all signals, block all signals, and bring stacks for their
//! handlers. So every function by which they do so is replaced:
//!
//! | concern | file |
//! | --- | --- |
//! | our handlers, and the way to the program's; the stacks that these run on | `handlers`; `frames` of `arch` |
//! | what the program does about a signal | `actions`, `table`; `older` for the functions of System V and BSD |
//! | masks of threads; calls that wait under a mask | `masks`, `waits` |
//! | alternate stacks; a thread's beginning, its own stack | `alternate`; `begin`, `given` |
//! | what is kept of each thread | `thread` |
//! | what a new thread looks at before its signals are unblocked | `locale` |
//!
//! *Without userfaultfd* a page that is out is closed, and its fault is SIGSEGV. Then SIGSEGV is treated as SIGBUS is:
//! never blocked, and served before the program hears of it ([`serve_sigsegv`]). One thing shows: a handler of the
//! program's for SIGSEGV that asks for its mask does not find SIGSEGV in it.
//!
//! Without direct delivery each export goes straight to the C library.
//!
//! *By the number of the call.* The same calls come from the program's own instructions, when what they name lies in
//! managed memory and the filter stops them ([`by_number`]). They are made inside of the handler of SIGSYS. A mask
//! and a stack that are changed there would be as before when the handler returns, so they are changed in its
//! context. What the program passes is read so that a bad address is an error; what it gets back is written after the
//! kernel has written to the same place, which finds out whether it may be written.

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
pub use thread::this;

use super::holds::Holds;
use super::real;
use crate::arch;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use rustix::io::Errno;

/// The signals that are raised by what a thread does. Where they are blocked, it is killed.
pub const RAISED: u64 = bit(libc::SIGBUS) | bit(libc::SIGSYS) | bit(libc::SIGSEGV);

static NEVER_BLOCKED: AtomicU64 = AtomicU64::new(bit(libc::SIGBUS) | bit(libc::SIGSYS));

/// The signals that are blocked only in the program's eyes: SIGBUS and SIGSYS, and SIGSEGV where it is the fault of a
/// page that is out.
pub fn never_blocked() -> u64 {
    NEVER_BLOCKED.load(Relaxed)
}

/// The calls about signals that are served by their number.
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

/// Looks the C library's functions up. The program must not run yet.
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

/// A signal's place in a mask.
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

/// Has SIGSEGV always come, as SIGBUS does, because pages that are out are closed. This must be called before any
/// thread touches managed memory.
///
/// # Errors
/// A line that says what the system refuses.
pub fn serve_sigsegv() -> Result<(), String> {
    let segv = bit(libc::SIGSEGV);
    NEVER_BLOCKED.fetch_or(segv, Relaxed);
    masks::unblock_too(segv)?;
    actions::install_again(libc::SIGSEGV)
}

/// Begins in a new child.
pub fn after_fork_in_child() {
    actions::after_fork_in_child();
}

/// Serves a call about signals by its number. `context` is that of the handler that makes it for the program, if it is
/// made in one. The answer is `None` for all other calls.
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

/// Writes an answer into the program's memory. `write` has the kernel write as many bytes to the same place, which
/// finds out whether they may be written.
///
/// # Safety
/// What `write` writes is no longer than `T`.
unsafe fn put<T: Copy>(
    at: usize,
    answer: &T,
    write: impl FnOnce(usize) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    let mut holds = Holds::new();
    holds.add(at, size_of::<T>());
    write(at)?;
    // SAFETY: the kernel has written as many bytes there just now, and they are held.
    unsafe { (at as *mut T).write_unaligned(*answer) };
    Ok(())
}
