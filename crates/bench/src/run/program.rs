//! The measured process: it starts the program on one side, reads its output, and waits until it ends.
//!
//! The measured process itself stays outside the group. The program enters the group between fork and exec, so that
//! the group is charged only with the program's memory. The output of the program is not kept, but identified by its
//! length and a hash.

use crate::error::Failure;
use crate::order::BenchOrder;
use crate::run::Side;
use crate::worker::tie;
use crate::{cgroup, zram};
use millpond_cli::{run, sibling};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// The time between two readings of the memory of the group and zram together.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// One measurement, except for the program's arguments.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The measured side.
    pub side: Side,
    /// The memory for the program.
    pub ram: u64,
    /// Millpond's store.
    pub store: OsString,
    /// The order of Millpond's folios.
    pub order: BenchOrder,
    /// The memory cgroup that the program enters.
    pub group: Option<PathBuf>,
    /// The zram device whose memory counts with the group's.
    pub zram: Option<u32>,
    /// The maximum time of the program in seconds.
    pub patience: Option<u64>,
}

/// The outcome of a program.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ran {
    /// The time from start to end.
    pub seconds: f64,
    /// Processor time of the program and of the children that it waited for.
    pub cpu_seconds: f64,
    /// Largest resident set among these processes, as counted by the kernel.
    pub peak_rss_bytes: u64,
    /// Length and hash of the program's output.
    pub output: (u64, u64),
    /// The program's exit status; for a signal, the signal's number plus 128.
    pub status: i32,
    /// Whether the program was ended because it took too long.
    #[serde(default)]
    pub is_over_time: bool,
    /// The peak memory of the group and zram together, if both were watched.
    #[serde(default)]
    pub together_bytes: Option<u64>,
    /// How many processes the kernel killed because memory ran out.
    #[serde(default)]
    pub oom_kills: u64,
}

/// Runs `program`, whose first word is its name.
///
/// # Errors
/// When the program cannot be started.
pub fn work(task: &Task, program: &[OsString]) -> Result<Ran, Failure> {
    let [name, arguments @ ..] = program else {
        return Err("no program is named".into());
    };
    let mut command = command(task, name, arguments)?;
    // The program's standard error is not compared, and is discarded on every side.
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    tie(&mut command, Signal::KILL);
    if let Some(group) = &task.group {
        let procs = open_procs(group)?;
        // SAFETY: the closure only makes a system call and neither allocates nor locks, as required after a fork.
        unsafe { command.pre_exec(move || Ok(rustix::io::write(&procs, b"0").map(drop)?)) };
    }
    let started = Instant::now();
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", name.display()))?;
    let (ended, end) = mpsc::channel::<()>();
    let follow = task
        .zram
        .zip(task.group.clone())
        .map(|(id, group)| thread::spawn(move || most_together(id, &group, &end)));
    let (over, bound) = mpsc::channel::<()>();
    let bounded = task.patience.map(|seconds| {
        let (pid, group) = (Pid::from_child(&child), task.group.clone());
        thread::spawn(move || keep_in_time(seconds, pid, group.as_deref(), &bound))
    });
    let output = hash(child.stdout.take());
    let (status, usage) = wait(&child)?;
    let seconds = started.elapsed().as_secs_f64();
    drop((ended, over));
    let is_over_time = match bounded {
        Some(thread) => thread.join().map_err(|_| "cannot watch the time")?,
        None => false,
    };
    let followed = follow.map(thread::JoinHandle::join).transpose();
    let together_bytes = followed.map_err(|_| "cannot follow zram's memory")?;
    Ok(Ran {
        seconds,
        cpu_seconds: run::cpu_time(&usage).as_secs_f64(),
        peak_rss_bytes: (usage.ru_maxrss as u64) << 10,
        output: output?,
        status: status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        is_over_time,
        together_bytes,
        oom_kills: task.group.as_deref().map_or(0, cgroup::oom_kills),
    })
}

/// Ends the program if it still runs after `seconds`, together with all processes that it has started if there is a
/// group that lists them. Returns whether it did.
fn keep_in_time(seconds: u64, pid: Pid, group: Option<&Path>, end: &mpsc::Receiver<()>) -> bool {
    if end.recv_timeout(Duration::from_secs(seconds)) != Err(RecvTimeoutError::Timeout) {
        return false;
    }
    let ended = group.map(cgroup::empty);
    if !matches!(ended, Some(Ok(()))) {
        // `millpond run` forwards this signal to its program.
        let _ = rustix::process::kill_process(pid, Signal::TERM);
    }
    true
}

fn command(task: &Task, name: &OsStr, arguments: &[OsString]) -> io::Result<Command> {
    if task.side != Side::Millpond {
        let mut command = Command::new(name);
        command.args(arguments);
        return Ok(command);
    }
    let mut command = Command::new(sibling::find(sibling::MILLPOND)?);
    command
        .args(["run", "--report", "none", "--ram", &task.ram.to_string()])
        .arg("--store")
        .arg(&task.store)
        .args(["--order", &task.order.to_string(), "--"])
        .arg(name)
        .args(arguments);
    Ok(command)
}

fn open_procs(group: &Path) -> io::Result<File> {
    File::options().write(true).open(cgroup::procs(group))
}

/// Returns the peak memory of the group and the device together until the program has ended.
fn most_together(id: u32, group: &Path, end: &mpsc::Receiver<()>) -> u64 {
    let mut most = 0;
    while end.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        if let (Some(used), Some(stored)) = (cgroup::usage(group), zram::memory_used(id)) {
            most = most.max(used + stored);
        }
    }
    most
}

fn hash(output: Option<impl Read>) -> io::Result<(u64, u64)> {
    let (mut hasher, mut length) = (DefaultHasher::new(), 0);
    let Some(mut output) = output else {
        return Ok((length, hasher.finish()));
    };
    let mut part = [0; 1 << 16];
    loop {
        match output.read(&mut part) {
            Ok(0) => return Ok((length, hasher.finish())),
            Ok(read) => {
                hasher.write(&part[..read]);
                length += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn wait(child: &Child) -> io::Result<(ExitStatus, libc::rusage)> {
    loop {
        match run::reap(Pid::from_child(child), 0) {
            Ok(Some(ended)) => return Ok(ended),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_for(patience: Option<u64>, program: &[&str]) -> Result<Ran, Failure> {
        let task = Task {
            side: Side::Unlimited,
            ram: 1 << 30,
            store: "auto".into(),
            order: "adaptive".parse().unwrap(),
            group: None,
            zram: None,
            patience,
        };
        let program: Vec<OsString> = program.iter().map(OsString::from).collect();
        work(&task, &program)
    }

    fn run(script: &str) -> Ran {
        run_for(None, &["/bin/sh", "-c", script]).unwrap()
    }

    #[test]
    fn runs_differ_by_output_and_by_exit_status() {
        let one = run("echo one; echo unheard >&2");
        assert_eq!((one.output.0, one.status), (4, 0));
        assert!(one.seconds > 0.0 && one.peak_rss_bytes > 100_000);
        assert_eq!(run("echo one").output, one.output);
        assert_ne!(run("echo two").output, one.output);
        assert_eq!(run("exit 7").status, 7);
        assert_eq!(run("kill -KILL $$").status, 137);
    }

    #[test]
    fn a_program_that_takes_too_long_is_ended() {
        let ran = run_for(Some(1), &["/bin/sleep", "1000"]).unwrap();
        assert!(ran.is_over_time && ran.status == 128 + 15 && ran.seconds < 100.0);
        assert!(!run_for(Some(1), &["/bin/true"]).unwrap().is_over_time);
    }

    #[test]
    fn missing_program_is_named_in_the_error() {
        let error = run_for(None, &["/none/such"]).unwrap_err();
        assert!(error.to_string().contains("/none/such"));
    }
}
