//! The calls that change mappings of the arena, like those of `rustix::mm`, but made through the [gate](super::gate).

use core::ffi::c_void;

use linux_raw_sys::general as nr;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, MremapFlags, MsyncFlags, ProtFlags};

use super::gate;

/// # Safety
/// The conditions are those of the system call.
unsafe fn call(number: u32, args: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: the caller guarantees it.
    gate::check(unsafe { gate::syscall(number as usize, args) })
}

/// # Safety
/// The conditions are those of `rustix::mm::madvise`.
pub(crate) unsafe fn madvise(at: *mut c_void, len: usize, advice: Advice) -> Result<(), Errno> {
    // SAFETY: the caller guarantees it.
    unsafe { madvise_by_number(at, len, advice as u32) }
}

/// [`madvise`] for advice that rustix does not name.
///
/// # Safety
/// The conditions are those of the advice.
pub(crate) unsafe fn madvise_by_number(
    at: *mut c_void,
    len: usize,
    advice: u32,
) -> Result<(), Errno> {
    let args = [at as usize, len, advice as usize, 0, 0, 0];
    // SAFETY: the caller guarantees it.
    unsafe { call(nr::__NR_madvise, args) }.map(drop)
}

/// # Safety
/// The conditions are those of `rustix::mm::mprotect`.
pub(crate) unsafe fn mprotect(
    at: *mut c_void,
    len: usize,
    flags: MprotectFlags,
) -> Result<(), Errno> {
    let args = [at as usize, len, flags.bits() as usize, 0, 0, 0];
    // SAFETY: the caller guarantees it.
    unsafe { call(nr::__NR_mprotect, args) }.map(drop)
}

/// # Safety
/// The conditions are those of `rustix::mm::munmap`.
pub(crate) unsafe fn munmap(at: *mut c_void, len: usize) -> Result<(), Errno> {
    // SAFETY: the caller guarantees it.
    unsafe { call(nr::__NR_munmap, [at as usize, len, 0, 0, 0, 0]) }.map(drop)
}

/// # Safety
/// The conditions are those of `rustix::mm::munlock`.
pub(crate) unsafe fn munlock(at: *mut c_void, len: usize) -> Result<(), Errno> {
    // SAFETY: the caller guarantees it.
    unsafe { call(nr::__NR_munlock, [at as usize, len, 0, 0, 0, 0]) }.map(drop)
}

/// # Safety
/// The conditions are those of `rustix::mm::mmap_anonymous`.
pub(crate) unsafe fn mmap_anonymous(
    at: *mut c_void,
    len: usize,
    prot: ProtFlags,
    flags: MapFlags,
) -> Result<*mut c_void, Errno> {
    let flags = (flags | MapFlags::from_bits_retain(nr::MAP_ANONYMOUS)).bits() as usize;
    let args = [at as usize, len, prot.bits() as usize, flags, usize::MAX, 0];
    // SAFETY: the caller guarantees it.
    let made = unsafe { call(nr::__NR_mmap, args) }?;
    Ok(core::ptr::with_exposed_provenance_mut(made))
}

/// # Safety
/// The conditions are those of `rustix::mm::mremap`.
pub(crate) unsafe fn mremap(
    at: *mut c_void,
    old: usize,
    new: usize,
    flags: MremapFlags,
) -> Result<*mut c_void, Errno> {
    // SAFETY: the caller guarantees it.
    unsafe { mremap_to(at, old, new, flags.bits() as usize, core::ptr::null_mut()) }
}

/// # Safety
/// The conditions are those of `rustix::mm::mremap_fixed`.
pub(crate) unsafe fn mremap_fixed(
    at: *mut c_void,
    old: usize,
    new: usize,
    flags: MremapFlags,
    to: *mut c_void,
) -> Result<*mut c_void, Errno> {
    let flags = flags.bits() | nr::MREMAP_FIXED;
    // SAFETY: the caller guarantees it.
    unsafe { mremap_to(at, old, new, flags as usize, to) }
}

unsafe fn mremap_to(
    at: *mut c_void,
    old: usize,
    new: usize,
    flags: usize,
    to: *mut c_void,
) -> Result<*mut c_void, Errno> {
    let args = [at as usize, old, new, flags, to as usize, 0];
    // SAFETY: the caller guarantees it.
    let made = unsafe { call(nr::__NR_mremap, args) }?;
    Ok(core::ptr::with_exposed_provenance_mut(made))
}

/// # Safety
/// The conditions are those of `rustix::mm::msync`.
pub(crate) unsafe fn msync(at: *mut c_void, len: usize, flags: MsyncFlags) -> Result<(), Errno> {
    let args = [at as usize, len, flags.bits() as usize, 0, 0, 0];
    // SAFETY: the caller guarantees it.
    unsafe { call(nr::__NR_msync, args) }.map(drop)
}
