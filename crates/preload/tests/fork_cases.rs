//! Tests of children of programs under the library that used to hang, or to die needlessly.
//!
//! Each program's source tells its story.

mod common;

use common::{compile, is_possible, is_right, library, preloaded, printed};
use std::path::Path;

#[test]
fn a_child_gives_up_its_rights() {
    is_right("fork_then_setuid", &[]);
}

#[test]
fn a_child_finds_the_linkers_data_about_plug_ins() {
    if !is_possible() {
        return;
    }
    // The program writes its plug-ins to the directory that it is given.
    let directory = tempfile::tempdir().unwrap();
    let mut command = preloaded(&compile("fork_with_plugins", directory.path(), &[]));
    command.arg(directory.path());
    printed(command);
}

/// Checks a daemon that keeps `/dev/userfaultfd` (Linux 6.1), which the kernel must have: the one right that can be
/// kept.
#[test]
fn a_daemon_forks_workers_after_it_gave_root_up() {
    if Path::new("/dev/userfaultfd").exists() {
        is_right("fork_after_setuid", &[]);
    } else {
        println!("skipped: no /dev/userfaultfd");
    }
}

/// Covers a server that had no descriptor left for the child's store.
#[test]
fn a_server_forks_with_nearly_all_descriptors_open() {
    is_right("fork_full_descriptors", &[]);
}

#[test]
fn a_server_forks_without_a_descriptor_left() {
    is_right("fork_full_descriptors", &["all"]);
}

/// Covers a store's file that kept blocks for children that were gone, while each child complained.
#[test]
fn hundreds_of_successive_children_are_served() {
    is_right("fork_in_a_loop", &[]);
}

/// Covers kernels without `PAGEMAP_SCAN` (before Linux 6.7: Debian 11 and 12), where each child read the page map of
/// the whole space, entry by entry, before it continued: ten seconds per fork.
#[test]
fn a_fork_is_quick_where_the_kernel_cannot_scan_page_maps() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("fork_in_a_loop", directory.path(), &[]);
    let mut command = preloaded(&program);
    command.env("MILLPOND_MASK", "scan");
    assert_eq!(printed(command), "");
}

#[test]
fn children_that_fork_did_not_make_have_their_memory() {
    is_right("cloned_children", &[]);
}

#[test]
fn early_fork_handlers_can_touch_managed_memory() {
    is_right("fork_handlers_before_ours", &[]);
}

#[test]
fn a_fork_that_holds_the_allocators_lock_does_not_deadlock() {
    is_right("fork_handlers_before_ours", &["slow"]);
}

/// Covers a child that waited forever: threads of ours asked the linker for a symbol when they started, and a bare
/// clone by a constructor inherits the linker's lock in the locked state. In the parent they waited until the
/// constructor had finished.
#[test]
fn a_constructor_makes_children_while_its_library_is_loaded() {
    if !is_possible() {
        return;
    }
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let library = compile("constructor_clones", there.path(), &["-shared", "-fPIC"]);
    let options = ["-DPROGRAM", "-rdynamic", "-ldl"];
    let program = compile("constructor_clones", here.path(), &options);
    let mut command = preloaded(&program);
    command.arg(&library);
    let said = printed(command);
    assert_eq!(said, "clone: 7\nfork: 7\nsystem: 7\nloaded\n");
}

/// Covers a fork that never ended: the kernel waits in it for the thread that reads the program's own userfaultfd,
/// and that thread, just created, waited for a lock of ours that the fork held.
#[test]
fn a_fork_completes_when_a_new_thread_has_to_read_its_event() {
    is_right("own_fork_events", &[]);
}

/// With a handler such a program's children still die, so it is served directly unless the user asks for a handler.
#[test]
fn a_program_with_an_allocator_linked_in_forks() {
    common::is_right_under(common::unasked, "own_allocator", &[]);
}

/// Covers heaptrack, whose library is loaded before ours.
#[test]
fn an_allocator_that_is_loaded_before_ours_finds_its_environment() {
    if !is_possible() {
        return;
    }
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = compile("first_allocator", there.path(), &["-shared", "-fPIC"]);
    let program = compile("first_allocator", here.path(), &["-DPROGRAM", "-ldl"]);
    let mut command = preloaded(&program);
    let both = format!("{}:{}", first.display(), library().display());
    command.env("LD_PRELOAD", both).env("FIRST_ALLOCATOR", "1");
    assert_eq!(printed(command), "found: 1\n");
}
