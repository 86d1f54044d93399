//! `sigaction`: a program's response to signals.
//!
//! The actions that the program sets are stored in a [table](super::table) and read back exactly; anything that the
//! kernel would remove (unknown flags, SIGKILL in the mask) is removed here. The actions inherited across `execve`
//! (default or ignore) are read when the process starts, and fill the table initially.
//!
//! *SIGBUS, SIGSEGV, SIGSYS.* The kernel always has our handlers.
//!
//! *All other signals.* The kernel has the program's action as long as it is the default, or to ignore. In place of a
//! handler of the program it has our [entry](frames), with the program's flags, and with the program's mask except
//! for SIGBUS and SIGSYS, because the handler may touch absent memory.
//!
//! *The child of `vfork`* has its own actions but shares this memory with its parent. Its changes are not recorded,
//! and it keeps our handlers until its `execve`, which resets them.

use super::table::{self, Action, Record, Writer};
use super::{bit, handlers, masks, never_blocked, put};
use crate::arch::frames;
use crate::{guard, raw};
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering::Relaxed};
use rustix::io::Errno;

/// The size of the kernel's signal set.
pub const SET: usize = size_of::<u64>();
/// `SA_RESTORER`, which glibc sets on x86-64.
const RESTORER: usize = 0x0400_0000;
/// `SA_EXPOSE_TAGBITS`.
const TAGS: usize = 0x800;
/// The flags that the kernel keeps when a program sets them (since Linux 5.11).
const KNOWN: usize = TAGS
    | RESTORER
    | (libc::SA_NOCLDSTOP
        | libc::SA_NOCLDWAIT
        | libc::SA_SIGINFO
        | libc::SA_ONSTACK
        | libc::SA_RESTART
        | libc::SA_NODEFER) as usize
    | libc::SA_RESETHAND as u32 as usize;

/// How the C library's handlers return: the flag, and the address of its code.
static RESTORER_FLAG: AtomicUsize = AtomicUsize::new(0);
static RESTORER_AT: AtomicUsize = AtomicUsize::new(0);
/// The process whose actions are recorded.
static PROCESS: AtomicI32 = AtomicI32::new(0);

fn refused(error: Errno) -> String {
    format!("the kernel installs no signal handlers ({error})")
}

/// Reads the actions that the process starts with, and installs our handlers.
///
/// # Errors
/// A line that says what the kernel refuses.
pub fn start() -> Result<(), String> {
    PROCESS.store(process(), Relaxed);
    let mut inherited = [Action::default(); table::LAST as usize + 1];
    for (signal, action) in (0..).zip(&mut inherited) {
        if Record::of(signal).is_some() {
            *action = kernels(signal, None).map_err(refused)?;
        }
    }
    find_restorer().map_err(refused)?;
    let writer = Writer::begin();
    for (signal, action) in (0..).zip(&inherited) {
        let Some(record) = Record::of(signal) else {
            continue;
        };
        record.set(&writer, action);
        if is_raised(signal) {
            install(signal, action).map_err(refused)?;
        }
    }
    Ok(())
}

/// Puts our handlers back where the program has put others past us, which are the program's from then on.
///
/// # Errors
/// A line that says what the kernel refuses.
pub fn take_back() -> Result<(), String> {
    let ours = [
        handlers::on_sigbus as *const () as usize,
        handlers::on_sigsys as *const () as usize,
        frames::entry(),
    ];
    let writer = Writer::begin();
    for signal in 1..=table::LAST {
        let Some(record) = Record::of(signal) else {
            continue;
        };
        let action = kernels(signal, None).map_err(refused)?;
        let is_known = record.get().handler == action.handler && !is_raised(signal);
        if !is_known && !ours.contains(&action.handler) {
            record.set(&writer, &action);
            install(signal, &action).map_err(refused)?;
        }
    }
    Ok(())
}

/// Reinstalls our handler for a signal after its purpose has changed.
///
/// # Errors
/// A line that says what the kernel refuses.
pub fn install_again(signal: c_int) -> Result<(), String> {
    let _writer = Writer::begin();
    match Record::of(signal) {
        Some(record) => install(signal, &record.get()).map_err(refused),
        None => Ok(()),
    }
}

/// Returns whether the kernel always has our handler for this signal.
fn is_raised(signal: c_int) -> bool {
    matches!(signal, libc::SIGBUS | libc::SIGSEGV | libc::SIGSYS)
}

/// Finds the code by which the C library's handlers return: its function sets the code with each action.
fn find_restorer() -> Result<(), Errno> {
    // SAFETY: zeros are the default action, which the process does not need at this moment.
    let default: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: the C library's function of this name has this type, and the action is valid.
    unsafe { SIGACTION.must()(libc::SIGBUS, &default, core::ptr::null_mut()) };
    let action = kernels(libc::SIGBUS, None)?;
    RESTORER_FLAG.store(action.flags & RESTORER, Relaxed);
    RESTORER_AT.store(action.restorer, Relaxed);
    Ok(())
}

/// Starts in a new child.
pub fn after_fork_in_child() {
    PROCESS.store(process(), Relaxed);
    table::after_fork_in_child();
}

/// Returns the process ID. The child of a `vfork` has its own.
pub fn process() -> i32 {
    // SAFETY: the call is a query.
    unsafe { raw::syscall(libc::SYS_getpid, [0; 6]) }.map_or(0, |id| id as i32)
}

/// Returns whether the caller is a separate process that borrows this memory.
pub fn is_borrowed() -> bool {
    process() != PROCESS.load(Relaxed)
}

/// Returns the kernel's previous action, and sets the new one, if any.
fn kernels(signal: c_int, new: Option<&Action>) -> Result<Action, Errno> {
    let mut old = Action::default();
    let new = new.map_or(0, |action| core::ptr::from_ref(action) as usize);
    let args = [signal as usize, new, &raw mut old as usize, SET, 0, 0];
    // SAFETY: the kernel reads and writes structures that live here. What a handler does is its owner's concern.
    unsafe { raw::syscall(libc::SYS_rt_sigaction, args) }.map(|_| old)
}

/// Returns the action with a mask that blocks neither SIGBUS nor SIGSYS.
fn without_ours(action: Action) -> Action {
    Action {
        mask: action.mask & !(never_blocked() as usize),
        ..action
    }
}

/// Gives the kernel the right action for a signal whose action in the table is `action`.
fn install(signal: c_int, action: &Action) -> Result<(), Errno> {
    const RESTART: usize = libc::SA_RESTART as usize;
    const ONSTACK: usize = libc::SA_ONSTACK as usize;
    const NODEFER: usize = libc::SA_NODEFER as usize;
    let is_handled = action.handler != libc::SIG_DFL && action.handler != libc::SIG_IGN;
    let mut ours = without_ours(*action);
    // The kernel blocks a signal while its handler runs, unless told otherwise.
    let comes_always = match never_blocked() & bit(signal) {
        0 => 0,
        _ => NODEFER,
    };
    if !is_raised(signal) {
        if is_handled {
            ours.handler = frames::entry();
            ours.flags |= ONSTACK;
        }
        return kernels(signal, Some(&ours)).map(drop);
    }
    // A signal that is ignored must not end the call that it interrupts. Nor must one that parks a thread.
    let parks = signal == libc::SIGSYS && action.handler == libc::SIG_DFL;
    let restarts = if action.handler == libc::SIG_IGN || parks {
        RESTART
    } else {
        action.flags & RESTART
    };
    let (handler, flags, mask) = match signal {
        libc::SIGBUS => (
            handlers::on_sigbus as *const () as usize,
            restarts,
            usize::MAX,
        ),
        libc::SIGSYS => (
            handlers::on_sigsys as *const () as usize,
            NODEFER | restarts,
            0,
        ),
        _ if is_handled => (
            frames::entry(),
            action.flags & (NODEFER | RESTART | TAGS) | comes_always,
            ours.mask,
        ),
        _ => (frames::entry(), restarts | comes_always, 0),
    };
    let ours = Action {
        handler,
        flags: flags | ONSTACK | libc::SA_SIGINFO as usize | RESTORER_FLAG.load(Relaxed),
        restorer: RESTORER_AT.load(Relaxed),
        mask,
    };
    kernels(signal, Some(&ours)).map(drop)
}

/// Gives the kernel the default action for a signal that is to end the process.
pub fn install_default(signal: c_int) -> bool {
    kernels(signal, Some(&Action::default())).is_ok()
}

/// Sets the program's action for a signal, if there is a new one. Returns the previous action.
fn exchange(signal: c_int, new: Option<Action>) -> Result<Action, Errno> {
    let Some(record) = Record::of(signal) else {
        let new = new.map(without_ours);
        return kernels(signal, new.as_ref());
    };
    let Some(mut new) = new else {
        return Ok(record.get());
    };
    new.flags &= KNOWN;
    new.mask &= !(bit(libc::SIGKILL) | bit(libc::SIGSTOP)) as usize;
    if is_borrowed() {
        if !is_raised(signal) {
            kernels(signal, Some(&without_ours(new)))?;
        }
        return Ok(record.get());
    }
    let writer = Writer::begin();
    let old = record.get();
    record.set(&writer, &new);
    install(signal, &new)?;
    Ok(old)
}

/// Returns signals 1 to 64 of a C library set; the kernel knows no others.
///
/// # Safety
/// The set is valid for reads.
pub unsafe fn word(set: *const libc::sigset_t) -> u64 {
    // SAFETY: the caller guarantees this; a set starts with the bits of the signals from 1 on.
    unsafe { set.cast::<u64>().read_unaligned() }
}

/// Replaces signals 1 to 64 of a set.
///
/// # Safety
/// The set is valid for reads and writes.
pub unsafe fn set_word(set: *mut libc::sigset_t, word: u64) {
    // SAFETY: the caller guarantees this.
    unsafe { set.cast::<u64>().write_unaligned(word) };
}

/// Returns a C library set with these signals.
pub fn set_of(word: u64) -> libc::sigset_t {
    // SAFETY: zeros are an empty set.
    let mut set: libc::sigset_t = unsafe { core::mem::zeroed() };
    // SAFETY: the set lives here.
    unsafe { set_word(&mut set, word) };
    set
}

/// Does what `sigaction` does, with the C library's structures.
///
/// # Safety
/// The conditions are those of `sigaction`.
pub unsafe fn act(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> Result<(), Errno> {
    // SAFETY: the caller guarantees a null pointer or a valid action.
    let new = unsafe { new.as_ref() }.copied();
    if masks::OF_C_LIBRARY >> (signal - 1).clamp(0, 63) & 1 == 1 {
        return Err(Errno::INVAL);
    }
    let new = new.map(|new| Action {
        handler: new.sa_sigaction,
        flags: new.sa_flags as u32 as usize | RESTORER_FLAG.load(Relaxed),
        restorer: RESTORER_AT.load(Relaxed),
        // SAFETY: the set is part of a copy that lives here.
        mask: unsafe { word(&new.sa_mask) } as usize,
    });
    let before = exchange(signal, new)?;
    // SAFETY: the caller guarantees a null pointer or room for an action.
    if let Some(old) = unsafe { old.as_mut() } {
        old.sa_sigaction = before.handler;
        old.sa_mask = set_of(before.mask as u64);
        old.sa_flags = before.flags as i32;
        if before.flags & RESTORER != 0 || before.restorer != 0 {
            // SAFETY: the address is that of the code that was set, which takes and returns nothing.
            let restorer =
                unsafe { core::mem::transmute::<usize, extern "C" fn()>(before.restorer) };
            old.sa_restorer = Some(restorer);
        } else {
            old.sa_restorer = None;
        }
    }
    Ok(())
}

/// Makes the system call `rt_sigaction` for the program.
pub fn by_number(args: [usize; 6]) -> Result<usize, Errno> {
    let [signal, new, old, size, ..] = args;
    if size != SET {
        return Err(Errno::INVAL);
    }
    let signal = signal as c_int;
    let new = match new {
        0 => None,
        at => {
            let mut bytes = [0; size_of::<Action>()];
            if !millpond_mmu::read(at, &mut bytes) {
                return Err(Errno::FAULT);
            }
            // SAFETY: an action consists of words, for which any bytes are valid.
            Some(unsafe { core::mem::transmute::<[u8; size_of::<Action>()], Action>(bytes) })
        }
    };
    let before = exchange(signal, new)?;
    if old != 0 {
        // SAFETY: the kernel checks that the place can be written, and writes an action of this size.
        unsafe {
            put(old, &before, |at| {
                raw::syscall(
                    libc::SYS_rt_sigaction,
                    [libc::SIGBUS as usize, 0, at, SET, 0, 0],
                )
            })?;
        }
    }
    Ok(0)
}

exports! {
    [rt_sigaction: Held]
    unsafe extern "C" fn sigaction(
        signal: c_int,
        new: *const libc::sigaction,
        old: *mut libc::sigaction,
    ) -> c_int
        = SIGACTION.must() if !guard::has_signals(), else unsafe {
            crate::c_result(act(signal, new, old))
        }

    [rt_sigaction: Held]
    unsafe extern "C" fn __sigaction(
        signal: c_int,
        new: *const libc::sigaction,
        old: *mut libc::sigaction,
    ) -> c_int = sigaction;
}
