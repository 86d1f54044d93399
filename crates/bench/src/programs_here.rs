//! Finds programs on this machine by name.

use crate::error::Skip;
use std::env;
use std::path::{Path, PathBuf};

/// Directories that are searched first: otherwise a version manager's script of the same name, earlier in `PATH`,
/// would be measured along with the program.
const SYSTEM: [&str; 4] = ["/usr/bin", "/usr/local/bin", "/bin", "/usr/sbin"];

/// Finds a program in the system's directories, or else in `PATH`.
///
/// # Errors
/// The name of the program, when there is no such program.
pub fn find(name: &str) -> Result<PathBuf, Skip> {
    let path = env::var_os("PATH").unwrap_or_default();
    let more = env::split_paths(&path);
    let found = SYSTEM
        .iter()
        .map(PathBuf::from)
        .chain(more)
        .map(|directory| directory.join(name))
        .find(|program| is_program(program));
    found.ok_or_else(|| {
        Skip(format!(
            "there is no {name} in {} or PATH; install it",
            SYSTEM.join(", ")
        ))
    })
}

fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_programs_are_found_and_missing_ones_named() {
        assert!(find("sh").unwrap().is_absolute());
        let error = find("no-such-program").unwrap_err();
        assert!(error.to_string().contains("no-such-program"));
        assert!(find("..").is_err(), "a directory is no program");
    }
}
