//! C programs, built as a user builds them: against the files that `install` installed, with the flags of pkg-config.
//!
//! The tests need a C compiler and pkg-config; tests of handler delivery need a userfaultfd that reports faults from
//! the kernel. Without these the tests say so and pass.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Returns the directory with the library, its header and its pkg-config file; `None` if the tools to use them are
/// missing.
fn prefix() -> Option<&'static Path> {
    static PREFIX: OnceLock<Option<tempfile::TempDir>> = OnceLock::new();
    let prefix = PREFIX.get_or_init(|| {
        for tool in ["cc", "pkg-config"] {
            if Command::new(tool).arg("--version").output().is_err() {
                println!("skipped: no {tool}");
                return None;
            }
        }
        let prefix = tempfile::tempdir().unwrap();
        // The test binary is in the target directory's `release/deps`, or `debug/deps`.
        let test = std::env::current_exe().unwrap();
        let target = test.ancestors().nth(3).unwrap();
        let mut install = Command::new(Path::new(HERE).join("install"));
        install.arg(prefix.path()).env("CARGO_TARGET_DIR", target);
        // The library is built as a part of the workspace: by itself, its dependencies would have other features.
        let features = if cfg!(feature = "remote") {
            " --features millpond-capi/remote"
        } else {
            ""
        };
        let flags = format!("--quiet --workspace --exclude millpond-remote{features}");
        install.env("CARGO_FLAGS", flags);
        succeeded(&install.output().unwrap(), "install");
        Some(prefix)
    });
    prefix.as_ref().map(|directory| directory.path())
}

fn succeeded(output: &Output, what: &str) -> String {
    assert!(
        output.status.success(),
        "{what}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn pkg_config(prefix: &Path, arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.args(arguments).arg("millpond");
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let words = succeeded(&command.output().unwrap(), "pkg-config");
    words.split_whitespace().map(str::to_owned).collect()
}

fn compile(compiler: &str, source: &Path, program: &Path, libraries: &[String]) {
    let mut command = Command::new(compiler);
    command.args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    command.arg(source).arg("-o").arg(program).args(libraries);
    succeeded(&command.output().unwrap(), &source.display().to_string());
}

/// Compiles a C program, runs it, and returns its output. Returns `None` if that is not possible here.
fn run(source: &str) -> Option<String> {
    let output = run_with(source, &[], None)?;
    Some(succeeded(&output, source))
}

/// Runs a program like [`run`], with arguments and a directory for temporary files, and accepts any exit status.
fn run_with(source: &str, arguments: &[&str], temporary: Option<&Path>) -> Option<Output> {
    let prefix = prefix()?;
    let source = Path::new(HERE).join(source);
    let mut name = source.file_stem().unwrap().to_owned();
    name.push(arguments.join("-").replace(['/', ':'], "-"));
    if temporary.is_some() {
        name.push("-elsewhere");
    }
    let program = prefix.join(name);
    compile(
        "cc",
        &source,
        &program,
        &pkg_config(prefix, &["--cflags", "--libs"]),
    );
    let mut command = Command::new(program);
    command.args(arguments);
    command.env("LD_LIBRARY_PATH", prefix.join("lib"));
    if let Some(directory) = temporary {
        command.env("TMPDIR", directory);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && said.contains("millpond doctor") {
        println!("skipped: {}", said.trim_end());
        return None;
    }
    Some(output)
}

#[test]
fn every_call_does_what_the_header_says() {
    run("tests/c/every_call.c");
}

#[test]
fn invalid_calls_are_refused() {
    run("tests/c/refusals.c");
}

#[test]
fn a_forked_child_is_refused_its_parents_pond() {
    run("tests/c/forked.c");
}

#[test]
fn random_numbers_stay_within_the_budget_with_default_settings() {
    run("tests/c/default_budget.c");
}

/// If the default store, named or not, cannot make its file, it does without, and one line says so.
#[test]
fn missing_store_directory_falls_back_to_ram_with_one_message() {
    let scratch = tempfile::tempdir().unwrap();
    let missing = scratch.path().join("missing");
    for arguments in [&[][..], &["auto"]] {
        let Some(output) = run_with("tests/c/no_file.c", arguments, Some(&missing)) else {
            return;
        };
        succeeded(&output, "no_file.c");
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<_> = said.lines().collect();
        let [line] = lines[..] else {
            panic!("not one line: {said}");
        };
        assert!(line.contains("compressed RAM alone"), "{line}");
        assert!(line.contains(missing.to_str().unwrap()), "{line}");
        assert!(
            line.contains("set TMPDIR to a directory on a disk"),
            "{line}"
        );
    }
}

/// Data that fits neither in the budget nor in a small file comes back from a directory elsewhere, where nothing
/// remains. A library without such stores says so.
#[test]
fn memory_in_a_remote_store_comes_back() {
    let (store, front) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let expected = if cfg!(feature = "remote") {
        "came back"
    } else {
        "built without"
    };
    for local in ["auto", "zram"] {
        let words = format!("{local},fs://{}", store.path().display());
        let Some(output) = run_with("tests/c/remote.c", &[&words], Some(front.path())) else {
            return;
        };
        let said = succeeded(&output, "remote.c");
        assert!(said.contains(expected), "{said}");
        assert_eq!(std::fs::read_dir(store.path()).unwrap().count(), 0);
    }
}

#[test]
fn threads_share_a_region() {
    run("tests/c/threads.c");
}

#[test]
fn the_example_stays_within_its_budget() {
    if let Some(said) = run("examples/larger_than_ram.c") {
        assert!(said.contains("of a budget of 64.0"), "{said}");
    }
}

/// The library once ended the first program that was run under valgrind: it looked for the vDSO where the kernel had
/// put it, and valgrind had removed that.
#[test]
fn valgrind_finds_nothing_wrong() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: no valgrind");
        return;
    }
    let Some(prefix) = prefix() else { return };
    let source = Path::new(HERE).join("examples/under_valgrind.c");
    let program = prefix.join("under_valgrind");
    let libraries = pkg_config(prefix, &["--cflags", "--libs"]);
    compile("cc", &source, &program, &libraries);
    let suppressions = prefix.join("share/millpond/millpond.supp");
    let mut valgrind = Command::new("valgrind");
    valgrind
        .arg("--vex-iropt-register-updates=allregs-at-mem-access")
        .args(["--leak-check=full", "--error-exitcode=9"])
        .arg(format!("--suppressions={}", suppressions.display()))
        .arg(&program)
        .env("LD_LIBRARY_PATH", prefix.join("lib"));
    let output = valgrind.output().unwrap();
    let said = succeeded(&output, "valgrind");
    assert!(said.contains("the sum is 8796090925056"), "{said}");
    let found = String::from_utf8_lossy(&output.stderr);
    assert!(found.contains("ERROR SUMMARY: 0 errors"), "{found}");
}

/// The static library contains everything that the program needs.
#[test]
fn the_static_library_is_enough_by_itself() {
    let Some(prefix) = prefix() else { return };
    let source = Path::new(HERE).join("examples/larger_than_ram.c");
    let program = prefix.join("static");
    let mut words = pkg_config(prefix, &["--cflags", "--libs", "--static"]);
    let library = words.iter().position(|word| word == "-lmillpond").unwrap();
    words[library] = "-l:libmillpond.a".into();
    compile("cc", &source, &program, &words);
    succeeded(&Command::new(program).output().unwrap(), "static");
}

#[test]
fn header_compiles_as_c99_and_as_cxx11() {
    let Some(prefix) = prefix() else { return };
    let header = prefix.join("include/millpond.h");
    for (language, standard) in [("c", "-std=c99"), ("c++", "-std=c++11")] {
        let mut command = Command::new("cc");
        command.args(["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
        command.args([standard, "-x", language]).arg(&header);
        let output = command.output().unwrap();
        if language == "c++" && String::from_utf8_lossy(&output.stderr).contains("cc1plus") {
            println!("skipped: no C++ compiler");
            continue;
        }
        succeeded(&output, language);
    }
}

/// The library exports the functions that the header declares, and no others.
#[test]
fn declared_and_exported_functions_are_the_same() {
    let Some(prefix) = prefix() else { return };
    let header = std::fs::read_to_string(prefix.join("include/millpond.h")).unwrap();
    let code = header
        .split("*/")
        .filter_map(|part| part.split("/*").next());
    let declared: BTreeSet<_> = code
        .flat_map(|code| code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '(')))
        .filter_map(|word| word.split_once('(').map(|(name, _)| name.to_owned()))
        .filter(|name| name.starts_with("millpond_"))
        .collect();
    let mut names = Command::new("nm");
    names
        .args(["-D", "--defined-only"])
        .arg(prefix.join("lib/libmillpond.so"));
    let exported = succeeded(&names.output().unwrap(), "nm");
    // The version itself is also a symbol, but absolute, whereas functions are text.
    let exported: BTreeSet<_> = exported
        .lines()
        .filter_map(|line| line.split_once(" T "))
        .map(|(_, name)| name.split('@').next().unwrap().to_owned())
        .collect();
    assert_eq!(declared, exported);
    assert!(declared.len() >= 44, "{declared:?}");
}

/// Each function carries the version that introduced it, and a program says which version it needs: the loader then
/// refuses an older library, instead of failing at the first call of a missing function.
#[test]
fn functions_have_symbol_versions_that_programs_require() {
    let Some(prefix) = prefix() else { return };
    let mut names = Command::new("nm");
    names.args(["-D", "--defined-only", "--with-symbol-versions"]);
    let names = names.arg(prefix.join("lib/libmillpond.so")).output();
    let names = succeeded(&names.unwrap(), "nm");
    let functions: Vec<_> = names.lines().filter(|line| line.contains(" T ")).collect();
    let first = |line: &&str| line.contains(" millpond_") && line.ends_with("@@MILLPOND_0.1");
    assert!(
        functions.len() >= 44 && functions.iter().all(first),
        "{names}"
    );

    let program = prefix.join("versions");
    let source = Path::new(HERE).join("examples/larger_than_ram.c");
    let libraries = pkg_config(prefix, &["--cflags", "--libs"]);
    compile("cc", &source, &program, &libraries);
    let mut needs = Command::new("readelf");
    let needs = needs.args(["--version-info", "--wide"]).arg(&program);
    let needs = succeeded(&needs.output().unwrap(), "readelf");
    assert!(needs.contains("File: libmillpond.so.0"), "{needs}");
    assert!(needs.contains("Name: MILLPOND_0.1"), "{needs}");
}

/// Linked programs find the library by its major version, and it is never unloaded.
#[test]
fn library_has_a_soname_with_its_major_version() {
    let Some(prefix) = prefix() else { return };
    let name: PathBuf = std::fs::read_link(prefix.join("lib/libmillpond.so")).unwrap();
    assert_eq!(name, Path::new("libmillpond.so.0"));
    let mut dynamic = Command::new("readelf");
    dynamic.arg("-d").arg(prefix.join("lib/libmillpond.so"));
    let dynamic = succeeded(&dynamic.output().unwrap(), "readelf");
    assert!(
        dynamic.contains("[libmillpond.so.0]") && dynamic.contains("NODELETE"),
        "{dynamic}"
    );
    assert_eq!(
        pkg_config(prefix, &["--modversion"]),
        [env!("CARGO_PKG_VERSION")]
    );
}
