//! The guard: the faulting thread serves itself, and memory that the kernel is about to touch is brought in first.
//!
//! With handler delivery a fault of the program is passed to another thread, and userfaultfd needs a privilege
//! because it also serves the kernel's own accesses to absent memory. With *direct delivery* userfaultfd serves only
//! user-mode faults, which needs no privilege, and raises SIGBUS in the faulting thread. That thread brings in its
//! page. The kernel's side is lost: a system call on absent memory fails with `EFAULT`, a signal frame that does not
//! fit ends the process, and a SIGBUS that is blocked when it is raised ends the process. The guard makes up for
//! that.
//!
//! *The path of a call.* A seccomp program, built from the table of all system calls (`millpond_guard`), stops a call
//! whose memory lies in the space, with SIGSYS ([`trap`]). The handler walks the memory that the call touches, brings
//! it in and holds it ([`holds`], `millpond_mmu::Held`), and makes the call at the [`gate`], the one instruction that
//! the filter lets through. Then the thread continues after its own instruction, with the kernel's answer. Calls that
//! programs make often have [wrappers](calls), which do the same without a signal. Calls about mappings lead to the
//! code that serves them by function ([`crate::syscall`]). If nothing lies in the space, a call is made as usual, and
//! costs only the filter's check of its arguments.
//!
//! *Addresses.* The filter outlives `execve`, and a child that is not preloaded has no handler. So the space lies at
//! [`START`], where no ordinary program maps anything, and the gate directly above it. Both are the same in all
//! processes of a tree, so a child uses the filter that it inherits and installs none ([`install`]).
//!
//! *Signals.* SIGBUS and SIGSYS are never blocked, whatever the program or the C library asks for, and keep our
//! handlers ([`signals`]). They run on an alternate stack that every thread of the program gets, since the thread's
//! own stack may be small or in managed memory.
//!
//! *Children.* The C library blocks signals and resets handlers between a child's creation and its `execve`. The
//! memory that it touches there is therefore held by the caller, or copied out of the space ([`children`]). The C
//! library's helper threads have all signals permanently blocked, so we do without them ([`helpers`]).

pub mod call;
pub mod calls;
pub mod cancel;
pub mod children;
pub mod gate;
mod helpers;
pub mod holds;
mod install;
mod pieces;
pub mod real;
pub mod runtime;
pub mod signals;
mod trap;

use crate::{arch, raw};
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use rustix::io::Errno;

/// The first address of the space, and of the range that the filter checks for.
pub const START: usize = 32 << 40;
/// The end of the range that the filter checks for.
pub const END: usize = 34 << 40;

static ON: AtomicBool = AtomicBool::new(false);
static HAS_SIGNALS: AtomicBool = AtomicBool::new(false);

/// Returns whether the signals of faults are ours. In a process that has yet to engage they are before the guard is on.
#[inline]
pub fn has_signals() -> bool {
    HAS_SIGNALS.load(Relaxed)
}

/// Returns whether faults are delivered to the threads that fault, so that the kernel's accesses must be prepared.
#[inline]
pub fn is_on() -> bool {
    ON.load(Relaxed)
}

/// [`is_on`], for calls whose effect lasts: a dormant process engages first.
pub fn is_on_for_good() -> bool {
    crate::engage::before_lasting();
    is_on()
}

/// Returns whether the kernel's access to the bytes at `addr` must be prepared.
#[inline]
pub fn concerns(addr: *const c_void) -> bool {
    is_on() && crate::space::contains(addr as usize)
}

/// Looks up the C library's functions that are replaced. The program must not be running yet.
pub fn find() {
    calls::find();
    children::find();
    helpers::find();
    signals::find();
}

/// Returns whether nothing is mapped where the space is to lie.
fn is_free(len: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let flags = flags | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: the kernel replaces nothing, and what it maps here is unmapped at once.
    unsafe {
        match raw::mmap(START, len, libc::PROT_NONE, flags, -1, 0) {
            Ok(at) => raw::munmap(at, len).is_ok(),
            Err(errno) => errno != Errno::EXIST,
        }
    }
}

/// Prepares the process for direct delivery: handlers, gate, filter. The space, of `len` bytes, is created
/// afterwards.
///
/// # Errors
/// A line that says what the kernel refuses. In that case nothing has changed that would affect handler delivery.
pub fn prepare(len: usize) -> Result<(), String> {
    if !arch::HAS_GATE {
        return Err("the gate's code is for x86-64; use --delivery handler".into());
    }
    if crate::dlopen::find_next(c"__lsan_do_leak_check").is_some() {
        return Err(
            "LeakSanitizer takes over the C library's signals; run a build without -fsanitize=leak"
                .into(),
        );
    }
    gate::open()?;
    // With an inherited filter, only the gate can ask this.
    if !is_free(len) {
        return Err(format!("the addresses from {START:#x} on are taken"));
    }
    signals::start()?;
    HAS_SIGNALS.store(true, Relaxed);
    runtime::find();
    Ok(())
}

/// Has the kernel stop calls that name memory in the space, from now on.
///
/// # Errors
/// A line that says what the kernel refuses.
pub fn start(budget: u64) -> Result<(), String> {
    signals::take_back()?;
    install::filter()?;
    millpond_mmu::look_for_holds();
    holds::allow(budget / 8);
    ON.store(true, Relaxed);
    Ok(())
}

/// Returns whether the process can start the guard later: the kernel takes filters, and none of ours was inherited,
/// which would stop calls at once.
pub fn can_wait() -> bool {
    !install::is_there() && install::is_possible()
}
