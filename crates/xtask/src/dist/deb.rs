//! The Debian package of the command and the library that it loads.
//!
//! cargo-deb builds it according to `[package.metadata.deb]` in the manifest of the crate `millpond-cli`. That names
//! files below `target/release/deb/`, where the tree is first laid out in Debian's form: manual pages are compressed,
//! and the changelog has Debian's format. The licences are in `packaging/copyright`; their own files would duplicate
//! them.

use super::{Made, VERSION};
use crate::tool::{self, TaskError, at, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package's maintainer, in Debian's form.
const MAINTAINER: &str =
    "Seed b3e68c78 maintainers <maintainers@users.noreply.a-seed-b3e68c78.example>";
const WAY_OUT: &str =
    "install it by `cargo install cargo-deb`, or leave the Debian package out with --only";

/// Builds the package. Returns its path.
pub fn make(made: &Made<'_>) -> Result<PathBuf, TaskError> {
    let cargo_deb = tool::need("cargo-deb", WAY_OUT)?;
    let time = time_of_commit()?;
    lay_out(made, time)?;
    let file = made
        .out
        .join(format!("millpond_{VERSION}_{}.deb", architecture()));
    let mut deb = Command::new(cargo_deb);
    deb.current_dir(tool::root())
        // The time of all packed files, so that the same files make the same package.
        .env("SOURCE_DATE_EPOCH", time.to_string())
        .args(["deb", "--quiet", "--no-build", "--no-strip", "--locked"])
        .args(["--package", "millpond-cli", "--profile", made.profile])
        .args(["--maintainer", MAINTAINER, "--output"])
        .arg(&file);
    run(&mut deb)?;
    Ok(file)
}

/// Debian's name of the architecture.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The time of the newest commit, in seconds; 0 outside a repository.
fn time_of_commit() -> Result<u64, TaskError> {
    if !tool::root().join(".git").exists() {
        return Ok(0);
    }
    let git = ["log", "-1", "--format=%ct"];
    let printed = run(Command::new("git").current_dir(tool::root()).args(git))?;
    printed.trim().parse().map_err(|error| TaskError::Printed {
        program: "git log",
        error: format!("{error}: {printed:?}"),
    })
}

/// Lays out the tree as in the package.
fn lay_out(made: &Made<'_>, time: u64) -> Result<(), TaskError> {
    let usr = made.built.join("deb/usr");
    tool::empty(&usr)?;
    run(Command::new("cp")
        .arg("-a")
        .arg(made.tree.join("."))
        .arg(&usr))?;
    let manual = usr.join("share/man/man1");
    for entry in at(&manual, fs::read_dir(&manual))? {
        compress(&at(&manual, entry)?.path())?;
    }
    let documents = usr.join("share/doc/millpond");
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let path = documents.join(name);
        at(&path, fs::remove_file(&path))?;
    }
    compress(&documents.join("THIRD-PARTY"))?;
    changelog(&documents.join("changelog"), time)
}

fn compress(file: &Path) -> Result<(), TaskError> {
    run(Command::new("gzip").arg("-n9").arg(file)).map(drop)
}

/// Writes the changelog in Debian's form: this version, and where its changes are described.
fn changelog(path: &Path, time: u64) -> Result<(), TaskError> {
    let time = format!("@{time}");
    let date = run(Command::new("date").args(["--utc", "--rfc-email", "--date", &time]))?;
    at(path, fs::write(path, changes(&date)))?;
    compress(path)
}

fn changes(date: &str) -> String {
    format!(
        "millpond ({VERSION}) unstable; urgency=medium\n\n  * Version {VERSION}. CHANGELOG.md of the source describes \
         its changes.\n\n -- {MAINTAINER}  {}\n",
        date.trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_changelog_has_debians_form() {
        let text = changes("Thu, 01 Jan 1970 00:00:00 +0000\n");
        assert!(
            text.starts_with(&format!("millpond ({VERSION}) ")),
            "{text}"
        );
        assert!(
            text.ends_with(">  Thu, 01 Jan 1970 00:00:00 +0000\n"),
            "{text}"
        );
    }
}
