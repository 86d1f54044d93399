//! Tests of programs under the library that change their user, group or capabilities, and of the programs that they
//! then run.
//!
//! As in `fork_cases.rs`, these are C programs in `tests/c`, whose sources tell their stories.

mod common;

use common::{compile, finish, is_possible, is_right, library, preloaded, printed, seconds};
use millpond_board::Board;

/// Error numbers, as the program's arguments.
mod libc_errno {
    pub const EPERM: &str = "1";
    pub const EACCES: &str = "13";
    pub const ENOSYS: &str = "38";
}

#[test]
fn a_change_of_rights_in_one_thread_applies_to_all() {
    is_right("rights_of_one_thread", &[]);
}

/// Covers a program that hung in two runs of three.
#[test]
fn threads_on_managed_stacks_change_their_user() {
    is_right("racing_rights", &[&seconds()]);
}

/// Runs only as root, and only if the kernel denies userfaultfd to other users.
#[test]
fn a_program_that_may_not_be_managed_runs_all_the_same() {
    if !is_possible() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root, to give it up");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // A run has a board, from which the library knows that its program was started within a run.
    let (_board, file) = Board::create("test").unwrap();
    let mut command = preloaded(&compile("becomes_another", directory.path(), &[]));
    command.args(["/bin/sh", "-c", "echo \"$LD_PRELOAD\"; /bin/echo in"]);
    command.env("MILLPOND_BOARD", millpond_board::path_of(&file));
    let output = finish(command);
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    if err.is_empty() {
        println!("skipped: userfaultfd is everybody's here");
        assert_eq!(out, format!("{}\nin\n", library().display()));
        return;
    }
    assert_eq!(out, "\nin\n");
    assert_eq!(err.lines().count(), 1, "said once: {err}");
    assert!(
        err.starts_with("millpond: ")
            && err.contains("user 65534")
            && err.contains("without a budget"),
        "{err}"
    );
}

/// Covers `man` in a run: its sandbox answers `ENOSYS` to userfaultfd, and the programs that it runs were ended.
#[test]
fn a_program_in_a_sandbox_without_userfaultfd_runs_all_the_same() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("without_userfaultfd", directory.path(), &[]);
    for error in [libc_errno::EPERM, libc_errno::EACCES, libc_errno::ENOSYS] {
        let (_board, file) = Board::create("test").unwrap();
        let mut command = preloaded(&program);
        command.args([error, "/bin/echo", "in"]);
        command.env("MILLPOND_BOARD", millpond_board::path_of(&file));
        let output = finish(command);
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success() && out == "in\n", "{output:?}");
        // If another way works, nothing is reported.
        assert!(err.is_empty() || err.contains("without a budget"), "{err}");
    }
}

/// Covers the refusal, which was `EINVAL` without any message.
#[test]
fn a_namespace_refused_because_of_our_threads_is_reported() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let output = finish(preloaded(&compile("user_namespace", directory.path(), &[])));
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    if !out.is_empty() {
        println!("skipped: {out}");
        return;
    }
    assert_eq!(err.lines().count(), 1, "said once: {err}");
    assert!(err.contains("unshare -U millpond run"), "{err}");
}

/// Covers kernels built without a feature, as far as a filter can simulate them. Each works, or is refused with a
/// remedy before the program starts.
#[test]
fn a_kernel_without_a_call_is_served_or_refused() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("kernel_without", directory.path(), &[]);
    for calls in [
        "userfaultfd",
        "seccomp",
        "userfaultfd,seccomp",
        "process_madvise,mincore,membarrier,rseq,clone3,close_range,pidfd_open",
        "process_vm_readv,process_vm_writev",
        "mbind,set_mempolicy,get_mempolicy,fallocate,copy_file_range,io_uring_setup",
    ] {
        for way in ["auto", "direct", "handler"] {
            let mut command = std::process::Command::new(&program);
            command.arg(calls).arg(library());
            command.env("MILLPOND_RAM", common::RAM);
            command.env("MILLPOND_DELIVERY", way);
            let output = finish(command);
            let err = String::from_utf8_lossy(&output.stderr);
            let is_right = output.status.success() && output.stdout == b"right\n" && err.is_empty();
            // Direct delivery is built on filters, and a handler reads userfaultfd.
            let may_refuse = match way {
                "direct" => calls.contains("seccomp"),
                "handler" => calls.contains("userfaultfd"),
                _ => calls == "userfaultfd,seccomp",
            };
            let is_refused = !output.status.success()
                && output.stdout.is_empty()
                && err.starts_with("millpond: ")
                && (err.contains("use `--delivery") || err.contains("grant it"));
            assert!(
                is_right || may_refuse && is_refused,
                "without {calls}, {way}: {output:?}"
            );
        }
    }
}

/// Direct delivery is faster and the most tested, so it is the default, even for root. It refuses rings, so a program
/// that is linked with a library for them gets a handler if the kernel allows one.
#[test]
fn default_delivery_is_direct_except_for_programs_with_rings() {
    if !common::is_direct_possible() {
        return;
    }
    if !common::is_handler_possible() {
        println!("skipped: no right to a handler");
        return;
    }
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (name, library) = ("linked_with_rings", ["-shared", "-fPIC", "-DLIBRARY"]);
    let library = compile(name, there.path(), &library);
    let plain = compile(name, here.path(), &[]);
    let without = |program| printed(common::bare(program));
    let (off, on) = ("Seccomp:\t0\n", "Seccomp:\t2\n");
    if without(&plain) != off {
        println!("skipped: this process is filtered itself");
        return;
    }
    assert_eq!(printed(common::unasked(&plain)), on);
    let masked = |program| {
        let mut command = common::unasked(program);
        command.env("MILLPOND_MASK", "uffd");
        printed(command)
    };
    assert_eq!(masked(&plain), on);
    let linked = compile(name, here.path(), &["-DLINKED", library.to_str().unwrap()]);
    assert_eq!(printed(common::unasked(&linked)), off);
    assert_eq!(printed(common::direct(&linked)), on);
    // There is no handler without userfaultfd.
    assert_eq!(masked(&linked), on);
}
