//! Starts the program, watches it from outside, and waits for its end.

use crate::machine;
use crate::run::deaf::{self, Deafness};
use crate::run::signals::{Arrived, Signals};
use crate::run::unmanaged::{LOOK_EVERY, Unmanaged, Watch};
use procfs::process::Process;
use rustix::process::{Pid, Signal};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// The least time between two looks at the program.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// The part of the time that is spent on looks at the program's resident set, as a divisor. One look walks the page
/// tables of the whole program, which takes milliseconds for some hundred MiB. With a fixed ten looks a second, sqlite3
/// with a database of 16 MiB spent 3 % of its processor time on them.
const LOOK_SHARE: u32 = 100;

/// The outcome of the program, as seen from outside.
pub struct Outcome {
    /// The program's exit status.
    pub status: ExitStatus,
    /// The time from the program's start to its end.
    pub wall: Duration,
    /// Processor time of the program and of all its children that it waited for.
    pub cpu: Duration,
    /// Highest `Rss` seen in `/proc/PID/smaps_rollup`, in bytes; zero if it was never read.
    pub sampled_rss: u64,
    /// The highest resident set of the program and of its children, in bytes, according to the kernel's own high-water
    /// mark.
    pub kernel_max_rss: u64,
    /// Programs without a budget that the program started.
    pub unmanaged: Vec<Unmanaged>,
    /// The program's first process.
    pub pid: u32,
    /// The number of processes that the kernel killed for lack of memory during the run, in this process's control
    /// groups.
    pub oom_kills: u64,
    /// The memory of the control group or of the machine, whichever is less, in bytes, if it is known.
    pub room: Option<u64>,
}

/// Runs `file` under the name `argv[0]` with the rest of `argv` and `variables`, until it ends. Calls `look` ten times
/// a second until then.
///
/// # Errors
/// When the program cannot be started.
pub fn supervise(
    file: &Path,
    argv: &[OsString],
    variables: &[(&str, OsString)],
    look: &mut dyn FnMut(),
) -> io::Result<Outcome> {
    let signals = Signals::take();
    let mut restore = signals.restorer();
    let supervisor = rustix::process::getpid();
    let mut command = Command::new(file);
    command.arg0(&argv[0]).args(&argv[1..]);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    // SAFETY: the closure makes system calls only (no allocation, no lock), as is required between fork and exec.
    unsafe {
        command.pre_exec(move || {
            // A killed supervisor must not leave an orphan without a board. The signal is sent when the parent dies
            // *after* this call, so a parent that is already dead has to be detected here.
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            if rustix::process::getppid() != Some(supervisor) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            restore()
        });
    }
    let started = Instant::now();
    let child = Pid::from_child(&command.spawn()?);
    let killed_before = machine::oom_kills();
    let mut sampled_rss = 0;
    let (mut next_sample, mut next_rss) = (started, started);
    let mut watch = Watch::default();
    let mut next_look = started + SAMPLE_EVERY;
    let mut deafness = Deafness::default();
    loop {
        if let Some((status, usage)) = reap(child, libc::WNOHANG)? {
            return Ok(Outcome {
                status,
                wall: started.elapsed(),
                cpu: cpu_time(&usage),
                sampled_rss,
                kernel_max_rss: (usage.ru_maxrss as u64) << 10,
                unmanaged: watch.found(),
                pid: child.as_raw_nonzero().get() as u32,
                oom_kills: machine::oom_kills().saturating_sub(killed_before),
                room: machine::room(),
            });
        }
        let now = Instant::now();
        if now >= next_sample {
            if now >= next_rss {
                sampled_rss = sampled_rss.max(resident(child).unwrap_or(0));
                next_rss = now + pause_after(now.elapsed());
            }
            end_if_deaf(&mut deafness, child, &argv[0]);
            look();
            next_sample = Instant::now() + SAMPLE_EVERY;
        }
        if now >= next_look {
            watch.look(child);
            next_look = Instant::now() + LOOK_EVERY;
        }
        let Some(arrived) = signals.wait(next_sample.saturating_duration_since(Instant::now()))
        else {
            continue;
        };
        if arrived.signal != libc::SIGCHLD {
            hand_on(&arrived, child, &mut deafness);
        }
    }
}

/// The time from the start of a look that took `look` to the next.
fn pause_after(look: Duration) -> Duration {
    SAMPLE_EVERY.max(look * LOOK_SHARE)
}

/// Forwards a signal to the program, unless the program already has it. That is the case for signals that it sends to
/// its own whole group, and for those that the terminal sends to the whole foreground group.
fn hand_on(arrived: &Arrived, child: Pid, deafness: &mut Deafness) {
    let program = child.as_raw_nonzero().get();
    if arrived.from_process == Some(program) {
        return;
    }
    if arrived.from_process.is_some() {
        // SAFETY: the child is not reaped yet, so the number is still its own; the call touches no memory.
        unsafe { libc::kill(program, arrived.signal) };
    }
    deafness.sent(arrived.signal);
}

/// Checks whether the program takes the signals that it was sent, and acts on the result.
fn end_if_deaf(deafness: &mut Deafness, child: Pid, name: &OsStr) {
    if !deafness.is_asked() {
        return;
    }
    let program = child.as_raw_nonzero().get();
    let Some(step) = deafness.look(deaf::state_of(program)) else {
        return;
    };
    let line = step.line(&name.to_string_lossy(), program);
    let _ = writeln!(io::stderr(), "{line}");
    if matches!(step, deaf::Step::End(_)) {
        // SAFETY: the child is not reaped yet, so the number is still its own; the call touches no memory.
        unsafe { libc::kill(program, libc::SIGKILL) };
    }
}

/// The status of a child for which only this process waits, and the resources that it used, if it has ended. With
/// `flags` zero the call waits until it has ended.
///
/// # Errors
/// When a signal came first, or `child` is not a child of this process.
pub fn reap(child: Pid, flags: i32) -> io::Result<Option<(ExitStatus, libc::rusage)>> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both results are writable and owned here, and all-zero bytes are a valid `rusage`.
    let (answer, usage) = unsafe {
        let answer = libc::wait4(
            child.as_raw_nonzero().get(),
            &mut status,
            flags,
            usage.as_mut_ptr(),
        );
        (answer, usage.assume_init())
    };
    match answer {
        0 => Ok(None),
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(Some((ExitStatus::from_raw(status), usage))),
    }
}

/// Processor time of a child and of the children for which it waited.
#[must_use]
pub fn cpu_time(usage: &libc::rusage) -> Duration {
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// `Rss` of `/proc/PID/smaps_rollup` in bytes. `None` for a process that has ended or that may not be inspected.
fn resident(pid: Pid) -> Option<u64> {
    let process = Process::new(pid.as_raw_nonzero().get()).ok()?;
    let rollup = process.smaps_rollup().ok()?.memory_map_rollup;
    rollup.iter().next()?.extension.map.get("Rss").copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_program_is_sampled_less_often() {
        assert_eq!(pause_after(Duration::from_micros(50)), SAMPLE_EVERY);
        assert_eq!(
            pause_after(Duration::from_millis(5)),
            Duration::from_millis(500)
        );
    }
}
