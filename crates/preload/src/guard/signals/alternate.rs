//! Alternate stacks: every thread of the program has one of ours, and the program believes that it has its own.
//!
//! SIGBUS and SIGSYS can arrive at any instruction. The thread's own stack may be in managed memory, where the kernel
//! cannot write a frame, or may be full: a fault of ours must not end a thread that is probing for the end of its
//! stack. An alternate stack set by a program is usually meant for printing one message. So each thread gets 256 KiB
//! of memory that is present whenever it is touched.
//!
//! *A stack that the program sets* is recorded for each [thread](super::thread) and read back; the program's handlers
//! run on our stack, which is at least 128 KiB longer. Invalid requests are refused with the kernel's errors. A
//! program that asks whether its handler runs on the stack that it has set is told that it does, but finds the stack
//! pointer elsewhere.
//!
//! *Exceptions.* A stack that disarms itself while a handler is on it (`SS_AUTODISARM`) belongs to a program that
//! leaves handlers by switching stacks. It goes to the kernel unchanged. So does every stack of a thread that has
//! none of ours, because it was created without `pthread_create` or has replaced ours by its own system call
//! instruction. Such memory stays resident for good.
//!
//! *The end of a thread.* A destructor takes the stack away and makes it available to a later thread. It is the first
//! of all destructors of thread-specific data; the others run on the thread's own stack.
//!
//! The child of a fork has copies of all stacks, and of the words that describe them. Those of the parent's other
//! threads are lost to it.

use super::{put, thread};
use crate::guard::holds::keep;
use crate::{guard, raw};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use millpond_mmu::interrupted::stack_pointer;
use rustix::io::Errno;

/// The length of our stacks.
const STACK: usize = 256 << 10;
/// How much longer a stack of ours is than the program's.
const MORE: usize = 128 << 10;
/// The minimum length of a stack that the kernel accepts (`MINSIGSTKSZ`).
const LEAST: usize = 2048;
/// The flag of a stack that is disarmed while a handler is on it.
const DISARMS: c_int = 1 << 31;
/// The maximum number of stacks that are kept for later threads.
const KEPT: usize = 32;

/// Stacks of threads that have ended.
static FREE: [AtomicUsize; KEPT] = [const { AtomicUsize::new(0) }; KEPT];
/// The key whose destructor takes away a thread's stack.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Gives the first thread its stack.
///
/// # Errors
/// A line that says what the C library refuses.
pub fn start() -> Result<(), String> {
    let mut key = 0;
    // SAFETY: the function stays in memory as long as the process.
    match unsafe { libc::pthread_key_create(&mut key, Some(end_thread)) } {
        0 => KEY.store(key, Relaxed),
        error => {
            return Err(format!(
                "the C library has no room for a thread's value ({error})"
            ));
        }
    }
    begin_thread();
    Ok(())
}

/// Gives the calling thread a stack. If there is no memory for it, the thread continues without one.
pub fn begin_thread() {
    let kept = FREE
        .iter()
        .map(|place| place.swap(0, AcqRel))
        .find(|&at| at != 0);
    let Some(at) = kept.or_else(|| raw::map_anonymous(STACK).ok()) else {
        return;
    };
    let stack = libc::stack_t {
        ss_sp: at as *mut c_void,
        ss_flags: 0,
        ss_size: STACK,
    };
    if in_kernel(Some(&stack)).is_err() {
        give_back(at, STACK);
        return;
    }
    let words = thread::this();
    words.stack.store(at, Relaxed);
    words.stack_len.store(STACK, Relaxed);
    // SAFETY: the key is ours, and the value is not null.
    unsafe { libc::pthread_setspecific(KEY.load(Relaxed), at as *const c_void) };
}

/// Takes away the stack of a thread that ends, and releases what its calls may have left behind.
unsafe extern "C" fn end_thread(_: *mut c_void) {
    millpond_mmu::Held::forget_thread();
    let words = thread::this();
    let (at, len) = (words.stack.load(Relaxed), words.stack_len.load(Relaxed));
    let is_free = match in_kernel(None) {
        // A thread that ends in a handler is still on its stack.
        Ok(now) if now.ss_sp as usize == at => in_kernel(Some(&NONE)).is_ok(),
        _ => true,
    };
    if at != 0 && is_free {
        words.stack.store(0, Relaxed);
        words.set_len.store(0, Relaxed);
        give_back(at, len);
    }
}

/// Takes the calling thread's stack back from a program that has set one past us, which it believes to have from then
/// on. One that cannot be taken back, because a handler runs on it, stays in memory.
pub fn take_back() {
    let words = thread::this();
    let at = words.stack.load(Relaxed);
    let Ok(now) = in_kernel(None) else { return };
    if at == 0 || is_ours(&now) {
        return;
    }
    let is_set = now.ss_flags & libc::SS_DISABLE == 0;
    words.set.store(now.ss_sp as usize, Relaxed);
    words
        .set_len
        .store(if is_set { now.ss_size } else { 0 }, Relaxed);
    words
        .set_flags
        .store((now.ss_flags & DISARMS) as u32 as usize, Relaxed);
    let ours = libc::stack_t {
        ss_sp: at as *mut c_void,
        ss_flags: 0,
        ss_size: words.stack_len.load(Relaxed),
    };
    if in_kernel(Some(&ours)).is_err() {
        keep(now.ss_sp as usize, now.ss_size);
    }
}

fn give_back(at: usize, len: usize) {
    let is_kept = len == STACK
        && FREE
            .iter()
            .any(|place| place.compare_exchange(0, at, AcqRel, Relaxed).is_ok());
    if !is_kept {
        // SAFETY: the mapping was made for a stack, and no thread uses it any more.
        let _ = unsafe { raw::munmap(at, len) };
    }
}

const NONE: libc::stack_t = libc::stack_t {
    ss_sp: core::ptr::null_mut(),
    ss_flags: libc::SS_DISABLE,
    ss_size: 0,
};

/// Makes the system call on structures that live here. Returns the previous stack.
fn in_kernel(new: Option<&libc::stack_t>) -> Result<libc::stack_t, Errno> {
    let mut old = NONE;
    let new = new.map_or(0, |new| core::ptr::from_ref(new) as usize);
    let args = [new, &raw mut old as usize, 0, 0, 0, 0];
    // SAFETY: the kernel reads and writes structures that live here. The caller gives a stack that nobody else uses.
    unsafe { raw::syscall(libc::SYS_sigaltstack, args) }.map(|_| old)
}

/// Where a change is made: directly in the kernel, or in the context of a handler that makes a call for the program,
/// which the kernel adopts when the handler returns.
enum Place<'a> {
    Kernel,
    Context(&'a mut libc::ucontext_t),
}

impl Place<'_> {
    /// Returns the kernel's current stack, and the program's stack pointer.
    fn now(&self) -> Result<(libc::stack_t, usize), Errno> {
        Ok(match self {
            Self::Kernel => (in_kernel(None)?, psm::stack_pointer() as usize),
            Self::Context(context) => (context.uc_stack, stack_pointer(context)),
        })
    }

    fn install(&mut self, stack: &libc::stack_t) -> Result<(), Errno> {
        match self {
            Self::Kernel => in_kernel(Some(stack)).map(drop),
            Self::Context(context) => {
                context.uc_stack = *stack;
                Ok(())
            }
        }
    }
}

/// Returns whether a stack pointer is on a stack, as the kernel sees it.
fn is_on(pointer: usize, stack: &libc::stack_t) -> bool {
    let base = stack.ss_sp as usize;
    stack.ss_flags & DISARMS == 0 && pointer > base && pointer - base <= stack.ss_size
}

/// Returns whether the kernel has our stack for the calling thread.
fn is_ours(now: &libc::stack_t) -> bool {
    let at = thread::this().stack.load(Relaxed);
    at != 0 && now.ss_sp as usize == at
}

/// Returns the stack that the program believes it has.
fn believed(now: &libc::stack_t, pointer: usize) -> libc::stack_t {
    let words = thread::this();
    let size = words.set_len.load(Relaxed);
    let state = match (size, is_on(pointer, now)) {
        (0, _) => libc::SS_DISABLE,
        (_, true) => libc::SS_ONSTACK,
        (_, false) => 0,
    };
    libc::stack_t {
        ss_sp: words.set.load(Relaxed) as *mut c_void,
        ss_flags: state | words.set_flags.load(Relaxed) as c_int,
        ss_size: size,
    }
}

/// Sets a stack, if there is one. Returns the previous stack. Both are as the program sees them.
fn change(mut place: Place<'_>, new: Option<libc::stack_t>) -> Result<libc::stack_t, Errno> {
    let (now, pointer) = place.now()?;
    let has_ours = is_ours(&now);
    let before = if has_ours {
        believed(&now, pointer)
    } else {
        now
    };
    let Some(new) = new else {
        return Ok(before);
    };
    if before.ss_flags & libc::SS_ONSTACK != 0 {
        return Err(Errno::PERM);
    }
    let new = checked(new)?;
    if thread::this().stack.load(Relaxed) == 0 || new.ss_flags & DISARMS != 0 {
        keep(new.ss_sp as usize, new.ss_size);
        place.install(&new)?;
    } else {
        make_room(&mut place, &now, pointer, new.ss_size)?;
    }
    let words = thread::this();
    words.set.store(new.ss_sp as usize, Relaxed);
    words.set_len.store(new.ss_size, Relaxed);
    words
        .set_flags
        .store((new.ss_flags & DISARMS) as u32 as usize, Relaxed);
    Ok(before)
}

/// Returns the stack as the kernel would record it, or the kernel's refusal.
fn checked(mut new: libc::stack_t) -> Result<libc::stack_t, Errno> {
    match new.ss_flags & !DISARMS {
        libc::SS_DISABLE => {
            new.ss_sp = core::ptr::null_mut();
            new.ss_size = 0;
        }
        0 | libc::SS_ONSTACK if new.ss_size < LEAST => return Err(Errno::NOMEM),
        0 | libc::SS_ONSTACK => {}
        _ => return Err(Errno::INVAL),
    }
    Ok(new)
}

/// Makes the kernel use a stack of ours that is long enough for a program that asks for `asked` bytes.
fn make_room(
    place: &mut Place<'_>,
    now: &libc::stack_t,
    pointer: usize,
    asked: usize,
) -> Result<(), Errno> {
    let words = thread::this();
    let (at, len) = (words.stack.load(Relaxed), words.stack_len.load(Relaxed));
    let ours = |at: usize, len| libc::stack_t {
        ss_sp: at as *mut c_void,
        ss_flags: 0,
        ss_size: len,
    };
    let wanted = asked
        .saturating_add(MORE)
        .max(STACK)
        .checked_next_multiple_of(4096);
    let wanted = wanted.ok_or(Errno::NOMEM)?;
    let mine = ours(at, len);
    if wanted <= len || is_on(pointer, &mine) || matches!(place, Place::Context(_)) {
        // A handler, or a call that is made in one, is currently on our stack and cannot leave it.
        return if is_ours(now) {
            Ok(())
        } else {
            place.install(&mine)
        };
    }
    let longer = raw::map_anonymous(wanted)?;
    if let Err(error) = place.install(&ours(longer, wanted)) {
        give_back(longer, wanted);
        return Err(error);
    }
    words.stack.store(longer, Relaxed);
    words.stack_len.store(wanted, Relaxed);
    give_back(at, len);
    Ok(())
}

/// Makes the system call `sigaltstack` for the program.
pub fn by_number(args: [usize; 6], context: Option<&mut libc::ucontext_t>) -> Result<usize, Errno> {
    let [new, old, ..] = args;
    let new = match new {
        0 => None,
        at => {
            let mut bytes = [0; size_of::<libc::stack_t>()];
            if !millpond_mmu::read(at, &mut bytes) {
                return Err(Errno::FAULT);
            }
            // SAFETY: the structure consists of numbers and an address that nobody follows here.
            Some(unsafe { core::ptr::read_unaligned(bytes.as_ptr().cast::<libc::stack_t>()) })
        }
    };
    let place = context.map_or(Place::Kernel, Place::Context);
    let before = change(place, new)?;
    if old != 0 {
        // SAFETY: the kernel checks that the place can be written, and writes a structure of this size.
        unsafe {
            put(old, &before, |at| {
                raw::syscall(libc::SYS_sigaltstack, [0, at, 0, 0, 0, 0])
            })?
        };
    }
    Ok(0)
}

exports! {
    [sigaltstack: Held]
    unsafe extern "C" fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int
        = SIGALTSTACK.must() if !guard::has_signals(), else {
            let args = [new as usize, old as usize, 0, 0, 0, 0];
            crate::c_result(by_number(args, None).map(drop))
        }
}
