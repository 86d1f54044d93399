//! Programs that begin dormant and engage in the middle (`--engage needed`).

mod common;

use common::{bare, compile, direct, is_direct_possible, printed};
use std::process::Command;

/// In each way in which a process can come to engage, its memory is as it was, and the budget holds from then on.
#[test]
fn a_process_that_engages_in_the_middle_keeps_all_its_memory() {
    if !is_direct_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("engages", directory.path(), &[]);
    for way in [
        "growth", "blocks", "blocked", "handler", "child", "thread", "register",
    ] {
        let run = |mut command: Command| {
            command.arg(way).env("MILLPOND_ENGAGE", "needed");
            printed(command)
        };
        assert_eq!(run(direct(&program)), run(bare(&program)), "{way}");
    }
}

/// Files that a process has mapped count, touched or not, before it engages.
#[test]
fn a_mapped_file_counts_before_it_is_touched() {
    if !is_direct_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("engages", directory.path(), &[]);
    let mut command = direct(&program);
    command.arg("file").env("MILLPOND_ENGAGE", "needed");
    command.env("MILLPOND_RAM", (96 << 20).to_string());
    let mut natively = bare(&program);
    natively.arg("file");
    assert_eq!(printed(command), printed(natively));
}

/// A process does not engage while its own allocator holds a lock that the new threads need.
#[test]
fn a_program_with_an_allocator_of_its_own_goes_on_when_it_grows() {
    if !is_direct_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("engages_in_an_allocator", directory.path(), &[]);
    let mut command = direct(&program);
    command.env("MILLPOND_ENGAGE", "needed");
    assert_eq!(printed(command), printed(bare(&program)));
}
