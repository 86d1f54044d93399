//! Signals of the supervisor: those that it waits for, those that it forwards, and the signal state that the program
//! must inherit.
//!
//! A supervisor stands between a shell and a program and should not be seen. So every signal that a process sends to it
//! is forwarded to the program. A signal that the kernel sends because of the terminal (^C, ^\, a closed terminal, a
//! resized window) goes to the whole foreground group and has already reached the program, so it is dropped here. The
//! signals are blocked and fetched with `sigtimedwait`, so nothing runs in a handler and no wake-up is lost between a
//! check and a wait. Stop signals keep their default: ^Z stops both, `fg` continues both.
//!
//! The program must inherit the mask and the dispositions with which the supervisor was started. Rust's runtime ignores
//! SIGPIPE before `main` runs, and an ignored signal stays ignored across exec, so `yes | head` would never end. Hence
//! an initializer reads the dispositions before the runtime changes them.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Signals that other processes send to notify a program. The list omits signals that report a fault of the receiver
/// itself, the job-control stops, SIGPIPE, and the two that cannot be caught.
const HANDED_ON: [i32; 14] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGCONT,
    libc::SIGWINCH,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGURG,
    libc::SIGIO,
    libc::SIGPWR,
];

static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);
static CHILD_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn() = remember;

extern "C" fn remember() {
    PIPE_WAS_IGNORED.store(is_ignored(libc::SIGPIPE), Relaxed);
    CHILD_WAS_IGNORED.store(is_ignored(libc::SIGCHLD), Relaxed);
}

fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action is only a query; the old one is written to `action`, for which all-zero bytes are valid
    // too.
    let action = unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// Calls `with` while all signals are blocked in the calling thread: threads that `with` starts never receive any.
pub fn without_signals<R>(with: impl FnOnce() -> R) -> R {
    let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both sets are writable and owned here; the calls have no other effect on memory.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = with();
    // SAFETY: the set was filled by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut()) };
    result
}

/// The supervisor's signals, blocked since [`Signals::take`].
pub struct Signals {
    set: libc::sigset_t,
    original: libc::sigset_t,
}

/// A signal that has arrived, and its sender.
pub struct Arrived {
    /// The signal's number.
    pub signal: i32,
    /// The process that sent the signal to this one; `None` if the kernel sent it.
    pub from_process: Option<i32>,
}

impl Signals {
    /// Blocks the signals that the supervisor waits for, in the calling thread.
    #[must_use]
    pub fn take() -> Self {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        let mut original = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: both sets are writable and owned here; the calls have no other effect on memory. SIGCHLD is given its
        // default action because a child of a process that ignores it leaves no status to wait for.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in HANDED_ON
                .into_iter()
                .chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
            {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), original.as_mut_ptr());
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            Self {
                set: set.assume_init(),
                original: original.assume_init(),
            }
        }
    }

    /// The closure that the child has to run between fork and exec.
    ///
    /// It calls only functions that are allowed after a fork in a process that had threads.
    pub fn restorer(&self) -> impl FnMut() -> io::Result<()> + Send + Sync + 'static {
        let original = self.original;
        move || {
            // SAFETY: sigaction-family calls on valid arguments; async-signal-safe, and they affect only this process.
            unsafe {
                for (signal, ignored) in [
                    (libc::SIGPIPE, &PIPE_WAS_IGNORED),
                    (libc::SIGCHLD, &CHILD_WAS_IGNORED),
                ] {
                    let action = if ignored.load(Relaxed) {
                        libc::SIG_IGN
                    } else {
                        libc::SIG_DFL
                    };
                    libc::signal(signal, action);
                }
                if libc::sigprocmask(libc::SIG_SETMASK, &original, null_mut()) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        }
    }

    /// The next signal, or `None` after `patience`.
    #[must_use]
    pub fn wait(&self, patience: Duration) -> Option<Arrived> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        let patience = libc::timespec {
            tv_sec: patience.as_secs() as libc::time_t,
            tv_nsec: patience.subsec_nanos().into(),
        };
        // SAFETY: the set and the timeout are valid, `info` is writable and all-zero bytes are valid for it.
        let (signal, info) = unsafe {
            let signal = libc::sigtimedwait(&self.set, info.as_mut_ptr(), &patience);
            (signal, info.assume_init())
        };
        if signal <= 0 {
            return None;
        }
        let sent = matches!(
            info.si_code,
            libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL
        );
        // SAFETY: for these codes the kernel fills the member that holds the sender.
        let from_process = sent.then(|| unsafe { info.si_pid() });
        Some(Arrived {
            signal,
            from_process,
        })
    }
}

/// Ends this process by `signal`, as the program was ended, without a core dump of its own.
pub fn die_by(signal: i32) -> ! {
    let none = rustix::process::Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    // SAFETY: default action, unblocking and raising touch no memory; the set is written before it is read.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        libc::signal(signal, libc::SIG_DFL);
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), null_mut());
        libc::raise(signal);
    }
    // The first process of a container does not die from default actions; its status is that of a shell in this case.
    std::process::exit(128 + signal)
}
