//! `syscall`: calls by number are served like calls of this library's functions.
//!
//! Allocators and runtimes make some of their calls by the C library's `syscall`, because it has no function for a
//! new one or because they want to avoid functions that may be replaced. `syscall(SYS_madvise, ...)` frees memory,
//! and a `syscall(SYS_munmap, ...)` that bypassed us would tear a hole in the space, where the kernel would place any
//! thread's next mapping. So each call that has a function here leads to that function. For all others we jump to the
//! C library's function, with registers and stack as the program left them: `syscall` has as many arguments as the
//! call, and some kinds of `clone` return twice.
//!
//! | calls | lead to |
//! | --- | --- |
//! | `mmap`, `munmap`, `mprotect`, `pkey_mprotect`, `mremap`, `mseal`, `madvise`, `process_madvise`, `brk`, `mlock`, `mlock2`, `munlock`, `mlockall`, `munlockall`, `msync`, `mincore`, `shmat`, `shmdt` | the account of mappings |
//! | `mbind`, `set_mempolicy_home_node` | the kernel, and the account of memory that must be remapped when it is unmapped |
//! | `vmsplice`, `setsockopt` | [`crate::references`] |
//! | `futex` | [`crate::futexes`] |
//! | `set_robust_list`, `set_tid_address` | [`crate::last_words`] |
//! | `close`, `close_range`, `dup2`, `dup3` | [`crate::descriptors`] |
//! | `prctl`, `seccomp` | [`crate::prctl`], [`crate::filters`] |
//! | under direct delivery: `rt_sigaction`, `rt_sigprocmask`, `sigaltstack`, `rt_sigsuspend`, `ppoll`, `pselect6`, `epoll_pwait`, `epoll_pwait2` | [`crate::guard::signals`] |
//! | `io_uring_setup`, `io_setup`, `process_vm_readv`, `process_vm_writev` | [`crate::guard::calls`] |
//! | `readv`, `sendmsg`, `execve`, `bpf` and others whose arguments name memory that names more | [`crate::guard::call`] |
//! | `fork`, and `clone` and `clone3` if the child gets a copy of the memory and continues from there (x86-64) | [`crate::clone`] |
//!
//! The manager's own threads are not served: they close and map on their own account. Only the kernel sees calls by
//! the program's own system call instruction; [`crate::madvise`] describes the consequences.

use crate::arch::{self, CHILDREN, DUP2};
use crate::dlopen;
use crate::guard::children::exec;
use crate::guard::{self, signals};
use crate::{
    ask, brk, clone, descriptors, engage, filters, futexes, last_words, madvise, mlock, mmap,
    mprotect, mremap, mseal, munmap, prctl,
};
use crate::{process_madvise, raw, references, shm, stack_switch, tell, threads, vma};
use core::ffi::{c_int, c_long};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Calls that are served elsewhere, or by holding their memory.
const SERVED_ELSEWHERE: &[i64] = &[
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_setup,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
];

/// Calls whose arguments name memory that names more. Under direct delivery that memory is held, since no filter sees
/// it.
const NESTED: &[i64] = &[
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_bpf,
    libc::SYS_keyctl,
    libc::SYS_futex_waitv,
];

/// Numbers below this are looked up; no others are served.
const NUMBERS: usize = 512;
const WORDS: usize = NUMBERS / 64;

/// One bit for each number that is served.
static IS_SERVED: [u64; WORDS] = with(
    with(
        with(
            with(with(with([0; WORDS], SERVED), SERVED_ELSEWHERE), NESTED),
            DUP2,
        ),
        CHILDREN,
    ),
    signals::SERVED,
);

const fn with(mut bits: [u64; WORDS], numbers: &[i64]) -> [u64; WORDS] {
    let mut at = 0;
    while at < numbers.len() {
        let number = numbers[at] as usize;
        bits[number / 64] |= 1 << (number % 64);
        at += 1;
    }
    bits
}

type Variadic = unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;

/// The address of the C library's function, written before any other code of this library runs.
static REAL: AtomicUsize = AtomicUsize::new(0);

/// Looks up the real function.
///
/// # Errors
/// A line for the user.
pub fn find() -> Result<(), String> {
    REAL.store(dlopen::next(c"syscall")?, Relaxed);
    Ok(())
}

exports! {
    /// The conditions are those of the system call.
    #[unsafe(naked)]
    [none: Held]
    unsafe extern "C" fn syscall(_number: c_long) -> c_long {
        arch::by_number!(NUMBERS, IS_SERVED, clone::SHARING, REAL, serve)
    }
}

/// Serves a call. Six arguments are passed, whether or not the call has that many; superfluous ones are ignored.
unsafe extern "C" fn serve(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let args = [a, b, c, d, e, f];
    // A thread of the program that serves its own fault also makes calls for the store. (They were once refused, as
    // if they were the program's asynchronous I/O.)
    if threads::is_service() || stack_switch::serves_fault() {
        // SAFETY: the caller guarantees what this call needs.
        return answer(unsafe { raw::syscall(number, args) });
    }
    // SAFETY: the caller guarantees this. Only children that have a copy of this stack come here.
    if let Some(result) = unsafe { clone::by_number(number, args) } {
        return answer(result);
    }
    // SAFETY: the caller guarantees what these calls need.
    let served = unsafe { served(number, args).or_else(|| exec::by_number(number, args)) };
    served
        .or_else(|| about_descriptors(number, args))
        // SAFETY: the caller guarantees what these calls need.
        .unwrap_or_else(|| unsafe {
            match engage::is_dormant() {
                // A thread that waits at the gate could not be parked, and this call needs none of ours.
                true => real()(number, a, b, c, d, e, f),
                false => answer(guard::call::held(number, args)),
            }
        })
}

/// The C library's function, with as many arguments as a call has at most.
fn real() -> Variadic {
    // SAFETY: the C library's function of this name finds its arguments where one that is not variadic has them.
    unsafe { core::mem::transmute::<usize, Variadic>(REAL.load(Relaxed)) }
}

fn answer(result: Result<usize, rustix::io::Errno>) -> c_long {
    crate::c_answer(result) as c_long
}

/// Returns whether calls of this number are served here by code of their own.
pub fn is_served(number: i64) -> bool {
    let bit = number as usize;
    bit < NUMBERS && IS_SERVED[bit / 64] >> (bit % 64) & 1 == 1 && !NESTED.contains(&number)
}

/// Serves a call by the program's own instruction, which the filter of [`crate::guard`] has stopped. Returns what the
/// C library's function would: -1 with `errno`, or the value.
///
/// # Safety
/// The conditions are those of the system call.
pub unsafe fn serve_stopped(number: c_long, args: [usize; 6]) -> c_long {
    // SAFETY: the caller guarantees what these calls need.
    unsafe {
        served(number, args)
            .or_else(|| about_descriptors(number, args))
            .unwrap_or_else(|| answer(guard::call::held(number, args)))
    }
}

/// Defines from one list both `SERVED`, the numbers of calls that are served here, and `served`, which serves them.
/// The names in brackets are the call's arguments. An arm has the same conditions as the call and its function.
macro_rules! served {
    ($number:ident($($argument:ident),*): $($($call:ident)|+ => $answer:expr,)* _ => $other:expr) => {
        const SERVED: &[i64] = &[$($(libc::$call),+),*];

        /// Serves calls about memory, and those that would make the kernel refer to it.
        unsafe fn served($number: c_long, [$($argument),*]: [usize; 6]) -> Option<c_long> {
            // SAFETY: the caller guarantees this, for the same call by its function.
            unsafe {
                match $number {
                    $($(libc::$call)|+ => Some($answer),)*
                    _ => $other,
                }
            }
        }
    };
}

served! {
    number(a, b, c, d, e, f):
    SYS_mbind | SYS_set_mempolicy_home_node => {
        let result = guard::call::held(number, [a, b, c, d, e, f]);
        if result.is_ok() {
            vma::marked(a, b);
        }
        answer(result)
    },
    SYS_seccomp => {
        engage::before_lasting();
        let result = guard::call::held(number, [a, b, c, d, e, f]);
        if result.is_ok() {
            filters::set_with(b);
        }
        answer(result)
    },
    SYS_mmap => mmap::map_for(a as _, b, c as i32, d as i32, e as i32, f as i64, 0) as c_long,
    SYS_munmap => word(munmap::munmap(a as _, b)),
    SYS_mprotect => word(mprotect::mprotect(a as _, b, c as c_int)),
    SYS_pkey_mprotect => word(mprotect::pkey_mprotect(a as _, b, c as c_int, d as c_int)),
    SYS_mremap => mremap::mremap(a as _, b, c, d as c_int, e as _) as c_long,
    SYS_mseal => word(mseal::mseal(a as _, b, c as _)),
    SYS_madvise => word(madvise::madvise(a as _, b, c as c_int)),
    SYS_process_madvise => {
        process_madvise::process_madvise(a as c_int, b as _, c, d as c_int, e as _) as c_long
    },
    SYS_brk => brk::system_call(a) as c_long,
    SYS_mlock => word(mlock::mlock(a as _, b)),
    SYS_mlock2 => word(mlock::mlock2(a as _, b, c as _)),
    SYS_munlock => word(mlock::munlock(a as _, b)),
    SYS_mlockall => word(mlock::mlockall(a as c_int)),
    SYS_munlockall => word(mlock::munlockall()),
    SYS_msync => word(ask::msync(a as _, b, c as c_int)),
    SYS_mincore => word(ask::mincore(a as _, b, c as _)),
    SYS_sysinfo => word(tell::by_number(a)),
    SYS_shmat => shm::shmat(a as c_int, b as _, c as c_int) as c_long,
    SYS_shmdt => word(shm::shmdt(a as _)),
    SYS_futex => answer(futexes::by_number([a, b, c, d, e, f])?),
    SYS_set_robust_list | SYS_set_tid_address => {
        answer(last_words::by_number(number, [a, b, c, d, e, f]))
    },
    SYS_vmsplice => references::vmsplice(a as c_int, b as _, c, d as _) as c_long,
    SYS_setsockopt => word(references::setsockopt(
        a as c_int, b as c_int, c as c_int, d as _, e as _,
    )),
    SYS_prctl => word(prctl::by_number([a, b, c, d, e])),
    _ => {
        if guard::calls::refuse(number, c) {
            return Some(answer(Err(rustix::io::Errno::NOSYS)));
        }
        if !guard::has_signals() {
            return None;
        }
        signals::by_number(number, [a, b, c, d, e, f], None).map(answer)
    }
}

/// Returns the result of a function that returns an `int`.
fn word(result: c_int) -> c_long {
    c_long::from(result)
}

/// Serves calls that could close a descriptor of ours.
fn about_descriptors(number: c_long, [a, b, c, ..]: [usize; 6]) -> Option<c_long> {
    let result = match number {
        libc::SYS_close => descriptors::close(a as c_int),
        libc::SYS_close_range => descriptors::close_range(a as _, b as _, c as c_int),
        libc::SYS_dup3 => descriptors::dup3(a as c_int, b as c_int, c as c_int),
        number if DUP2.contains(&number) => descriptors::dup2(a as c_int, b as c_int),
        _ => return None,
    };
    Some(word(result))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_served_calls_have_their_bit() {
        let ours = SERVED.iter().chain(SERVED_ELSEWHERE).chain(DUP2);
        let ours = ours.chain(CHILDREN).chain(NESTED);
        let all: Vec<i64> = ours.chain(signals::SERVED).copied().collect();
        for number in 0..NUMBERS {
            let bit = IS_SERVED[number / 64] >> (number % 64) & 1 == 1;
            assert_eq!(bit, all.contains(&(number as i64)), "{number}");
        }
    }

    /// Checks that six arguments arrive, the last of them on the stack, and that errors are reported as by the C
    /// library.
    #[test]
    fn an_unserved_call_reaches_the_kernel_with_all_arguments() {
        // SAFETY: the arguments are in the same places as for a variadic function.
        let call: Variadic = unsafe { core::mem::transmute(syscall as *const ()) };
        // SAFETY: these calls only query.
        unsafe {
            assert_eq!(
                call(libc::SYS_getpid, 0, 0, 0, 0, 0, 0),
                i64::from(libc::getpid())
            );
            assert_eq!(call(100_000, 0, 0, 0, 0, 0, 0), -1);
            assert_eq!(*libc::__errno_location(), libc::ENOSYS);
            assert_eq!(call(-1, 0, 0, 0, 0, 0, 0), -1);
            let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
            // An offset that is not a multiple of a page is refused, which shows that it has arrived.
            let bad = call(libc::SYS_mmap, 0, 4096, 0, flags, usize::MAX, 1);
            assert_eq!((bad, *libc::__errno_location()), (-1, libc::EINVAL));
        }
    }
}
