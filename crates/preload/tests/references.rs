//! Tests of programs under the library that give memory to pipes and sockets without a copy: the far end must read
//! the bytes that were given.

mod common;

use common::{Pace, compile, is_possible, preloaded, seconds, tables};

/// Runs a program several times, because one run may miss the bug: wrong bytes occurred in five runs of six.
fn is_right(name: &str, arguments: &[&str], runs: usize) {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile(name, directory.path(), &[]);
    let pace = Pace::of(&program, arguments);
    for _ in 0..runs {
        let mut command = preloaded(&program);
        command.args(arguments);
        pace.printed(command);
    }
}

/// Covers pages referenced by a pipe: they were evicted, and their frames reused for other data.
#[test]
fn pages_given_to_a_pipe_are_read_from_it() {
    is_right("spliced", &[], 5);
}

/// Covers pages that a pipe refers to for so long that the frames are reused for other data many times over.
#[test]
fn pages_given_to_a_pipe_are_read_from_it_much_later() {
    is_right("spliced", &["400000"], 1);
}

/// Covers pages referenced by a socket's queue.
#[test]
fn zero_copy_sends_are_received() {
    is_right("zero_copy", &[], 5);
}

#[test]
fn far_readers_see_the_given_bytes_while_memory_is_short() {
    is_right("racing_references", &[&seconds()], 1);
}

/// Checks full pipes, bad addresses, bad descriptors and signals: except for the two refusals, the answers are the
/// kernel's.
#[test]
fn calls_that_refer_to_memory_answer_as_the_kernel_does() {
    let Some([ours, kernel]) = tables("reference_table", &[]) else {
        return;
    };
    let (refused, same): (Vec<&str>, Vec<&str>) =
        ours.lines().partition(|line| line.starts_with("refused"));
    let others = kernel.lines().filter(|line| !line.starts_with("refused"));
    assert_eq!(same, others.collect::<Vec<_>>());
    let expected = [libc::EOPNOTSUPP, libc::EOPNOTSUPP, libc::ENOENT];
    let answers = expected.map(|error| format!("refused -1 {error}"));
    assert_eq!(refused, answers);
}
