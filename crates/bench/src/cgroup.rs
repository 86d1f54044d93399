//! The benchmark's own memory cgroup, version 1 or 2.

use crate::error::Skip;
use rustix::process::{Pid, Signal};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

/// No limit: more than any machine has.
pub const UNLIMITED: u64 = 1 << 60;

/// The hierarchy in which memory cgroups can be created on this machine.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    /// The hierarchy's version: 1 or 2.
    pub version: u8,
    root: PathBuf,
}

impl Hierarchy {
    /// Finds the mounted hierarchy that has the memory controller.
    ///
    /// # Errors
    /// When there is no such hierarchy, or it does not accept new groups.
    pub fn find() -> Result<Self, Skip> {
        let mounts = procfs::mounts().map_err(|e| Skip(format!("no mounts can be read: {e}")))?;
        let mut closed = None;
        for mount in mounts {
            let (root, kind) = (PathBuf::from(mount.fs_file), mount.fs_vfstype);
            if kind == "cgroup" && mount.fs_mntops.contains_key("memory") {
                return Ok(Self { version: 1, root });
            }
            if kind == "cgroup2" && has_word(&root.join("cgroup.controllers"), "memory") {
                let control = root.join("cgroup.subtree_control");
                if has_word(&control, "memory") {
                    return Ok(Self { version: 2, root });
                }
                closed = Some(format!(
                    "memory groups are not enabled; `echo +memory > {}` does it",
                    control.display()
                ));
            }
        }
        Err(Skip(closed.unwrap_or_else(|| {
            "no cgroup hierarchy with the memory controller is mounted".to_owned()
        })))
    }

    /// The path that a group called `name` will have.
    #[must_use]
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Creates the group with a memory limit of `bytes` and no limit on swap.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn create(&self, path: &Path, bytes: u64) -> io::Result<()> {
        fs::create_dir(path)?;
        set_limit(path, bytes)
    }

    /// How eagerly the kernel swaps for the group at `path`: its own setting in version 1, the machine's in version 2.
    #[must_use]
    pub fn swappiness(&self, path: &Path) -> Option<u32> {
        let own = path.join("memory.swappiness");
        let file = if self.version == 1 {
            own
        } else {
            "/proc/sys/vm/swappiness".into()
        };
        fs::read_to_string(file).ok()?.trim().parse().ok()
    }
}

fn has_word(file: &Path, word: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.split_whitespace().any(|w| w == word))
}

/// Limits the memory of the group at `path`, of either version.
///
/// # Errors
/// When the kernel refuses, as it does for a limit that it cannot reach by reclaim at once.
pub fn set_limit(path: &Path, bytes: u64) -> io::Result<()> {
    let limit = ["memory.limit_in_bytes", "memory.max"]
        .map(|name| path.join(name))
        .into_iter()
        .find(|file| file.exists())
        .ok_or(io::ErrorKind::NotFound)?;
    fs::write(limit, bytes.to_string())
}

/// The peak memory of the group at `path`, if the kernel reports it.
#[must_use]
pub fn peak(path: &Path) -> Option<u64> {
    let text = read(path, ["memory.max_usage_in_bytes", "memory.peak"])?;
    text.trim().parse().ok()
}

/// The current memory of the group at `path`.
#[must_use]
pub fn usage(path: &Path) -> Option<u64> {
    let text = read(path, ["memory.usage_in_bytes", "memory.current"])?;
    text.trim().parse().ok()
}

/// How many processes of the group at `path` the kernel has killed because memory ran out.
#[must_use]
pub fn oom_kills(path: &Path) -> u64 {
    let text = read(path, ["memory.oom_control", "memory.events"]);
    let killed = text.as_deref().unwrap_or_default().lines();
    killed
        .filter_map(|line| line.strip_prefix("oom_kill "))
        .find_map(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

/// Reads a file of the group at `path`, which `names` gives for version 1 and version 2.
fn read(path: &Path, names: [&str; 2]) -> Option<String> {
    let mut names = names.into_iter();
    names.find_map(|name| fs::read_to_string(path.join(name)).ok())
}

/// The file that lists the processes of the group at `path`. Writing to it moves a process into the group.
#[must_use]
pub fn procs(path: &Path) -> PathBuf {
    path.join("cgroup.procs")
}

/// Moves the calling process into the group at `path`. Memory that it touched before stays charged where it was.
///
/// # Errors
/// When the kernel refuses.
pub fn enter(path: &Path) -> io::Result<()> {
    fs::write(procs(path), std::process::id().to_string())
}

/// Ends the processes that a measured program left in the group at `path`, and waits until they are gone.
///
/// # Errors
/// When a process is still there after two seconds.
pub fn empty(path: &Path) -> io::Result<()> {
    retry(|| {
        // A group that does not exist has no processes.
        let members = fs::read_to_string(procs(path)).unwrap_or_default();
        for pid in members.lines().filter_map(|pid| pid.parse().ok()) {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        if members.is_empty() {
            Ok(())
        } else {
            Err(io::ErrorKind::ResourceBusy.into())
        }
    })
}

/// Removes the group at `path`, if it exists. A process that has just ended may hold it for a moment.
///
/// # Errors
/// When the group is still in use after two seconds.
pub fn remove(path: &Path) -> io::Result<()> {
    retry(|| match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    })
}

/// Repeats `attempt` until it succeeds, for two seconds at most.
pub fn retry<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..100 {
        if let Ok(done) = attempt() {
            return Ok(done);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    attempt()
}
