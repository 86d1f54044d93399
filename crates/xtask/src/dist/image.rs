//! The container image: it contains only the tree below `/usr/local`, for copying from it:
//!
//! ```text
//! COPY --from=millpond:0.1.0 /usr/local /usr/local
//! ```
//!
//! `packaging/Containerfile` defines its contents. Podman builds it, with a separate store in the target directory,
//! or else Docker's daemon does. Nothing is fetched, nothing is run in the image, and no image stays behind.

use super::{Made, VERSION};
use crate::tool::{self, TaskError, at, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const WAY_OUT: &str =
    "install podman (Debian package podman) or docker, or leave the image out with --only";

/// Builds the image. Returns the path of the file, which `podman load` and `docker load` read.
pub fn make(made: &Made<'_>) -> Result<PathBuf, TaskError> {
    let name = format!("millpond:{VERSION}");
    let file = made.out.join(format!(
        "millpond-{VERSION}-{}-image.tar",
        std::env::consts::ARCH
    ));
    if file.exists() {
        at(&file, fs::remove_file(&file))?;
    }
    match tool::installed("podman") {
        Some(podman) => with_podman(&podman, &name, made.tree, &file)?,
        None => with_docker(&tool::need("docker", WAY_OUT)?, &name, made.tree, &file)?,
    }
    Ok(file)
}

/// The arguments that build an image of the tree.
fn build<'a>(command: &'a mut Command, name: &str, tree: &Path) -> &'a mut Command {
    let containerfile = tool::root().join("packaging/Containerfile");
    command
        .args([
            "build",
            "--quiet",
            "--network",
            "none",
            "--tag",
            name,
            "--file",
        ])
        .args([&containerfile, tree])
}

fn with_podman(podman: &Path, name: &str, tree: &Path, file: &Path) -> Result<(), TaskError> {
    let store = tool::target().join("image-store");
    let podman = || {
        let mut podman = Command::new(podman);
        podman.arg("--root").arg(store.join("root"));
        podman.arg("--runroot").arg(store.join("run"));
        // This driver copies files, and needs no mount.
        podman.args(["--storage-driver", "vfs"]);
        podman
    };
    run(build(&mut podman(), name, tree))?;
    let save = ["save", "--quiet", "--format", "oci-archive", "--output"];
    run(podman().args(save).arg(file).arg(name))?;
    run(podman().args(["rmi", "--force", name])).map(drop)
}

fn with_docker(docker: &Path, name: &str, tree: &Path, file: &Path) -> Result<(), TaskError> {
    run(build(&mut Command::new(docker), name, tree))?;
    run(Command::new(docker)
        .args(["save", "--output"])
        .arg(file)
        .arg(name))?;
    run(Command::new(docker).args(["rmi", name])).map(drop)
}
