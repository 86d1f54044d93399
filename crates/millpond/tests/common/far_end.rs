//! The far end of a pipe or a socket: it knows which pages must come, and checks every byte of them.

use super::{MIB, PAGE, page_is};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The way in which bytes get to the far end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Bytes go by `write` to a pipe, which copies.
    Written,
    /// Bytes go by `vmsplice`: the pipe refers to the pages.
    Spliced,
    /// Bytes go by `send` with `MSG_ZEROCOPY`: the socket's queue refers to the pages.
    SentWithoutCopy,
}

pub struct FarEnd {
    kind: Kind,
    to: OwnedFd,
    from: File,
    /// The numbers of the pages that are in the far end.
    awaited: VecDeque<u64>,
    checked: usize,
}

impl FarEnd {
    pub fn new(kind: Kind) -> Self {
        let (to, from) = match kind {
            Kind::SentWithoutCopy => connection(),
            Kind::Written | Kind::Spliced => pipe(),
        };
        Self {
            kind,
            to,
            from: from.into(),
            awaited: VecDeque::new(),
            checked: 0,
        }
    }

    /// Gives the pages `bytes`, of which the first has the number `first`. As much as a MiB has room until
    /// [`check`](Self::check).
    pub fn give(&mut self, bytes: &[u8], first: u64) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let given = self.give_some(rest);
            assert!(
                given > 0,
                "{:?}: {}",
                self.kind,
                std::io::Error::last_os_error()
            );
            rest = &rest[given as usize..];
        }
        let pages = (bytes.len() / PAGE) as u64;
        self.awaited.extend(first..first + pages);
    }

    fn give_some(&self, bytes: &[u8]) -> isize {
        let (fd, at, len) = (self.to.as_raw_fd(), bytes.as_ptr().cast(), bytes.len());
        let range = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: len,
        };
        // SAFETY: the kernel reads the bytes, which are borrowed now. Where it refers to them, the caller has pinned
        // them until they are checked, and nothing writes to them.
        unsafe {
            match self.kind {
                Kind::Written => libc::write(fd, at, len),
                Kind::Spliced => libc::vmsplice(fd, &raw const range, 1, 0),
                Kind::SentWithoutCopy => libc::send(fd, at, len, libc::MSG_ZEROCOPY),
            }
        }
    }

    /// Reads all bytes that were given and compares them.
    pub fn check(&mut self) {
        let mut page = [0; PAGE];
        while let Some(number) = self.awaited.pop_front() {
            self.from.read_exact(&mut page).unwrap();
            assert!(
                page_is(&page, number),
                "{:?}: page {number} arrived as something else",
                self.kind
            );
            self.checked += 1;
        }
    }

    /// Number of pages that were right.
    pub fn finish(mut self) -> usize {
        self.check();
        self.checked
    }
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut fds = [0; 2];
    // SAFETY: the array has room for two descriptors, which are ours.
    unsafe {
        assert_eq!(libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC), 0);
        let size = libc::fcntl(fds[1], libc::F_SETPIPE_SZ, MIB as libc::c_int);
        assert!(size >= MIB as libc::c_int);
        (OwnedFd::from_raw_fd(fds[1]), OwnedFd::from_raw_fd(fds[0]))
    }
}

/// A connection to ourselves whose queue takes a MiB. A peer on this machine copies when data is received, so the
/// references are the queue's until then: the receiver is given little room.
fn connection() -> (OwnedFd, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    set(&listener, libc::SO_RCVBUF, 64 << 10);
    let to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    set(&to, libc::SO_SNDBUF, 8 << 20);
    set(&to, libc::SO_ZEROCOPY, 1);
    let (from, _) = listener.accept().unwrap();
    (to.into(), from.into())
}

fn set(socket: &impl AsRawFd, name: i32, value: i32) {
    // SAFETY: the kernel reads one number that is there.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as u32,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}
