//! System calls made directly to the kernel.
//!
//! Most calls of this library happen inside functions that the program believes to be the C library's `mmap` or
//! `malloc`. Calling the C library from there would lead back to our own exports (its `mmap` *is* ours), set `errno`,
//! and use thread-local storage in threads that do not have it yet. Flags are passed on as the program gave them,
//! including those for which no Rust crate has a name.

pub use millpond_mmu::gate::check;
use rustix::io::Errno;

/// The maximum number of ranges that the kernel accepts in one call (`IOV_MAX`).
pub const MAX_RANGES: usize = 1024;

/// One entry of a vector of ranges, laid out as in the C library.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Entry {
    pub base: usize,
    pub len: usize,
}

/// Makes system call `number`, at the gate if there is one ([`crate::guard`]), so that the filter ignores our calls.
///
/// # Safety
/// The conditions are those of the system call itself: it must not take away or change memory that Rust code relies
/// on.
pub unsafe fn syscall(number: i64, args: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: the caller guarantees what the call does to memory.
    check(unsafe { millpond_mmu::gate::syscall(number as usize, args) })
}

/// Sleeps for less than a second, or until a signal.
pub fn sleep(nanoseconds: u64) {
    let nap = [0, nanoseconds];
    let args = [nap.as_ptr() as usize, 0, 0, 0, 0, 0];
    // SAFETY: the kernel reads a time that lives here.
    let _ = unsafe { syscall(libc::SYS_nanosleep, args) };
}

/// Makes a system call with a separate instruction, which the filter checks.
///
/// # Safety
/// The conditions are those of the system call.
pub unsafe fn unguarded(number: i64, args: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: the caller guarantees what the call does to memory.
    check(unsafe { millpond_mmu::gate::unguarded(number as usize, args) })
}

/// The thread pointer: unique to each thread of the process, and cheaper to read than a thread ID.
pub use crate::arch::thread_pointer;

/// Makes the system call `mmap`, with any arguments.
///
/// # Safety
/// With `MAP_FIXED`, nothing may rely on the mapping that is there.
pub unsafe fn mmap(
    addr: usize,
    len: usize,
    prot: i32,
    flags: i32,
    fd: i32,
    offset: i64,
) -> Result<usize, Errno> {
    let args = [
        addr,
        len,
        prot as usize,
        flags as usize,
        fd as usize,
        offset as usize,
    ];
    // SAFETY: the conditions are passed on to the caller.
    unsafe { syscall(libc::SYS_mmap, args) }
}

/// Maps new private memory of zeros, readable and writable. It counts against no commit limit (unless the kernel
/// promises no more than there is). It never consists of huge pages, whatever the machine's setting: much of it is
/// sparsely used tables.
pub fn map_anonymous(len: usize) -> Result<usize, Errno> {
    map_private(len, libc::PROT_READ | libc::PROT_WRITE)
}

/// Reserves addresses that cannot be read or written until they are opened ([`mprotect`]). Until then they count
/// against no limit. They never consist of huge pages.
pub fn map_closed(len: usize) -> Result<usize, Errno> {
    map_private(len, libc::PROT_NONE)
}

fn map_private(len: usize, protection: i32) -> Result<usize, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the kernel chooses the place, so nothing is replaced.
    let at = unsafe { mmap(0, len, protection, flags, -1, 0) }?;
    // SAFETY: the advice changes which page sizes the kernel picks. A kernel that is built without huge pages answers
    // EINVAL, and needs no advice.
    let _ = unsafe { madvise(at, len, libc::MADV_NOHUGEPAGE) };
    Ok(at)
}

/// Makes the system call `munmap`.
///
/// # Safety
/// Nothing may rely on the range.
pub unsafe fn munmap(addr: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: the conditions are passed on to the caller.
    unsafe { syscall(libc::SYS_munmap, [addr, len, 0, 0, 0, 0]) }.map(drop)
}

/// Makes the system call `mprotect`, or `pkey_mprotect` with a key.
///
/// # Safety
/// Nothing may rely on the range's protection.
pub unsafe fn mprotect(addr: usize, len: usize, prot: i32, key: Option<i32>) -> Result<(), Errno> {
    let (number, key) = match key {
        Some(key) => (libc::SYS_pkey_mprotect, key as usize),
        None => (libc::SYS_mprotect, 0),
    };
    // SAFETY: the conditions are passed on to the caller.
    unsafe { syscall(number, [addr, len, prot as usize, key, 0, 0]) }.map(drop)
}

/// Makes the system call `madvise`, with any advice.
///
/// Advice that drops contents requires a caller who may drop them.
pub unsafe fn madvise(addr: usize, len: usize, advice: i32) -> Result<(), Errno> {
    // SAFETY: the conditions are passed on to the caller.
    unsafe { syscall(libc::SYS_madvise, [addr, len, advice as usize, 0, 0, 0]) }.map(drop)
}

/// Makes the system call `msync`. With no more than [`MS_ASYNC`](libc::MS_ASYNC) and
/// [`MS_INVALIDATE`](libc::MS_INVALIDATE) it changes nothing.
pub fn msync(addr: usize, len: usize, flags: i32) -> Result<(), Errno> {
    // SAFETY: at most, the call writes back pages of files.
    unsafe { syscall(libc::SYS_msync, [addr, len, flags as usize, 0, 0, 0]) }.map(drop)
}

/// Makes the system call `mremap`, with any flags.
///
/// # Safety
/// Nothing may rely on the old range, or on the new one if it is fixed.
pub unsafe fn mremap(
    old: usize,
    old_len: usize,
    new_len: usize,
    flags: i32,
    new: usize,
) -> Result<usize, Errno> {
    // SAFETY: the conditions are passed on to the caller.
    unsafe {
        syscall(
            libc::SYS_mremap,
            [old, old_len, new_len, flags as usize, new, 0],
        )
    }
}

/// Waits until `word` is no longer `value`. It may also return spuriously.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, value: u32) {
    let op = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: the kernel reads one aligned word that lives as long as the borrow.
    let _ = unsafe {
        syscall(
            libc::SYS_futex,
            [word.as_ptr() as usize, op, value as usize, 0, 0, 0],
        )
    };
}

/// Wakes one waiter of `word`.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32) {
    let op = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: the kernel only uses the address as a key.
    let _ = unsafe { syscall(libc::SYS_futex, [word.as_ptr() as usize, op, 1, 0, 0, 0]) };
}

/// Wakes all waiters of `word`.
pub fn futex_wake_all(word: &core::sync::atomic::AtomicU32) {
    let op = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize;
    let all = i32::MAX as usize;
    // SAFETY: the kernel only uses the address as a key.
    let _ = unsafe { syscall(libc::SYS_futex, [word.as_ptr() as usize, op, all, 0, 0, 0]) };
}

/// Ends the process at once.
pub fn exit_group(status: i32) -> ! {
    loop {
        // SAFETY: the call does not return.
        let _ = unsafe { syscall(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Writes all of `text` to standard error, as far as that is possible.
pub fn complain(text: &str) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        // SAFETY: the kernel reads bytes that are borrowed here.
        let done = unsafe {
            syscall(
                libc::SYS_write,
                [2, rest.as_ptr() as usize, rest.len(), 0, 0, 0],
            )
        };
        match done {
            Ok(n) => rest = &rest[n.min(rest.len())..],
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Sets the calling thread's `errno` to `error`.
pub fn set_errno(error: Errno) {
    // SAFETY: the C library gives each thread its own int there.
    unsafe { *libc::__errno_location() = error.raw_os_error() };
}
