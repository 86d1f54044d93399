//! Finding the boards of running processes.
//!
//! The creator of a board keeps its descriptor, and `/proc/PID/fd` says what each descriptor is. A board is a memfd
//! called [`MEMFD`]. A process forked without exec has the same descriptor. Boards are distinguished by their inodes,
//! and a board that is found twice counts once.

use crate::{BoardError, View};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Name of a board's memfd.
pub const MEMFD: &str = "millpond-board";

/// A board that was found.
#[derive(Debug)]
pub struct Found {
    /// Path under which the board can be opened as long as its owner lives.
    pub path: PathBuf,
    /// The board; an error if it is of another version.
    pub view: Result<View, BoardError>,
}

/// All boards of the processes that this user may inspect, by the number of the process.
///
/// A process that ends during the search, and a process of another user, is skipped.
#[must_use]
pub fn list() -> Vec<Found> {
    let open = |(path, _): (PathBuf, Id)| {
        let view = View::open(&path);
        Found { path, view }
    };
    files().into_iter().map(open).collect()
}

/// Device and inode of a board's file, which tell boards apart.
pub(crate) type Id = (u64, u64);

/// The files that are boards, each listed once.
pub(crate) fn files() -> Vec<(PathBuf, Id)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut pids: Vec<u32> = names.collect();
    pids.sort_unstable();
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for path in pids.into_iter().flat_map(descriptors) {
        let Ok(meta) = fs::metadata(&path) else {
            continue;
        };
        let id = (meta.dev(), meta.ino());
        if seen.insert(id) {
            found.push((path, id));
        }
    }
    found
}

/// The descriptors of a process that are boards.
fn descriptors(pid: u32) -> Vec<PathBuf> {
    let target = format!("/memfd:{MEMFD} (deleted)");
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let is_board =
        |path: &PathBuf| fs::read_link(path).is_ok_and(|link| link.as_os_str() == &*target);
    paths.filter(is_board).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Board;

    #[test]
    fn board_is_listed_once_and_no_longer_when_it_is_closed() {
        let (_board, file) = Board::create("found").unwrap();
        let other = rustix::io::dup(&file).unwrap();
        let mine = || -> Vec<String> {
            let views = list().into_iter().filter_map(|found| found.view.ok());
            let mine = views.filter(|view| view.owner() == std::process::id());
            mine.map(|view| view.name())
                .filter(|name| name == "found")
                .collect()
        };
        assert_eq!(mine(), ["found"]);
        drop((file, other));
        assert!(mine().is_empty());
    }
}
