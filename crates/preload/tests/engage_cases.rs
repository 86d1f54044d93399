//! Programs that begin dormant and engage in the middle (`--engage needed`).

mod common;

use common::{bare, compile, direct, is_direct_possible, printed};

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
        let run = |mut command: std::process::Command| {
            command.arg(way).env("MILLPOND_ENGAGE", "needed");
            printed(command)
        };
        assert_eq!(run(direct(&program)), run(bare(&program)), "{way}");
    }
}
