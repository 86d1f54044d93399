//! The reasons why a store could not be opened.

use rustix::io::Errno;
use std::path::PathBuf;

/// The reason why a store could not be opened. Nothing is left behind, with one exception: if one of several files
/// could not be opened, empty files remain under the names given for the others.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The kernel gives no address space for the store's tables.
    #[error(
        "no memory for the store's tables ({errno}): raise the limit on address space (ulimit -v) or the machine's overcommit limit"
    )]
    Memory {
        /// The kernel's answer.
        errno: Errno,
    },
    /// The kernel gives no random bytes for the key of the checksums.
    #[error(
        "getrandom failed ({errno}): the store keys its checksums with it; allow the getrandom system call"
    )]
    Random {
        /// The kernel's answer.
        errno: Errno,
    },
    /// The limit leaves no room for a single slot.
    #[error("a limit of {bytes} bytes is too small for a store: give at least {least} bytes")]
    LimitTooSmall {
        /// The requested limit.
        bytes: u64,
        /// The smallest limit that is accepted.
        least: u64,
    },
    /// No file was named.
    #[error(
        "a store of files needs one at least: name a file, or a directory to put an unnamed one in"
    )]
    NoFiles,
    /// There are more files than a store can have.
    #[error("{files} files are too many for a store: give {most} at most")]
    TooManyFiles {
        /// The requested number of files.
        files: usize,
        /// The most files.
        most: usize,
    },
    /// The directory cannot be opened.
    #[error("cannot open the directory {path} for the store's file ({errno}): name an existing directory you may write to", path = path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The file cannot be made or opened.
    #[error("cannot create the store's file in {path} ({errno}): name a directory you may write to", path = path.display())]
    Create {
        /// The file's path, or its directory when the file has no name.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The path has no file name.
    #[error("{path} names no file: give the path of a file, or the directory as a directory", path = path.display())]
    NoFileName {
        /// The path given.
        path: PathBuf,
    },
    /// The path is not a regular file.
    #[error("{path} is not a regular file: name a new file, or a directory to put an unnamed one in", path = path.display())]
    NotAFile {
        /// The path given.
        path: PathBuf,
    },
    /// The file is not empty, and the store would overwrite its contents.
    #[error("{path} already holds {bytes} bytes and would be overwritten: delete it first or name another file", path = path.display())]
    NotEmpty {
        /// The path given.
        path: PathBuf,
        /// The file's length.
        bytes: u64,
    },
    /// Another store uses the file.
    #[error("{path} is in use by another store: name another file, or a directory", path = path.display())]
    InUse {
        /// The path given.
        path: PathBuf,
    },
    /// The file would lie in RAM.
    #[error(
        "{path} is on tmpfs, which is RAM itself, so putting data there saves none: name a directory on a disk (such as /var/tmp), use compressed RAM, or force it",
        path = path.display()
    )]
    Tmpfs {
        /// The path given.
        path: PathBuf,
    },
}
