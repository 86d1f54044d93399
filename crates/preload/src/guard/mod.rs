//! The guard: the faulting thread serves itself, and what the kernel is about to touch is brought in first.
//!
//! With handler delivery a fault of the program is handed to another thread, and userfaultfd needs a privilege, because
//! the kernel's own touches of absent memory are served too. With *direct delivery* userfaultfd serves faults of user
//! mode only, which every user may have, and raises SIGBUS in the thread that faults. That thread brings its page in.
//! What is lost is the kernel's side: a system call on absent memory fails with `EFAULT`, a signal's frame that does
//! not fit ends the process, a SIGBUS that is blocked when it is raised ends the process. The guard is what makes up
//! for that.
//!
//! *The way of a call.* A seccomp program, made from the table of all system calls (`millpond_guard`), stops a call
//! whose memory lies in the space: SIGSYS ([`trap`]). Its handler walks through what the call touches, brings it in and
//! holds it ([`holds`], `millpond_mmu::Held`), and makes the call at the [`gate`], the one instruction that the filter
//! lets through. Then the thread goes on behind its own instruction, with the kernel's answer. Calls that programs make
//! often have [wrappers](calls), which do the same without a signal. Calls about mappings lead to the code that serves
//! them by function ([`crate::syscall`]). Where nothing lies in the space a call is made as ever, and costs the
//! filter's look at its arguments.
//!
//! *Addresses.* The filter outlives `execve`, and a child that is not preloaded has no handler. So the space lies at
//! [`START`], where no ordinary program maps anything, and the gate directly above. Both are the same in all processes
//! of a tree, so that a child takes the filter that it inherits and installs none ([`install`]).
//!
//! *Signals.* SIGBUS and SIGSYS are never blocked, whatever the program or the C library asks for, and keep our
//! handlers ([`signals`]). They run on an alternate stack that every thread of the program gets: the thread's own may
//! be small, or in managed memory.
//!
//! *Children.* The C library blocks signals and resets handlers between the making of a child and its `execve`, so what
//! it touches there is held by the caller, or copied out of the space ([`children`]). Helper threads of the C library
//! have all signals blocked for good, and are done without ([`helpers`]).

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

/// The first address of the space, and of what the filter looks for.
pub const START: usize = 32 << 40;
/// The end of the addresses that the filter looks for.
pub const END: usize = 34 << 40;

static ON: AtomicBool = AtomicBool::new(false);

/// Whether faults are delivered to the threads that fault, so that the kernel's touches must be prepared.
#[inline]
pub fn is_on() -> bool {
    ON.load(Relaxed)
}

/// Whether the kernel's touch of the bytes at `addr` must be prepared.
#[inline]
pub fn concerns(addr: *const c_void) -> bool {
    is_on() && crate::space::contains(addr as usize)
}

/// Looks up the C library's functions behind those that are replaced. The program must not run yet.
pub fn find() {
    calls::find();
    children::find();
    helpers::find();
    signals::find();
}

/// Whether nothing is mapped where the space is to lie.
fn is_free(len: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let flags = flags | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: the kernel replaces nothing, and what it maps here is taken away at once.
    unsafe {
        match raw::mmap(START, len, libc::PROT_NONE, flags, -1, 0) {
            Ok(at) => raw::munmap(at, len).is_ok(),
            Err(errno) => errno != Errno::EXIST,
        }
    }
}

/// Prepares the process for direct delivery: handlers, gate, filter. The space, of `len` bytes, is made afterwards.
///
/// # Errors
/// A line that says what the kernel refuses. Nothing has changed then that handler delivery would mind.
pub fn start(budget: u64, len: usize) -> Result<(), String> {
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
    // An inherited filter lets only the gate ask this.
    if !is_free(len) {
        return Err(format!("the addresses from {START:#x} on are taken"));
    }
    signals::start()?;
    runtime::find();
    install::filter()?;
    millpond_mmu::look_for_holds();
    holds::allow(budget / 8);
    ON.store(true, Relaxed);
    Ok(())
}
