//! The kernel's figures for this process's memory: sums over all its mappings.

use procfs::process::Process;
use std::collections::HashMap;
use std::io;

/// The sum of `Rss`, in bytes.
///
/// # Errors
/// When `Rss` cannot be read.
pub fn resident() -> io::Result<u64> {
    sum("Rss")
}

/// The sum of `AnonHugePages`, in bytes.
///
/// # Errors
/// When `AnonHugePages` cannot be read.
pub fn huge() -> io::Result<u64> {
    sum("AnonHugePages")
}

/// The sum of `Anonymous`, in bytes.
///
/// # Errors
/// When `Anonymous` cannot be read.
pub fn anonymous() -> io::Result<u64> {
    sum("Anonymous")
}

fn sum(name: &str) -> io::Result<u64> {
    value(&sums()?, name)
}

/// All sums at one moment.
fn sums() -> io::Result<HashMap<String, u64>> {
    let rollup = Process::myself().and_then(|process| process.smaps_rollup());
    let maps = rollup.map_err(io::Error::other)?.memory_map_rollup;
    Ok(maps.into_iter().flat_map(|map| map.extension.map).collect())
}

fn value(sums: &HashMap<String, u64>, name: &str) -> io::Result<u64> {
    let found = sums.get(name).copied();
    found.ok_or_else(|| io::Error::other(format!("no {name} in /proc/self/smaps_rollup")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sums must be from one moment, since other tests allocate and free concurrently.
    #[test]
    fn the_kernel_has_all_three_sums_and_they_agree() {
        // The compiler would remove an allocation if only its length were used.
        let memory = std::hint::black_box(vec![1u8; 64 << 20]);
        let sums = sums().unwrap();
        let [resident, anonymous, huge] =
            ["Rss", "Anonymous", "AnonHugePages"].map(|name| value(&sums, name).unwrap());
        assert!(memory.len() as u64 <= anonymous && anonymous <= resident);
        assert!(huge <= anonymous);
        assert!(value(&sums, "Nothing").is_err());
        assert!(super::resident().is_ok() && super::anonymous().is_ok() && super::huge().is_ok());
    }
}
