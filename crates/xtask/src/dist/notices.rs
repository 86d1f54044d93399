//! The licences of the crates whose code is in the programs. Most of them require that their text accompanies the
//! programs.

use crate::tool::{self, TaskError, at};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates of the workspace whose programs and libraries are distributed.
const ROOTS: [&str; 4] = [
    "millpond-cli",
    "millpond-bench",
    "millpond-preload",
    "millpond-capi",
];
/// The beginnings of the names of files that contain a licence or a copyright notice.
const NAMES: [&str; 5] = ["license", "licence", "copying", "notice", "unlicense"];

/// All licences as one text: each licence's text once, with its crates.
pub fn text() -> Result<String, TaskError> {
    let mut command = MetadataCommand::new();
    let platform = format!(
        "--filter-platform={}-unknown-linux-gnu",
        std::env::consts::ARCH
    );
    let metadata = command
        .current_dir(tool::root())
        .other_options(["--locked".to_owned(), platform])
        .exec()
        .map_err(|error| TaskError::Printed {
            program: "cargo metadata",
            error: error.to_string(),
        })?;
    let mut texts = BTreeMap::<String, BTreeSet<String>>::new();
    let mut list = String::new();
    for package in linked(&metadata) {
        let name = format!("{} {}", package.name, package.version);
        let license = package.license.as_deref().unwrap_or("see its text");
        // Writing to a string does not fail.
        let _ = writeln!(list, "{name}: {license}");
        let directory = package.manifest_path.parent();
        for text in directory.map_or(Ok(Vec::new()), |at| texts_in(at.as_std_path()))? {
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    let mut all = format!("Millpond's programs hold code of these crates:\n\n{list}");
    for (text, crates) in texts {
        let crates: Vec<_> = crates.into_iter().collect();
        let _ = write!(
            all,
            "\n{}\n{}\n\n{}\n",
            "=".repeat(80),
            crates.join(", "),
            text.trim_end()
        );
    }
    Ok(all)
}

/// The external crates that are linked into the programs, without those that only tests and build scripts use.
fn linked(metadata: &Metadata) -> Vec<&Package> {
    let nodes = metadata
        .resolve
        .as_ref()
        .map_or(&[][..], |graph| &graph.nodes);
    let edges: BTreeMap<&PackageId, _> = nodes.iter().map(|node| (&node.id, &node.deps)).collect();
    let is_root = |package: &&Package| ROOTS.contains(&package.name.as_str());
    let mut left: Vec<_> = metadata
        .packages
        .iter()
        .filter(is_root)
        .map(|one| &one.id)
        .collect();
    let mut seen: BTreeSet<&PackageId> = left.iter().copied().collect();
    while let Some(id) = left.pop() {
        for dependency in edges.get(id).into_iter().copied().flatten() {
            let is_linked = dependency
                .dep_kinds
                .iter()
                .any(|kind| kind.kind == DependencyKind::Normal);
            if is_linked && seen.insert(&dependency.pkg) {
                left.push(&dependency.pkg);
            }
        }
    }
    let is_of_others = |package: &&Package| package.source.is_some() && seen.contains(&package.id);
    metadata.packages.iter().filter(is_of_others).collect()
}

/// The texts of the licence files in a crate's directory and its subdirectories: crates that contain a C library have
/// its sources in a subdirectory.
fn texts_in(directory: &Path) -> Result<Vec<String>, TaskError> {
    let mut texts = Vec::new();
    let mut files = entries(directory)?;
    let inner: Vec<_> = files.extract_if(.., |path| path.is_dir()).collect();
    for directory in inner {
        files.extend(entries(&directory)?);
    }
    for path in files.into_iter().filter(|path| path.is_file()) {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        if NAMES.iter().any(|begin| name.starts_with(begin)) {
            let bytes = at(&path, fs::read(&path))?;
            texts.push(String::from_utf8_lossy(&bytes).replace('\r', ""));
        }
    }
    Ok(texts)
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, TaskError> {
    at(directory, fs::read_dir(directory))?
        .map(|entry| Ok(at(directory, entry)?.path()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_name_linked_crates_but_not_those_that_only_tests_use() {
        let text = text().unwrap();
        assert!(text.contains("\nlibc ") && text.contains("\ntikv-jemalloc-sys "));
        assert!(text.contains("Permission is hereby granted"));
        // This is jemalloc's own licence, in the directory of its sources.
        assert!(text.contains("Jason Evans"));
        assert!(!text.contains("\nproptest ") && !text.contains("\nmillpond "));
    }
}
