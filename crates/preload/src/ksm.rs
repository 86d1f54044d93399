//! KSM, the kernel's merging of pages that hold the same: not of a process under a budget.
//!
//! A page that was merged is the kernel's. It cannot be moved out before somebody has written to it, so what merging
//! spares on one side keeps other memory from leaving on the other. Compressed RAM keeps equal bytes small anyway.
//! So `MADV_MERGEABLE` of managed memory is `EINVAL`, the answer of a kernel without KSM, and so is
//! `PR_SET_MEMORY_MERGE`, which is about all memory of a process at once, ours included. What was said about
//! a process before it began, by `PR_SET_MEMORY_MERGE` in who started it (systemd's `MemoryKSM=` does), is taken back
//! as the first thing, when no page of ours is there yet. A program that asked and was told that its memory is merged
//! would wait for that: the kernel's own tests of KSM did, for ever.

use crate::raw;
use crate::{dlopen, space};
use core::arch::naked_asm;
use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use rustix::io::Errno;

/// In `linux/prctl.h`.
const PR_SET_MEMORY_MERGE: i32 = 67;
const PR_GET_MEMORY_MERGE: i32 = 68;

/// The C library's `prctl`. Written before anything else of this library runs.
static REAL: AtomicUsize = AtomicUsize::new(0);

/// Looks the real function up.
///
/// # Errors
/// A line for the user.
pub fn find() -> Result<(), String> {
    REAL.store(dlopen::next(c"prctl")?, Relaxed);
    Ok(())
}

fn kernel(args: [usize; 5]) -> Result<usize, Errno> {
    let [a, b, c, d, e] = args;
    // SAFETY: the program asked for it, or it says that pages are not to be merged.
    unsafe { raw::syscall(libc::SYS_prctl, [a, b, c, d, e, 0]) }
}

/// Takes back what was said before this process began.
pub fn leave() {
    if kernel([PR_GET_MEMORY_MERGE as usize, 0, 0, 0, 0]) == Ok(1) {
        let _ = kernel([PR_SET_MEMORY_MERGE as usize, 0, 0, 0, 0]);
    }
}

/// As `prctl` of the C library.
///
/// # Safety
/// As there.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn prctl(_option: c_int) -> c_int {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "cmp edi, {merge}",
        "je {serve}",
        "mov r11, qword ptr [rip + {real}]",
        "test r11, r11",
        "jz {serve}",
        "jmp r11",
        merge = const PR_SET_MEMORY_MERGE,
        real = sym REAL,
        serve = sym serve,
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "cmp w0, #{merge}",
        "b.eq 3f",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "cbz x16, 3f",
        "br x16",
        "3:",
        "b {serve}",
        merge = const PR_SET_MEMORY_MERGE,
        real = sym REAL,
        serve = sym serve,
    );
}

extern "C" fn serve(option: c_int, b: usize, c: usize, d: usize, e: usize) -> c_int {
    prctl_by_number([option as usize, b, c, d, e])
}

/// As the system call.
pub fn prctl_by_number(args: [usize; 5]) -> c_int {
    let merges = args[0] as c_int == PR_SET_MEMORY_MERGE && args[1] != 0;
    let result = match merges && space::get().is_some() {
        true => Err(Errno::INVAL),
        false => kernel(args),
    };
    match result {
        Ok(value) => value as c_int,
        Err(error) => {
            raw::set_errno(error);
            -1
        }
    }
}
