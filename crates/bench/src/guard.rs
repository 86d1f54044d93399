//! The guard makes sure that the benchmark leaves nothing behind: no swap device, no cgroup, no process.
//!
//! Swap belongs to the whole machine. A benchmark that dies half-way would leave the machine swapping to a device
//! that nobody looks after. So everything that the benchmark creates is recorded *before or as soon as* it is
//! created, in one file that is also the lock:
//!
//! | end | who cleans up |
//! | --- | --- |
//! | normal, error, panic | [`Guard`]'s drop |
//! | SIGINT, SIGTERM, SIGHUP | the worker is killed, the main thread sees that and returns through the drop (see [`crate::worker`]) |
//! | SIGKILL | the kernel kills the worker (parent-death signal); the next run finds the file unlocked and not empty |
//!
//! The kernel keeps the lock (`flock`), so it is never stale. The holder removes the file. A process that gets a lock
//! on a file that has been removed meanwhile tries again, so two processes never hold locks on two files of the same
//! name.

use crate::cgroup::{self, Hierarchy};
use crate::error::{BenchError, Skip};
use crate::{swap_file, zram};
use rustix::fs::FlockOperation;
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FILE: &str = "/run/millpond-bench.lock";
/// The benchmark's cgroup.
const GROUP: &str = "millpond-bench";

/// The things that the benchmark has created.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Made {
    /// The number of a zram device.
    pub zram: Option<u32>,
    /// A file that the kernel swaps to.
    #[serde(default)]
    pub swap_file: Option<PathBuf>,
    /// The path of a cgroup.
    pub cgroup: Option<PathBuf>,
    /// The measured process: its id and its start time, a pair that is never reused.
    pub worker: Option<(i32, u64)>,
}

/// The right to measure, and the duty to clean up.
pub struct Guard {
    file: File,
    path: PathBuf,
    made: Made,
}

impl Guard {
    /// Takes the lock, and removes what a killed run left behind.
    ///
    /// # Errors
    /// When another benchmark runs, or the leftovers cannot be removed.
    pub fn acquire() -> Result<Self, BenchError> {
        Self::acquire_at(Path::new(FILE))
    }

    /// Takes the lock like [`Guard::acquire`] if the user is root. Other users do not change the machine, and need no
    /// lock.
    ///
    /// # Errors
    /// The errors of [`Guard::acquire`].
    pub fn acquire_if_root() -> Result<Option<Self>, BenchError> {
        let is_root = rustix::process::geteuid().is_root();
        is_root.then(Self::acquire).transpose()
    }

    fn acquire_at(path: &Path) -> Result<Self, BenchError> {
        let lock_error = |error| BenchError::Lock {
            path: path.to_owned(),
            error,
        };
        loop {
            let mut options = OpenOptions::new();
            options
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600);
            let mut file = options
                .custom_flags(libc::O_NOFOLLOW)
                .open(path)
                .map_err(lock_error)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(BenchError::Busy(path.to_owned()));
                }
                Err(errno) => return Err(lock_error(errno.into())),
            }
            let held = file.metadata().map_err(lock_error)?.ino();
            if fs::metadata(path).map(|named| named.ino()).ok() != Some(held) {
                continue;
            }
            let mut text = String::new();
            file.read_to_string(&mut text).map_err(lock_error)?;
            // If a kill cut the record short, the thing that was being recorded had not been created yet.
            let left: Made = serde_json::from_str(&text).unwrap_or_default();
            put_back(&left).map_err(BenchError::PutBack)?;
            return Ok(Self {
                file,
                path: path.to_owned(),
                made: Made::default(),
            });
        }
    }

    /// Records a thing that is about to be created, or has just been created.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn record(&mut self, change: impl FnOnce(&mut Made)) -> io::Result<()> {
        change(&mut self.made);
        let text = serde_json::to_string(&self.made)?;
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())
    }

    /// Records and creates the benchmark's cgroup, with a limit of `bytes`.
    ///
    /// # Errors
    /// [`BenchError::Skipped`] with the reason when this machine cannot do it.
    pub fn make_group(&mut self, bytes: u64) -> Result<(Hierarchy, PathBuf), BenchError> {
        let hierarchy = Hierarchy::find()?;
        let group = hierarchy.path_of(GROUP);
        if group.exists() {
            return Err(Skip(format!(
                "{} exists and is not this benchmark's; remove it",
                group.display()
            ))
            .into());
        }
        self.record(|made| made.cgroup = Some(group.clone()))
            .map_err(BenchError::Record)?;
        hierarchy.create(&group, bytes).map_err(|error| {
            Skip(format!(
                "cannot make the cgroup {}: {error}",
                group.display()
            ))
        })?;
        Ok((hierarchy, group))
    }

    /// Creates and records a zram device of `bytes`, and turns on swap to it. Returns its number.
    ///
    /// # Errors
    /// The errors of [`Guard::make_group`].
    pub fn make_zram(&mut self, bytes: u64) -> Result<u32, BenchError> {
        let id = zram::add()?;
        self.record(|made| made.zram = Some(id))
            .map_err(BenchError::Record)?;
        zram::swap_on(id, bytes)?;
        Ok(id)
    }

    /// Records and creates a file of `bytes` in `directory`, and turns on swap to it.
    ///
    /// # Errors
    /// The errors of [`Guard::make_group`].
    pub fn make_swap_file(&mut self, directory: &Path, bytes: u64) -> Result<(), BenchError> {
        let path = swap_file::path_in(directory)?;
        self.record(|made| made.swap_file = Some(path.clone()))
            .map_err(BenchError::Record)?;
        Ok(swap_file::swap_on(&path, bytes)?)
    }

    /// Cleans up now, and reports what could not be removed.
    ///
    /// # Errors
    /// The first thing that could not be removed.
    pub fn finish(mut self) -> Result<(), BenchError> {
        self.restore().map_err(BenchError::PutBack)
    }

    /// Removes everything that was created so far, and keeps the lock: another part needs other sizes.
    ///
    /// # Errors
    /// The first thing that could not be removed.
    pub fn put_back(&mut self) -> Result<(), BenchError> {
        put_back(&self.made).map_err(BenchError::PutBack)?;
        self.record(|made| *made = Made::default())
            .map_err(BenchError::Record)
    }

    fn restore(&mut self) -> io::Result<()> {
        put_back(&self.made)?;
        self.made = Made::default();
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            millpond_cli::print::say(format_args!("{}", BenchError::PutBack(error)));
        }
    }
}

/// Removes what `made` lists, worker and group first: while they live the cgroup cannot be removed, and swap cannot
/// be turned off without reading their memory back.
fn put_back(made: &Made) -> io::Result<()> {
    if let Some((pid, start)) = made.worker {
        end_worker(pid, start);
    }
    let empty = made.cgroup.as_deref().map_or(Ok(()), cgroup::empty);
    let zram = made.zram.map_or(Ok(()), zram::remove);
    let file = made.swap_file.as_deref().map_or(Ok(()), swap_file::remove);
    let cgroup = made.cgroup.as_deref().map_or(Ok(()), cgroup::remove);
    empty.and(zram).and(file).and(cgroup)
}

fn end_worker(pid: i32, start: u64) {
    let Some(pid) = Pid::from_raw(pid) else {
        return;
    };
    // The start time is read after the descriptor is opened: if the time matches, the descriptor is the worker's.
    let Ok(handle) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    if start_time(pid) == Some(start) {
        let _ = rustix::process::pidfd_send_signal(&handle, Signal::KILL);
        let mut ended = [rustix::event::PollFd::new(
            &handle,
            rustix::event::PollFlags::IN,
        )];
        let patience = rustix::event::Timespec {
            tv_sec: 5,
            tv_nsec: 0,
        };
        let _ = rustix::event::poll(&mut ended, Some(&patience));
    }
}

/// The time at which a process started, in clock ticks since boot.
#[must_use]
pub fn start_time(pid: Pid) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name, in parentheses, may contain anything; the fields after it are numbers. This is field 22.
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn second_guard_is_refused_and_no_lock_file_remains() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let first = Guard::acquire_at(&path).unwrap();
        assert!(matches!(Guard::acquire_at(&path), Err(BenchError::Busy(_))));
        first.finish().unwrap();
        assert!(!path.exists());
        drop(Guard::acquire_at(&path).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn worker_of_a_killed_run_is_ended_and_a_truncated_record_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let raw = pid.as_raw_nonzero().get();
        let foreign = Made {
            worker: Some((raw, 1)),
            ..Made::default()
        };
        fs::write(&path, serde_json::to_string(&foreign).unwrap()).unwrap();
        drop(Guard::acquire_at(&path).unwrap());
        assert!(
            child.try_wait().unwrap().is_none(),
            "a process that has the number by chance must live"
        );
        let left = Made {
            worker: start_time(pid).map(|start| (raw, start)),
            ..Made::default()
        };
        fs::write(&path, serde_json::to_string(&left).unwrap()).unwrap();
        drop(Guard::acquire_at(&path).unwrap());
        assert!(!child.wait().unwrap().success());
        fs::write(&path, "{\"zram\":").unwrap();
        drop(Guard::acquire_at(&path).unwrap());
    }
}
