//! Decides for which descriptors a long call may be made in pieces.

use super::{Further, ask};
use crate::guard::holds::{allowed, piece};
use core::mem::size_of;

/// How a call is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// The maximum number of bytes in one piece.
    pub(super) piece: usize,
    pub(super) further: Further,
}

/// The type of a descriptor, as far as it decides how a call is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A file or a disk: all bytes are available, and nobody waits for them.
    Stored,
    /// A device that supplies or accepts endless bytes: `/dev/zero`, `/dev/urandom`, `/dev/null`.
    Endless,
    /// A pipe or a stream socket.
    Stream,
    /// Anything else: it may transfer messages.
    Messages,
}

impl Cut {
    /// Returns how `getrandom` is cut.
    pub(super) fn of_a_generator() -> Self {
        Self {
            piece: piece(),
            further: Further::AsAsked,
        }
    }

    /// Returns the same cut for a call that waits until its memory is full, or does not.
    pub(super) const fn with_flags(self, waits_for_all: bool) -> Self {
        match waits_for_all {
            true => Self {
                further: Further::AsAsked,
                ..self
            },
            false => self,
        }
    }
}

/// Returns how a call with this descriptor is cut, if it may be.
pub(super) fn cut(
    fd: usize,
    writes: bool,
    is_of_whole_pages: impl FnOnce() -> bool,
) -> Option<Cut> {
    let kind = kind(fd)?;
    let is_direct = flags(fd) & libc::O_DIRECT != 0;
    match kind {
        Kind::Stored if is_direct && !is_of_whole_pages() => None,
        Kind::Stored => Some(Cut {
            piece: allowed(),
            further: Further::AsAsked,
        }),
        Kind::Endless => Some(Cut::of_a_generator()),
        // A pipe with this flag preserves packet boundaries. (A socket cannot have it.)
        Kind::Stream if is_direct => None,
        Kind::Stream => Some(Cut {
            piece: piece(),
            further: if writes {
                Further::AsAsked
            } else {
                Further::IfThere
            },
        }),
        Kind::Messages => None,
    }
}

/// Returns how a message with this descriptor is cut; only a message that is part of a stream may be.
pub(super) fn cut_message(fd: usize, writes: bool) -> Option<Cut> {
    match kind(fd)? {
        Kind::Stream => cut(fd, writes, || false),
        _ => None,
    }
}

fn kind(fd: usize) -> Option<Kind> {
    let status: libc::stat = ask(libc::SYS_fstat, |at| [fd, at, 0, 0, 0, 0])?;
    Some(match status.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFBLK => Kind::Stored,
        libc::S_IFIFO => Kind::Stream,
        libc::S_IFSOCK if is_stream(fd) => Kind::Stream,
        libc::S_IFCHR if is_endless(status.st_rdev) => Kind::Endless,
        _ => Kind::Messages,
    })
}

/// Returns the flags of an open file.
fn flags(fd: usize) -> i32 {
    let args = [fd, libc::F_GETFL as usize, 0, 0, 0, 0];
    // SAFETY: the call is a query.
    unsafe { crate::raw::syscall(libc::SYS_fcntl, args) }.map_or(0, |flags| flags as i32)
}

fn is_stream(fd: usize) -> bool {
    let mut len = size_of::<i32>() as u32;
    let args = |at| {
        let [level, option] = [libc::SOL_SOCKET as usize, libc::SO_TYPE as usize];
        [fd, level, option, at, &raw mut len as usize, 0]
    };
    ask::<i32>(libc::SYS_getsockopt, args) == Some(libc::SOCK_STREAM)
}

/// `null`, `zero`, `full`, `random`, `urandom`: their device numbers are fixed.
fn is_endless(device: libc::dev_t) -> bool {
    libc::major(device) == 1 && matches!(libc::minor(device), 3 | 5 | 7 | 8 | 9)
}
