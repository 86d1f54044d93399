//! The kernel's figures for this process's memory: sums over all its mappings.

use std::{fs, io};

/// The sum of `Rss`, in bytes.
///
/// # Errors
/// When `Rss` cannot be read.
pub fn resident() -> io::Result<u64> {
    sum("Rss:")
}

/// The sum of `AnonHugePages`, in bytes.
///
/// # Errors
/// When `AnonHugePages` cannot be read.
pub fn huge() -> io::Result<u64> {
    sum("AnonHugePages:")
}

fn sum(name: &str) -> io::Result<u64> {
    let path = "/proc/self/smaps_rollup";
    let text = fs::read_to_string(path)?;
    value_of(&text, name).ok_or_else(|| io::Error::other(format!("no {name} in {path}")))
}

fn value_of(smaps: &str, name: &str) -> Option<u64> {
    let line = smaps.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_the_kernel_prints_them() {
        let text = "0-1 [rollup]\nRss:  12 kB\nPss: 3 kB\n";
        assert_eq!(value_of(text, "Rss:"), Some(12288));
        assert_eq!(value_of(text, "AnonHugePages:"), None);
        assert!(resident().unwrap() > 0);
        huge().unwrap();
    }
}
