//! The store that a run uses on this machine.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, io};

/// The place on this machine for memory that does not fit into the budget.
///
/// ```
/// use millpond_settings::StoreChoice;
/// assert_eq!("file:/fast".parse(), Ok(StoreChoice::File(Some("/fast".into()))));
/// assert_eq!(StoreChoice::File(None).to_string(), "file");
/// assert!("file:".parse::<StoreChoice>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum StoreChoice {
    /// The store that suits the machine: compressed RAM, then a file.
    #[default]
    Auto,
    /// Compressed RAM.
    Zram,
    /// A file: in or at the given place, or in the directory for temporary files.
    File(Option<PathBuf>),
}

/// A text that is not a [`StoreChoice`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadStore(String);

impl fmt::Display for BadStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        write!(
            f,
            "`{text}` is no store; choose auto, zram, file or file:PATH, and a URL behind a comma if memory may leave \
             the machine"
        )
    }
}

impl std::error::Error for BadStore {}

impl StoreChoice {
    /// Parses a text that may not be UTF-8, because it may contain any path.
    ///
    /// # Errors
    /// When no store has that name.
    pub fn from_os(text: &OsStr) -> Result<Self, BadStore> {
        match text.as_bytes() {
            b"auto" => Ok(Self::Auto),
            b"zram" => Ok(Self::Zram),
            b"file" => Ok(Self::File(None)),
            bytes => match bytes.strip_prefix(b"file:") {
                Some(path) if !path.is_empty() => {
                    Ok(Self::File(Some(OsStr::from_bytes(path).into())))
                }
                _ => Err(BadStore(text.to_string_lossy().into_owned())),
            },
        }
    }

    /// The kind of the store: its name without a path.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Zram => "zram",
            Self::File(_) => "file",
        }
    }

    /// The text that [`StoreChoice::from_os`] reads.
    #[must_use]
    pub fn to_os_string(&self) -> OsString {
        let mut text = OsString::from(self.word());
        if let Self::File(Some(path)) = self {
            text.push(":");
            text.push(path);
        }
        text
    }

    /// Makes the store's path absolute, because a program may change its directory before the path is used.
    ///
    /// # Errors
    /// When the path has no absolute form.
    pub fn absolute(self) -> io::Result<Self> {
        match self {
            Self::File(Some(path)) => Ok(Self::File(Some(std::path::absolute(path)?))),
            other => Ok(other),
        }
    }

    /// The directory that was chosen for the store's file, if any. Each process of a run has its own file, so a path
    /// that is not a directory only names its parent directory.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        let Self::File(Some(path)) = self else {
            return None;
        };
        if path.is_dir() {
            return Some(path);
        }
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        Some(parent.unwrap_or(Path::new(".")))
    }
}

impl FromStr for StoreChoice {
    type Err = BadStore;

    fn from_str(text: &str) -> Result<Self, BadStore> {
        Self::from_os(text.as_ref())
    }
}

impl fmt::Display for StoreChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_os_string().to_string_lossy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_store_round_trips_through_text() {
        let odd = OsStr::from_bytes(b"file:/a\xff,b");
        for text in ["auto", "zram", "file", "file:/tmp/x=y"].map(OsStr::new) {
            assert_eq!(StoreChoice::from_os(text).unwrap().to_os_string(), text);
        }
        assert_eq!(StoreChoice::from_os(odd).unwrap().to_os_string(), odd);
        for text in ["", "tape", "file:", "Auto", "auto,"] {
            let error = text.parse::<StoreChoice>().unwrap_err().to_string();
            let begin = format!("`{text}` is no store; choose auto, zram, file or file:PATH");
            assert!(error.starts_with(&begin), "{error}");
        }
    }

    #[test]
    fn directory_of_a_store_file_is_its_parent() {
        let store = |path: &str| StoreChoice::File(Some(path.into()));
        assert_eq!(store("/tmp").directory(), Some(Path::new("/tmp")));
        assert_eq!(
            store("/nowhere/file").directory(),
            Some(Path::new("/nowhere"))
        );
        assert_eq!(store("nothing here").directory(), Some(Path::new(".")));
        assert_eq!(StoreChoice::File(None).directory(), None);
        assert_eq!(StoreChoice::Zram.directory(), None);
    }
}
