//! Tests of calls and of children under direct delivery, where the kernel itself brings nothing in.
//!
//! Each test is a small C program that evicts its memory before the kernel touches it, and runs under both
//! deliveries: the correct result is the same. (`tests/c/out.h`)

mod common;

use common::{
    Pace, compile, direct, finish, is_direct_possible, printed, prints_the_same_directly,
};

/// Checks that the program succeeds under direct delivery, in time, and says so.
fn is_right(name: &str, arguments: &[&str], more: &[&str], says: &str) {
    if !is_direct_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile(name, directory.path(), more);
    let pace = Pace::of(&program, arguments);
    let mut command = direct(&program);
    command.args(arguments);
    assert_eq!(pace.printed(command), says);
}

/// Covers a datagram that is taken from its queue and then cannot be copied, because the buffer is out: it is lost.
#[test]
fn data_that_the_kernel_returns_only_once_is_not_lost() {
    is_right("lost_nothing", &[], &["-lutil"], "nothing lost\n");
}

/// Covers wrong bytes: `MSG_PEEK` with `MSG_WAITALL` longer than an eighth of the budget returned its first piece
/// repeatedly, a datagram longer than that lost its end, and direct I/O that the kernel refuses was partly done. Each
/// kind of descriptor, with each flag that changes the meaning of a partial result, answers as the kernel does for
/// lengths around that of a piece.
#[test]
fn a_long_call_is_one_call() {
    prints_the_same_directly("in_pieces");
}

/// Covers non-blocking calls that brought in and held the whole rest of a long message each time: 60 MiB by `sendmsg`
/// took 60 s, and 81 MiB in a budget of 32. `getrandom` held its whole buffer.
#[test]
fn a_nonblocking_send_does_not_bring_in_the_whole_message() {
    if !is_direct_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("unwaited", directory.path(), &[]);
    assert_eq!(printed(direct(&program)), "kept to the budget\n");
}

/// Covers permanent holds: a program that leaves its calls by `longjmp` would fill its budget with the memory that
/// they held. Also covers the gate, at which the unwinder stopped: a cancelled thread kept the lock of the stream
/// that it was reading.
#[test]
fn a_call_left_by_a_jump_holds_nothing() {
    is_right("left_calls", &["held"], &["-fexceptions"], "all left\n");
}

/// Covers children created by the C library itself, which have all signals blocked and no handlers: they were killed
/// by SIGSYS because of the address of their environment, or by SIGBUS at their first touch of absent memory.
#[test]
fn children_can_start_with_all_memory_out() {
    is_right("children_out", &[], &[], "all ended well\n");
}

/// Covers Firefox.
#[test]
fn a_program_that_locks_its_allocator_over_a_fork_has_children() {
    for special in ["", "moves", "forks", "clone"] {
        is_right(
            "allocator_locked_over_fork",
            &[special],
            &[],
            "all ended well\n",
        );
    }
}

/// Covers helper threads of the C library, which were killed by SIGBUS or SIGSYS: both are blocked in them. To the
/// program, the threads that do their work now look the same.
#[test]
fn the_c_librarys_helper_threads_are_replaced_transparently() {
    if !is_direct_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("helper_threads", directory.path(), &["-lanl", "-lrt"]);
    let pace = Pace::of(&program, &[]);
    let ours = pace.printed(direct(&program));
    assert_eq!(ours, pace.native());
}

/// Covers calls that were refused with `ENOMEM`, and threads that the C library ended, when 4096 ranges were held.
#[test]
fn thousands_of_ranges_are_held_at_once() {
    is_right("many_holds", &[], &[], "all arguments\n");
}

/// Covers a debugger that waited forever: the child of its `vfork` is traced, stopped at the SIGSYS of its `execve`,
/// and waited for its parent.
#[test]
fn a_debugger_starts_its_program() {
    prints_the_same_directly("started_by_a_debugger");
}

/// Covers a process that shared its parent's memory and was killed by SIGBUS: it had no alternate stack, and its own
/// was out.
#[test]
fn a_process_that_shares_the_memory_is_served() {
    prints_the_same_directly("shares_memory");
}

/// Covers a process with 92 MiB in a budget of 32: each of 200 threads that waited in `read` held 256 KiB.
#[test]
fn many_threads_that_wait_hold_little() {
    if !is_direct_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("many_readers", directory.path(), &[]);
    // The process may report that it is above its budget for a while: a hold on one page of a large folio holds the
    // folio.
    let output = finish(direct(&program));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"all have read\n");
}

/// Covers a process that was killed by SIGSYS when it loaded a Go library: only Go programs were recognized, and the
/// library's mappings were in the space, where the filter stops its calls. Also covers a program that is not position
/// independent, which was ended by SIGSEGV at its first `mmap`: its notes were sought where a library has them.
#[test]
fn a_go_library_maps_its_own_memory() {
    if !is_direct_possible() {
        return;
    }
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let library = compile("library_of_go", there.path(), &["-shared", "-fPIC"]);
    for place in ["-pie", "-no-pie"] {
        let options = ["-DPROGRAM", "-ldl", place];
        let program = compile("library_of_go", here.path(), &options);
        let mut command = direct(&program);
        command.arg(&library);
        assert_eq!(printed(command), "of the library\n0 0\n");
    }
}

/// Covers `EFAULT` for memory named by a structure that only newer kernels know.
#[test]
fn questions_about_mappings_are_answered() {
    prints_the_same_directly("asked_of_files");
}

/// Covers coroutines that block all signals, as QEMU's do: the first absent page killed the process.
#[test]
fn contexts_that_block_all_signals_are_served() {
    prints_the_same_directly("contexts");
}

/// Covers a virtual machine that stopped at its first absent page without any message.
#[test]
fn managed_memory_for_a_virtual_machine_is_refused() {
    if !is_direct_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let output = finish(direct(&compile("guest_memory", directory.path(), &[])));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        err.matches("virtual machine's memory is refused").count(),
        1,
        "{err}"
    );
}

/// Covers a program that was killed by SIGSEGV: each of our calls became a signal of its own, in our handlers too.
#[test]
fn system_call_user_dispatch_is_refused() {
    if !is_direct_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let output = finish(direct(&compile("dispatches", directory.path(), &[])));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && output.stdout == b"refused\n",
        "{output:?}"
    );
    assert!(err.contains("user dispatch is refused"), "{err}");
}
