//! Resolves the name of a program to the file that will run, by the rules of `execvp` and of the kernel's `#!` lines.
//!
//! The file has to be known before it is started, because its headers tell whether the preload library can enter it
//! (see [`crate::run::elf`]). So this module walks `PATH` as `execvp` does, with the same rules for a directory that
//! may not be searched and a file that may not be executed. It then follows `#!` lines to the program that the kernel
//! will finally load, at most as deep as the kernel does.

use crate::run::elf::{self, Kind, Unfit};
use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Length of a chain of scripts that the kernel follows before it answers `ELOOP`.
const MAX_SCRIPTS: usize = 5;
/// The directories that `execvp` searches when there is no `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// The shell to which `execvp` passes a file that the kernel does not recognize.
const SHELL: &str = "/bin/sh";

/// Why a program cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// There is no such file, in `PATH` or as a path.
    #[error("{}: program not found; check the name and PATH", .0.display())]
    NotFound(PathBuf),
    /// The file exists, but may not be executed.
    #[error("{}: {why}", .path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// The obstacle.
        why: String,
    },
    /// The interpreter of a script cannot be run.
    #[error("{}: its interpreter {} cannot be run: {why}", .script.display(), .interpreter.display())]
    Interpreter {
        /// The script.
        script: PathBuf,
        /// The interpreter that the script's `#!` line names.
        interpreter: PathBuf,
        /// The obstacle.
        why: String,
    },
    /// The interpreters of scripts are scripts, in a chain longer than the kernel follows.
    #[error("{}: its chain of `#!` interpreters is longer than {MAX_SCRIPTS}", .0.display())]
    TooManyScripts(PathBuf),
    /// The preload library cannot enter the program.
    #[error("{}: cannot run under a budget: {why}", .path.display())]
    Unfit {
        /// The program, at the end of the chain of scripts.
        path: PathBuf,
        /// The obstacle.
        why: Unfit,
    },
}

impl ResolveError {
    /// The exit status that `env`, `nice` and the shells use: 127 for a program that is not found, 126 for one that
    /// cannot run.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            _ => 126,
        }
    }
}

/// The file to which `program` resolves, checked to the end of its chain of scripts.
///
/// # Errors
/// When nothing is found, or the file cannot run under a budget.
pub fn resolve(program: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, ResolveError> {
    let file = find(program, path)?;
    qualify(&file)?;
    Ok(file)
}

fn find(program: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, ResolveError> {
    let not_found = || ResolveError::NotFound(program.into());
    if program.is_empty() {
        return Err(not_found());
    }
    if program.as_bytes().contains(&b'/') {
        let file = PathBuf::from(program);
        return match executable(&file) {
            Ok(()) => Ok(file),
            Err(Errno::NOENT | Errno::NOTDIR) => Err(not_found()),
            Err(errno) => Err(not_executable(file, errno)),
        };
    }
    // As in `execvp`, a file that may not be executed is remembered while the search continues, and reported in the
    // end.
    let mut refused = None;
    for directory in path
        .unwrap_or(OsStr::new(DEFAULT_PATH))
        .as_bytes()
        .split(|&b| b == b':')
    {
        let directory = if directory.is_empty() {
            b".".as_slice()
        } else {
            directory
        };
        let file = Path::new(OsStr::from_bytes(directory)).join(program);
        match executable(&file) {
            Ok(()) => return Ok(file),
            Err(errno @ Errno::ACCESS) => {
                refused.get_or_insert_with(|| not_executable(file, errno));
            }
            Err(
                Errno::NOENT
                | Errno::NOTDIR
                | Errno::NAMETOOLONG
                | Errno::NODEV
                | Errno::STALE
                | Errno::TIMEDOUT,
            ) => {}
            Err(errno) => return Err(not_executable(file, errno)),
        }
    }
    Err(refused.unwrap_or_else(not_found))
}

/// Whether the kernel would execute `file`, judging by its mode and its location.
fn executable(file: &Path) -> Result<(), Errno> {
    let stat = rustix::fs::stat(file)?;
    if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
        return Err(Errno::ACCESS);
    }
    rustix::fs::accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS)
}

fn not_executable(path: PathBuf, errno: Errno) -> ResolveError {
    let why = if path.is_dir() {
        "is a directory, not a program".to_owned()
    } else if errno == Errno::ACCESS {
        "is not executable; check its mode (chmod +x), its directories and the mount's noexec"
            .to_owned()
    } else {
        errno.to_string()
    };
    ResolveError::NotExecutable { path, why }
}

/// Follows `#!` lines from `file` to a program, and checks the program.
fn qualify(file: &Path) -> Result<(), ResolveError> {
    let mut current = file.to_owned();
    for _ in 0..=MAX_SCRIPTS {
        let interpreter = match elf::classify(&current) {
            Ok(Kind::Preloadable) => return Ok(()),
            Ok(Kind::Unfit(why)) => return Err(ResolveError::Unfit { path: current, why }),
            Ok(Kind::Script { interpreter }) => PathBuf::from(OsString::from_vec(interpreter)),
            Ok(Kind::Unknown) => PathBuf::from(SHELL),
            Err(error) => return Err(unreadable(current, &error)),
        };
        executable(&interpreter).map_err(|errno| ResolveError::Interpreter {
            script: current,
            interpreter: interpreter.clone(),
            why: errno.to_string(),
        })?;
        current = interpreter;
    }
    Err(ResolveError::TooManyScripts(file.to_owned()))
}

fn unreadable(path: PathBuf, error: &io::Error) -> ResolveError {
    let why = format!(
        "cannot be read to see whether a budget can be put on it ({error}); make it readable"
    );
    ResolveError::NotExecutable { path, why }
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
