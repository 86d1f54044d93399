//! `clone`: a child that starts in a function of the program, on a stack that the program supplies.
//!
//! Sandboxes use this call to create children with their own namespaces. Such a child runs no fork handlers, so
//! nothing would restore the managed memory that it inherits. So if it gets a copy of the memory, we create it the
//! way `fork` does, and it starts in a function of ours, which sets it up first. Its stack may be managed; in that
//! case we first bring the top of the stack into memory.
//!
//! A child that shares the memory is served by its parent's threads, or serves itself ([`lent_stack`]). A child that
//! has a copy of the memory but shares the descriptor table cannot be served: it would close its parent's descriptors
//! when it closes those that it does not need. We leave it alone, and it dies when it first touches managed memory.

use crate::dlopen::find_next;
use crate::guard::children::lent_stack;
use crate::stack_switch::on_safe_stack;
use crate::{arch, engage, exit, fork, last_words, raw, space, threads};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use rustix::io::Errno;

type Start = extern "C" fn(*mut c_void) -> c_int;
type Clone = unsafe extern "C" fn(
    Option<Start>,
    *mut c_void,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
) -> c_int;

/// The flags of children that share something with the parent that our handlers cannot separate.
pub const SHARING: c_int = libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_FILES;

static REAL: AtomicUsize = AtomicUsize::new(0);

/// Looks up the C library's function. This must happen before the program calls `clone`.
pub fn find() {
    REAL.store(find_next(c"clone").unwrap_or(0), Relaxed);
}

/// Returns whether a child with these flags has memory that we serve: a copy of the program's.
fn is_served(flags: u64) -> bool {
    space::get().is_some() && !threads::makes_ours() && flags & SHARING as u64 == 0
}

/// The program's function in which the child starts, and its argument.
struct Beginning {
    start: Start,
    argument: *mut c_void,
}

extern "C" fn begin(beginning: *mut c_void) -> c_int {
    fork::begin_in_child();
    let beginning = beginning.cast::<Beginning>();
    // SAFETY: this is the child's copy of the box, which no one else has.
    let Beginning { start, argument } = *unsafe { Box::from_raw(beginning) };
    let status = start(argument);
    // The C library would end only this thread, and our threads would keep the process alive forever. Any threads
    // that the child has created end with it.
    exit::_exit(status)
}

exports! {
    /// The last three arguments are present only if the flags ask for them.
    [clone: Child]
    unsafe extern "C" fn clone(
        start: Option<Start>,
        stack: *mut c_void,
        flags: c_int,
        argument: *mut c_void,
        parent_tid: *mut c_void,
        tls: *mut c_void,
        child_tid: *mut c_void,
    ) -> c_int {
        engage::before_clone(flags as u64);
        last_words::of_clone(flags, child_tid);
        if lent_stack::is_apart(flags) && flags & libc::CLONE_THREAD == 0 {
            millpond_mmu::shares_memory();
        }
        let real = REAL.load(Relaxed);
        if real == 0 {
            raw::set_errno(Errno::NOSYS);
            return -1;
        }
        // SAFETY: the C library's function of this name has this type.
        let real = unsafe { core::mem::transmute::<usize, Clone>(real) };
        let is_served = !stack.is_null() && is_served(flags as u64);
        let Some(function) = start.filter(|_| is_served) else {
            let lent = lent_stack::in_place_of(stack, flags);
            let stack = lent.as_ref().map_or(stack, |lent| lent.top());
            // SAFETY: the caller guarantees what this call needs.
            let child = unsafe { real(start, stack, flags, argument, parent_tid, tls, child_tid) };
            if let Some(lent) = lent {
                lent.keep(child);
            }
            return child;
        };
        let beginning = on_safe_stack(move || {
            Box::into_raw(Box::new(Beginning {
                start: function,
                argument,
            })) as usize
        });
        let pid = fork::made_by(Some(stack as usize), || {
            let argument = beginning as *mut c_void;
            // SAFETY: the caller guarantees this for its function, which is the one that ours calls.
            unsafe {
                real(
                    Some(begin),
                    stack,
                    flags,
                    argument,
                    parent_tid,
                    tls,
                    child_tid,
                )
            }
        });
        // SAFETY: this is the parent's own copy of the box.
        on_safe_stack(move || drop(unsafe { Box::from_raw(beginning as *mut Beginning) }));
        pid
    }
}

/// Creates a child by system call number; the call returns in the child as it does in the parent. Returns `None` if
/// the call must be made unchanged because the child shares memory or descriptors, or starts on another stack.
///
/// # Safety
/// The conditions are those of the system call.
pub unsafe fn by_number(number: i64, args: [usize; 6]) -> Option<Result<usize, Errno>> {
    let (flags, stack) = match number {
        libc::SYS_clone => (args[0] as u64, args[1] as u64),
        libc::SYS_clone3 if args[1] >= size_of::<[u64; 8]>() => {
            let words = args[0] as *const u64;
            // SAFETY: the caller guarantees a structure of that length, whose first word is the flags and whose sixth
            // is the stack.
            unsafe { (words.read_unaligned(), words.add(5).read_unaligned()) }
        }
        _ if Some(number) == arch::FORK => (0, 0),
        _ => return None,
    };
    engage::before_clone(flags);
    if stack != 0 || !is_served(flags) {
        return None;
    }
    let mut result = Ok(0);
    fork::made_by(None, || {
        // SAFETY: the caller guarantees what this call needs.
        result = unsafe { raw::syscall(number, args) };
        result.map_or(-1, |pid| pid as libc::pid_t)
    });
    Some(result)
}
