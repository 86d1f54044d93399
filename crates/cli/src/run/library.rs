//! The preload library: where it is found, and how the command provides its own.
//!
//! Packages install the library next to the command. `cargo install` installs only programs, so the command also
//! contains the library (`millpond-embed`), and writes it out when none is installed. The places, in their order:
//!
//! 1. the one that [`VARIABLE`] names: a user who names a library means it;
//! 2. next to the command, where a build puts it, and in `../lib/millpond/`, where packages put it;
//! 3. the command's own, in the user's cache (`cache.rs`), where all runs share it;
//! 4. the command's own, in memory, if the cache cannot be used.
//!
//! A library in memory has a name as long as the command runs: `/proc/PID/fd/N`, like the board. A program that
//! continues after the command was killed could not load it into the programs that it starts. Hence it comes last.

#[cfg(feature = "embed")]
mod cache;
#[cfg(feature = "embed")]
mod constant;

#[cfg(feature = "embed")]
use constant::Constant;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The library's file name.
pub const NAME: &str = "libmillpond_preload.so";
/// The variable that names a library in another place.
pub const VARIABLE: &str = millpond_settings::variables::PRELOAD;

/// The library that is part of this command.
#[cfg(feature = "embed")]
const OWN: Option<&[u8]> = millpond_embed::shared_library!(millpond_preload);

/// Why there is no library to load.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// The library is in none of its places, and this command was built without it.
    #[error(
        "{NAME} is not installed (looked for {}), and is not part of this command: install millpond with its libraries \
         (an archive, a package, `cargo install millpond-cli`), build it by `cargo build --release -p millpond-preload`, \
         or name it in {VARIABLE}",
        list(.0)
    )]
    Nowhere(Vec<PathBuf>),
    /// The variable names something that is not a file.
    #[error("{VARIABLE} names {}, which is no file: correct the path, or unset {VARIABLE}", .0.display())]
    NotThere(PathBuf),
    /// `LD_PRELOAD` cannot name the library: it separates by spaces and colons, expands `$`, and knows no quoting.
    #[error(
        "LD_PRELOAD cannot name {}, because of a space, colon or `$` in it; install millpond elsewhere, or name a copy in {VARIABLE}",
        .0.display()
    )]
    Unnameable(PathBuf),
    /// The library was named by a relative path, and the current directory cannot be determined.
    #[error("cannot tell where the library named in {VARIABLE} is: {0}")]
    Directory(#[source] io::Error),
    /// The command's own library cannot be put anywhere.
    #[error("cannot put {NAME} into memory: {0}; name an installed one in {VARIABLE}")]
    Memory(#[source] io::Error),
}

fn list(paths: &[PathBuf]) -> String {
    let shown: Vec<_> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    shown.join(", ")
}

/// A library, which can be loaded as long as this value lives.
#[derive(Debug)]
pub struct Library {
    path: PathBuf,
    /// The memory that holds it, with the reason why it is not in the cache.
    memory: Option<(OwnedFd, String)>,
}

impl Library {
    /// The name under which programs load it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn at(path: PathBuf) -> Self {
        Self { path, memory: None }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.memory {
            None => self.path.display().fmt(f),
            Some((_, reason)) => write!(f, "the command's own, in memory ({reason})"),
        }
    }
}

/// Finds the library, or provides the command's own.
///
/// # Errors
/// When there is none, or only one that `LD_PRELOAD` cannot name.
pub fn find() -> Result<Library, LibraryError> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) {
        return named_by_user(named);
    }
    let places = installed_places();
    let found = places.iter().find(|path| path.is_file()).cloned();
    match found {
        Some(path) if is_nameable(&path) => Ok(Library::at(path)),
        found => own(places, found),
    }
}

fn named_by_user(named: OsString) -> Result<Library, LibraryError> {
    let path = std::path::absolute(named).map_err(LibraryError::Directory)?;
    if !path.is_file() {
        return Err(LibraryError::NotThere(path));
    }
    match is_nameable(&path) {
        true => Ok(Library::at(path)),
        false => Err(LibraryError::Unnameable(path)),
    }
}

/// The places where the library may be installed, relative to this executable.
fn installed_places() -> Vec<PathBuf> {
    let executable = std::env::current_exe().ok();
    let Some(directory) = executable.as_deref().and_then(Path::parent) else {
        return Vec::new();
    };
    let mut places = vec![directory.join(NAME)];
    places.extend(
        directory
            .parent()
            .map(|prefix| prefix.join("lib/millpond").join(NAME)),
    );
    places
}

fn is_nameable(path: &Path) -> bool {
    !path
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| b" :$\t\n".contains(byte))
}

/// Provides the library that is part of this command. `unnameable` is an installed one that cannot be loaded.
#[cfg(feature = "embed")]
fn own(places: Vec<PathBuf>, unnameable: Option<PathBuf>) -> Result<Library, LibraryError> {
    let Some(bytes) = OWN else {
        return Err(none(places, unnameable));
    };
    // SAFETY: the bytes are an included file.
    let bytes = unsafe { Constant::new(bytes) };
    let reason = match cache::place(bytes) {
        Ok(path) => return Ok(Library::at(path)),
        Err(reason) => reason.to_string(),
    };
    let memory = cache::memory(bytes).map_err(LibraryError::Memory)?;
    Ok(Library {
        path: millpond_board::path_of(&memory),
        memory: Some((memory, reason)),
    })
}

#[cfg(not(feature = "embed"))]
fn own(places: Vec<PathBuf>, unnameable: Option<PathBuf>) -> Result<Library, LibraryError> {
    Err(none(places, unnameable))
}

fn none(places: Vec<PathBuf>, unnameable: Option<PathBuf>) -> LibraryError {
    unnameable.map_or_else(|| LibraryError::Nowhere(places), LibraryError::Unnameable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_that_the_dynamic_linker_would_split_or_expand_is_rejected() {
        for path in ["/a b/l.so", "/a:b/l.so", "/$LIB/l.so", "/a\tb", "/a\nb"] {
            assert!(!is_nameable(Path::new(path)), "{path:?}");
        }
        assert!(is_nameable(Path::new("/proc/1/fd/3")));
    }

    #[test]
    fn missing_library_error_lists_every_way_to_get_one() {
        let text = none(vec!["/a/l.so".into(), "/b/l.so".into()], None).to_string();
        for part in ["/a/l.so, /b/l.so", "cargo install", "cargo build", VARIABLE] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = none(Vec::new(), Some("/a b/l.so".into())).to_string();
        assert!(
            text.contains("/a b/l.so") && text.contains("elsewhere"),
            "{text}"
        );
    }

    /// Only users of `cargo install` would notice a build that lost the library.
    #[cfg(feature = "embed")]
    #[test]
    fn the_command_holds_a_shared_library() {
        let bytes = OWN.unwrap();
        assert!(bytes.starts_with(b"\x7fELF"));
        // Its type is ET_DYN.
        assert_eq!(bytes[16], 3);
    }
}
