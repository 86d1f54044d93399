//! Tests of memory that the kernel holds for a while, nearly as much as the budget: the rest of the program
//! continues, and so does the call.
//!
//! The tests cover this bug: pages that could not be moved were retried immediately, forever, and no fault was served
//! any more.

mod common;

use common::{Pace, compile, is_possible, is_right, preloaded};

#[test]
fn a_process_reads_its_own_memory_by_the_mebibyte() {
    is_right("vm_readv", &[]);
}

#[test]
fn a_process_reads_half_of_its_budget_in_pieces() {
    is_right("vm_readv", &["16"]);
}

#[test]
fn direct_io_of_as_much_as_the_budget_succeeds() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("direct_io", directory.path(), &[]);
    let place = directory.path().to_str().unwrap();
    let pace = Pace::of(&program, &[place]);
    let mut command = preloaded(&program);
    command.arg(place);
    pace.printed(command);
}

#[test]
fn a_buffer_that_the_kernel_keeps_leaves_the_rest_its_room() {
    common::prints_the_same_by_handler("registered_buffers", &[], "rings of io_uring");
}
