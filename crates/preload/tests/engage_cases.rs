//! Programs that begin dormant and engage in the middle (`--engage needed`).

mod common;

use common::{bare, compile, direct, is_direct_possible, printed};

/// Checks that the program prints the same natively as under the library, with these variables, dormant at first.
fn prints_the_same(name: &str, arguments: &[&str], variables: &[(&str, &str)]) {
    if !is_direct_possible() {
        return;
    }
    built_so_prints_the_same(name, &[], arguments, variables);
}

/// The same for a program that is compiled with these options.
fn built_so_prints_the_same(
    name: &str,
    options: &[&str],
    arguments: &[&str],
    variables: &[(&str, &str)],
) {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(name, directory.path(), options);
    let (mut ours, mut natively) = (direct(&program), bare(&program));
    ours.args(arguments).env("MILLPOND_ENGAGE", "needed");
    ours.envs(variables.iter().copied());
    natively.args(arguments);
    assert_eq!(printed(ours), printed(natively), "{arguments:?}");
}

/// In each way in which a process can come to engage, its memory is as it was, and the budget holds from then on.
#[test]
fn a_process_that_engages_in_the_middle_keeps_all_its_memory() {
    for way in [
        "growth", "blocks", "blocked", "handler", "child", "thread", "register",
    ] {
        prints_the_same("engages", &[way], &[]);
    }
}

/// Files that a process has mapped count, touched or not, before it engages.
#[test]
fn a_mapped_file_counts_before_it_is_touched() {
    let budget = (96 << 20).to_string();
    prints_the_same("engages", &["file"], &[("MILLPOND_RAM", &budget)]);
}

/// A process does not engage while its own allocator holds a lock that the new threads need.
#[test]
fn a_program_with_an_allocator_of_its_own_goes_on_when_it_grows() {
    prints_the_same("engages_in_an_allocator", &[], &[]);
}

/// A program that takes the address of `malloc` has no allocator of its own, and begins dormant.
#[test]
fn a_program_that_takes_the_address_of_malloc_begins_dormant() {
    for options in [&["-no-pie", "-fno-pie"], &["-pie", "-fPIE"]] {
        if is_direct_possible() {
            built_so_prints_the_same("address_of_malloc", options, &[], &[]);
        }
    }
}

/// Threads that follow each other use the same memory. When an arena's last thread ended, jemalloc gave all that was
/// dirty there back, and each request of python's `http.server` had 27 faults (5 natively): 1.7 times the time.
#[test]
fn threads_that_follow_each_other_use_the_same_memory() {
    let budget = (512 << 20).to_string();
    prints_the_same("short_threads", &[], &[("MILLPOND_RAM", &budget)]);
}

/// Threads touch memory, wait in calls that name it, allocate, make threads and children, while the process engages.
#[test]
fn threads_may_do_anything_while_a_process_engages() {
    let budget = (96 << 20).to_string();
    let ways: [&[&str]; 4] = [
        &["100000"],
        &["3000000"],
        &["20000000"],
        &["3000000", "child"],
    ];
    for way in ways {
        prints_the_same("engages_beside_threads", way, &[("MILLPOND_RAM", &budget)]);
    }
}

/// A process that maps more than its budget stays dormant while it touches little, and engages in time when it touches
/// much: its peak is looked at by the program.
#[test]
fn a_process_that_maps_much_stays_dormant_until_it_fills_it() {
    let budget = (512 << 20).to_string();
    for way in [
        "little",
        "threads",
        "fills",
        "huge",
        "eight",
        "reads",
        "child",
        "first ends",
    ] {
        prints_the_same("reserves_much", &[way], &[("MILLPOND_RAM", &budget)]);
    }
}
