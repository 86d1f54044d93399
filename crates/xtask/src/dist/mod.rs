//! `cargo xtask dist`: an archive that can be unpacked anywhere and used from there.
//!
//! | in the archive | what it is |
//! | --- | --- |
//! | `bin/` | `millpond`, `millpond-bench` |
//! | `lib/millpond/` | the library that `millpond run` loads into programs; the command finds it from `bin/` |
//! | `lib/`, `include/` | `libmillpond` for C, shared and static, its header, pkg-config and CMake files, which name no place |
//! | `share/man/`, completions | made from the words of the command line (`pages.rs`) |
//! | `share/doc/millpond/` | README, licences |
//!
//! The oldest glibc that the programs start with is the newest version that one of their symbols asks for
//! (`glibc.rs`). It is part of what is promised ([`GLIBC`]): a build that needs a newer one fails. What this machine's
//! own libraries have decides, so an archive for older systems is made on an older system.

mod files;
mod glibc;
mod pages;

use glibc::Version;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

/// The oldest glibc that the archive promises to run with: Ubuntu 22.04 has 2.35, Debian 12 has 2.36, RHEL 9 has 2.34.
const GLIBC: Version = Version(2, 34);

/// `cargo xtask dist`'s arguments.
#[derive(clap::Args)]
pub struct DistArgs {
    /// The profile to build with; `release` uses what tests have built, and is not stripped
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Make the archive even if it needs a newer glibc than is promised, as when it is made to be tried out
    #[arg(long)]
    any_glibc: bool,
    /// The directory for the archive and its checksum
    #[arg(long, value_name = "DIRECTORY", default_value = "target/dist-out")]
    out: PathBuf,
}

/// The reason why there is no archive.
#[derive(Debug, thiserror::Error)]
pub enum DistError {
    /// A program that is needed failed, or is not there.
    #[error("{0} failed: {1}")]
    Failed(String, String),
    /// A file cannot be made or read.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// A file that is no program.
    #[error("{} cannot be read as ELF: {error}", .path.display())]
    NoElf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: object::read::Error,
    },
    /// A program needs a newer C library than is promised.
    #[error(
        "{} needs glibc {needs}, and the archive promises {GLIBC}: build it on an older system, or raise GLIBC in \
         crates/xtask/src/dist/mod.rs and the README",
        .path.display()
    )]
    TooNew {
        /// The program.
        path: PathBuf,
        /// What it needs.
        needs: Version,
    },
}

/// Adds a path to an error.
fn at<T>(path: &Path, result: io::Result<T>) -> Result<T, DistError> {
    result.map_err(|error| DistError::File {
        path: path.to_owned(),
        error,
    })
}

/// Runs a program to its end.
fn run(command: &mut Command) -> Result<String, DistError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stderr(std::process::Stdio::inherit()).output();
    let output = output.map_err(|error| DistError::Failed(name.clone(), error.to_string()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(DistError::Failed(name, output.status.to_string())),
    }
}

/// Builds, and makes the archive.
///
/// # Errors
/// What could not be built, made or promised.
pub fn dist(args: &DistArgs) -> Result<(), DistError> {
    let root = root();
    let built = build(&root, &args.profile)?;
    let out = root.join(&args.out);
    let (version, processor) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let name = format!("millpond-{version}-{processor}-linux-gnu");
    let tree = out.join(&name);
    if tree.exists() {
        at(&tree, fs::remove_dir_all(&tree))?;
    }
    let programs = files::lay_out(&root, &built, &tree)?;
    pages::write(&tree)?;
    let mut newest = Version(0, 0);
    for path in programs {
        let needs = glibc::needed_by(&path)?;
        if needs > GLIBC && !args.any_glibc {
            return Err(DistError::TooNew { path, needs });
        }
        newest = newest.max(needs);
    }
    let archive = pack(&out, &name)?;
    let bytes = at(&archive, fs::metadata(&archive))?.len();
    println!(
        "{} ({:.1} MiB; needs glibc {newest})",
        archive.display(),
        bytes as f64 / f64::from(1 << 20)
    );
    Ok(())
}

/// The checkout.
fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    crates
        .and_then(Path::parent)
        .unwrap_or(Path::new("/"))
        .to_owned()
}

/// Builds all that the archive holds. Answers where it is.
fn build(root: &Path, profile: &str) -> Result<PathBuf, DistError> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo
        .current_dir(root)
        .args(["build", "--locked", "--profile", profile]);
    for package in [
        "millpond-cli",
        "millpond-bench",
        "millpond-preload",
        "millpond-capi",
    ] {
        cargo.args(["-p", package]);
    }
    run(&mut cargo)?;
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |at| root.join(at));
    Ok(target.join(profile))
}

/// Packs the tree, in the same bytes whenever it holds the same, and writes its checksum beside it.
fn pack(out: &Path, name: &str) -> Result<PathBuf, DistError> {
    let archive = format!("{name}.tar.gz");
    let mut tar = Command::new("tar");
    tar.current_dir(out).args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mtime=@0",
    ]);
    run(tar.args(["-I", "gzip -n9", "-cf", &archive, name]))?;
    let sum = run(Command::new("sha256sum").current_dir(out).arg(&archive))?;
    let beside = out.join(format!("{archive}.sha256"));
    at(&beside, fs::write(&beside, sum))?;
    Ok(out.join(archive))
}
