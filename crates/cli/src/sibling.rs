//! How the programs of Millpond find each other: next to this executable, then where a user's programs are.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// The command that runs programs under a budget.
pub const MILLPOND: &str = "millpond";
/// The command that measures.
pub const BENCH: &str = "millpond-bench";

/// Finds the program called `name`: next to this executable, then in the directories of `PATH`.
///
/// # Errors
/// When the program is in none of them; the error names the first place searched.
pub fn find(name: &str) -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let beside = own.parent().unwrap_or(Path::new("/")).join(name);
    if beside.is_file() {
        return Ok(beside);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    in_path(name, &path).ok_or_else(|| {
        let text = format!("there is no {name} at {}, nor in PATH", beside.display());
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

fn in_path(name: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_path_directory_with_it_wins_and_relative_ones_are_ignored() {
        let made = tempfile::TempDir::new().unwrap();
        for directory in ["a", "b"] {
            std::fs::create_dir(made.path().join(directory)).unwrap();
        }
        let wanted = made.path().join("b").join("program");
        std::fs::write(&wanted, "").unwrap();
        let path = std::env::join_paths([
            Path::new("."),
            &made.path().join("a"),
            &made.path().join("b"),
        ])
        .unwrap();
        assert_eq!(in_path("program", &path), Some(wanted));
        assert_eq!(in_path("another", &path), None);
    }

    #[test]
    fn missing_program_is_named_with_its_expected_path() {
        let error = find("millpond-of-nobody").unwrap_err().to_string();
        assert!(error.contains("millpond-of-nobody at /"), "{error}");
    }
}
