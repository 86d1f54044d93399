//! The gate: a page of code with the one instruction that the filter lets everything pass from.
//!
//! It lies at a place of its own above the space, the same in all processes: the filter names its address, and is
//! inherited. Where something else lies there, there is no direct delivery. (Directly below the space, clisp has its
//! heap: up to 0x2000_0000_0000.)

use crate::arch::gate as code;
use crate::raw;
use core::sync::atomic::Ordering::Relaxed;
use millpond_mmu::gate;

/// The page's length.
pub const LEN: usize = 4096;
/// The page's address.
pub const START: usize = super::END;
/// The address that a call at the gate returns to, which is what a filter sees.
pub const RETURN: usize = START + code::RETURN;

/// Maps the page, and makes all of this library's calls go through it.
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
    // SAFETY: the page was mapped just now, and is nobody else's.
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

/// Makes system call `number` at the gate, as [`raw::syscall`] does, but so that the thread may be cancelled in it: the
/// compiler takes this for a function that unwinds, and the unwinder finds its way through it. The answer is the
/// kernel's.
///
/// # Safety
/// The conditions are those of the system call.
#[inline]
pub unsafe fn call(number: i64, args: &[usize; 6]) -> isize {
    // SAFETY: the caller guarantees it.
    unsafe { code::call(number, args) }
}
