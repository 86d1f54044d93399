//! The programs below a run that have no budget, by name.
//!
//! The program that the user starts is inspected beforehand, and refused if the library cannot enter it. The programs
//! that it starts in turn run in any case: a shell may call a static program, one for another processor, or one that
//! cleared its environment. The kernel manages their memory, and the report's peak used to include it without saying
//! whose it was.
//!
//! The supervisor is not notified of such programs, so it looks for them: twice a second it inspects the descendants of
//! the first process. A program counts as unmanaged if the library was missing from its mappings in two looks, because
//! a program that has just started has not mapped it yet. So programs that end within half a second, and children of
//! ended processes, are not found.
//!
//! A look costs a few reads for each process, and the mappings are read only until the question is settled for the file
//! that the process executes. A process that may not be inspected (another user's) is skipped.

use crate::run::library;
use crate::run::status;
use rustix::process::Pid;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// The time between two looks.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Limits of a look: the threads of one process whose children are searched, and the processes inspected. More would
/// take time from the program.
const THREADS: usize = 64;
const PROCESSES: usize = 256;
/// The number of looks without the library after which a program is unmanaged.
const CERTAIN: u8 = 2;

/// A program without a budget.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Unmanaged {
    /// The program's process.
    pub pid: i32,
    /// The program's name, according to the kernel.
    pub name: String,
    /// The most memory that was resident in the program at any look.
    pub peak_resident_bytes: u64,
}

/// The file that a process executed at the last look, and the number of looks without the library.
struct Seen {
    executes: PathBuf,
    is_managed: bool,
    without: u8,
    program: Unmanaged,
}

/// The processes seen so far.
#[derive(Default)]
pub struct Watch {
    seen: BTreeMap<i32, Seen>,
    ended: Vec<Unmanaged>,
}

impl Watch {
    /// Looks at `root` and at the processes that it started.
    pub fn look(&mut self, root: Pid) {
        let mut queue = vec![root.as_raw_nonzero().get()];
        let mut at = 0;
        while let Some(&pid) = queue.get(at) {
            at += 1;
            self.look_at(pid);
            let room = PROCESSES.saturating_sub(queue.len());
            queue.extend(children(pid).into_iter().take(room));
        }
        // The number of an ended process may belong to another one.
        let gone: Vec<i32> = self
            .seen
            .keys()
            .copied()
            .filter(|pid| !queue.contains(pid))
            .collect();
        for pid in gone {
            self.forget(pid);
        }
    }

    fn look_at(&mut self, pid: i32) {
        let Ok(executes) = fs::read_link(format!("/proc/{pid}/exe")) else {
            return;
        };
        if self
            .seen
            .get(&pid)
            .is_some_and(|seen| seen.executes != executes)
        {
            self.forget(pid);
        }
        let seen = self.seen.entry(pid).or_insert_with(|| Seen {
            executes,
            is_managed: false,
            without: 0,
            program: Unmanaged {
                pid,
                name: String::new(),
                peak_resident_bytes: 0,
            },
        });
        if seen.is_managed {
            return;
        }
        if seen.without < CERTAIN {
            match fs::read_to_string(format!("/proc/{pid}/maps")) {
                Ok(maps) if maps.contains(library::NAME) => seen.is_managed = true,
                Ok(maps) if !maps.is_empty() => seen.without += 1,
                _ => {}
            }
        }
        if let Some((name, peak)) = name_and_peak(&status::of(pid)) {
            seen.program.name = name;
            seen.program.peak_resident_bytes = seen.program.peak_resident_bytes.max(peak);
        }
    }

    fn forget(&mut self, pid: i32) {
        if let Some(seen) = self.seen.remove(&pid)
            && !seen.is_managed
            && seen.without >= CERTAIN
        {
            self.ended.push(seen.program);
        }
    }

    /// The programs that were unmanaged, the largest first.
    #[must_use]
    pub fn found(mut self) -> Vec<Unmanaged> {
        let left: Vec<i32> = self.seen.keys().copied().collect();
        left.into_iter().for_each(|pid| self.forget(pid));
        self.ended
            .sort_by_key(|program| std::cmp::Reverse(program.peak_resident_bytes));
        self.ended
    }
}

/// The children of each thread of a process, if the kernel lists them (`CONFIG_PROC_CHILDREN`).
fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    threads
        .take(THREADS)
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().map(str::parse).collect::<Vec<_>>())
        .flatten()
        .collect()
}

/// The name, and the highest resident set in bytes, from `/proc/PID/status`.
fn name_and_peak(status: &str) -> Option<(String, u64)> {
    let field = |name| status::field(status, name);
    let kib: u64 = field("VmHWM")?.strip_suffix(" kB")?.parse().ok()?;
    Some((field("Name")?.to_owned(), kib << 10))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn name_and_peak_are_read() {
        let status = "Name:\ta program\nUmask:\t0022\nVmHWM:\t    1024 kB\nVmRSS:\t 8 kB\n";
        assert_eq!(
            name_and_peak(status),
            Some(("a program".to_owned(), 1 << 20))
        );
        // This is the status of a process that has ended.
        assert_eq!(name_and_peak("Name:\tsh\nState:\tZ (zombie)\n"), None);
    }

    /// No program of these tests is under a budget.
    #[test]
    fn program_started_by_a_shell_is_found_at_the_second_look() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 30; :"])
            .spawn()
            .unwrap();
        let root = Pid::from_child(&shell);
        while children(root.as_raw_nonzero().get()).is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut watch = Watch::default();
        let names = |watch: Watch| -> Vec<String> {
            watch
                .found()
                .into_iter()
                .map(|program| program.name)
                .collect()
        };
        watch.look(root);
        assert!(watch.seen.len() > 1 && watch.seen.values().all(|seen| seen.without == 1));
        // The child may not have become `sleep` by the first of these looks.
        for _ in 0..3 {
            watch.look(root);
            std::thread::sleep(Duration::from_millis(20));
        }
        for child in children(root.as_raw_nonzero().get()) {
            let _ = rustix::process::kill_process(
                Pid::from_raw(child).unwrap(),
                rustix::process::Signal::KILL,
            );
        }
        shell.wait().unwrap();
        let names = names(watch);
        assert!(
            names.contains(&"sleep".to_owned()) && names.contains(&"sh".to_owned()),
            "{names:?}"
        );
    }
}
