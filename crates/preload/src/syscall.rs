//! `syscall`, the C library's function for calls by number: those that map memory are served as the functions of their
//! names.
//!
//! sbcl asks for its heap so. Behind the library's back such a call would be served by a kernel that knows of our
//! reservation only: addresses that are free natively would not be had, and a fixed place inside the reservation would
//! be torn out of it. (Programs with instructions of their own for system calls are beyond this.) Advice by number stays
//! the kernel's, as it is with those; see [`madvise`](crate::madvise).
//!
//! All other numbers go to the kernel from here, without a frame: a call may return in another thread or process, or not
//! at all.

use crate::mmap::mmap;
use crate::mprotect::mprotect;
use crate::mremap::mremap;
use crate::munmap::munmap;
use crate::raw;
use core::arch::naked_asm;
use core::ffi::{c_int, c_long};
use rustix::io::Errno;

/// As `syscall` of the C library, which takes as many arguments as the call has.
///
/// # Safety
/// As there.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall(number: c_long) -> c_long {
    naked_asm!(
        // mmap, mprotect, munmap are neighbours.
        "lea rax, [rdi - {mmap}]",
        "cmp rax, 2",
        "jbe 2f",
        "cmp rdi, {mremap}",
        "je 2f",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 3f",
        "ret",
        "2:",
        "jmp {mapping}",
        "3:",
        "neg eax",
        "mov edi, eax",
        "jmp {failed}",
        mmap = const libc::SYS_mmap,
        mremap = const libc::SYS_mremap,
        mapping = sym mapping,
        failed = sym failed,
    )
}

/// As `syscall` of the C library, which takes as many arguments as the call has.
///
/// # Safety
/// As there.
#[cfg(target_arch = "aarch64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall(number: c_long) -> c_long {
    naked_asm!(
        "cmp x0, #{mmap}",
        "b.eq 2f",
        "cmp x0, #{munmap}",
        "b.eq 2f",
        "cmp x0, #{mprotect}",
        "b.eq 2f",
        "cmp x0, #{mremap}",
        "b.eq 2f",
        "mov x8, x0",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "mov x5, x6",
        "svc 0",
        "cmn x0, #4095",
        "b.cs 3f",
        "ret",
        "2:",
        "b {mapping}",
        "3:",
        "neg w0, w0",
        "b {failed}",
        mmap = const libc::SYS_mmap,
        munmap = const libc::SYS_munmap,
        mprotect = const libc::SYS_mprotect,
        mremap = const libc::SYS_mremap,
        mapping = sym mapping,
        failed = sym failed,
    )
}

extern "C" fn failed(errno: c_int) -> c_long {
    raw::set_errno(Errno::from_raw_os_error(errno));
    -1
}

/// Gets the arguments of [`syscall`] where it got them.
unsafe extern "C" fn mapping(
    number: c_long,
    addr: usize,
    len: usize,
    third: usize,
    fourth: usize,
    fifth: usize,
    sixth: usize,
) -> c_long {
    let at = addr as *mut _;
    let (low, fourth_low) = (third as c_int, fourth as c_int);
    // SAFETY: as the caller promised; these are the functions of these names.
    unsafe {
        match number {
            libc::SYS_mmap => {
                mmap(at, len, low, fourth_low, fifth as c_int, sixth as i64) as c_long
            }
            libc::SYS_munmap => munmap(at, len).into(),
            libc::SYS_mprotect => mprotect(at, len, low).into(),
            _ => mremap(at, len, third, fourth_low, fifth as *mut _) as c_long,
        }
    }
}

#[cfg(target_arch = "x86_64")]
const _: () =
    assert!(libc::SYS_mprotect == libc::SYS_mmap + 1 && libc::SYS_munmap == libc::SYS_mmap + 2);
