//! The benchmark's own zram device, as a swap device.
//!
//! The device is added for the benchmark and removed after it; existing devices are not touched.

use crate::cgroup::retry;
use crate::error::Skip;
use crate::swap_area::{self, Owner};
use std::path::PathBuf;
use std::{fs, io};

const CONTROL: &str = "/sys/class/zram-control";

/// Adds a device and returns its number.
///
/// # Errors
/// When the zram module is missing.
pub fn add() -> Result<u32, Skip> {
    let text = fs::read_to_string(format!("{CONTROL}/hot_add")).map_err(|error| {
        Skip(format!(
            "no zram device can be added ({error}); `modprobe zram` may help"
        ))
    })?;
    text.trim().parse().map_err(|_| {
        Skip(format!(
            "zram-control gave `{}` instead of a number",
            text.trim()
        ))
    })
}

/// Makes device `id` a swap device of `bytes` bytes with lz4 and turns it on.
///
/// # Errors
/// When the kernel has no lz4 for zram, or refuses the swap device.
pub fn swap_on(id: u32, bytes: u64) -> Result<(), Skip> {
    let skip = |what: &str, error: io::Error| Skip(format!("{what} /dev/zram{id}: {error}"));
    fs::write(sys(id, "comp_algorithm"), "lz4")
        .map_err(|error| skip("cannot choose lz4 for", error))?;
    fs::write(sys(id, "disksize"), bytes.to_string())
        .map_err(|error| skip("cannot size", error))?;
    swap_area::format(&node(id), bytes).map_err(|error| skip("cannot format", error))?;
    swap_area::on(&node(id)).map_err(|error| skip("cannot turn on swap to", error))
}

/// The memory that device `id` uses for its contents, in bytes.
#[must_use]
pub fn memory_used(id: u32) -> Option<u64> {
    let text = fs::read_to_string(sys(id, "mm_stat")).ok()?;
    // The fields are the original size, the compressed size, the total memory used, …
    text.split_whitespace().nth(2)?.parse().ok()
}

/// Turns off swap to device `id` if it is on, and removes the device if it exists and belongs to the benchmark.
///
/// # Errors
/// When the kernel refuses, after two seconds of trying.
pub fn remove(id: u32) -> io::Result<()> {
    if !node(id).exists() || !is_ours(id) {
        return Ok(());
    }
    swap_area::off(&node(id))?;
    // A program that inspects new block devices may hold it open for a moment.
    retry(|| fs::write(sys(id, "reset"), "1"))?;
    retry(|| fs::write(format!("{CONTROL}/hot_remove"), id.to_string()))
}

/// Whether device `id` belongs to the benchmark. A device without a size has been added and not yet used; a device
/// with our label has been used. A device that reads as zeros was sized by a benchmark that was killed before it
/// formatted the device.
fn is_ours(id: u32) -> bool {
    let size = fs::read_to_string(sys(id, "disksize")).unwrap_or_default();
    size.trim() == "0"
        || match swap_area::owner(&node(id)) {
            Owner::Bench => true,
            Owner::Nobody => !swap_area::is_on(&node(id)),
            Owner::Other => false,
        }
}

fn sys(id: u32, file: &str) -> PathBuf {
    format!("/sys/block/zram{id}/{file}").into()
}

fn node(id: u32) -> PathBuf {
    format!("/dev/zram{id}").into()
}
