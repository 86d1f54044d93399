//! The older functions about signals: those of System V and BSD.
//!
//! The C library makes all of them from `sigaction` and `sigprocmask`, by calls inside of itself that no export of
//! ours sees. So they are made anew here from ours. What each does is in its manual page: `signal` gives a handler
//! that stays and restarts calls, unless `siginterrupt` was told otherwise for that signal; `sysv_signal` one for a
//! single signal; `sigset` answers `SIG_HOLD` for a signal that was blocked. Masks of type `int` have the signals 1
//! to 32.

use super::masks::{self, change};
use super::{actions, bit, real, waits};
use crate::{c_result, guard, raw};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use rustix::io::Errno;

pub type Handler = libc::sighandler_t;
pub type Signal = unsafe extern "C" fn(c_int, Handler) -> Handler;
pub type OfOne = unsafe extern "C" fn(c_int) -> c_int;
pub type OfTwo = unsafe extern "C" fn(c_int, c_int) -> c_int;
pub type OfNone = unsafe extern "C" fn() -> c_int;
pub type Pause = unsafe extern "C-unwind" fn(c_int) -> c_int;
pub type PauseEither = unsafe extern "C-unwind" fn(c_int, c_int) -> c_int;

/// The argument of `sigset` that blocks a signal.
const HOLD: Handler = 2;

/// The signals whose handlers by `signal` interrupt calls.
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

/// Whether a program may name this signal: the C library keeps two to itself.
fn is_known(signal: c_int) -> bool {
    (1..=64).contains(&signal) && masks::OF_C_LIBRARY & bit(signal) == 0
}

/// Sets a handler with this mask and these flags. The answer is the handler before.
fn set(signal: c_int, handler: Handler, mask: u64, flags: c_int) -> Result<Handler, Errno> {
    if handler == libc::SIG_ERR || !is_known(signal) {
        return Err(Errno::INVAL);
    }
    // SAFETY: zeros are a valid action.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { core::mem::zeroed() };
    new.sa_sigaction = handler;
    new.sa_mask = actions::set_of(mask);
    new.sa_flags = flags;
    // SAFETY: both actions live here.
    unsafe { actions::act(signal, &new, &mut old) }?;
    Ok(old.sa_sigaction)
}

fn handler_or_error(answer: Result<Handler, Errno>) -> Handler {
    answer.unwrap_or_else(|error| {
        raw::set_errno(error);
        libc::SIG_ERR
    })
}

/// Replaces the C library's `signal`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn signal(signal: c_int, handler: Handler) -> Handler {
    if !guard::is_on() {
        // SAFETY: the C library's function of this name has this type; the caller guarantees the rest.
        return unsafe { real::SIGNAL.must()(signal, handler) };
    }
    let mask = if is_known(signal) { bit(signal) } else { 0 };
    let interrupts = INTERRUPTING.load(Relaxed) & mask != 0;
    let flags = if interrupts { 0 } else { libc::SA_RESTART };
    handler_or_error(set(signal, handler, mask, flags))
}

/// Replaces the C library's `bsd_signal`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn bsd_signal(number: c_int, handler: Handler) -> Handler {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { signal(number, handler) }
}

/// Replaces the C library's `ssignal`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ssignal(number: c_int, handler: Handler) -> Handler {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { signal(number, handler) }
}

/// Replaces the C library's `__sysv_signal`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __sysv_signal(signal: c_int, handler: Handler) -> Handler {
    /// `SA_INTERRUPT`, which newer kernels forget.
    const INTERRUPT: c_int = 0x2000_0000;
    if !guard::is_on() {
        // SAFETY: the C library's function of this name has this type; the caller guarantees the rest.
        return unsafe { real::SYSV_SIGNAL.must()(signal, handler) };
    }
    let flags = libc::SA_RESETHAND | libc::SA_NODEFER | INTERRUPT;
    handler_or_error(set(signal, handler, 0, flags))
}

/// Replaces the C library's `sysv_signal`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sysv_signal(signal: c_int, handler: Handler) -> Handler {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { __sysv_signal(signal, handler) }
}

fn sigset_with(signal: c_int, handler: Handler) -> Result<Handler, Errno> {
    if handler == libc::SIG_ERR || !(1..=64).contains(&signal) {
        return Err(Errno::INVAL);
    }
    if handler == HOLD {
        let before = change(libc::SIG_BLOCK, Some(bit(signal)), None)?;
        // SAFETY: zeros are a valid action, and the one before has room here.
        let mut old: libc::sigaction = unsafe { core::mem::zeroed() };
        // SAFETY: as above.
        unsafe { actions::act(signal, core::ptr::null(), &mut old) }?;
        return Ok(if before & bit(signal) != 0 {
            HOLD
        } else {
            old.sa_sigaction
        });
    }
    let old = set(signal, handler, 0, 0)?;
    let before = change(libc::SIG_UNBLOCK, Some(bit(signal)), None)?;
    Ok(if before & bit(signal) != 0 { HOLD } else { old })
}

/// Replaces the C library's `sigset`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sigset(signal: c_int, handler: Handler) -> Handler {
    if !guard::is_on() {
        // SAFETY: the C library's function of this name has this type; the caller guarantees the rest.
        return unsafe { real::SIGSET.must()(signal, handler) };
    }
    handler_or_error(sigset_with(signal, handler))
}

/// Blocks or unblocks one signal.
fn change_one(how: c_int, signal: c_int) -> c_int {
    c_result(match (1..=64).contains(&signal) {
        true => change(how, Some(bit(signal) & !masks::OF_C_LIBRARY), None).map(drop),
        false => Err(Errno::INVAL),
    })
}

/// Replaces the C library's `sighold`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sighold(signal: c_int) -> c_int {
    if !guard::is_on() {
        // SAFETY: the C library's function of this name has this type.
        return unsafe { real::SIGHOLD.must()(signal) };
    }
    change_one(libc::SIG_BLOCK, signal)
}

/// Replaces the C library's `sigrelse`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sigrelse(signal: c_int) -> c_int {
    if !guard::is_on() {
        // SAFETY: the C library's function of this name has this type.
        return unsafe { real::SIGRELSE.must()(signal) };
    }
    change_one(libc::SIG_UNBLOCK, signal)
}

/// Replaces the C library's `sigignore`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sigignore(signal: c_int) -> c_int {
    if !guard::is_on() {
        // SAFETY: the C library's function of this name has this type.
        return unsafe { real::SIGIGNORE.must()(signal) };
    }
    c_result(set(signal, libc::SIG_IGN, 0, 0).map(drop))
}

/// Replaces the C library's `siginterrupt`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    if !guard::is_on() {
        // SAFETY: the C library's function of this name has this type.
        return unsafe { real::SIGINTERRUPT.must()(signal, interrupts) };
    }
    // SAFETY: zeros are a valid action, and the one before has room here.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    let read = match is_known(signal) {
        // SAFETY: as above.
        true => unsafe { actions::act(signal, core::ptr::null(), &mut action) },
        false => Err(Errno::INVAL),
    };
    let written = read.and_then(|()| {
        if interrupts != 0 {
            INTERRUPTING.fetch_or(bit(signal), Relaxed);
            action.sa_flags &= !libc::SA_RESTART;
        } else {
            INTERRUPTING.fetch_and(!bit(signal), Relaxed);
            action.sa_flags |= libc::SA_RESTART;
        }
        // SAFETY: the action was read just now.
        unsafe { actions::act(signal, &action, core::ptr::null_mut()) }
    });
    c_result(written)
}

/// The answer of a function whose masks have type `int`.
fn old_mask(how: c_int, mask: c_int) -> c_int {
    let set = u64::from(mask as u32);
    match change(how, Some(set), None) {
        Ok(before) => before as u32 as c_int,
        Err(error) => c_result(Err(error)),
    }
}

/// Replaces the C library's `sigblock`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sigblock(mask: c_int) -> c_int {
    if !guard::is_on() {
        // SAFETY: the C library's function of this name has this type.
        return unsafe { real::SIGBLOCK.must()(mask) };
    }
    old_mask(libc::SIG_BLOCK, mask)
}

/// Replaces the C library's `sigsetmask`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sigsetmask(mask: c_int) -> c_int {
    if !guard::is_on() {
        // SAFETY: the C library's function of this name has this type.
        return unsafe { real::SIGSETMASK.must()(mask) };
    }
    old_mask(libc::SIG_SETMASK, mask)
}

/// Replaces the C library's `siggetmask`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn siggetmask() -> c_int {
    if !guard::is_on() {
        // SAFETY: the C library's function of this name has this type.
        return unsafe { real::SIGGETMASK.must()() };
    }
    old_mask(libc::SIG_BLOCK, 0)
}

/// Waits for a signal under a mask of BSD's.
unsafe extern "C-unwind" fn pause_under(mask: c_int) -> c_int {
    let set = actions::set_of(u64::from(mask as u32));
    // SAFETY: the set lives here.
    unsafe { waits::sigsuspend(&set) }
}

/// Waits for a signal with one signal unblocked.
unsafe extern "C-unwind" fn pause_without(signal: c_int) -> c_int {
    let mask = match (1..=64).contains(&signal) {
        true => change(libc::SIG_BLOCK, None, None),
        false => Err(Errno::INVAL),
    };
    match mask {
        Ok(mask) => {
            let set = actions::set_of(mask & !bit(signal));
            // SAFETY: the set lives here.
            unsafe { waits::sigsuspend(&set) }
        }
        Err(error) => c_result(Err(error)),
    }
}

/// Replaces the C library's `sigpause`, that of BSD.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sigpause(mask: c_int) -> c_int {
    if !guard::is_on() {
        // SAFETY: the C library's function of this name has this type.
        return unsafe { real::SIGPAUSE.must()(mask) };
    }
    // SAFETY: the caller guarantees what this call needs.
    unsafe { pause_under(mask) }
}

/// Replaces the C library's `__xpg_sigpause`, which is `sigpause` for programs of System V.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __xpg_sigpause(signal: c_int) -> c_int {
    if !guard::is_on() {
        // SAFETY: the C library's function of this name has this type.
        return unsafe { real::XPG_SIGPAUSE.must()(signal) };
    }
    // SAFETY: the caller guarantees what this call needs.
    unsafe { pause_without(signal) }
}

/// Replaces the C library's `__sigpause`, which is either of the two.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __sigpause(signal_or_mask: c_int, is_signal: c_int) -> c_int {
    if !guard::is_on() {
        // SAFETY: the C library's function of this name has this type.
        return unsafe { real::PRIVATE_SIGPAUSE.must()(signal_or_mask, is_signal) };
    }
    // SAFETY: the caller guarantees what these calls need.
    unsafe {
        match is_signal {
            0 => pause_under(signal_or_mask),
            _ => pause_without(signal_or_mask),
        }
    }
}
