//! `cargo xtask package`: the packages of all published crates, and a command built only from them.
//!
//! The packages refer to each other by version, and none of them is on a registry while they are made. So they are
//! unpacked into a separate workspace that gives the path of each; there the command is installed in the same way as
//! by `cargo install millpond-cli`. If a package lacks something (a file that its `include` forgot, a dependency
//! without a version), this fails. The other dependencies have the versions of the checkout's lock file.

use crate::tool::{self, TaskError, at, run};
use cargo_metadata::MetadataCommand;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `cargo xtask package`'s arguments.
#[derive(clap::Args)]
pub struct PackageArgs {
    /// Package the files as they are, committed or not
    #[arg(long)]
    allow_dirty: bool,
    /// Build the command only from the packages, and install it below this directory
    #[arg(long, value_name = "DIRECTORY")]
    install: Option<PathBuf>,
}

/// A published crate.
struct Published {
    name: String,
    version: String,
}

impl Published {
    fn directory(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}

/// Makes the packages.
///
/// # Errors
/// When something cannot be packaged, built or installed.
pub fn package(args: &PackageArgs) -> Result<(), TaskError> {
    let crates = published()?;
    let mut cargo = tool::cargo();
    cargo.args(["package", "--locked", "--no-verify", "--quiet"]);
    cargo.args(args.allow_dirty.then_some("--allow-dirty"));
    for one in &crates {
        cargo.args(["-p", &one.name]);
    }
    run(&mut cargo)?;
    let packages = tool::target().join("package");
    for one in &crates {
        let file = packages.join(one.directory() + ".crate");
        println!(
            "{} ({} KiB)",
            file.display(),
            at(&file, fs::metadata(&file))?.len() >> 10
        );
    }
    match &args.install {
        Some(directory) => install(
            &crates,
            &packages,
            &std::path::absolute(directory).unwrap_or(directory.clone()),
        ),
        None => Ok(()),
    }
}

/// The crates of the workspace that may be published.
fn published() -> Result<Vec<Published>, TaskError> {
    let mut command = MetadataCommand::new();
    let metadata = command.current_dir(tool::root()).no_deps().exec();
    let metadata = metadata.map_err(|error| TaskError::Printed {
        program: "cargo metadata",
        error: error.to_string(),
    })?;
    let is_public =
        |one: &cargo_metadata::Package| one.publish.as_ref().is_none_or(|to| !to.is_empty());
    let public = metadata.packages.into_iter().filter(is_public);
    Ok(public
        .map(|one| Published {
            name: one.name.to_string(),
            version: one.version.to_string(),
        })
        .collect())
}

/// Builds the command from the packages in a separate workspace, and installs it below `directory`.
fn install(crates: &[Published], packages: &Path, directory: &Path) -> Result<(), TaskError> {
    let workspace = tool::target().join("from-packages");
    tool::empty(&workspace)?;
    for one in crates {
        let file = packages.join(one.directory() + ".crate");
        // All files of packages have the same old time, from which cargo would conclude that nothing has changed.
        run(Command::new("tar")
            .current_dir(&workspace)
            .args(["--touch", "-xzf"])
            .arg(&file))?;
    }
    let root = tool::root();
    let own = root.join("Cargo.toml");
    let own = at(&own, fs::read_to_string(&own))?;
    let manifest = workspace.join("Cargo.toml");
    at(&manifest, fs::write(&manifest, manifest_of(crates, &own)))?;
    let lock = workspace.join("Cargo.lock");
    at(&lock, fs::copy(root.join("Cargo.lock"), &lock))?;

    let cargo = || {
        let mut cargo = tool::cargo();
        cargo
            .current_dir(&workspace)
            .env("CARGO_TARGET_DIR", tool::target());
        cargo
    };
    // This also fetches what other systems need: cargo reads all packages of the lock file, and a build fetches only
    // its own.
    run(tool::cargo()
        .current_dir(&root)
        .args(["fetch", "--locked", "--quiet"]))?;
    // Removes entries from the lock file that the packages do not need, and changes nothing else there.
    run(cargo().args(["metadata", "--offline", "--quiet", "--format-version", "1"]))?;
    let command = crates.iter().find(|one| one.name == "millpond-cli");
    let path = command.map(Published::directory).unwrap_or_default();
    let mut install = cargo();
    install.args([
        "install",
        "--locked",
        "--offline",
        "--force",
        "--path",
        &path,
        "--root",
    ]);
    run(install.arg(directory))?;
    println!("{}", directory.join("bin/millpond").display());
    Ok(())
}

/// The manifest of a workspace that takes every package from its directory. The profiles are the checkout's, so that
/// what was built there need not be built again.
fn manifest_of(crates: &[Published], own: &str) -> String {
    let mut text =
        "[workspace]\nresolver = \"3\"\nmembers = [\"millpond*\"]\n\n[patch.crates-io]\n"
            .to_owned();
    for one in crates {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{} = {{ path = \"{}\" }}", one.name, one.directory());
    }
    let profiles = own.find("\n[profile.").map_or("", |at| &own[at..]);
    text + profiles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_crates_are_not_published_but_what_the_command_needs_is() {
        let names: Vec<_> = published()
            .unwrap()
            .into_iter()
            .map(|one| one.name)
            .collect();
        for name in [
            "millpond",
            "millpond-cli",
            "millpond-preload",
            "millpond-embed",
            "millpond-capi",
        ] {
            assert!(
                names.iter().any(|one| one == name),
                "{name} is not among {names:?}"
            );
        }
        for name in ["xtask", "millpond-sim", "millpond-race", "millpond-bench"] {
            assert!(
                !names.iter().any(|one| one == name),
                "{name} is among {names:?}"
            );
        }
    }

    #[test]
    fn the_workspace_of_packages_has_their_places_and_the_profiles() {
        let one = Published {
            name: "a".to_owned(),
            version: "1.2.3".to_owned(),
        };
        let text = manifest_of(
            &[one],
            "[workspace]\nmembers = []\n\n[profile.release]\ndebug = 1\n",
        );
        assert!(text.contains("a = { path = \"a-1.2.3\" }"), "{text}");
        assert!(text.ends_with("[profile.release]\ndebug = 1\n"), "{text}");
    }
}
