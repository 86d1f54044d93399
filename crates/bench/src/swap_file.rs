//! The benchmark's own swap file for the kernel, in the same directory as Millpond's file.

use crate::error::Skip;
use crate::swap_area::{self, Owner};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::path::{Path, PathBuf};
use std::{fs, io};

const NAME: &str = "millpond-bench.swap";

/// The absolute path that the file will have in `directory`, as the kernel lists it.
///
/// # Errors
/// When there is no such directory, or it contains a file of that name.
pub fn path_in(directory: &Path) -> Result<PathBuf, Skip> {
    let directory = fs::canonicalize(directory)
        .map_err(|error| Skip(format!("no directory {}: {error}", directory.display())))?;
    let path = directory.join(NAME);
    if path.exists() {
        return Err(Skip(format!(
            "{} exists and is not this benchmark's; remove it",
            path.display()
        )));
    }
    Ok(path)
}

/// Creates the file with `bytes`, and turns on swap to it.
///
/// # Errors
/// When there is no room, or the kernel cannot swap to a file in that place.
pub fn swap_on(path: &Path, bytes: u64) -> Result<(), Skip> {
    let skip = |what: &str, error: io::Error| {
        Skip(format!(
            "{what} {} of {bytes} bytes: {error}; another directory may do",
            path.display()
        ))
    };
    make(path, bytes).map_err(|error| skip("cannot make", error))?;
    swap_area::format(path, bytes).map_err(|error| skip("cannot format", error))?;
    swap_area::on(path).map_err(|error| skip("cannot swap to", error))
}

/// Creates the file with allocated blocks, because the kernel does not swap to holes.
fn make(path: &Path, bytes: u64) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
    Ok(rustix::fs::fallocate(
        &file,
        FallocateFlags::empty(),
        0,
        bytes,
    )?)
}

/// Turns off swap to the file and removes it, if it exists and belongs to the benchmark.
///
/// # Errors
/// When the kernel refuses.
pub fn remove(path: &Path) -> io::Result<()> {
    let is_ours = match swap_area::owner(path) {
        Owner::Bench => true,
        // The benchmark was killed before it formatted the file.
        Owner::Nobody => true,
        // A file shorter than a header was created and not yet sized.
        Owner::Other => fs::metadata(path).is_ok_and(|file| file.len() == 0),
    };
    if !is_ours {
        return Ok(());
    }
    swap_area::off(path)?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_file_is_kept_and_unfinished_swap_file_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = path_in(directory.path()).unwrap();
        remove(&path).unwrap();
        make(&path, 1 << 20).unwrap();
        assert!(path_in(directory.path()).is_err());
        assert!(make(&path, 1 << 20).is_err());
        remove(&path).unwrap();
        assert!(!path.exists());
        fs::write(&path, "somebody's").unwrap();
        remove(&path).unwrap();
        assert!(path.exists());
        assert!(path_in(&directory.path().join("none")).is_err());
    }
}
