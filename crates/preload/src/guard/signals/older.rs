//! The older functions about signals: those of System V and BSD.
//!
//! The C library builds all of them on `sigaction` and `sigprocmask`, with internal calls that no export of ours
//! sees. So we reimplement them here on top of ours. Their manual pages specify them: `signal` sets a handler that
//! stays and restarts calls, unless `siginterrupt` said otherwise for that signal; `sysv_signal` sets one for a
//! single signal; `sigset` returns `SIG_HOLD` for a signal that was blocked. Masks of type `int` contain signals 1 to
//! 32.

use super::masks::{self, change};
use super::{actions, bit, waits};
use crate::{c_result, guard, raw};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use rustix::io::Errno;

pub type Handler = libc::sighandler_t;
/// The argument of `sigset` that blocks a signal.
const HOLD: Handler = 2;

/// The signals whose handlers set by `signal` interrupt calls.
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

/// Returns whether a program may name this signal: the C library reserves two.
fn is_known(signal: c_int) -> bool {
    (1..=64).contains(&signal) && masks::OF_C_LIBRARY & bit(signal) == 0
}

/// Sets a handler with this mask and these flags. Returns the previous handler.
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

exports! {
    [rt_sigaction: Thread]
    unsafe extern "C" fn signal(signal: c_int, handler: Handler) -> Handler
        = SIGNAL.must() if !guard::has_signals(), else {
            let mask = if is_known(signal) { bit(signal) } else { 0 };
            let interrupts = INTERRUPTING.load(Relaxed) & mask != 0;
            let flags = if interrupts { 0 } else { libc::SA_RESTART };
            handler_or_error(set(signal, handler, mask, flags))
        }

    [rt_sigaction: Thread]
    unsafe extern "C" fn bsd_signal(number: c_int, handler: Handler) -> Handler = signal;

    [rt_sigaction: Thread]
    unsafe extern "C" fn ssignal(number: c_int, handler: Handler) -> Handler = signal;

    [rt_sigaction: Thread]
    unsafe extern "C" fn __sysv_signal(signal: c_int, handler: Handler) -> Handler
        = SYSV_SIGNAL.must() if !guard::has_signals(), else {
            /// `SA_INTERRUPT`, which newer kernels ignore.
            const INTERRUPT: c_int = 0x2000_0000;
            let flags = libc::SA_RESETHAND | libc::SA_NODEFER | INTERRUPT;
            handler_or_error(set(signal, handler, 0, flags))
        }

    [rt_sigaction: Thread]
    unsafe extern "C" fn sysv_signal(signal: c_int, handler: Handler) -> Handler = __sysv_signal;

    [rt_sigaction: Thread]
    unsafe extern "C" fn sigset(signal: c_int, handler: Handler) -> Handler
        = SIGSET.must() if !guard::has_signals(), else {
            handler_or_error(sigset_with(signal, handler))
        }

    [rt_sigprocmask: Thread]
    unsafe extern "C" fn sighold(signal: c_int) -> c_int
        = SIGHOLD.must() if !guard::has_signals(), else {
            change_one(libc::SIG_BLOCK, signal)
        }

    [rt_sigprocmask: Thread]
    unsafe extern "C" fn sigrelse(signal: c_int) -> c_int
        = SIGRELSE.must() if !guard::has_signals(), else {
            change_one(libc::SIG_UNBLOCK, signal)
        }

    [rt_sigaction: Thread]
    unsafe extern "C" fn sigignore(signal: c_int) -> c_int
        = SIGIGNORE.must() if !guard::has_signals(), else {
            c_result(set(signal, libc::SIG_IGN, 0, 0).map(drop))
        }

    [rt_sigaction: Thread]
    unsafe extern "C" fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int
        = SIGINTERRUPT.must() if !guard::has_signals(), else {
            // SAFETY: zeros are a valid action, and there is room here for the previous one.
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
                // SAFETY: the action was just read.
                unsafe { actions::act(signal, &action, core::ptr::null_mut()) }
            });
            c_result(written)
        }

    [rt_sigprocmask: Thread]
    unsafe extern "C" fn sigblock(mask: c_int) -> c_int
        = SIGBLOCK.must() if !guard::has_signals(), else {
            old_mask(libc::SIG_BLOCK, mask)
        }

    [rt_sigprocmask: Thread]
    unsafe extern "C" fn sigsetmask(mask: c_int) -> c_int
        = SIGSETMASK.must() if !guard::has_signals(), else {
            old_mask(libc::SIG_SETMASK, mask)
        }

    [rt_sigprocmask: Thread]
    unsafe extern "C" fn siggetmask() -> c_int
        = SIGGETMASK.must() if !guard::has_signals(), else {
            old_mask(libc::SIG_BLOCK, 0)
        }

    /// BSD's `sigpause`.
    [rt_sigsuspend: Thread]
    unsafe extern "C-unwind" fn sigpause(mask: c_int) -> c_int
        = SIGPAUSE.must() if !guard::has_signals(), else unsafe {
            pause_under(mask)
        }

    /// `sigpause` for programs of System V.
    [rt_sigsuspend: Thread]
    unsafe extern "C-unwind" fn __xpg_sigpause(signal: c_int) -> c_int
        = XPG_SIGPAUSE.must() if !guard::has_signals(), else unsafe {
            pause_without(signal)
        }

    /// Either of the two.
    [rt_sigsuspend: Thread]
    unsafe extern "C-unwind" fn __sigpause(signal_or_mask: c_int, is_signal: c_int) -> c_int
        = PRIVATE_SIGPAUSE.must() if !guard::has_signals(), else unsafe {
            match is_signal {
                0 => pause_under(signal_or_mask),
                _ => pause_without(signal_or_mask),
            }
        }
}

fn sigset_with(signal: c_int, handler: Handler) -> Result<Handler, Errno> {
    if handler == libc::SIG_ERR || !(1..=64).contains(&signal) {
        return Err(Errno::INVAL);
    }
    if handler == HOLD {
        let before = change(libc::SIG_BLOCK, Some(bit(signal)), None)?;
        // SAFETY: zeros are a valid action, and there is room here for the previous one.
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

/// Blocks or unblocks one signal.
fn change_one(how: c_int, signal: c_int) -> c_int {
    c_result(match (1..=64).contains(&signal) {
        true => change(how, Some(bit(signal) & !masks::OF_C_LIBRARY), None).map(drop),
        false => Err(Errno::INVAL),
    })
}

/// Returns the answer of a function whose masks have type `int`.
fn old_mask(how: c_int, mask: c_int) -> c_int {
    let set = u64::from(mask as u32);
    match change(how, Some(set), None) {
        Ok(before) => before as u32 as c_int,
        Err(error) => c_result(Err(error)),
    }
}

/// Waits for a signal under a BSD mask.
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
