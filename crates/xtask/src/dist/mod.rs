//! `cargo xtask dist`: everything that is distributed, from one build.
//!
//! | kind | contents |
//! | --- | --- |
//! | `archive` | a tree that can be unpacked anywhere and used from there (`files.rs`) |
//! | `deb` | a Debian package of the command (`deb.rs`) |
//! | `wheel` | a Python wheel with the package, its library and the command (`wheel.rs`) |
//! | `image` | a container image with the tree below `/usr/local`, for copying from it (`image.rs`) |
//!
//! The tree:
//!
//! | in the tree | contents |
//! | --- | --- |
//! | `bin/` | `millpond`, `millpond-bench` |
//! | `lib/millpond/` | the library that `millpond run` loads into programs; the command finds it from `bin/` |
//! | `lib/`, `include/` | `libmillpond` for C, shared and static, its header, movable pkg-config and CMake files |
//! | `share/man/`, completions | generated from the definition of the command line (`pages.rs`) |
//! | `share/doc/millpond/` | README, licences, including those of other crates (`notices.rs`) |
//!
//! The oldest glibc with which the programs start is the newest version that one of their symbols requires
//! (`glibc.rs`). It is part of our promise ([`GLIBC`]): a build that needs a newer one fails. It depends on this
//! machine's own libraries, so builds for older systems must be made on an older system.

mod deb;
mod files;
mod glibc;
mod image;
mod notices;
mod pages;
mod wheel;

use crate::tool::{self, TaskError, at, run};
use glibc::Version;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest supported glibc: Ubuntu 22.04 has 2.35, Debian 12 has 2.36, RHEL 9 has 2.34.
const GLIBC: Version = Version(2, 34);

/// The version of everything that is made.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `cargo xtask dist`'s arguments.
#[derive(clap::Args)]
pub struct DistArgs {
    /// The profile to build with; `release` reuses what tests have built, and is not stripped
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Continue even if a newer glibc than promised is needed, for builds that are only tried out
    #[arg(long)]
    any_glibc: bool,
    /// The output directory
    #[arg(long, value_name = "DIRECTORY", default_value = "target/dist-out")]
    out: PathBuf,
    /// Make only these kinds
    #[arg(
        long,
        value_name = "KIND",
        value_delimiter = ',',
        default_value = "archive,deb,wheel,image"
    )]
    only: Vec<Kind>,
}

/// A kind of distribution.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Kind {
    /// A tar archive and its checksum
    Archive,
    /// A Debian package, by cargo-deb
    Deb,
    /// A Python wheel
    Wheel,
    /// A container image, by Podman, Buildah or Docker
    Image,
}

/// The reason why something could not be made.
#[derive(Debug, thiserror::Error)]
pub enum DistError {
    /// A file or program failed.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// A file is not an ELF file.
    #[error("{} cannot be read as ELF: {error}", .path.display())]
    NoElf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: object::read::Error,
    },
    /// A program needs a newer C library than promised.
    #[error(
        "{} needs glibc {needs}, and {GLIBC} is promised: build it on an older system, or raise GLIBC in \
         crates/xtask/src/dist/mod.rs and the README",
        .path.display()
    )]
    TooNew {
        /// The program.
        path: PathBuf,
        /// The version that it needs.
        needs: Version,
    },
}

/// The input of all kinds.
struct Made<'a> {
    /// The output directory.
    out: &'a Path,
    /// The directory of cargo's build results.
    built: &'a Path,
    /// The profile's name.
    profile: &'a str,
    /// The tree of files.
    tree: &'a Path,
    /// The promised glibc; `None` if any is accepted.
    glibc: Option<Version>,
}

/// Builds, and makes all requested kinds.
///
/// # Errors
/// When something cannot be built or made, or needs a newer glibc than promised.
pub fn dist(args: &DistArgs) -> Result<(), DistError> {
    let (root, built) = (tool::root(), build(&args.profile)?);
    let out = root.join(&args.out);
    let tree = out.join(format!(
        "millpond-{VERSION}-{}-linux-gnu",
        std::env::consts::ARCH
    ));
    tool::empty(&tree)?;
    let programs = files::lay_out(&root, &built, &tree)?;
    pages::write(&tree)?;
    files::write(
        &tree.join("share/doc/millpond/THIRD-PARTY"),
        &notices::text()?,
    )?;
    let mut newest = Version(0, 0);
    for path in programs {
        let needs = glibc::needed_by(&path)?;
        if needs > GLIBC && !args.any_glibc {
            return Err(DistError::TooNew { path, needs });
        }
        newest = newest.max(needs);
    }
    println!("{} (needs glibc {newest})", tree.display());
    let made = Made {
        out: &out,
        built: &built,
        profile: &args.profile,
        tree: &tree,
        glibc: (!args.any_glibc).then_some(GLIBC),
    };
    for kind in &args.only {
        let file = match kind {
            Kind::Archive => pack(&made)?,
            Kind::Deb => deb::make(&made)?,
            Kind::Wheel => wheel::make(&made)?,
            Kind::Image => image::make(&made)?,
        };
        finish(&file)?;
    }
    Ok(())
}

/// Builds everything that is distributed. Returns its directory.
fn build(profile: &str) -> Result<PathBuf, TaskError> {
    let mut cargo = tool::cargo();
    cargo.args(["build", "--locked", "--profile", profile]);
    // Built separately, the packages' dependencies would have other features than in the tests' build.
    if profile == "release" {
        cargo.args(["--workspace", "--exclude", "millpond-remote"]);
    } else {
        for package in [
            "millpond-cli",
            "millpond-bench",
            "millpond-preload",
            "millpond-capi",
        ] {
            cargo.args(["-p", package]);
        }
        // Its HTTP client takes minutes to build. CI, which uses the release profile, does not have that time.
        cargo.args(["--features", "millpond-cli/remote"]);
    }
    run(&mut cargo)?;
    Ok(tool::target().join(profile))
}

/// Packs the tree; the same contents give the same bytes.
fn pack(made: &Made<'_>) -> Result<PathBuf, TaskError> {
    let name = made.tree.file_name().unwrap_or_default();
    let archive = made.out.join(format!("{}.tar.gz", name.display()));
    let mut tar = Command::new("tar");
    tar.current_dir(made.out).args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mtime=@0",
    ]);
    run(tar.args(["-I", "gzip -n9", "-cf"]).arg(&archive).arg(name))?;
    Ok(archive)
}

/// Writes a file's checksum beside it, and prints that the file is made.
fn finish(file: &Path) -> Result<(), TaskError> {
    let directory = file.parent().unwrap_or(Path::new("."));
    let name = file.file_name().unwrap_or_default();
    let sum = run(Command::new("sha256sum").current_dir(directory).arg(name))?;
    let mut beside = file.as_os_str().to_owned();
    beside.push(".sha256");
    let beside = PathBuf::from(beside);
    at(&beside, fs::write(&beside, sum))?;
    let bytes = at(file, fs::metadata(file))?.len();
    println!(
        "{} ({:.1} MiB)",
        file.display(),
        bytes as f64 / f64::from(1 << 20)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_made_has_its_checksum_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.tar.gz");
        fs::write(&file, "").unwrap();
        finish(&file).unwrap();
        let sum = fs::read_to_string(directory.path().join("a.tar.gz.sha256")).unwrap();
        assert_eq!(
            sum,
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a.tar.gz\n"
        );
    }
}
