//! The ways to get a userfaultfd: by system call, by device, or only for faults in user mode.

use core::ffi::c_void;

use linux_raw_sys::general::UFFD_USER_MODE_ONLY;
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};
use rustix::mm::UserfaultfdFlags;

/// How a descriptor was made, best first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The plain system call.
    Syscall,
    /// `/dev/userfaultfd`.
    Device,
    /// The system call with `UFFD_USER_MODE_ONLY`: faults inside system calls are errors.
    UserModeOnly,
}

/// Opens a descriptor in the given way.
pub(crate) fn open_by(source: Source) -> Result<OwnedFd, Errno> {
    let plain = UserfaultfdFlags::CLOEXEC;
    match source {
        // SAFETY: a descriptor without a registered range changes nothing about memory.
        Source::Syscall => unsafe { rustix::mm::userfaultfd(plain) },
        Source::UserModeOnly => {
            let flags = plain | UserfaultfdFlags::from_bits_retain(UFFD_USER_MODE_ONLY);
            // SAFETY: a descriptor without a registered range changes nothing about memory.
            unsafe { rustix::mm::userfaultfd(flags) }
        }
        Source::Device => by_device(open_device()?.as_fd(), false),
    }
}

/// Opens the device that makes descriptors.
pub(crate) fn open_device() -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    openat(CWD, c"/dev/userfaultfd", flags, Mode::empty())
}

/// Makes a descriptor for the calling process, whichever process opened the device: for all faults, or only for those
/// in user mode.
pub(crate) fn by_device(device: BorrowedFd<'_>, user_mode_only: bool) -> Result<OwnedFd, Errno> {
    let mode = if user_mode_only {
        UFFD_USER_MODE_ONLY
    } else {
        0
    };
    let flags = UserfaultfdFlags::CLOEXEC.bits() | mode;
    // SAFETY: USERFAULTFD_IOC_NEW takes flags by value and makes a new descriptor.
    unsafe { ioctl(device, New(flags as usize)) }
}

/// Opens a descriptor in the best way that works. If `whole` is set, faults inside system calls must also be served.
pub(crate) fn open(whole: bool) -> Result<(OwnedFd, Source), Errno> {
    let first = match open_by(Source::Syscall) {
        Ok(fd) => return Ok((fd, Source::Syscall)),
        Err(errno) => errno,
    };
    if let Ok(fd) = open_by(Source::Device) {
        return Ok((fd, Source::Device));
    }
    if !whole && let Ok(fd) = open_by(Source::UserModeOnly) {
        return Ok((fd, Source::UserModeOnly));
    }
    Err(first)
}

/// Opens a descriptor for faults in user mode only: by system call, or by the device if a filter refuses the call.
pub(crate) fn open_for_user_mode() -> Result<OwnedFd, Errno> {
    open_by(Source::UserModeOnly)
        .or_else(|errno| open_device().map_or(Err(errno), |device| by_device(device.as_fd(), true)))
}

/// `USERFAULTFD_IOC_NEW`: flags go in by value, a descriptor comes out.
struct New(usize);

// SAFETY: the opcode takes its argument by value and returns a new descriptor, which `output_from_ptr` takes over.
unsafe impl Ioctl for New {
    type Output = OwnedFd;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        opcode::none(0xAA, 0)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.0 as *mut c_void
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<OwnedFd> {
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(unsafe { OwnedFd::from_raw_fd(out as RawFd) })
    }
}
