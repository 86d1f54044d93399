//! The control group files, of both versions, that report how much memory the group may use and does use.
//!
//! A file counts if its directory is the control group of this process or an ancestor of it: its path below the mount
//! is a prefix of the path in `/proc/self/cgroup`. A sibling's file concerns only the sibling.

use crate::words::{number, read_path};

/// A file of a control group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum File {
    /// The maximum that the group may use (`memory.max`, `memory.high`, `memory.limit_in_bytes`).
    Limit,
    /// What the group uses (`memory.current`, `memory.usage_in_bytes`).
    Usage,
    /// The maximum swap that the group may use in addition to memory (`memory.swap.max`).
    Swap,
}

impl File {
    /// Returns the kind of the file with this name.
    pub fn named(name: &[u8]) -> Option<Self> {
        match name {
            // Memory and swap together are no more than memory: there is no swap to rely on.
            b"memory.max"
            | b"memory.high"
            | b"memory.limit_in_bytes"
            | b"memory.memsw.limit_in_bytes" => Some(Self::Limit),
            b"memory.swap.max" => Some(Self::Swap),
            b"memory.current" | b"memory.usage_in_bytes" => Some(Self::Usage),
            _ => None,
        }
    }

    /// Returns what the file says in place of `text`, given the budget and what is left of it, in bytes.
    pub fn says(self, text: &[u8], budget: u64, left: u64) -> u64 {
        match self {
            // A group without a limit says `max`, or the largest possible number.
            Self::Limit => number(text).map_or(budget, |limit| limit.min(budget)),
            Self::Usage => budget.saturating_sub(left),
            Self::Swap => 0,
        }
    }
}

/// Returns whether the control group at `path`, below a control group mount, is this process's own or an ancestor of
/// it.
pub fn is_above_us(path: &[u8]) -> bool {
    let mut text = [0; 2048];
    read_path(c"/proc/self/cgroup", &mut text).is_some_and(|text| is_above(path, text))
}

/// The same for the groups listed in `/proc/self/cgroup`: lines of a number, controllers, and a path.
fn is_above(path: &[u8], own: &[u8]) -> bool {
    own.split(|&byte| byte == b'\n').any(|line| {
        let mut parts = line.splitn(3, |&byte| byte == b':');
        let (Some(_), Some(controllers), Some(own)) = (parts.next(), parts.next(), parts.next())
        else {
            return false;
        };
        let has_memory = controllers.is_empty()
            || controllers
                .split(|&byte| byte == b',')
                .any(|name| name == b"memory");
        has_memory && begins(path, own)
    })
}

/// Returns whether `own` is `path` or lies below it.
fn begins(path: &[u8], own: &[u8]) -> bool {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    own.strip_prefix(path)
        .is_some_and(|rest| rest.first().is_none_or(|&byte| byte == b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_the_smaller_of_both() {
        assert_eq!(File::Limit.says(b"max\n", 64 << 20, 0), 64 << 20);
        assert_eq!(
            File::Limit.says(b"9223372036854771712\n", 64 << 20, 0),
            64 << 20
        );
        assert_eq!(File::Limit.says(b"1048576\n", 64 << 20, 0), 1 << 20);
        assert_eq!(File::Usage.says(b"123\n", 64 << 20, 48 << 20), 16 << 20);
    }

    #[test]
    fn only_groups_above_the_process_are_its_own() {
        let second = b"0::/user.slice/job\n";
        for path in ["", "/", "/user.slice", "/user.slice/", "/user.slice/job"] {
            assert!(is_above(path.as_bytes(), second), "{path}");
        }
        for path in [
            "/user",
            "/user.slice/jo",
            "/user.slice/job/below",
            "/other",
            "job",
        ] {
            assert!(!is_above(path.as_bytes(), second), "{path}");
        }
        let first = b"5:cpu,cpuacct:/a\n4:memory:/b/c\n1:name=systemd:/d\n";
        assert!(is_above(b"/b", first));
        assert!(!is_above(b"/a", first) && !is_above(b"/d", first));
        assert!(!is_above(b"/a", b"") && !is_above(b"/a", b"nonsense\n4:memory\n"));
    }

    #[test]
    fn other_files_are_left_alone() {
        assert_eq!(File::named(b"memory.max"), Some(File::Limit));
        assert_eq!(File::named(b"memory.current"), Some(File::Usage));
        assert_eq!(File::named(b"memory.swap.max"), Some(File::Swap));
        for name in ["memory.stat", "cpu.max", "memory.max.", ""] {
            assert_eq!(File::named(name.as_bytes()), None, "{name}");
        }
    }
}
