//! docs/LOCKS.md and the code know the same locks.

use millpond_sync::Rank;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The rows of the table, as number and name.
fn rows(text: &str) -> Vec<(usize, String)> {
    text.lines()
        .filter_map(|line| {
            let (number, rest) = line.strip_prefix("| ")?.split_once(" `")?;
            let (name, _) = rest.split_once("` |")?;
            Some((number.parse().ok()?, name.into()))
        })
        .collect()
}

#[test]
fn the_table_has_each_rank_at_its_place() {
    let text = std::fs::read_to_string(root().join("docs/LOCKS.md")).unwrap();
    let ranks: Vec<_> = (Rank::ALL.iter().enumerate())
        .map(|(n, rank)| (n + 1, format!("{rank:?}")))
        .collect();
    assert_eq!(rows(&text), ranks);
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let is_tests = path.file_stem().is_some_and(|stem| stem == "tests");
        match path.is_dir() {
            _ if is_tests => {}
            true => sources(&path, found),
            false => found.extend(path.extension().is_some_and(|e| e == "rs").then_some(path)),
        }
    }
}

/// The lines of a file, but for comments and its tests at the end, that make a lock of the standard library's.
fn without_rank(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let code = code.lines().map(str::trim);
    let makes = |line: &&str| {
        let made = ["Mutex::", "RwLock::"]
            .iter()
            .any(|kind| line.contains(kind));
        made && !line.starts_with("//") && !line.starts_with("use ")
    };
    code.filter(makes).map(str::to_owned).collect()
}

/// The ring is a mutex of the standard library's under shuttle as well, and marks its rank itself.
const MARKS_ITSELF: &str = "driver/src/recent.rs";

#[test]
fn no_lock_is_without_a_rank() {
    assert_eq!(
        without_rank("// Mutex::new\nlet a = Mutex::new(1);").len(),
        1
    );
    let (mut found, mut files) = (Vec::new(), Vec::new());
    for name in [
        "board", "capi", "core", "driver", "millpond", "mmu", "preload", "store",
    ] {
        sources(&root().join("crates").join(name).join("src"), &mut files);
    }
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = without_rank(&text).into_iter();
        if !path.ends_with(MARKS_ITSELF) {
            found.extend(lines.map(|line| format!("{}: {line}", path.display())));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
