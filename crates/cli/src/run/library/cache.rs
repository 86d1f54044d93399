//! The command's own library, in the user's cache or in memory.
//!
//! The file's name contains the hash of its contents, so commands of different builds each have their own. It is
//! created under another name and renamed when complete, so every reader sees a complete file, however many commands
//! start at the same time. Each run compares it with the expected bytes (about a millisecond), and replaces a file that
//! differs.
//!
//! Code that is loaded into programs must not come from a directory in which other users can create files. Directories
//! below the cache are used only if they belong to this user and no one else may write there; nor does the command
//! create directories in another user's cache, as under a `sudo` that keeps `HOME`.

use super::constant::Constant;
use super::{NAME, is_nameable};
use rustix::fs::{
    MemfdFlags, SealFlags, StatVfsMountFlags, fcntl_add_seals, memfd_create, statvfs,
};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_128;

/// Why the cache is not used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// Neither variable names a directory.
    #[error("neither XDG_CACHE_HOME nor HOME names a directory")]
    NoHome,
    /// Another user owns a directory, or may write there.
    #[error("{} belongs to another user, or others may write there", .0.display())]
    Foreign(PathBuf),
    /// Programs cannot load from there.
    #[error("{} is mounted without permission to execute", .0.display())]
    NoExec(PathBuf),
    /// `LD_PRELOAD` cannot name it.
    #[error("LD_PRELOAD cannot name {}", .0.display())]
    Unnameable(PathBuf),
    /// The file system refused.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        #[source]
        error: io::Error,
    },
}

fn at<T>(path: &Path, result: io::Result<T>) -> Result<T, Unusable> {
    let path = path.to_owned();
    result.map_err(|error| Unusable::File { path, error })
}

/// Returns a file of the user's cache that holds `bytes`. Creates it if necessary.
///
/// # Errors
/// Why the cache cannot be used.
pub fn place(bytes: Constant) -> Result<PathBuf, Unusable> {
    let variable = |name| std::env::var_os(name);
    let cache = directory(variable("XDG_CACHE_HOME"), variable("HOME"))?;
    place_in(&cache, bytes)
}

/// The user's cache. A relative path counts as none, as the XDG base directory specification requires.
fn directory(cache: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, Unusable> {
    let absolute =
        |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(cache)
        .or_else(|| absolute(home).map(|home| home.join(".cache")))
        .ok_or(Unusable::NoHome)
}

fn place_in(cache: &Path, bytes: Constant) -> Result<PathBuf, Unusable> {
    let ours = cache.join("millpond");
    let name = format!("{}-{:032x}", env!("CARGO_PKG_VERSION"), hash(bytes));
    let directory = ours.join(name);
    let path = directory.join(NAME);
    if !is_nameable(&path) {
        return Err(Unusable::Unnameable(path));
    }
    make(cache)?;
    for made in [&ours, &directory] {
        make(made)?;
        at(made, is_only_ours(made))?
            .then_some(())
            .ok_or_else(|| Unusable::Foreign(made.clone()))?;
    }
    let mount = at(&directory, statvfs(&directory).map_err(io::Error::from))?;
    if mount.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(Unusable::NoExec(directory));
    }
    if !holds(&path, bytes) {
        at(&path, write(&directory, &path, bytes))?;
    }
    Ok(path)
}

/// Creates a directory and its parents, none of them in a directory of another user.
fn make(directory: &Path) -> Result<(), Unusable> {
    if directory.is_dir() {
        return Ok(());
    }
    let there = directory.ancestors().find(|above| above.exists());
    let there = there.unwrap_or(Path::new("/"));
    if at(there, fs::metadata(there))?.uid() != user() {
        return Err(Unusable::Foreign(there.to_owned()));
    }
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(directory);
    at(directory, made)
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn is_only_ours(path: &Path) -> io::Result<bool> {
    let seen = fs::symlink_metadata(path)?;
    Ok(seen.uid() == user() && seen.mode() & 0o022 == 0 && !seen.is_symlink())
}

fn hash(bytes: Constant) -> u128 {
    let mut hasher = XxHash3_128::new();
    bytes.pieces().for_each(|piece| hasher.write(piece));
    hasher.finish_128()
}

/// Whether the file is this user's and holds `bytes`.
fn holds(path: &Path, bytes: Constant) -> bool {
    let same = || -> io::Result<bool> {
        if !is_only_ours(path)? || fs::metadata(path)?.len() != bytes.len() as u64 {
            return Ok(false);
        }
        let mut file = File::open(path)?;
        let mut here = Vec::new();
        for piece in bytes.pieces() {
            here.resize(piece.len(), 0);
            file.read_exact(&mut here)?;
            if here != piece {
                return Ok(false);
            }
        }
        Ok(true)
    };
    // An unreadable file is created anew.
    same().unwrap_or(false)
}

fn write(directory: &Path, path: &Path, bytes: Constant) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    for piece in bytes.pieces() {
        file.write_all(piece)?;
    }
    file.as_file()
        .set_permissions(Permissions::from_mode(0o755))?;
    // A name that survives a crash must not be that of an empty file.
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Puts `bytes` into memory that can no longer be changed.
///
/// # Errors
/// When the kernel has no such memory.
pub fn memory(bytes: Constant) -> io::Result<OwnedFd> {
    let memory = memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut memory = File::from(memory);
    for piece in bytes.pieces() {
        memory.write_all(piece)?;
    }
    fcntl_add_seals(
        &memory,
        SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
    )?;
    Ok(memory.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};
    use tempfile::TempDir;

    fn constant(bytes: &'static [u8]) -> Constant {
        // SAFETY: the tests pass literals.
        unsafe { Constant::new(bytes) }
    }

    #[test]
    fn the_cache_is_where_the_variables_say() {
        let directory = |cache: Option<&str>, home: Option<&str>| {
            directory(cache.map(Into::into), home.map(Into::into)).ok()
        };
        assert_eq!(directory(Some("/c"), Some("/h")), Some("/c".into()));
        for cache in [Some(""), Some("c"), None] {
            assert_eq!(directory(cache, Some("/h")), Some("/h/.cache".into()));
        }
        assert_eq!(directory(None, Some("h")), None);
        assert_eq!(directory(None, None), None);
    }

    #[test]
    fn a_file_is_made_once_and_anew_when_it_was_changed() {
        let root = TempDir::new().unwrap();
        let cache = root.path().join("home/.cache");
        let path = place_in(&cache, constant(b"the library")).unwrap();
        assert!(path.ends_with(NAME));
        let made = || fs::metadata(&path).unwrap();
        let (inode, mode) = (made().ino(), made().mode() & 0o777);
        assert_eq!(mode, 0o755);
        assert_eq!(place_in(&cache, constant(b"the library")).unwrap(), path);
        assert_eq!(made().ino(), inode);
        for changed in ["the librarY", "the lib", ""] {
            fs::write(&path, changed).unwrap();
            assert_eq!(place_in(&cache, constant(b"the library")).unwrap(), path);
            assert_eq!(fs::read(&path).unwrap(), b"the library");
        }
        assert_ne!(place_in(&cache, constant(b"another one")).unwrap(), path);
        // Nothing else lies there.
        let above = path.parent().unwrap();
        assert_eq!(fs::read_dir(above).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_where_others_may_write_is_not_used() {
        let root = TempDir::new().unwrap();
        let path = place_in(root.path(), constant(b"x")).unwrap();
        for made in [
            root.path().join("millpond").as_path(),
            path.parent().unwrap(),
        ] {
            let before = fs::metadata(made).unwrap().permissions();
            for mode in [0o777, 0o775, 0o757] {
                fs::set_permissions(made, Permissions::from_mode(mode)).unwrap();
                let refused = place_in(root.path(), constant(b"x")).unwrap_err();
                assert!(
                    matches!(&refused, Unusable::Foreign(path) if path == made),
                    "{refused}"
                );
            }
            fs::set_permissions(made, before).unwrap();
        }
        // A link would lead to a directory that was not checked.
        let other = TempDir::new().unwrap();
        symlink(root.path().join("millpond"), other.path().join("millpond")).unwrap();
        assert!(matches!(
            place_in(other.path(), constant(b"x")),
            Err(Unusable::Foreign(_))
        ));
    }

    /// Only root can create a file of another user, so the test needs root.
    #[test]
    fn cache_of_another_user_is_neither_created_nor_loaded() {
        if user() != 0 {
            println!("skipped: only root can give a directory to another user");
            return;
        }
        let root = TempDir::new().unwrap();
        let home = root.path().join("home");
        fs::create_dir(&home).unwrap();
        chown(&home, Some(65534), None).unwrap();
        let refused = place_in(&home.join(".cache"), constant(b"x")).unwrap_err();
        assert!(
            matches!(&refused, Unusable::Foreign(path) if *path == home),
            "{refused}"
        );
        assert_eq!(fs::read_dir(&home).unwrap().count(), 0);

        let path = place_in(root.path(), constant(b"x")).unwrap();
        chown(&path, Some(65534), None).unwrap();
        assert_eq!(place_in(root.path(), constant(b"x")).unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().uid(), 0);
        chown(path.parent().unwrap(), Some(65534), None).unwrap();
        assert!(matches!(
            place_in(root.path(), constant(b"x")),
            Err(Unusable::Foreign(_))
        ));
    }

    #[test]
    fn unwritable_or_unnameable_cache_is_an_error() {
        let root = TempDir::new().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(
            place_in(&file, constant(b"x")),
            Err(Unusable::File { .. })
        ));
        let spaced = root.path().join("a b");
        assert!(matches!(
            place_in(&spaced, constant(b"x")),
            Err(Unusable::Unnameable(_))
        ));
        assert!(!spaced.exists());
    }

    #[test]
    fn memory_holds_the_bytes_and_cannot_be_changed() {
        let memory = memory(constant(b"the library")).unwrap();
        let path = millpond_board::path_of(&memory);
        assert_eq!(fs::read(&path).unwrap(), b"the library");
        assert!(fs::write(&path, "another").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"the library");
    }
}
