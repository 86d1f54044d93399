//! Opening a program's file.

use crate::file::out_of_the_way;
use millpond_core::Descriptors;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{self, PidfdFlags, PidfdGetfdFlags};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Why a file could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DataFileError {
    /// The system refused to open it.
    #[error("cannot open {path} ({errno}): name a file that you may open so", path = path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        errno: Errno,
    },
    /// The descriptor cannot be used.
    #[error(
        "cannot use descriptor {descriptor} ({errno}): give one that is open for what the mode does, and not for appending"
    )]
    Descriptor {
        /// The descriptor.
        descriptor: i32,
        /// The system's answer.
        errno: Errno,
    },
    /// A directory, a pipe, a device.
    #[error("{name} is no regular file: only regular files have pages that can be read again")]
    NotAFile {
        /// The path, or the descriptor.
        name: String,
    },
}

/// An open file of the program's.
pub struct DataFile {
    fd: OwnedFd,
    /// The file again, open for reads that bypass the page cache, if the file system supports them.
    direct: Option<OwnedFd>,
    /// Whether such a read was refused: some file systems open a file for them but cannot make them.
    refused: AtomicBool,
    /// Whether the system refused to drop pages from the page cache after copying from or to them.
    keeps_cache: AtomicBool,
    access: Access,
}

/// The access for which a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It is only read.
    Read,
    /// It is read and written.
    Write,
}

impl Access {
    fn flags(self) -> OFlags {
        match self {
            Self::Read => OFlags::RDONLY,
            Self::Write => OFlags::RDWR,
        }
    }
}

/// A descriptor of the file that the calling thread can use.
pub(super) enum Usable<'a> {
    Own(BorrowedFd<'a>),
    Fetched(OwnedFd),
}

impl AsFd for Usable<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(fd) => *fd,
            Self::Fetched(fd) => fd.as_fd(),
        }
    }
}

impl DataFile {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// The system refuses to open it, or it is not a regular file.
    pub fn open(path: &Path, access: Access) -> Result<Self, DataFileError> {
        // The caller must not wait for a writer of a FIFO.
        let flags = access.flags() | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let error = |errno| DataFileError::Open {
            path: path.to_owned(),
            errno,
        };
        let fd = fs::open(path, flags, Mode::empty()).map_err(error)?;
        Self::checked(out_of_the_way(fd), access, error, || {
            path.display().to_string()
        })
    }

    /// Makes a descriptor of its own for the file that `fd` is open on. Closing one does not close the other.
    ///
    /// # Errors
    /// The descriptor is not open for this access, or does not refer to a regular file.
    pub fn duplicate(fd: BorrowedFd<'_>, access: Access) -> Result<Self, DataFileError> {
        let descriptor = fd.as_raw_fd();
        let error = |errno| DataFileError::Descriptor { descriptor, errno };
        let flags = fs::fcntl_getfl(fd).map_err(error)?;
        let has = flags & OFlags::RWMODE;
        let fits = has == OFlags::RDWR || has == access.flags();
        if !fits || flags.intersects(OFlags::PATH | OFlags::APPEND) {
            return Err(error(Errno::BADF));
        }
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(error)?;
        Self::checked(out_of_the_way(fd), access, error, || {
            format!("descriptor {descriptor}")
        })
    }

    fn checked(
        fd: OwnedFd,
        access: Access,
        error: impl Fn(Errno) -> DataFileError,
        name: impl Fn() -> String,
    ) -> Result<Self, DataFileError> {
        let stat = fs::fstat(&fd).map_err(error)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Self {
                direct: opened_anew(&fd, access.flags() | OFlags::DIRECT)
                    .ok()
                    .map(out_of_the_way),
                access,
                refused: AtomicBool::new(false),
                keeps_cache: AtomicBool::new(false),
                fd,
            }),
            _ => Err(DataFileError::NotAFile { name: name() }),
        }
    }

    /// The file's length in bytes, as of now.
    ///
    /// # Errors
    /// The system reports an error.
    pub fn len(&self) -> Result<u64, Errno> {
        Ok(fs::fstat(&self.fd)?.st_size as u64)
    }

    /// Whether the file has no bytes now.
    ///
    /// # Errors
    /// The system reports an error.
    pub fn is_empty(&self) -> Result<bool, Errno> {
        Ok(self.len()? == 0)
    }

    /// A descriptor that the calling thread can use for one call, for reads through the page cache.
    pub(super) fn cached(&self, table: Descriptors) -> Result<Usable<'_>, Errno> {
        usable(&self.fd, table, self.access.flags())
    }

    /// A descriptor that the calling thread can use for one call, for reads that bypass the page cache. `None` if such
    /// reads are not possible.
    pub(super) fn direct(&self, table: Descriptors) -> Option<Usable<'_>> {
        let direct = self.direct.as_ref();
        let direct = direct.filter(|_| !self.refused.load(Ordering::Relaxed));
        usable(direct?, table, self.access.flags() | OFlags::DIRECT).ok()
    }

    /// Extends the file to `len` bytes, if it is shorter.
    ///
    /// # Errors
    /// The system refuses to extend it.
    pub fn grow(&self, len: u64) -> Result<(), Errno> {
        match self.len()? < len {
            true => fs::ftruncate(&self.fd, len),
            false => Ok(()),
        }
    }

    /// Records that reads cannot bypass the page cache after all.
    pub(super) fn refuse_direct(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }
}

impl DataFile {
    /// Whether reads and writes through the page cache leave nothing there, as far as is known (`uncached.rs`).
    pub(super) fn drops_cache(&self) -> bool {
        !self.keeps_cache.load(Ordering::Relaxed)
    }

    /// Records that they do leave pages there.
    pub(super) fn refuse_to_drop_cache(&self) {
        self.keeps_cache.store(true, Ordering::Relaxed);
    }
}

fn usable(fd: &OwnedFd, table: Descriptors, flags: OFlags) -> Result<Usable<'_>, Errno> {
    match table {
        Descriptors::OfProgram => Ok(Usable::Own(fd.as_fd())),
        Descriptors::OfThread => fetched(fd, flags).map(Usable::Fetched),
    }
}

/// A descriptor from the program's table. Sandboxes forbid the call that fetches it; there the file is reopened through
/// the name of the program's descriptor, with these flags.
fn fetched(fd: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    let fetch = || {
        let process = process::pidfd_open(process::getpid(), PidfdFlags::empty())?;
        process::pidfd_getfd(process, fd.as_raw_fd(), PidfdGetfdFlags::empty())
    };
    fetch().or_else(|_: Errno| opened_anew(fd, flags))
}

/// Reopens the file of one of the program's descriptors.
fn opened_anew(fd: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    const DIRECTORY: &[u8] = b"/proc/self/fd/";
    let mut name = [0; DIRECTORY.len() + 11];
    name[..DIRECTORY.len()].copy_from_slice(DIRECTORY);
    // The digits, from the last to the first. What follows them is zero already.
    let mut number = fd.as_raw_fd() as u32;
    let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
    for place in (DIRECTORY.len()..DIRECTORY.len() + digits).rev() {
        name[place] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    let name = std::ffi::CStr::from_bytes_until_nul(&name).map_err(|_| Errno::INVAL)?;
    fs::open(
        name,
        flags | OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_path_that_cannot_be_read_is_refused_by_name() {
        let said = |result: Result<DataFile, DataFileError>| result.err().unwrap().to_string();
        let missing = said(DataFile::open(Path::new("/nowhere/x.npy"), Access::Read));
        assert!(
            missing.contains("/nowhere/x.npy") && missing.contains("No such file"),
            "{missing}"
        );
        let directory = said(DataFile::open(Path::new("/proc"), Access::Read));
        assert!(
            directory.contains("/proc is no regular file"),
            "{directory}"
        );
        let null = File::open("/dev/null").unwrap();
        assert!(said(DataFile::duplicate(null.as_fd(), Access::Read)).contains("no regular file"));
        let dir = tempfile::tempdir().unwrap();
        let written = File::create(dir.path().join("w")).unwrap();
        assert!(
            said(DataFile::duplicate(written.as_fd(), Access::Read)).contains("what the mode does")
        );
    }

    #[test]
    fn a_descriptor_is_available_by_fetching_and_by_reopening() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"abc").unwrap();
        let file = DataFile::duplicate(file.as_fd(), Access::Read).unwrap();
        assert_eq!((file.len(), file.is_empty()), (Ok(3), Ok(false)));
        let ways = [
            fetched(&file.fd, OFlags::empty()),
            opened_anew(&file.fd, OFlags::empty()),
        ];
        for fd in ways.map(Result::unwrap) {
            let mut out = [0; 3];
            assert_eq!(rustix::io::pread(&fd, &mut out, 0), Ok(3));
            assert_eq!(&out, b"abc");
        }
    }
}
