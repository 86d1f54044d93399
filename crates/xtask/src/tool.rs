//! Running other programs, and errors of programs and files.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, io};

/// The reason why a task failed.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// A required program failed.
    #[error("{0} failed: {1}")]
    Failed(String, String),
    /// A required program is not installed.
    #[error("{program} is not installed: {way_out}")]
    Missing {
        /// The program.
        program: String,
        /// How to install it, or do without it.
        way_out: &'static str,
    },
    /// A file cannot be written or read.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// A program's output is not as expected.
    #[error("cannot read what {program} printed: {error}")]
    Printed {
        /// The program.
        program: &'static str,
        /// What is wrong with it.
        error: String,
    },
}

/// Adds a path to an error.
pub fn at<T>(path: &Path, result: io::Result<T>) -> Result<T, TaskError> {
    result.map_err(|error| TaskError::File {
        path: path.to_owned(),
        error,
    })
}

/// Runs a program until it ends. Returns its output.
pub fn run(command: &mut Command) -> Result<String, TaskError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| TaskError::Failed(name.clone(), error.to_string()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(TaskError::Failed(name, output.status.to_string())),
    }
}

/// The program's path, or an error that says how to do without it.
pub fn need(program: &str, way_out: &'static str) -> Result<PathBuf, TaskError> {
    installed(program).ok_or_else(|| TaskError::Missing {
        program: program.to_owned(),
        way_out,
    })
}

/// The program's path, in `PATH` or in the directory where cargo installs programs.
pub fn installed(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let cargo = env::var_os("CARGO_HOME").map(|home| Path::new(&home).join("bin"));
    env::split_paths(&path)
        .chain(cargo)
        .map(|directory| directory.join(program))
        .find(|place| place.is_file())
}

/// The cargo that runs this program.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(root());
    cargo
}

/// The root of the checkout.
pub fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    crates
        .and_then(Path::parent)
        .unwrap_or(Path::new("/"))
        .to_owned()
}

/// Cargo's target directory.
pub fn target() -> PathBuf {
    let root = root();
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |at| root.join(at))
}

/// Makes an empty directory of this name.
pub fn empty(directory: &Path) -> Result<(), TaskError> {
    if directory.exists() {
        at(directory, fs::remove_dir_all(directory))?;
    }
    at(directory, fs::create_dir_all(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_or_missing_program_is_named() {
        let failed = run(&mut Command::new("false")).unwrap_err().to_string();
        assert!(failed.contains("false") && failed.contains('1'), "{failed}");
        let missing = need("millpond-of-nobody", "do without it").unwrap_err();
        assert_eq!(
            missing.to_string(),
            "millpond-of-nobody is not installed: do without it"
        );
        assert_eq!(run(Command::new("echo").arg("x")).unwrap(), "x\n");
        assert!(installed("sh").is_some());
    }
}
