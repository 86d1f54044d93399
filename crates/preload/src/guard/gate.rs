//! The gate: a page of code with the one instruction from which the filter allows every system call.
//!
//! It has a fixed address above the space, the same in all processes, because the filter contains that address and is
//! inherited. If something else is mapped there, direct delivery is unavailable. (clisp has its heap directly below
//! the space, up to 0x2000_0000_0000.)

use crate::arch::gate as code;
use crate::raw;
use core::sync::atomic::Ordering::Relaxed;
use millpond_mmu::gate;

/// The page's length.
pub const LEN: usize = 4096;
/// The page's address.
pub const START: usize = super::END;
/// The return address of a call at the gate, which is what a filter sees.
pub const RETURN: usize = START + code::RETURN;

/// Maps the page and routes all of this library's calls through it.
///
/// # Errors
/// A line that says what the kernel refuses.
pub fn open() -> Result<(), String> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel replaces no mapping.
    let made = unsafe { raw::mmap(START, LEN, prot, flags, -1, 0) };
    if made != Ok(START) {
        return Err(format!("the page at {START:#x} is taken"));
    }
    // SAFETY: the page was just mapped, and nobody else uses it.
    unsafe {
        core::ptr::copy_nonoverlapping(code::CODE.as_ptr(), START as *mut u8, code::CODE.len())
    };
    // SAFETY: nothing relies on the page's protection.
    unsafe { raw::mprotect(START, LEN, libc::PROT_READ | libc::PROT_EXEC, None) }
        .map_err(|error| format!("the kernel makes no memory executable ({error})"))?;
    // SAFETY: the code is there, and stays as long as the process.
    unsafe { gate::set(START) };
    code::OPEN.store(START, Relaxed);
    Ok(())
}

/// Makes system call `number` at the gate like [`raw::syscall`], but in such a way that the thread may be cancelled
/// during the call: the compiler takes this for a function that unwinds, and the unwinder can walk through it.
/// Returns the kernel's answer.
///
/// # Safety
/// The conditions are those of the system call.
#[inline]
pub unsafe fn call(number: i64, args: &[usize; 6]) -> isize {
    // SAFETY: the caller guarantees this.
    unsafe { code::call(number, args) }
}
