//! Thread masks: SIGBUS and SIGSYS are never blocked in the kernel, and the program reads back what it has set.
//!
//! A blocked SIGBUS ends the process when a page is absent, and so does a blocked SIGSYS in place of a call. So both
//! are removed from each mask on its way to the kernel. For each [thread](super::thread) we record which of them the
//! program believes to be blocked, and add these to each mask that it reads. A new thread starts with its creator's.
//!
//! *While a fault is served* both are blocked nonetheless, along with everything else: the frame of another signal
//! would overwrite that of the fault, since the thread is on neither of its stacks. The manager's own code blocks and
//! restores signals there with the same functions, which in that case act directly.
//!
//! *Differences from the kernel.* A SIGBUS or SIGSYS that somebody sends to a thread that believes it blocked arrives
//! at once. A handler that leaves the mask changed, or is left by `siglongjmp`, leaves the thread's two bits as they
//! were last set: the program may read one of the two where the kernel would say otherwise. A program started by
//! `execve` finds neither blocked. A mask that is built by hand in a handler's context (`uc_sigmask`) reaches the
//! kernel unchanged, and so does one that lies outside managed memory and is set by the program's own instruction.

use super::actions::{SET, set_word, word};
use super::thread;
use super::{bit, never_blocked, put};
use crate::{guard, raw};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use rustix::io::Errno;

/// The signals that the C library reserves, and removes from the masks that a program sets with its functions.
pub const OF_C_LIBRARY: u64 = bit(32) | bit(33);

/// Unblocks SIGBUS and SIGSYS in the first thread, which may have inherited a mask that contains them.
///
/// # Errors
/// A line that says what the kernel refuses.
pub fn start() -> Result<(), String> {
    let before = in_kernel(libc::SIG_UNBLOCK, Some(never_blocked()))
        .map_err(|error| format!("the kernel unblocks no signals ({error})"))?;
    thread::this()
        .masked
        .store(before & never_blocked(), Relaxed);
    Ok(())
}

/// Unblocks further signals in the first thread, which are ours from now on.
///
/// # Errors
/// As for [`start`].
pub fn unblock_too(signals: u64) -> Result<(), String> {
    let before = in_kernel(libc::SIG_UNBLOCK, Some(signals))
        .map_err(|error| format!("the kernel unblocks no signals ({error})"))?;
    thread::this().masked.fetch_or(before & signals, Relaxed);
    Ok(())
}

/// Initialises a new thread whose creator believed `masked` to be blocked. A thread may start with its own mask,
/// which the C library has put into its attributes and set.
pub fn begin_thread(masked: u64) {
    let before = in_kernel(libc::SIG_UNBLOCK, Some(never_blocked())).unwrap_or(0) & never_blocked();
    let masked = if before == 0 { masked } else { before };
    thread::this().masked.store(masked, Relaxed);
}

/// Makes the system call on words that live here. Returns the previous mask.
fn in_kernel(how: c_int, set: Option<u64>) -> Result<u64, Errno> {
    let mut before = 0u64;
    let set = set
        .as_ref()
        .map_or(0, |set| core::ptr::from_ref(set) as usize);
    let args = [how as usize, set, &raw mut before as usize, SET, 0, 0];
    // SAFETY: the kernel reads and writes words that live here.
    unsafe { raw::syscall(libc::SYS_rt_sigprocmask, args) }.map(|_| before)
}

/// Changes the mask that a thread will have when it leaves a handler. Returns the previous mask.
fn in_context(how: c_int, set: Option<u64>, context: &mut libc::ucontext_t) -> Result<u64, Errno> {
    // The kernel's structure has a set of 64 signals there, followed by other fields.
    // SAFETY: the set belongs to the context.
    let before = unsafe { word(&context.uc_sigmask) };
    if let Some(set) = set {
        if !matches!(how, libc::SIG_BLOCK | libc::SIG_UNBLOCK | libc::SIG_SETMASK) {
            return Err(Errno::INVAL);
        }
        let blockable = !(bit(libc::SIGKILL) | bit(libc::SIGSTOP));
        let after = applied(how, before, set) & blockable;
        // SAFETY: as above; only the 64 signals are written.
        unsafe { set_word(&mut context.uc_sigmask, after) };
    }
    Ok(before)
}

/// Returns a mask changed by a set.
fn applied(how: c_int, before: u64, set: u64) -> u64 {
    match how {
        libc::SIG_BLOCK => before | set,
        libc::SIG_UNBLOCK => before & !set,
        _ => set,
    }
}

/// Changes the calling thread's mask as the program sees it, if there is a set. Returns the previous mask. In a
/// handler that makes a call for the program, the mask is that of the handler's `context`.
pub fn change(
    how: c_int,
    set: Option<u64>,
    context: Option<&mut libc::ucontext_t>,
) -> Result<u64, Errno> {
    let words = thread::this();
    if words.serves.load(Relaxed) != 0 {
        return in_kernel(how, set);
    }
    let masked = &words.masked;
    let hidden = masked.load(Relaxed);
    let given = set.map(|set| set & !never_blocked());
    let before = match context {
        None => in_kernel(how, given)?,
        Some(context) => in_context(how, given, context)?,
    };
    if let Some(set) = set {
        masked.store(applied(how, hidden, set & never_blocked()), Relaxed);
    }
    Ok(before & !never_blocked() | hidden)
}

/// Does what `pthread_sigmask` does.
///
/// # Safety
/// The conditions are those of `pthread_sigmask`.
unsafe fn change_by_function(
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> Result<(), Errno> {
    let set = match set.is_null() {
        true => None,
        // SAFETY: the caller guarantees a set.
        false => Some(unsafe { word(set) } & !OF_C_LIBRARY),
    };
    let before = change(how, set, None)?;
    if !old.is_null() {
        // SAFETY: the caller guarantees room for a set. Like the kernel, this writes 64 signals.
        unsafe { set_word(old, before) };
    }
    Ok(())
}

/// Makes the system call `rt_sigprocmask` for the program.
pub fn by_number(args: [usize; 6], context: Option<&mut libc::ucontext_t>) -> Result<usize, Errno> {
    let [how, set, old, size, ..] = args;
    if size != SET {
        return Err(Errno::INVAL);
    }
    let set = match set {
        0 => None,
        at => Some(read(at)?),
    };
    let before = change(how as c_int, set, context)?;
    if old != 0 {
        // SAFETY: the kernel checks that the place can be written, and writes a set of this size.
        unsafe {
            put(old, &before, |at| {
                raw::syscall(libc::SYS_rt_sigprocmask, [0, 0, at, SET, 0, 0])
            })?
        };
    }
    Ok(0)
}

/// Reads a set from the program.
pub fn read(at: usize) -> Result<u64, Errno> {
    let mut bytes = [0; SET];
    match millpond_mmu::read(at, &mut bytes) {
        true => Ok(u64::from_ne_bytes(bytes)),
        false => Err(Errno::FAULT),
    }
}

exports! {
    [rt_sigprocmask: Held]
    unsafe extern "C" fn pthread_sigmask(
        how: c_int,
        set: *const libc::sigset_t,
        old: *mut libc::sigset_t,
    ) -> c_int
        = PTHREAD_SIGMASK.must() if !guard::has_signals(), else {
            // SAFETY: the caller guarantees what this call needs.
            match unsafe { change_by_function(how, set, old) } {
                Ok(()) => 0,
                Err(error) => error.raw_os_error(),
            }
        }

    [rt_sigprocmask: Held]
    unsafe extern "C" fn sigprocmask(
        how: c_int,
        set: *const libc::sigset_t,
        old: *mut libc::sigset_t,
    ) -> c_int
        = SIGPROCMASK.must() if !guard::has_signals(), else unsafe {
            crate::c_result(change_by_function(how, set, old))
        }
}
