//! Tests of the kernel's and the C library's interface, covering differences that a program under the library once
//! saw.
//!
//! Each test is a small C program that died, hung or got a wrong answer.

mod common;

use common::{
    RAM, bare, compile, finish, is_possible, is_right, library, preloaded, printed, prints_the_same,
};
use millpond_board::Board;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// Covers a library that was loaded with `RTLD_DEEPBIND`: it used the C library's `free`, which aborted the process.
#[test]
fn a_library_that_is_bound_deeply_shares_the_programs_allocator() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let more = ["-shared", "-fPIC"];
    let extension = compile("extension", directory.path(), &more);
    let named = directory.path().join("extension.so");
    std::fs::rename(extension, &named).unwrap();
    let program = compile(
        "deep_bound",
        directory.path(),
        &["-ldl", "-Wl,-rpath,$ORIGIN"],
    );
    let mut command = preloaded(&program);
    command.arg(&named);
    let output = finish(command);
    assert!(output.status.success(), "{output:?}");
}

/// Covers a core dump that contained the whole reservation: 327 GiB long, 11 s to write. Now it contains the
/// program's memory.
#[test]
fn a_core_has_the_programs_memory_and_no_reservation() {
    let pattern = std::fs::read("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let is_plain = pattern
        .first()
        .is_some_and(|&byte| byte != b'|' && byte != b'/');
    if !is_plain || !is_possible() {
        println!("skipped: cores go elsewhere here, or nothing can be run");
        return;
    }
    for more in [None, Some("unmap")] {
        let directory = tempfile::tempdir().unwrap();
        let program = compile("aborts", directory.path(), &[]);
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            "ulimit -c unlimited 2>/dev/null || exit 9; LD_PRELOAD=$0 exec \"$@\"",
        ]);
        shell.arg(library()).arg(&program).args(more);
        shell.env("MILLPOND_RAM", RAM).current_dir(directory.path());
        common::from_its_start(&mut shell);
        let output = finish(shell);
        if output.status.code() == Some(9) {
            println!("skipped: no limit on cores can be lifted here");
            return;
        }
        assert_eq!(output.status.signal(), Some(6), "{output:?}");
        let core = std::fs::read_dir(directory.path())
            .unwrap()
            .find_map(|entry| {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                name.starts_with("core").then_some(path)
            });
        let core = core.expect("no core");
        let len = core.metadata().unwrap().len();
        assert!(len < 256 << 20, "a core of {len} bytes");
        let sevens = std::fs::read(&core).unwrap();
        let sevens = sevens.iter().filter(|&&byte| byte == 7).count();
        assert!(sevens >= 8 << 20, "only {sevens} bytes of 8 MiB");
    }
}

/// Covers a mapping that could not grow because our reservation was in its way.
#[test]
fn a_growing_mapping_grows_in_a_former_hole() {
    is_right("growing", &[]);
}

/// Covers queries that were answered wrongly: holes of the space were reported as mapped, and nothing as allocated.
#[test]
fn queries_about_memory_are_answered_as_without_the_library() {
    is_right("asked", &[]);
}

/// Covers calls that bypassed us: pages discarded that way came back, and addresses unmapped that way tore a hole in
/// the space.
#[test]
fn raw_system_calls_are_served_like_library_calls() {
    prints_the_same("by_number", &[]);
}

/// Covers calls by `syscall` with vectors in unmanaged memory that name managed buffers: with direct delivery each
/// failed with `EFAULT` if a buffer was absent. The list of these calls was never among the calls that are served.
#[test]
fn vectors_of_raw_system_calls_are_brought_in() {
    prints_the_same("vectors_by_number", &[]);
}

/// Covers a seal on our own mapping, after which no page could be brought in.
#[test]
fn sealed_memory_stays_unchanged_but_can_leave_memory() {
    prints_the_same("sealed", &[]);
}

/// Covers merging that was accepted but never done: a program that waited for it never ended.
#[test]
fn unsupported_advice_is_refused() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("refused_advice", directory.path(), &[]);
    assert_eq!(printed(preloaded(&program)), "refused\n");
    // The process that starts the program has enabled merging of all memory.
    let mut outer = bare(&program);
    outer.arg("outer").arg(library()).env("MILLPOND_RAM", RAM);
    let said = printed(outer);
    if said == "no merging here\n" {
        println!("skipped: this kernel does not merge");
        return;
    }
    assert_eq!(said, "refused\n");
}

/// Covers managed memory that could be locked beyond the limit, and freed memory that stayed locked.
#[test]
fn the_limit_on_locked_memory_holds() {
    prints_the_same("lock_limit", &[]);
}

/// Covers our calls at the end of a program: they were forbidden by then, and the program was killed.
#[test]
fn a_program_whose_own_filter_forbids_most_calls_ends_well() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("filtered", directory.path(), &[]);
    let (_board, file) = Board::create("filtered").unwrap();
    let mut ours = preloaded(&program);
    // With a board the last figures have a reader.
    ours.env("MILLPOND_BOARD", millpond_board::path_of(&file));
    assert_eq!(printed(ours), printed(bare(&program)));
}

/// Covers a node preference that stayed with the addresses, so that each round of it left more mappings.
#[test]
fn a_preferred_node_lasts_until_the_memory_is_unmapped() {
    prints_the_same("node_policy", &[]);
}

/// Covers a program whose filter answers `EPERM` to the calls that bring memory in: it retried forever, or ended
/// without any message, since the message itself was forbidden. If other threads do that work, nothing is missing.
#[test]
fn a_filter_that_forbids_calls_faults_need_is_named() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("forbids_much", directory.path(), &[]);
    for arguments in [&[][..], &["all"]] {
        let (board, file) = Board::create("forbids_much").unwrap();
        let mut command = preloaded(&program);
        command.args(arguments);
        command.env("MILLPOND_BOARD", millpond_board::path_of(&file));
        let output = finish(command);
        let out = String::from_utf8_lossy(&output.stdout);
        let is_served = output.status.success() && out == "all there\n";
        // The library's threads have no standard error of their own, and may not duplicate the process's. The
        // supervisor of a run prints the board's contents.
        let said = board
            .last_words()
            .map_or_else(String::new, |(_, line)| line);
        // By userfaultfd, or by protections.
        let is_said = said.contains("forbids ioctl") || said.contains("forbids pwrite64");
        let is_named = output.status.code() == Some(134) && is_said;
        assert!(is_served || is_named, "{output:?}: {said}");
    }
}

/// Covers `EFAULT` where nothing is wrong: for some operations the kernel does not wait for a page.
#[test]
fn futexes_on_absent_words_answer_as_the_kernel_does() {
    prints_the_same("futexes_out", &[]);
}

/// Covers a profiler's own `malloc`, which asks for `__libc_malloc`, and whose blocks the program frees.
#[test]
fn the_c_librarys_other_malloc_names_use_one_allocator() {
    is_right("libc_names", &[]);
}
