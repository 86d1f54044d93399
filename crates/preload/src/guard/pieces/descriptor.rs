//! Which descriptors take a long call in pieces.

use super::{Further, ask};
use crate::guard::holds::{allowed, piece};
use core::mem::size_of;

/// How a call is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// The most bytes of one piece.
    pub(super) piece: usize,
    pub(super) further: Further,
}

/// What a descriptor is, as far as that decides how a call is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A file or a disk: it has all bytes, and nobody waits for them.
    Stored,
    /// A device that has endless bytes, or takes them: `/dev/zero`, `/dev/urandom`, `/dev/null`.
    Endless,
    /// A pipe or a socket that is a stream.
    Stream,
    /// Anything else: what it takes and gives may be messages.
    Messages,
}

impl Cut {
    /// `getrandom`.
    pub(super) fn of_a_generator() -> Self {
        Self {
            piece: piece(),
            further: Further::AsAsked,
        }
    }

    /// The same, for a call that waits until its memory is full, or does not.
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

/// How a call with this descriptor is cut, if it may be.
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
        // A pipe with this flag keeps the borders of packets. (A socket cannot have it.)
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

/// How a message with this descriptor is cut, if it may be: only if it is a part of a stream.
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

/// The flags of an open file.
fn flags(fd: usize) -> i32 {
    let args = [fd, libc::F_GETFL as usize, 0, 0, 0, 0];
    // SAFETY: the call asks.
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

/// `null`, `zero`, `full`, `random`, `urandom`: numbers that the kernel has given them for good.
fn is_endless(device: libc::dev_t) -> bool {
    libc::major(device) == 1 && matches!(libc::minor(device), 3 | 5 | 7 | 8 | 9)
}
