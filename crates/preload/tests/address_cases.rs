//! Tests of memory at addresses that the program names, such as the heaps of runtimes.
//!
//! These tests cover three bugs. Memory below 4 GiB was left to the kernel: every JVM had 239 MiB resident in a
//! budget of 100. Hints above 4 GiB were ignored, and programs that insist on them did not start (ZGC). And
//! reservations longer than the space were refused (ghc, sbcl). `addresses.c` must print the same as without the
//! library, and checks itself whether the budget is kept.

mod common;

use common::{
    RAM, bare, compile, finish, is_possible, is_right, library, preloaded, printed,
    prints_the_same, seconds,
};
use std::path::Path;
use std::process::Command;

fn is_where_it_should_be(case: &str) {
    prints_the_same("addresses", &[case]);
}

/// With direct delivery all managed memory lies above 32 TiB.
const NAMED: &str = "memory at addresses that the program names";

fn is_where_it_is_named(case: &str) {
    common::prints_the_same_by_handler("addresses", &[case], NAMED);
}

#[test]
fn a_heap_below_4_gib_is_managed() {
    is_where_it_is_named("below_4_gib");
}

#[test]
fn a_heap_across_4_gib_is_managed() {
    is_where_it_is_named("across_4_gib");
}

#[test]
fn a_reservation_of_a_terabyte_is_managed() {
    is_where_it_is_named("a_terabyte");
}

#[test]
fn arenas_of_64_mib_come_one_after_the_other() {
    is_where_it_is_named("of_64_mib");
}

/// Checks that such arenas are managed, as the program does not mind where they are.
#[test]
fn arenas_at_random_places_come_from_the_space_in_the_end() {
    is_where_it_should_be("at_random_places");
}

#[test]
fn memory_below_32_bits_is_managed_until_it_runs_out() {
    is_where_it_is_named("of_32_bits");
}

/// Covers a space that a limit makes short: all low addresses would be in it, without a zone to give them from.
#[test]
fn memory_below_32_bits_is_available_under_an_address_limit() {
    if !common::is_by_handler(NAMED) || !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("addresses", directory.path(), &[]);
    // A space of less than 16 GiB lies where the kernel places it, and low addresses are the kernel's.
    let large = "134217728";
    for (limit, ram) in [(14, large), (20, large), (60, RAM), (200, RAM), (900, RAM)] {
        let mut shell = bare(Path::new("sh"));
        let script = format!(
            "ulimit -v {} && LD_PRELOAD=$0 exec $1 of_32_bits",
            limit << 20
        );
        shell.arg("-c").arg(script).arg(library()).arg(&program);
        shell.env("MILLPOND_RAM", ram);
        shell.env("MILLPOND_DELIVERY", "handler");
        assert_eq!(printed(shell), "of_32_bits\n", "{limit} GiB");
    }
}

/// Covers a program whose heap, made by the kernel, lies where the space would start.
#[test]
fn named_addresses_work_in_a_non_pie_program_too() {
    if !common::is_by_handler(NAMED) || !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("addresses", directory.path(), &["-no-pie"]);
    for case in [
        "below_4_gib",
        "of_32_bits",
        "at_fixed_places",
        "of_other_kinds",
    ] {
        let mut command = common::by_handler(&program);
        command.arg(case);
        printed(command);
    }
}

#[test]
fn fixed_addresses_are_granted_and_kept() {
    is_where_it_is_named("at_fixed_places");
}

/// Covers a child that mistook unmanaged private memory for absent pages of ours, and ended.
#[test]
fn files_code_and_shared_memory_are_at_their_hints_in_children_too() {
    is_where_it_should_be("of_other_kinds");
}

#[test]
fn system_v_shared_memory_is_attached_where_requested() {
    is_where_it_should_be("of_system_v");
}

#[test]
fn a_heap_with_code_in_it_is_managed() {
    is_where_it_is_named("executable_heap");
}

#[test]
fn mappings_by_raw_system_call_are_placed_alike() {
    is_where_it_is_named("by_number");
}

/// Covers such a mapping, which was refused with `ENOMEM`.
#[test]
fn a_mapping_longer_than_the_space_is_left_to_the_kernel() {
    is_where_it_should_be("longer_than_the_space");
}

#[test]
fn hints_that_are_meant_are_honoured() {
    is_where_it_should_be("of_several_views");
}

/// Checks that the first thread gets the address, and that memory which other threads get, or that comes there later,
/// is theirs alone. Zeros brought in by a fault next to such memory used to be mistaken for the contents of
/// executable memory, and a child found them in its place.
#[test]
fn threads_that_request_the_same_address_share_no_memory() {
    is_right("racing_addresses", &[&seconds()]);
}

/// Runs a JVM with its heap's arrays in a budget that holds part of them. The JVM is not told the budget: it would
/// make its heap a quarter of it. Returns `None`, with a line that says why, if there is no JVM.
fn java(ram: &str, options: &[&str], mebibytes: &str) -> Option<()> {
    if !is_possible() {
        return None;
    }
    let has = |program| Command::new(program).arg("-version").output().is_ok();
    if !has("java") || !has("javac") {
        println!("skipped: no Java (javac, java)");
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/java/Heap.java"));
    let mut compiler = bare(Path::new("javac"));
    compiler.arg("-d").arg(directory.path()).arg(source);
    assert!(finish(compiler).status.success());
    let run = |mut command: Command| {
        command.args(options).arg("-cp").arg(directory.path());
        command.args(["Heap", mebibytes]);
        command
    };
    let mut ours = run(preloaded(Path::new("java")));
    ours.env("MILLPOND_RAM", ram);
    ours.env("MILLPOND_TELL", "machine");
    assert_eq!(printed(ours), printed(run(bare(Path::new("java")))));
    Some(())
}

#[test]
fn java_runs_with_its_usual_heap() {
    java("104857600", &[], "100");
}

#[test]
fn java_serial_collector_runs_in_half_of_its_heap() {
    java("100663296", &["-XX:+UseSerialGC", "-Xmx160m"], "100");
}

/// Checks that this collector starts: its heap is shared memory, which is not managed.
#[test]
fn java_runs_with_a_heap_mapped_several_times() {
    java("134217728", &["-XX:+UseZGC", "-Xmx96m"], "16");
}
