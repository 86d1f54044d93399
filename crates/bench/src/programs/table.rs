//! The programs, and the files from which they are made.

use crate::error::Skip;
use crate::programs_here;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

/// A program.
pub struct Entry {
    /// Its name in arguments and in JSON.
    pub name: &'static str,
    /// Commands that must be installed.
    pub commands: &'static [&'static str],
    /// Python packages that must be installed.
    pub packages: &'static [&'static str],
    /// The bash script that creates its input in the directory `$INPUT`; empty if there is none.
    pub input: &'static str,
    /// The measured bash script. `$JOBS` has the files of [`FILES`], and `$WORK` is an empty directory.
    pub run: &'static str,
    /// The minimum budget in MiB. Code is not managed, and a run with a budget that has no room for it shows nothing
    /// else.
    pub least_mib: u64,
}

/// The files from which the programs are made, or which they read.
const FILES: [(&str, &str); 11] = [
    ("objects.c", include_str!("../../jobs/objects.c")),
    ("groups.py", include_str!("../../jobs/groups.py")),
    ("functions.py", include_str!("../../jobs/functions.py")),
    ("redis.sh", include_str!("../../jobs/redis.sh")),
    ("sqlite.sql", include_str!("../../jobs/sqlite.sql")),
    ("objects.py", include_str!("../../../../demo/objects.py")),
    (
        "group_sort.py",
        include_str!("../../../../demo/group_sort.py"),
    ),
    (
        "make_measurements.py",
        include_str!("../../../../demo/make_measurements.py"),
    ),
    (
        "records.py",
        include_str!("../../../../soak/jobs/records.py"),
    ),
    (
        "duckdb_sql.py",
        include_str!("../../../../soak/jobs/duckdb_sql.py"),
    ),
    (
        "polars_lazy.py",
        include_str!("../../../../soak/jobs/polars_lazy.py"),
    ),
];
/// The file of the program for node, which contains quotes of all kinds.
const NODE: (&str, &str) = (
    "objects.js",
    include_str!("../../../../soak/jobs/objects.js"),
);

const PYTHON: &[&str] = &["bash", "python3"];

/// The programs: the eight of the README's table, and four more.
pub const TABLE: [Entry; 12] = [
    Entry {
        name: "sqlite",
        commands: &["bash", "sqlite3"],
        packages: &[],
        input: "",
        run: "sqlite3 :memory: < $JOBS/sqlite.sql",
        least_mib: 16,
    },
    Entry {
        name: "groups",
        commands: PYTHON,
        packages: &[],
        input: "",
        run: "$PYTHON $JOBS/groups.py 2000000",
        least_mib: 16,
    },
    Entry {
        name: "lines",
        commands: PYTHON,
        packages: &[],
        input: "$PYTHON $JOBS/make_measurements.py $INPUT/lines 96",
        run: "$PYTHON $JOBS/group_sort.py $INPUT/lines",
        least_mib: 16,
    },
    Entry {
        name: "sort",
        commands: &["bash", "sort", "tail", "awk"],
        packages: &[],
        input: "awk 'BEGIN { srand(1); for (i = 0; i < 1500000; i++) printf \"%012d\\n\", rand() * 1e12 }' > $INPUT/numbers",
        // If the kernel kills the sort because memory ran out, the run has failed; its output is not merely wrong.
        run: "set -o pipefail; LC_ALL=C sort $INPUT/numbers | tail -n 3",
        least_mib: 16,
    },
    Entry {
        name: "gcc",
        commands: &["bash", "gcc", "python3"],
        packages: &[],
        input: "$PYTHON $JOBS/functions.py 1500 > $INPUT/large.c",
        run: "gcc -O1 -S -o - $INPUT/large.c",
        // The compiler's code alone is 30 MiB.
        least_mib: 48,
    },
    Entry {
        name: "redis",
        commands: &["bash", "redis-server", "redis-cli", "grep", "sleep"],
        packages: &[],
        input: "",
        run: "bash $JOBS/redis.sh",
        least_mib: 16,
    },
    Entry {
        name: "objects_all",
        commands: PYTHON,
        packages: &[],
        input: "",
        run: "$PYTHON $JOBS/objects.py 1000000 1000000 100000",
        least_mib: 16,
    },
    Entry {
        name: "objects_hot",
        commands: PYTHON,
        packages: &[],
        input: "",
        run: "$PYTHON $JOBS/objects.py 1000000 444000 1000000",
        least_mib: 16,
    },
    Entry {
        name: "duckdb",
        commands: PYTHON,
        packages: &["duckdb"],
        input: "$PYTHON $JOBS/records.py 200000 > $INPUT/records.csv",
        run: "$PYTHON $JOBS/duckdb_sql.py",
        least_mib: 100,
    },
    Entry {
        name: "polars",
        commands: PYTHON,
        packages: &["polars"],
        input: "$PYTHON $JOBS/records.py 300000 > $INPUT/records.csv",
        run: "$PYTHON $JOBS/polars_lazy.py",
        least_mib: 100,
    },
    Entry {
        name: "node",
        commands: &["bash", "node", "python3"],
        packages: &[],
        input: "$PYTHON $JOBS/records.py 200000 > $INPUT/records.csv",
        run: "node $JOBS/objects.js",
        least_mib: 48,
    },
    Entry {
        name: "c_objects",
        commands: &["bash", "gcc"],
        packages: &[],
        input: "gcc -O2 -o $INPUT/objects $JOBS/objects.c",
        run: "$INPUT/objects 1200000 200000",
        least_mib: 16,
    },
];

/// Writes the files of the programs into `directory`.
///
/// # Errors
/// When a file cannot be written.
pub fn write_files(directory: &Path) -> io::Result<()> {
    let files = FILES.iter().chain([&NODE]);
    files
        .into_iter()
        .try_for_each(|(name, text)| fs::write(directory.join(name), text))
}

/// The Python interpreter that runs the programs: the requested one, or the system's.
///
/// # Errors
/// When there is no interpreter.
pub fn python(asked: Option<&Path>) -> Result<PathBuf, Skip> {
    match asked {
        Some(python) => Ok(python.to_owned()),
        None => programs_here::find("python3"),
    }
}

/// Checks that everything that a program needs is installed.
///
/// # Errors
/// What is missing, and how to get it.
pub fn is_here(entry: &Entry, python: &Path) -> Result<(), Skip> {
    for command in entry.commands {
        programs_here::find(command)?;
    }
    for package in entry.packages {
        let mut command = Command::new(python);
        command
            .args(["-c", &format!("import {package}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if !command.status().is_ok_and(|status| status.success()) {
            return Err(Skip(format!(
                "{} has no package {package}; `python3 -m venv DIRECTORY && DIRECTORY/bin/pip install {package}` \
                 makes one that has it, for `--python DIRECTORY/bin/python3`",
                python.display()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_all_different_and_every_file_is_there() {
        let names: HashSet<&str> = TABLE.iter().map(|entry| entry.name).collect();
        assert_eq!(names.len(), TABLE.len());
        let directory = tempfile::tempdir().unwrap();
        write_files(directory.path()).unwrap();
        for entry in &TABLE {
            let words = entry
                .input
                .split_whitespace()
                .chain(entry.run.split_whitespace());
            for file in words.filter_map(|word| word.strip_prefix("$JOBS/")) {
                assert!(
                    directory.path().join(file).is_file(),
                    "{}: {file}",
                    entry.name
                );
            }
        }
    }

    #[test]
    fn missing_package_is_named_with_its_install_command() {
        let entry = Entry {
            name: "none",
            commands: &[],
            packages: &["no_such_package"],
            input: "",
            run: "",
            least_mib: 16,
        };
        let error = is_here(&entry, Path::new("/usr/bin/python3"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("pip install no_such_package"), "{error}");
    }
}
