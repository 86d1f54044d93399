//! Counts the system calls that one thread makes, by system call user dispatch (Linux 5.11).
//!
//! While a byte of ours says *block*, every system call of the thread raises SIGSYS instead. The handler notes the
//! number, makes the call in the thread's place and goes on. Only the handler's own way back is exempt, so it has a
//! return of its own. A change of the signal mask is made in the context that the handler returns to, and never blocks
//! SIGSYS.
//!
//! Memory must not be absent while this is on: a handler of SIGBUS runs with all signals blocked.

use std::cell::Cell;
use std::sync::Once;

const MOST: usize = 256;
const ALLOW: u8 = 0;
const BLOCK: u8 = 1;
// From <linux/prctl.h>.
const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;
const PR_SYS_DISPATCH_OFF: usize = 0;
const PR_SYS_DISPATCH_ON: usize = 1;

struct Log {
    /// The byte that the kernel reads.
    selector: u8,
    len: usize,
    calls: [i64; MOST],
}

thread_local! {
    static LOG: Cell<*mut Log> = const { Cell::new(std::ptr::null_mut()) };
}

core::arch::global_asm!(
    ".balign 64",
    ".globl millpond_test_restorer",
    "millpond_test_restorer:",
    "mov eax, 15",
    "syscall",
    "ud2",
    ".balign 64",
);

unsafe extern "C" {
    fn millpond_test_restorer();
}

/// The numbers of the first 256 system calls that `work` makes; `None`, with a word why, where the kernel cannot tell.
pub fn system_calls_of(work: impl FnOnce()) -> Option<Vec<i64>> {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(install);
    let mut log = Box::new(Log {
        selector: ALLOW,
        len: 0,
        calls: [0; MOST],
    });
    let log: *mut Log = &raw mut *log;
    LOG.set(log);
    // SAFETY: the selector outlives the dispatch, which ends below.
    if !unsafe { dispatch(PR_SYS_DISPATCH_ON, &raw mut (*log).selector) } {
        println!("skipped: no system call user dispatch here");
        return None;
    }
    // SAFETY: only this thread and its signal handler use the log.
    unsafe { (&raw mut (*log).selector).write_volatile(BLOCK) };
    work();
    // SAFETY: only this thread and its signal handler use the log.
    let calls = unsafe {
        (&raw mut (*log).selector).write_volatile(ALLOW);
        assert!(dispatch(PR_SYS_DISPATCH_OFF, std::ptr::null_mut()));
        let len = (&raw const (*log).len).read_volatile();
        // In debug builds the check of the locks' order asks which thread this is.
        let counts = |call: &i64| !cfg!(debug_assertions) || *call != libc::SYS_gettid;
        let calls = (&(*log).calls)[..len].iter().copied();
        calls.filter(counts).collect()
    };
    LOG.set(std::ptr::null_mut());
    Some(calls)
}

/// # Safety
/// The selector outlives the dispatch.
unsafe fn dispatch(mode: usize, selector: *mut u8) -> bool {
    let (start, len) = match selector.is_null() {
        true => (0, 0),
        false => (millpond_test_restorer as *const () as usize, 16),
    };
    // SAFETY: the caller's promise; the other arguments are numbers.
    unsafe { libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, mode, start, len, selector) == 0 }
}

/// The kernel's `struct sigaction`, with the return function that the C library would choose itself.
#[repr(C)]
struct Action {
    handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t),
    flags: u64,
    restorer: unsafe extern "C" fn(),
    mask: u64,
}

fn install() {
    const SA_RESTORER: u64 = 0x0400_0000;
    let action = Action {
        handler: on_system_call,
        flags: libc::SA_SIGINFO as u64 | SA_RESTORER,
        restorer: millpond_test_restorer,
        mask: 0,
    };
    let none = std::ptr::null_mut::<Action>();
    // SAFETY: the action has the kernel's layout; nothing else uses SIGSYS.
    let done = unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            libc::SIGSYS,
            &raw const action,
            none,
            8,
        )
    };
    assert_eq!(done, 0);
}

extern "C" fn on_system_call(_: i32, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    let log = LOG.get();
    // SAFETY: SIGSYS comes only from a thread that counts, to itself, so log and context are there and its own.
    unsafe {
        (&raw mut (*log).selector).write_volatile(ALLOW);
        let registers = &mut (*context).uc_mcontext.gregs;
        let number = registers[libc::REG_RAX as usize];
        if (*log).len < MOST {
            (*log).calls[(*log).len] = number;
            (*log).len += 1;
        }
        let argument = |register: i32| registers[register as usize];
        let arguments = [
            argument(libc::REG_RDI),
            argument(libc::REG_RSI),
            argument(libc::REG_RDX),
            argument(libc::REG_R10),
            argument(libc::REG_R8),
            argument(libc::REG_R9),
        ];
        let result = match number {
            libc::SYS_rt_sigprocmask => change_mask(context, arguments),
            _ => call(number, arguments),
        };
        (*context).uc_mcontext.gregs[libc::REG_RAX as usize] = result;
        (&raw mut (*log).selector).write_volatile(BLOCK);
    }
}

/// Does what the kernel would do, to the mask that it restores.
///
/// # Safety
/// The arguments are those of `rt_sigprocmask`.
unsafe fn change_mask(context: *mut libc::ucontext_t, arguments: [i64; 6]) -> i64 {
    let [how, set, old, ..] = arguments;
    // SAFETY: the kernel has put its mask of 8 bytes there; the pointers are the caller's.
    unsafe {
        let mask = (&raw mut (*context).uc_sigmask).cast::<u64>();
        let before = mask.read();
        if old != 0 {
            (old as *mut u64).write_unaligned(before);
        }
        if set != 0 {
            let set = (set as *const u64).read_unaligned();
            let after = match how as i32 {
                libc::SIG_BLOCK => before | set,
                libc::SIG_UNBLOCK => before & !set,
                _ => set,
            };
            mask.write(after & !(1 << (libc::SIGSYS - 1)));
        }
    }
    0
}

/// # Safety
/// As the call of that number.
unsafe fn call(number: i64, [a, b, c, d, e, f]: [i64; 6]) -> i64 {
    let result;
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    result
}
