//! Tests that resolve names to files, and files to verdicts, on real files in a temporary directory.

use super::super::elf::{Kind, Unfit, classify};
use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use tempfile::TempDir;

fn put(dir: &TempDir, name: &str, mode: u32, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

fn path_of(parts: &[&Path]) -> OsString {
    std::env::join_paths(parts).unwrap()
}

fn a_program() -> Vec<u8> {
    fs::read("/bin/true").unwrap()
}

#[test]
fn the_first_executable_in_path_wins_over_an_earlier_refused_one() {
    let dir = TempDir::new().unwrap();
    put(&dir, "a/tool", 0o644, &a_program());
    let second = put(&dir, "b/tool", 0o755, &a_program());
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let path = path_of(&[&dir.path().join("none"), &a, &b]);
    assert_eq!(resolve(OsStr::new("tool"), Some(&path)).unwrap(), second);
    let error = resolve(OsStr::new("tool"), Some(&path_of(&[&a]))).unwrap_err();
    assert_eq!(error.exit_code(), 126, "{error}");
}

#[test]
fn a_program_that_does_not_exist_is_127() {
    let dir = TempDir::new().unwrap();
    let path = path_of(&[dir.path()]);
    for name in ["no-such-tool", "", "/no/such/tool", "/etc/passwd/tool"] {
        let error = resolve(OsStr::new(name), Some(&path)).unwrap_err();
        assert_eq!(error.exit_code(), 127, "{name}: {error}");
    }
}

#[test]
fn directories_and_plain_files_are_126() {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    let plain = put(&dir, "plain", 0o644, b"#!/bin/sh\n");
    for name in [dir.path().join("d"), plain] {
        let error = resolve(name.as_os_str(), None).unwrap_err();
        assert_eq!(error.exit_code(), 126, "{error}");
    }
    let error = resolve(OsStr::new("d"), Some(dir.path().as_os_str())).unwrap_err();
    assert_eq!(error.exit_code(), 126, "{error}");
}

#[test]
fn without_path_the_usual_directories_are_searched() {
    let found = resolve(OsStr::new("true"), None).unwrap();
    assert!(
        found == Path::new("/bin/true") || found == Path::new("/usr/bin/true"),
        "{found:?}"
    );
}

#[test]
fn scripts_are_followed_to_their_program() {
    let dir = TempDir::new().unwrap();
    let spaced = put(&dir, "spaced", 0o755, b"#! \t/bin/sh -e\nexit 0\n");
    assert_eq!(
        classify(&spaced).unwrap(),
        Kind::Script {
            interpreter: b"/bin/sh".to_vec()
        }
    );
    resolve(spaced.as_os_str(), None).unwrap();
    let headless = put(&dir, "headless", 0o755, b"exit 0\n");
    assert_eq!(classify(&headless).unwrap(), Kind::Unknown);
    resolve(headless.as_os_str(), None).unwrap();
    let lost = put(&dir, "lost", 0o755, b"#!/no/such/interpreter\n");
    let error = resolve(lost.as_os_str(), None).unwrap_err();
    assert!(
        matches!(&error, ResolveError::Interpreter { .. }),
        "{error}"
    );
    assert_eq!(error.exit_code(), 126);
}

/// The kernel follows five nested scripts and answers ELOOP to the sixth; the check has to agree with it.
#[test]
fn script_chain_limit_matches_the_kernels() {
    let dir = TempDir::new().unwrap();
    let mut interpreter = PathBuf::from("/bin/sh");
    for depth in 1..=7 {
        let line = format!("#!{}\n", interpreter.display());
        interpreter = put(&dir, &format!("s{depth}"), 0o755, line.as_bytes());
        let ours = resolve(interpreter.as_os_str(), None).is_ok();
        let kernels = Command::new(&interpreter).arg("/dev/null").status().is_ok();
        assert_eq!(ours, kernels, "depth {depth}");
        assert_eq!(ours, depth <= MAX_SCRIPTS, "depth {depth}");
    }
}

#[test]
fn a_common_program_qualifies() {
    assert_eq!(classify(Path::new("/bin/true")).unwrap(), Kind::Preloadable);
}

#[test]
fn programs_with_other_headers_are_named() {
    let dir = TempDir::new().unwrap();
    let edited = |at: usize, bytes: &[u8]| {
        let mut program = a_program();
        program[at..at + bytes.len()].copy_from_slice(bytes);
        classify(&put(&dir, "edited", 0o755, &program)).unwrap()
    };
    assert_eq!(edited(4, &[1]), Kind::Unfit(Unfit::Bits32));
    assert!(matches!(edited(4, &[9]), Kind::Unfit(Unfit::Damaged(_))));
    assert!(matches!(edited(5, &[9]), Kind::Unfit(Unfit::Damaged(_))));
    assert_eq!(
        edited(18, &243u16.to_le_bytes()),
        Kind::Unfit(Unfit::ForeignMachine(243))
    );
    assert!(matches!(
        edited(16, &1u16.to_le_bytes()),
        Kind::Unfit(Unfit::Damaged(_))
    ));
    assert!(matches!(
        edited(32, &u64::MAX.to_le_bytes()),
        Kind::Unfit(Unfit::Damaged(_))
    ));
    assert_eq!(edited(56, &0u16.to_le_bytes()), Kind::Unfit(Unfit::Static));
    for length in [4, 5, 16, 40, 63] {
        let cut = put(&dir, "cut", 0o755, &a_program()[..length]);
        assert!(
            matches!(classify(&cut).unwrap(), Kind::Unfit(Unfit::Damaged(_))),
            "{length}"
        );
    }
    let empty = put(&dir, "empty", 0o755, b"");
    assert_eq!(classify(&empty).unwrap(), Kind::Unknown);
}

#[test]
fn a_loader_of_another_libc_is_named() {
    let dir = TempDir::new().unwrap();
    let mut program = a_program();
    let at = program
        .windows(8)
        .position(|w| w == b"ld-linux")
        .expect("a loader in /bin/true");
    program[at..at + 8].copy_from_slice(b"ld-musl-");
    let musl = put(&dir, "musl", 0o755, &program);
    let Kind::Unfit(Unfit::ForeignLoader(loader)) = classify(&musl).unwrap() else {
        panic!("{:?}", classify(&musl));
    };
    assert!(loader.contains("ld-musl-"), "{loader}");
}

/// An owner gains nothing from its own rights; any other user who starts the program does (see `gains` in `elf.rs`).
#[test]
fn programs_that_grant_no_extra_rights_qualify() {
    let dir = TempDir::new().unwrap();
    for mode in [0o4755, 0o2745, 0o755] {
        let file = put(&dir, "rights", mode, &a_program());
        assert_eq!(classify(&file).unwrap(), Kind::Preloadable, "{mode:o}");
    }
    let capable = put(&dir, "capable", 0o755, &a_program());
    // Version 2 of the attribute, CAP_NET_RAW permitted and effective.
    let mut value = [0u8; 20];
    value[..4].copy_from_slice(&0x0200_0001u32.to_le_bytes());
    value[4..8].copy_from_slice(&(1u32 << 13).to_le_bytes());
    let flags = rustix::fs::XattrFlags::empty();
    match rustix::fs::setxattr(&capable, c"security.capability", &value, flags) {
        // Usually only root may set them, and root gains nothing.
        Ok(()) => assert_eq!(classify(&capable).unwrap(), Kind::Preloadable),
        Err(errno) => {
            println!("skipped: file capabilities cannot be set here ({errno}); needs CAP_SETFCAP")
        }
    }
}

#[test]
fn a_static_program_is_named() {
    let dir = TempDir::new().unwrap();
    let source = put(&dir, "main.c", 0o644, b"int main(void) { return 0; }\n");
    for flag in ["-static", "-static-pie"] {
        let program = dir.path().join("program");
        let built = Command::new("cc")
            .arg(flag)
            .arg("-o")
            .arg(&program)
            .arg(&source)
            .output();
        match built {
            Ok(output) if output.status.success() => {
                assert_eq!(
                    classify(&program).unwrap(),
                    Kind::Unfit(Unfit::Static),
                    "{flag}"
                );
            }
            _ => println!("skipped: cc {flag} does not work here"),
        }
    }
}
