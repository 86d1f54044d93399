//! The only place where the program waits: for a key, a signal, or the time of the next update.
//!
//! The signals are blocked and read from a descriptor. So nothing runs in a handler, no signal is lost between a check
//! and a wait, and the action requested by a signal is done when the terminal is in a known state. If a signal ended
//! the program directly, the terminal would not be restored.
//!
//! A terminal in raw mode sends no signals for ^C and ^Z; these arrive as keys. The signals come from other processes.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::time::Instant;

/// The signals that are waited for.
const SIGNALS: [i32; 7] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGTSTP,
    libc::SIGCONT,
    libc::SIGWINCH,
];

/// The reason for the end of a wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Woken {
    /// The user typed these bytes.
    Typed(Vec<u8>),
    /// A signal that ends programs arrived, or the terminal is gone.
    End,
    /// A signal that stops programs arrived.
    Stop,
    /// The program was continued: other programs have used the terminal.
    Continued,
    /// The terminal has another size.
    Resized,
    /// The time of the next update has come.
    Time,
}

/// The processes to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// This process alone, at the request of another process.
    Itself,
    /// All processes that the terminal would stop for ^Z: a process of the group that waits for this one has to stop as
    /// well.
    Group,
}

/// The wait for the signals, which are blocked since [`Wait::begin`].
#[derive(Debug)]
pub struct Wait {
    signals: OwnedFd,
}

impl Wait {
    /// Blocks the signals in the calling thread, which has to be the only one.
    ///
    /// # Errors
    /// When the kernel has no descriptor left.
    pub fn begin() -> io::Result<Self> {
        let set = set(&SIGNALS);
        mask(libc::SIG_BLOCK, &set);
        // SAFETY: the set is initialized; the call has no other effect on memory.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it, and nothing else owns it.
        let signals = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { signals })
    }

    /// Waits for a key or a signal, no longer than until `until`.
    ///
    /// # Errors
    /// When the terminal cannot be read.
    pub fn wait(&self, until: Instant) -> io::Result<Woken> {
        let stdin = io::stdin();
        let left = until.saturating_duration_since(Instant::now());
        let time = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut waited = [
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&stdin, PollFlags::IN),
        ];
        match poll(&mut waited, Some(&time)) {
            Ok(0) => return Ok(Woken::Time),
            // The caller waits again once it has seen that the time has not come.
            Err(Errno::INTR) => return Ok(Woken::Typed(Vec::new())),
            other => other?,
        };
        let [signal, typed] = waited.map(|fd| fd.revents());
        if !signal.is_empty() {
            return self.signal();
        }
        if typed.contains(PollFlags::IN) {
            let mut bytes = [0; 256];
            return Ok(match read(stdin.as_fd(), &mut bytes) {
                Ok(0) => Woken::End,
                Ok(count) => Woken::Typed(bytes[..count].to_vec()),
                Err(Errno::INTR | Errno::AGAIN) => Woken::Typed(Vec::new()),
                // The terminal is gone, or this group is no longer its foreground group and never will be again.
                Err(Errno::IO) => Woken::End,
                Err(errno) => return Err(errno.into()),
            });
        }
        Ok(Woken::End)
    }

    fn signal(&self) -> io::Result<Woken> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        match read(&self.signals, &mut info) {
            Err(Errno::INTR | Errno::AGAIN) => return Ok(Woken::Typed(Vec::new())),
            other => other?,
        };
        // The signal's number stands first in the record.
        let number = i32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
        Ok(match number {
            libc::SIGTSTP => Woken::Stop,
            libc::SIGCONT => Woken::Continued,
            libc::SIGWINCH => Woken::Resized,
            _ => Woken::End,
        })
    }

    /// Stops until another process continues the program. Returns immediately if the kernel does not stop it: when
    /// there is no process to continue it, or the signal was ignored when this program started.
    pub fn stop(&self, who: Who) {
        let process = match who {
            Who::Itself => std::process::id() as i32,
            Who::Group => 0,
        };
        let stop = set(&[libc::SIGTSTP]);
        // SAFETY: sends a signal, which waits until it is unblocked.
        unsafe { libc::kill(process, libc::SIGTSTP) };
        mask(libc::SIG_UNBLOCK, &stop);
        mask(libc::SIG_BLOCK, &stop);
    }
}

fn set(signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is writable and owned here, and initialized by the first call.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

fn mask(how: i32, set: &libc::sigset_t) {
    // SAFETY: the set is initialized; the call has no other effect on memory.
    unsafe { libc::pthread_sigmask(how, set, null_mut()) };
}
