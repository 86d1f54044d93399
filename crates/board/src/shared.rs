//! Memory that several processes map: a sealed memfd, opened through the descriptor of the process that made it.

use core::ffi::c_void;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::path::Path;

/// The action that failed, and the kernel's error.
pub type Failed = (&'static str, Errno);

/// Makes `len` bytes of zeros that this user's processes may open.
///
/// # Errors
/// The call that the kernel refused, and its error.
pub fn create(name: &str, len: usize) -> Result<OwnedFd, Failed> {
    let to = |what| move |errno| (what, errno);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(name, flags).map_err(to("make"))?;
    rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(to("protect"))?;
    rustix::fs::ftruncate(&file, len as u64).map_err(to("size"))?;
    // A process that can open the file could otherwise truncate it, and the next write of any other process would raise
    // SIGBUS.
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals).map_err(to("seal"))?;
    Ok(file)
}

/// Opens the memory of another process. `None` if it is shorter than `len` bytes.
///
/// # Errors
/// The call that the kernel refused, and its error.
pub fn open(path: &Path, flags: OFlags, len: usize) -> Result<Option<OwnedFd>, Failed> {
    let to = |what| move |errno| (what, errno);
    let flags = flags | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(to("open"))?;
    let is = rustix::fs::fstat(&file).map_err(to("look at"))?.st_size;
    Ok((u64::try_from(is).unwrap_or(0) >= len as u64).then_some(file))
}

/// Maps the first `len` bytes, aligned to 4 KiB, for as long as the process lives.
///
/// # Errors
/// The call that the kernel refused, and its error.
pub fn map(file: impl AsFd, len: usize, protection: ProtFlags) -> Result<*mut c_void, Failed> {
    // SAFETY: the kernel chooses the address, so no memory of this process is replaced.
    let start = unsafe {
        rustix::mm::mmap(
            core::ptr::null_mut(),
            len,
            protection,
            MapFlags::SHARED,
            file,
            0,
        )
    };
    let start = start.map_err(|errno| ("map", errno))?;
    // Little of this memory is used, and the first touch decides for all processes: so each of them declines huge
    // pages, which `shmem_enabled` may give to all shared memory. SAFETY: the advice changes which page sizes the
    // kernel picks, not contents. A kernel that is built without huge pages answers EINVAL, and needs no advice.
    let _ = unsafe { rustix::mm::madvise(start, len, Advice::LinuxNoHugepage) };
    Ok(start)
}
