//! The gate is not implemented for this processor: there is no direct delivery, so no gate is opened and no thread is
//! cancelled in it.

use core::sync::atomic::AtomicUsize;

pub const CODE: [u8; 0] = [];
pub const RETURN: usize = 0;
pub const FRAME: [u8; 24] = [0; 24];

/// Stays 0.
pub static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Makes system call `number` like any other of this library.
///
/// # Safety
/// The conditions are those of the system call.
pub unsafe extern "C-unwind" fn call(number: i64, args: &[usize; 6]) -> isize {
    // SAFETY: the caller guarantees this.
    unsafe { millpond_mmu::gate::syscall(number as usize, *args) }
}
