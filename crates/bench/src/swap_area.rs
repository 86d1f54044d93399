//! The benchmark's own swap area: its header, and turning it on and off.
//!
//! The header has a label. With it a later run distinguishes an area that a killed run left behind from one that
//! another program made under the same name.

use crate::cgroup::retry;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

const PAGE: usize = 4096;
const LABEL: &[u8; 16] = b"millpond-bench\0\0";
/// Flags of `swapon`: use the given priority, which is the highest possible, so that the group's pages come here.
const HIGHEST_PRIORITY: libc::c_int = 0x8000 | 0x7fff;
/// Offsets in the swap header of Linux (`union swap_header`).
const VERSION_AT: usize = 1024;
const LAST_PAGE_AT: usize = 1028;
const LABEL_AT: usize = 1052;
const MAGIC: &[u8; 10] = b"SWAPSPACE2";

/// The owner of an area, according to its label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The area belongs to the benchmark.
    Bench,
    /// The area has no owner yet: it reads as zeros.
    Nobody,
    /// The area has another owner, or cannot be read.
    Other,
}

/// Makes the device or file at `path` a swap area of `bytes` bytes.
///
/// # Errors
/// When `path` cannot be written.
pub fn format(path: &Path, bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.write_all_at(&header(bytes), 0)?;
    file.sync_all()
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

/// The owner of the area at `path`.
#[must_use]
pub fn owner(path: &Path) -> Owner {
    let mut label = [0; LABEL.len()];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut label, LABEL_AT as u64));
    match read {
        Ok(()) if label == *LABEL => Owner::Bench,
        Ok(()) if label == [0; LABEL.len()] => Owner::Nobody,
        _ => Owner::Other,
    }
}

/// Turns the area on, with priority over all others.
///
/// # Errors
/// When the kernel refuses.
pub fn on(path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the path is a string with an end; the call does not touch this process's memory.
    answer(unsafe { libc::swapon(path.as_ptr(), HIGHEST_PRIORITY) })
}

/// Turns the area off if it is on. Its pages come back into memory.
///
/// # Errors
/// When the kernel refuses, after two seconds of trying.
pub fn off(path: &Path) -> io::Result<()> {
    if !is_on(path) {
        return Ok(());
    }
    let path = c_path(path)?;
    // SAFETY: the path is a string with an end; the call does not touch this process's memory.
    retry(|| answer(unsafe { libc::swapoff(path.as_ptr()) }))
}

/// Whether the kernel swaps to `path`.
#[must_use]
pub fn is_on(path: &Path) -> bool {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    swaps
        .lines()
        .any(|line| line.split_whitespace().next() == path.to_str())
}

fn answer(code: libc::c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn blkid_recognizes_our_swap_header() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("swap");
        let bytes = 1 << 20;
        File::create(&path).unwrap().set_len(bytes).unwrap();
        assert_eq!(owner(&path), Owner::Nobody);
        format(&path, bytes).unwrap();
        assert_eq!(owner(&path), Owner::Bench);
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

    #[test]
    fn file_without_our_swap_header_is_not_ours() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        assert_eq!(owner(&path), Owner::Other);
        fs::write(&path, [b'x'; PAGE]).unwrap();
        assert_eq!(owner(&path), Owner::Other);
        assert!(!is_on(&path));
        off(&path).unwrap();
    }
}
