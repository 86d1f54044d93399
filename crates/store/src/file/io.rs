//! Opening the file, and moving bytes to and from it.

use super::Location;
use super::awake::Awake;
use crate::error::OpenError;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::{self, Errno};
use std::ffi::CStr;
use std::path::{Path, PathBuf};

/// Descriptors are moved to this number or above, out of the way of programs that close, count or expect low numbers.
const HIGH: i32 = 512;
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;

/// Whether reads and writes bypass the page cache.
pub(crate) fn is_direct(fd: BorrowedFd<'_>) -> bool {
    fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::DIRECT))
}

/// Opens the directory of a store and makes its file there.
///
/// # Errors
/// The file cannot be created, is not empty, or lies on tmpfs and `force_tmpfs` is not set.
pub(crate) fn open(
    location: &Location,
    force_tmpfs: bool,
) -> Result<(OwnedFd, OwnedFd), OpenError> {
    let directory = open_directory(location.directory()?)?;
    // The check comes before the file is made, so that a refusal leaves no file behind.
    if !force_tmpfs && is_in_ram(&directory) {
        let path = location.path().clone();
        return Err(OpenError::Tmpfs { path });
    }
    let file = match location {
        Location::Directory(path) => {
            open_unnamed(directory.as_fd()).map_err(|errno| OpenError::Create {
                path: path.clone(),
                errno,
            })?
        }
        Location::File(path) => open_named(path)?,
    };
    Ok((directory, file))
}

/// Opens a directory to make files in.
fn open_directory(path: &Path) -> Result<OwnedFd, OpenError> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let error = |errno| OpenError::Directory {
        path: path.to_owned(),
        errno,
    };
    fs::open(path, flags, Mode::empty())
        .map(out_of_the_way)
        .map_err(error)
}

/// Opens the file at `path`, and creates it if it does not exist. An empty file may exist.
fn open_named(path: &Path) -> Result<OwnedFd, OpenError> {
    let path_of = || PathBuf::from(path);
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let fd = fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|errno| match errno {
        Errno::ISDIR | Errno::NXIO => OpenError::NotAFile { path: path_of() },
        errno => OpenError::Create {
            path: path_of(),
            errno,
        },
    })?;
    let stat = fs::fstat(&fd).map_err(|errno| OpenError::Create {
        path: path_of(),
        errno,
    })?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(OpenError::NotAFile { path: path_of() });
    }
    fs::flock(&fd, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
        Errno::WOULDBLOCK => OpenError::InUse { path: path_of() },
        errno => OpenError::Create {
            path: path_of(),
            errno,
        },
    })?;
    // The length is read after the lock is taken: before that, another store could still have been writing.
    let bytes = fs::fstat(&fd).map_or(0, |stat| stat.st_size as u64);
    if bytes > 0 {
        return Err(OpenError::NotEmpty {
            path: path_of(),
            bytes,
        });
    }
    let _ = fs::fcntl_setfl(&fd, OFlags::DIRECT);
    Ok(out_of_the_way(fd))
}

/// Makes a file without a name in a directory. It allocates nothing, because a forked child calls it.
pub(crate) fn open_unnamed(directory: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let fd = match fs::openat(directory, c".", flags | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
            create_and_unlink(directory)?
        }
        other => other?,
    };
    let _ = fs::fcntl_setfl(&fd, OFlags::DIRECT);
    Ok(out_of_the_way(fd))
}

/// Makes a file and removes its name, for file systems without unnamed files.
pub(crate) fn create_and_unlink(directory: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let mut tries = 0;
    loop {
        let mut random = [0; 12];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let mut name = *b".millpond-............\0";
        for (to, from) in name[10..22].iter_mut().zip(random) {
            *to = b'a' + from % 26;
        }
        let name = CStr::from_bytes_with_nul(&name).map_err(|_| Errno::INVAL)?;
        match fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::EXIST) if tries < 10 => tries += 1,
            Err(errno) => return Err(errno),
            Ok(fd) => {
                fs::unlinkat(directory, name, AtFlags::empty())?;
                return Ok(fd);
            }
        }
    }
}

/// Whether the file takes RAM instead of a disk.
fn is_in_ram(fd: impl AsFd) -> bool {
    fs::fstatfs(fd).is_ok_and(|stat| matches!(stat.f_type as u64 & 0xffff_ffff, TMPFS | RAMFS))
}

/// Moves a descriptor to a high number, if the limit allows that.
pub(crate) fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    io::fcntl_dupfd_cloexec(&fd, HIGH).unwrap_or(fd)
}

/// Reads all of `buf`, page-aligned, from the page-aligned `offset`. The end of the file is an I/O error: written bytes
/// must be there.
pub(crate) fn read_all(
    awake: &Awake,
    fd: BorrowedFd<'_>,
    buf: &mut [u8],
    offset: u64,
) -> Result<(), Errno> {
    let mut done = 0;
    while done < buf.len() {
        let (at, direct) = resume(fd, done);
        match awake.read(fd, &mut buf[at..], offset + at as u64) {
            Ok(n) if at + n <= done => return Err(Errno::IO),
            Ok(n) => done = at + n,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::INVAL) if direct => go_indirect(fd)?,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Reads as much of `buf` as the file has from `offset` on, at least `least` bytes; both are page-aligned. Returns the
/// number of bytes read, in whole pages.
pub(crate) fn read_some(
    awake: &Awake,
    fd: BorrowedFd<'_>,
    buf: &mut [u8],
    least: usize,
    offset: u64,
) -> Result<usize, Errno> {
    match awake.read(fd, &mut *buf, offset) {
        Ok(n) if n >= least => Ok(n & !4095),
        // The read was cut short, but not by the end of the file. The other function tries again.
        Ok(_) | Err(Errno::INTR | Errno::AGAIN | Errno::INVAL) => {
            read_all(awake, fd, &mut buf[..least], offset).map(|()| least)
        }
        Err(errno) => Err(errno),
    }
}

/// Writes all of `buf`, page-aligned, to the page-aligned `offset`.
pub(crate) fn write_all(fd: BorrowedFd<'_>, buf: &[u8], offset: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < buf.len() {
        let (at, direct) = resume(fd, done);
        match io::pwrite(fd, &buf[at..], offset + at as u64) {
            Ok(n) if at + n <= done => return Err(Errno::IO),
            Ok(n) => done = at + n,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::INVAL) if direct => go_indirect(fd)?,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The offset at which to continue after `done` bytes, and whether the I/O is direct: direct I/O begins only at whole
/// blocks.
fn resume(fd: BorrowedFd<'_>, done: usize) -> (usize, bool) {
    let direct = is_direct(fd);
    (if direct { done & !4095 } else { done }, direct)
}

/// Switches direct I/O off: some file systems take the flag and then refuse the I/O.
fn go_indirect(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = fs::fcntl_getfl(fd)?;
    fs::fcntl_setfl(fd, flags - OFlags::DIRECT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fallback_leaves_no_name_behind() {
        let dir = tempfile::tempdir().unwrap();
        let directory = open_directory(dir.path()).unwrap();
        let fd = create_and_unlink(directory.as_fd()).unwrap();
        let awake = Awake::new();
        write_all(fd.as_fd(), &[5; 4096], 8192).unwrap();
        let mut back = [0; 4096];
        read_all(&awake, fd.as_fd(), &mut back, 8192).unwrap();
        assert_eq!(back, [5; 4096]);
        let beyond = read_all(&awake, fd.as_fd(), &mut back, 1 << 30);
        assert_eq!(beyond, Err(Errno::IO));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
