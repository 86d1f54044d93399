//! Tests of signals under direct delivery: what a program sets, reads and receives is the same as without the
//! library, although the library uses three signals itself.

mod common;

use common::{
    bare, compile, direct, finish, is_direct_possible, library, prints_the_same_directly,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

#[test]
fn masks_actions_and_stacks_are_read_back_as_they_were_set() {
    prints_the_same_directly("signal_table");
}

#[test]
fn a_programs_own_handlers_get_their_signals() {
    prints_the_same_directly("own_handlers");
}

#[test]
fn threads_that_block_all_signals_are_served() {
    prints_the_same_directly("signal_threads");
}

#[test]
fn signals_come_on_stacks_that_are_out() {
    prints_the_same_directly("signals_on_managed_stacks");
}

/// Covers Chromium and clisp.
#[test]
fn addresses_near_the_space_are_not_claimed_as_ours() {
    prints_the_same_directly("addresses_of_others");
}

/// Checks that a user without privileges, with default options, can run a program beyond its budget, along with the
/// programs that it starts. Such a user was refused: the kernel provides no userfaultfd that serves its own touches.
#[test]
fn an_ordinary_user_needs_no_privilege() {
    if !is_direct_possible() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        // In that case an ordinary user runs the other tests of this file.
        println!("skipped: only root becomes another user");
        return;
    }
    const NOBODY: u32 = 65534;
    let directory = tempfile::tempdir().unwrap();
    let program = compile("children_out", directory.path(), &[]);
    // The directory of the build may be closed to others.
    let copy = directory.path().join("libmillpond_preload.so");
    fs::copy(library(), &copy).unwrap();
    let everybody = fs::Permissions::from_mode(0o755);
    fs::set_permissions(directory.path(), everybody).unwrap();
    let mut command = bare(&program);
    command.uid(NOBODY).gid(NOBODY);
    command.current_dir(directory.path());
    command
        .env("LD_PRELOAD", &copy)
        .env("MILLPOND_RAM", common::RAM);
    command.env_remove("MILLPOND_DELIVERY");
    common::from_its_start(&mut command);
    let output = finish(command);
    assert!(output.status.success(), "{output:?}");
}

/// Covers a program with LeakSanitizer, whose own handlers received the faults: it was ended at the first one.
#[test]
fn a_program_with_leak_sanitizer_is_refused() {
    if !is_direct_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("leak");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/own_handlers.c");
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-fsanitize=leak", "-pthread", source, "-o"]);
    if !compiler.arg(&program).output().unwrap().status.success() {
        println!("skipped: the compiler has no -fsanitize=leak");
        return;
    }
    let output = finish(direct(&program));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{complaint}");
    assert!(
        complaint.contains("LeakSanitizer takes over"),
        "{complaint}"
    );
    assert!(complaint.contains("--delivery handler"), "{complaint}");
}
