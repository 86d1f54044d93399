//! Tests of memory that cannot be moved in its present state, because it is protected, locked or a stack in use, when
//! there is more of it than the budget holds.
//!
//! Each program used to wait forever for room that no other memory could free. The programs must print the same as
//! without the library.

mod common;

use common::{is_right, prints_the_same};

#[test]
fn memory_that_became_read_only_leaves_and_comes_back() {
    prints_the_same("read_only", &[]);
}

/// Covers closed memory that faults next to it brought in: it was a third to a half of the pages in memory.
#[test]
fn inaccessible_memory_is_not_brought_in() {
    for how in ["protect", "unmap", "blank"] {
        is_right("closed_beside", &[how]);
    }
}

/// Checks a collector's heap: each page that is written faults once a round, and no other page does.
#[test]
fn a_write_barrier_counts_each_page_once() {
    prints_the_same("write_barrier", &[]);
}

/// Locks a little, most of the budget, more than the budget, and everything.
#[test]
fn memory_is_locked_or_the_lock_is_refused() {
    prints_the_same("locked", &[]);
}

#[test]
fn the_programs_own_stacks_are_released_when_their_threads_end() {
    prints_the_same("own_stacks", &[]);
}
