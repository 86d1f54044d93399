//! The things that a benchmark could leave behind on the machine.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub const LOCK: &str = "/run/millpond-bench.lock";

/// Locks out other tests, because the benchmark allows only one run at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Everything that the benchmark could leave behind.
#[derive(PartialEq, Debug)]
pub struct Machine {
    pub swaps: String,
    devices: Vec<String>,
    groups: Vec<&'static str>,
    huge_pages: Option<String>,
    pub lock: bool,
    swap_file: bool,
}

impl Machine {
    /// This state without the lock of a benchmark that has ended meanwhile.
    pub fn unlocked(self) -> Self {
        Self {
            lock: false,
            ..self
        }
    }
}

pub fn machine() -> Machine {
    let mut devices: Vec<String> = fs::read_dir("/sys/block")
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    devices.sort();
    let groups = [
        "/sys/fs/cgroup/memory/millpond-bench",
        "/sys/fs/cgroup/millpond-bench",
    ];
    Machine {
        swaps: fs::read_to_string("/proc/swaps").unwrap(),
        devices,
        groups: groups
            .into_iter()
            .filter(|group| Path::new(group).exists())
            .collect(),
        huge_pages: fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok(),
        lock: Path::new(LOCK).exists(),
        swap_file: Path::new("/var/tmp/millpond-bench.swap").exists(),
    }
}
