//! A zram device of the benchmark's own, as a swap device.
//!
//! The device is added for the benchmark and removed after it; devices that are there already are not touched. Its swap
//! header carries a label, by which a later run knows a device that a killed run left behind from one that somebody else
//! got under the same number.

use super::Skip;
use super::cgroup::retry;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const PAGE: usize = 4096;
const CONTROL: &str = "/sys/class/zram-control";
const LABEL: &[u8; 16] = b"millpond-bench\0\0";
/// `swapon` flags: use the priority given, and the highest there is, so that the group's pages come here.
const HIGHEST_PRIORITY: libc::c_int = 0x8000 | 0x7fff;
/// Offsets in the swap header of Linux (`union swap_header`).
const VERSION_AT: usize = 1024;
const LAST_PAGE_AT: usize = 1028;
const LABEL_AT: usize = 1052;
const MAGIC: &[u8; 10] = b"SWAPSPACE2";

/// Adds a device and answers its number.
///
/// # Errors
/// When the zram module is not there.
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
    let header = header(bytes);
    let device = OpenOptions::new()
        .write(true)
        .open(node(id))
        .map_err(|error| skip("cannot open", error))?;
    device
        .write_all_at(&header, 0)
        .and_then(|()| device.sync_all())
        .map_err(|error| skip("cannot format", error))?;
    drop(device);
    let path = c_path(id);
    // SAFETY: the path is a string with an end; the call does not touch this process's memory.
    let answer = unsafe { libc::swapon(path.as_ptr(), HIGHEST_PRIORITY) };
    if answer == 0 {
        Ok(())
    } else {
        Err(skip("cannot turn on swap to", io::Error::last_os_error()))
    }
}

fn header(bytes: u64) -> [u8; PAGE] {
    let mut header = [0; PAGE];
    let last_page = (bytes / PAGE as u64 - 1) as u32;
    header[VERSION_AT..][..4].copy_from_slice(&1u32.to_ne_bytes());
    header[LAST_PAGE_AT..][..4].copy_from_slice(&last_page.to_ne_bytes());
    header[LABEL_AT..][..LABEL.len()].copy_from_slice(LABEL);
    header[PAGE - MAGIC.len()..].copy_from_slice(MAGIC);
    header
}

/// Turns swap to device `id` off, if it is on, and removes the device, if it is there and the benchmark's own.
///
/// # Errors
/// When the kernel refuses, after two seconds of trying.
pub fn remove(id: u32) -> io::Result<()> {
    if !node(id).exists() || !is_ours(id) {
        return Ok(());
    }
    if is_on(id) {
        let path = c_path(id);
        retry(|| {
            // SAFETY: the path is a string with an end; the call does not touch this process's memory.
            let answer = unsafe { libc::swapoff(path.as_ptr()) };
            if answer == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        })?;
    }
    // A program that looks at new block devices may hold it open for a moment.
    retry(|| fs::write(sys(id, "reset"), "1"))?;
    retry(|| fs::write(format!("{CONTROL}/hot_remove"), id.to_string()))
}

/// A device without a size has been added and not yet used; one with our label has.
fn is_ours(id: u32) -> bool {
    let size = fs::read_to_string(sys(id, "disksize")).unwrap_or_default();
    if size.trim() == "0" {
        return true;
    }
    let mut label = [0; LABEL.len()];
    let read =
        File::open(node(id)).and_then(|device| device.read_exact_at(&mut label, LABEL_AT as u64));
    // A device that was sized and killed before it was formatted reads as zeros.
    read.is_ok()
        && (label == *LABEL || label == [0; LABEL.len()])
        && (label == *LABEL || !is_on(id))
}

fn is_on(id: u32) -> bool {
    let device = node(id);
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    swaps
        .lines()
        .any(|line| line.split_whitespace().next() == device.to_str())
}

fn sys(id: u32, file: &str) -> PathBuf {
    format!("/sys/block/zram{id}/{file}").into()
}

fn node(id: u32) -> PathBuf {
    format!("/dev/zram{id}").into()
}

fn c_path(id: u32) -> CString {
    CString::new(format!("/dev/zram{id}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_header_is_one_that_others_know() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("swap");
        let bytes = 1 << 20;
        fs::write(&path, header(bytes)).unwrap();
        OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(bytes)
            .unwrap();
        match Command::new("blkid")
            .args(["-p", "-o", "export"])
            .arg(&path)
            .output()
        {
            Ok(output) if output.status.success() => {
                let text = String::from_utf8_lossy(&output.stdout);
                assert!(
                    text.contains("TYPE=swap") && text.contains("LABEL=millpond-bench"),
                    "{text}"
                );
            }
            _ => println!("skipped: blkid is not here"),
        }
    }
}
