//! The files of the archive and their places.

use super::VERSION;
use crate::tool::{TaskError, at, run};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const MAJOR: &str = env!("CARGO_PKG_VERSION_MAJOR");

/// The CMake file: a target for programs that link with the library.
const CMAKE: &str = "\
# find_package(millpond) gives the target millpond::millpond.
get_filename_component(_millpond \"${CMAKE_CURRENT_LIST_DIR}/../../..\" ABSOLUTE)
if(NOT TARGET millpond::millpond)
  add_library(millpond::millpond SHARED IMPORTED)
  set_target_properties(millpond::millpond PROPERTIES
    IMPORTED_LOCATION \"${_millpond}/lib/libmillpond.so\"
    INTERFACE_INCLUDE_DIRECTORIES \"${_millpond}/include\")
endif()
";

/// Lays out all files that were built or are in the checkout. Returns the programs and shared libraries among them.
pub fn lay_out(root: &Path, built: &Path, tree: &Path) -> Result<Vec<PathBuf>, TaskError> {
    let programs = [
        ("millpond", "bin/millpond"),
        ("millpond-bench", "bin/millpond-bench"),
        (
            "libmillpond_preload.so",
            "lib/millpond/libmillpond_preload.so",
        ),
    ];
    for (from, to) in programs {
        copy(&built.join(from), &tree.join(to), 0o755)?;
    }
    let built_static = built.join("libmillpond_capi.a");
    copy(&built_static, &tree.join("lib/libmillpond.a"), 0o644)?;
    // The library that cargo links has no version in its name.
    let library = tree.join(format!("lib/libmillpond.so.{VERSION}"));
    let mut link = Command::new(root.join("crates/capi/link"));
    link.env("LDFLAGS", "-Wl,--strip-all");
    run(link.arg(&built_static).arg(&library))?;
    let texts = [
        ("crates/capi/include/millpond.h", "include/millpond.h"),
        ("crates/capi/millpond.supp", "share/millpond/millpond.supp"),
        ("README.md", "share/doc/millpond/README.md"),
        ("LICENSE-APACHE", "share/doc/millpond/LICENSE-APACHE"),
        ("LICENSE-MIT", "share/doc/millpond/LICENSE-MIT"),
    ];
    for (from, to) in texts {
        copy(&root.join(from), &tree.join(to), 0o644)?;
    }
    let shared = [
        (
            format!("libmillpond.so.{VERSION}"),
            format!("lib/libmillpond.so.{MAJOR}"),
        ),
        (
            format!("libmillpond.so.{MAJOR}"),
            "lib/libmillpond.so".to_owned(),
        ),
    ];
    for (onto, link) in shared {
        let link = tree.join(link);
        at(&link, symlink(onto, &link))?;
    }
    let template = root.join("crates/capi/millpond.pc.in");
    let text = at(&template, fs::read_to_string(&template))?;
    // pkg-config supplies the file's directory, so the tree may be moved.
    let text = text
        .replace("@PREFIX@", "${pcfiledir}/../..")
        .replace("@VERSION@", VERSION);
    write(&tree.join("lib/pkgconfig/millpond.pc"), &text)?;
    write(
        &tree.join("lib/cmake/millpond/millpond-config.cmake"),
        CMAKE,
    )?;
    let programs = programs.map(|(_, to)| tree.join(to));
    Ok(programs.into_iter().chain([library]).collect())
}

/// Writes a text file, and creates the directories above it.
pub fn write(path: &Path, text: &str) -> Result<(), TaskError> {
    make_above(path)?;
    at(path, fs::write(path, text))
}

pub fn make_above(path: &Path) -> Result<(), TaskError> {
    path.parent()
        .map_or(Ok(()), |above| at(above, fs::create_dir_all(above)))
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), TaskError> {
    make_above(to)?;
    at(from, fs::copy(from, to))?;
    at(
        to,
        fs::set_permissions(to, fs::Permissions::from_mode(mode)),
    )
}
