//! The measured processes: each measurement runs in a fresh process of this executable, and none outlives the
//! benchmark.
//!
//! A fresh process is used each time, because a used heap, a warm cache of the manager or a cgroup entered too late
//! would favour one side. It starts with free memory that the host backs (`warm.rs`). Signals that ask the benchmark
//! to end are blocked in the main thread and fetched by a dedicated thread, which kills the worker. The main thread
//! then sees its worker end, and returns through its guards.

use crate::error::BenchError;
use crate::guard::{self, Guard};
use crate::jobs::Job;
use crate::warm;
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::de::DeserializeOwned;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

const ENDING: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

#[derive(Debug, Default)]
struct Shared {
    /// The signal that ended the benchmark.
    caught: Option<i32>,
    /// The running worker.
    worker: Option<OwnedFd>,
}

/// A runner of workers, one at a time.
#[derive(Debug)]
pub struct Workers {
    shared: Arc<Mutex<Shared>>,
    /// How much free memory is backed before a worker starts.
    warm_bytes: usize,
}

impl Workers {
    /// Blocks the signals and starts the thread that waits for them. Must be called before any other thread is
    /// started.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn new() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the set is writable and owned here; blocking signals touches no other memory.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in ENDING {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            set.assume_init()
        };
        let shared = Arc::new(Mutex::new(Shared::default()));
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                loop {
                    let mut signal = 0;
                    // SAFETY: the set is valid and `signal` is writable; the call waits and touches nothing else.
                    if unsafe { libc::sigwait(&set, &mut signal) } == 0 {
                        let mut shared = theirs.lock().unwrap_or_else(PoisonError::into_inner);
                        shared.caught.get_or_insert(signal);
                        if let Some(worker) = &shared.worker {
                            let _ = rustix::process::pidfd_send_signal(worker, Signal::KILL);
                        }
                    }
                }
            })?;
        Ok(Self {
            shared,
            warm_bytes: warm::BYTES,
        })
    }

    /// Sets how much memory a worker takes, so that no more is backed for it.
    pub fn take(&mut self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.warm_bytes = bytes.min(warm::BYTES);
    }

    /// Fails when a signal has ended the benchmark.
    ///
    /// # Errors
    /// [`BenchError::Interrupted`] with the signal.
    pub fn check(&self) -> Result<(), BenchError> {
        match self.lock().caught {
            Some(signal) => Err(BenchError::Interrupted(signal)),
            None => Ok(()),
        }
    }

    /// Does `job` in a fresh process, and returns what it measured. The process is recorded in `guard`.
    ///
    /// # Errors
    /// When the worker cannot be started, fails, or a signal ended the benchmark.
    pub fn measure<T: DeserializeOwned>(
        &self,
        job: &Job,
        guard: Option<&mut Guard>,
    ) -> Result<T, BenchError> {
        let mut command = Command::new("/proc/self/exe");
        command.args(job.to_arguments()?);
        self.measure_command(command, guard)
    }

    /// Measures like [`Workers::measure`], with a command that becomes such a process or prints the same output.
    ///
    /// # Errors
    /// The errors of [`Workers::measure`].
    pub fn measure_command<T: DeserializeOwned>(
        &self,
        mut command: Command,
        guard: Option<&mut Guard>,
    ) -> Result<T, BenchError> {
        warm::up(self.warm_bytes);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // SAFETY: the closure makes one system call and neither allocates nor locks, as required after a fork.
        unsafe {
            command.pre_exec(|| {
                Ok(rustix::process::set_parent_process_death_signal(Some(
                    Signal::KILL,
                ))?)
            });
        }
        // The lock is held, so a signal is handled either before the worker starts, or when there is a worker to
        // kill.
        let child = {
            let mut shared = self.lock();
            if let Some(signal) = shared.caught {
                return Err(BenchError::Interrupted(signal));
            }
            let mut child = command.spawn().map_err(BenchError::Start)?;
            let pid = Pid::from_child(&child);
            let known =
                rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(io::Error::from);
            let recorded = known.and_then(|handle| {
                shared.worker = Some(handle);
                let number = pid.as_raw_nonzero().get();
                let started = guard::start_time(pid).unwrap_or(0);
                guard.map_or(Ok(()), |guard| {
                    guard.record(|made| made.worker = Some((number, started)))
                })
            });
            if let Err(error) = recorded {
                shared.worker = None;
                child
                    .kill()
                    .and_then(|()| child.wait())
                    .map_err(BenchError::Start)?;
                return Err(BenchError::Start(error));
            }
            child
        };
        let output = child.wait_with_output();
        self.lock().worker = None;
        self.check()?;
        let output = output.map_err(BenchError::Start)?;
        if output.status.signal() == Some(libc::SIGKILL) {
            return Err(BenchError::Killed);
        }
        if !output.status.success() {
            return Err(BenchError::Worker(output.status.to_string()));
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|error| BenchError::Worker(format!("gave no result: {error}")))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ties the program of `command` to the process that starts it: the program gets `signal` when that process ends. It
/// also receives the signals that the benchmark itself fetches: otherwise it would inherit the benchmark's mask, and
/// a server that is ended by SIGTERM would run for ever.
pub fn tie(command: &mut Command, signal: Signal) {
    // SAFETY: the closure only makes system calls and neither allocates nor locks, as required after a fork.
    unsafe {
        command.pre_exec(move || {
            unblock_signals();
            Ok(rustix::process::set_parent_process_death_signal(Some(
                signal,
            ))?)
        });
    }
}

/// Called between fork and exec, so it neither allocates nor locks.
fn unblock_signals() {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is writable and owned here; unblocking signals touches no other memory.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in ENDING {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}
