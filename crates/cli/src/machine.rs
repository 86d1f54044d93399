//! The parts of the machine that matter to Millpond: kernel, processors, memory and its limits, and the settings of
//! userfaultfd.

use crate::size::Human;
use procfs::MountEntry;
use serde::Serialize;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

/// The findings. Null means that this kernel does not have the item, or that it may not be read.
#[derive(Debug, Serialize)]
pub struct Machine {
    kernel: String,
    architecture: String,
    cores: usize,
    ram_bytes: Option<u64>,
    /// `always`, `madvise` or `never`.
    transparent_huge_pages: Option<String>,
    /// The tightest memory limit of the cgroups that this process is in.
    cgroup_limit: Option<CgroupLimit>,
    userfaultfd_device: Option<Device>,
    /// `vm.unprivileged_userfaultfd`.
    unprivileged_userfaultfd: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct CgroupLimit {
    version: u8,
    bytes: u64,
    /// The group that has the limit.
    group: String,
}

#[derive(Debug, Serialize)]
struct Device {
    /// Permission bits in octal.
    mode: String,
    owner: u32,
    group: u32,
    /// Whether this process may open it for reading and writing.
    usable: bool,
}

impl Machine {
    /// Inspects the machine.
    #[must_use]
    pub fn look() -> Self {
        let uname = rustix::system::uname();
        let sysctl = read("/proc/sys/vm/unprivileged_userfaultfd");
        Self {
            kernel: uname.release().to_string_lossy().into_owned(),
            architecture: uname.machine().to_string_lossy().into_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            ram_bytes: ram_bytes(),
            transparent_huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| chosen(&text)),
            cgroup_limit: cgroup_limit(),
            userfaultfd_device: device("/dev/userfaultfd"),
            unprivileged_userfaultfd: sysctl.map(|text| text.trim() == "1"),
        }
    }
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn ram(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()
        .map(|kib| kib << 10)
}

/// The word in brackets of a setting such as `always [madvise] never`.
fn chosen(setting: &str) -> Option<String> {
    let (_, rest) = setting.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

fn device(path: &str) -> Option<Device> {
    let metadata = fs::metadata(path).ok()?;
    let access = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
    Some(Device {
        mode: format!("{:o}", metadata.permissions().mode() & 0o7777),
        owner: metadata.uid(),
        group: metadata.gid(),
        usable: rustix::fs::access(path, access).is_ok(),
    })
}

/// The memory that this process may have: the tightest limit of its control groups, or the machine's, in bytes.
pub fn room() -> Option<u64> {
    let limit = cgroup_limit().map(|limit| limit.bytes);
    limit.into_iter().chain(ram_bytes()).min()
}

fn ram_bytes() -> Option<u64> {
    ram(&read("/proc/meminfo")?)
}

fn cgroup_limit() -> Option<CgroupLimit> {
    let limits = memory_groups().into_iter().filter_map(|found| {
        let (bytes, group) = tightest(&found.root, &found.group, found.limit())?;
        Some(CgroupLimit {
            version: found.version,
            bytes,
            group,
        })
    });
    limits.min_by_key(|limit| limit.bytes)
}

/// The number of processes that the kernel has killed for lack of memory in this process's control groups.
pub fn oom_kills() -> u64 {
    let kills = memory_groups().into_iter().filter_map(|found| {
        let (text, _) = around(&found.root, &found.group, found.events()).next()?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("oom_kill "))?;
        line.trim().parse::<u64>().ok()
    });
    kills.max().unwrap_or(0)
}

/// A control group of this process that counts memory.
struct MemoryGroup {
    version: u8,
    root: PathBuf,
    group: String,
}

impl MemoryGroup {
    fn limit(&self) -> &'static str {
        match self.version {
            1 => "memory.limit_in_bytes",
            _ => "memory.max",
        }
    }

    fn events(&self) -> &'static str {
        match self.version {
            1 => "memory.oom_control",
            _ => "memory.events",
        }
    }
}

fn memory_groups() -> Vec<MemoryGroup> {
    let (Some(groups), Ok(mounts)) = (read("/proc/self/cgroup"), procfs::mounts()) else {
        return Vec::new();
    };
    let found = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
        let (version, kind) = match controllers {
            "" => (2, "cgroup2"),
            list if list.split(',').any(|c| c == "memory") => (1, "cgroup"),
            _ => return None,
        };
        let root = mount_of(&mounts, kind)?;
        Some(MemoryGroup {
            version,
            root: root.into(),
            group: group.into(),
        })
    });
    found.collect()
}

fn mount_of<'a>(mounts: &'a [MountEntry], kind: &str) -> Option<&'a str> {
    let has_memory =
        |mount: &MountEntry| kind == "cgroup2" || mount.fs_mntops.contains_key("memory");
    mounts
        .iter()
        .find(|mount| mount.fs_vfstype == kind && has_memory(mount))
        .map(|mount| mount.fs_file.as_str())
}

/// The texts of the file in `group` and in its ancestors, each with its group. In a container the group's name may be
/// that of the host and may not be found; then the mounted root is used instead.
fn around<'a>(
    root: &'a Path,
    group: &'a str,
    file: &'a str,
) -> impl Iterator<Item = (String, &'a Path)> {
    Path::new(group).ancestors().filter_map(move |group| {
        let inside = group.strip_prefix("/").unwrap_or(group);
        Some((read(root.join(inside).join(file))?, group))
    })
}

/// The lowest limit of `group` and its ancestors: the kernel enforces all of them.
fn tightest(root: &Path, group: &str, file: &str) -> Option<(u64, String)> {
    // Version 1 expresses "no limit" as the largest multiple of a page, version 2 as `max`.
    const NONE: u64 = 1 << 62;
    let limits = around(root, group, file).filter_map(|(text, group)| {
        let bytes = text.trim().parse().ok()?;
        (bytes < NONE).then(|| (bytes, group.to_string_lossy().into_owned()))
    });
    limits.min_by_key(|(bytes, _)| *bytes)
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = || "unknown".to_owned();
        let row =
            |f: &mut fmt::Formatter<'_>, name, value: String| writeln!(f, "  {name:<27} {value}");
        row(
            f,
            "kernel",
            format!("Linux {} on {}", self.kernel, self.architecture),
        )?;
        row(f, "processors", self.cores.to_string())?;
        row(
            f,
            "RAM",
            self.ram_bytes
                .map_or_else(unknown, |bytes| Human(bytes).to_string()),
        )?;
        row(
            f,
            "transparent huge pages",
            self.transparent_huge_pages.clone().unwrap_or_else(unknown),
        )?;
        let limit = self
            .cgroup_limit
            .as_ref()
            .map_or("none".to_owned(), |limit| {
                format!(
                    "{} (version {}, {})",
                    Human(limit.bytes),
                    limit.version,
                    limit.group
                )
            });
        row(f, "memory cgroup limit", limit)?;
        let device = self
            .userfaultfd_device
            .as_ref()
            .map_or("not there".to_owned(), |device| {
                let usable = if device.usable {
                    "usable"
                } else {
                    "not usable by this user"
                };
                format!(
                    "mode {}, owner {}:{}, {usable}",
                    device.mode, device.owner, device.group
                )
            });
        row(f, "/dev/userfaultfd", device)?;
        let sysctl = self
            .unprivileged_userfaultfd
            .map_or_else(unknown, |on| u8::from(on).to_string());
        write!(f, "  {:<27} {sysctl}", "vm.unprivileged_userfaultfd")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromBufRead;

    #[test]
    fn kernel_settings_and_sizes_are_parsed() {
        assert_eq!(
            chosen("always [madvise] never\n").as_deref(),
            Some("madvise")
        );
        assert_eq!(chosen("always"), None);
        assert_eq!(
            ram("MemTotal:       24684092 kB\nMemFree: 1 kB\n"),
            Some(24_684_092 << 10)
        );
        assert_eq!(ram("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn the_mount_with_the_memory_controller_is_found() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup /cg/mem cgroup rw,memory 0 0\ncgroup2 /u cgroup2 rw 0 0\n";
        let mounts = Vec::<MountEntry>::from_buf_read(mounts.as_bytes()).unwrap();
        assert_eq!(mount_of(&mounts, "cgroup"), Some("/cg/mem"));
        assert_eq!(mount_of(&mounts, "cgroup2"), Some("/u"));
        assert_eq!(mount_of(&[], "cgroup2"), None);
    }

    #[test]
    fn the_tightest_limit_around_counts() {
        let root = tempfile::tempdir().unwrap();
        let put = |group: &str, text: &str| {
            let directory = root.path().join(group);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("memory.max"), text).unwrap();
        };
        put("a", "1000\n");
        put("a/b", "5000\n");
        put("a/b/c", "max\n");
        let found = tightest(root.path(), "/a/b/c", "memory.max");
        assert_eq!(found, Some((1000, "/a".to_owned())));
        put("", "9223372036854771712\n");
        assert_eq!(tightest(root.path(), "/", "memory.max"), None);
    }
}
