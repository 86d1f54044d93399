//! Small C programs under the library, with a budget of a third of the memory that they touch.
//!
//! Each test covers one way in which it could show that memory only seems to be present: to system calls, to
//! children, to handlers.

mod common;

use common::{
    are_equal, bare, compile, finish, has_compiler, is_possible, is_right, preloaded, printed,
    prints_the_same, seconds, tables,
};
use millpond_board::{Board, Field};
use std::path::Path;

#[test]
fn calls_answer_as_the_kernel_does() {
    prints_the_same("errno_table", &[]);
}

/// Gives every advice about every kind of memory. The test found that unknown advice about a hole returned `ENOMEM`,
/// that locked memory was discarded, that populating across a hole returned `EINVAL`, and that `MADV_DONTFORK` and
/// `MADV_WIPEONFORK` were refused.
#[test]
fn advice_is_answered_as_the_kernel_does() {
    let Some([ours, kernel]) = tables("advise_table", &[]) else {
        return;
    };
    // Guards and merging are refused. Kernels before 6.13 have no guards, and those built without KSM do not merge;
    // their answer is the same.
    let is_refused = |line: &&str| line.contains(" GUARD_") || line.contains("MERGEABLE ");
    let refused = ours.lines().filter(is_refused);
    for name in ["read-write", "read-only", "reserved", "locked"] {
        for advice in ["GUARD_INSTALL", "GUARD_REMOVE", "MERGEABLE", "UNMERGEABLE"] {
            let expected = format!("{name} {advice} -1 22");
            assert!(
                refused.clone().any(|line| line.starts_with(&expected)),
                "{expected}"
            );
        }
    }
    // Merging does not change the kernel's contents, and refusing it must not change ours.
    let merging = |table: &str| -> Vec<String> {
        let lines = table.lines().filter(|line| line.contains("MERGEABLE "));
        let words = lines.map(|line| line.rsplit(' ').next().unwrap_or_default().to_owned());
        words.collect()
    };
    assert_eq!(merging(&ours), merging(&kernel));
    assert!(!merging(&ours).is_empty());
    let others = |table: &str| {
        let lines: Vec<&str> = table.lines().filter(|line| !is_refused(line)).collect();
        lines.join("\n")
    };
    are_equal(&others(&ours), &others(&kernel));
}

/// Tries every way of `mremap` on every kind of memory. The test found that the kernel unmapped the target of an
/// invalid call, and with it a piece of the space, and that shrinking and moving across areas was refused.
#[test]
fn mremap_answers_as_the_kernel_does() {
    prints_the_same("mremap_table", &[]);
}

#[test]
fn process_madvise_answers_as_the_kernel_does() {
    prints_the_same("process_advise_table", &[]);
}

/// Covers machines on which `transparent_hugepage/enabled` is *always*: sparse tables of the library became huge
/// pages where they were touched, so that a budget of 30 MiB had 45 resident. The test checks the flags of the
/// mappings, so it needs no such machine; `.ci/huge-pages` sets one up.
#[test]
fn the_library_never_leaves_huge_pages_to_the_machine() {
    if !is_possible() {
        return;
    }
    if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        return println!("skipped: the kernel has no transparent huge pages");
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("huge_pages", directory.path(), &[]);
    assert_eq!(printed(preloaded(&program)), "looked at all mappings: 7\n");
}

/// Checks memory that the allocator freed, and the report's figures about it.
#[test]
fn freed_memory_is_kept_until_it_is_wanted() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("lazy_malloc", directory.path(), &[]);
    // Order 4 is the largest folio that is zeroed in place; order 5 is not.
    for (order, lazy) in [("2", "on"), ("4", "on"), ("5", "on"), ("2", "off")] {
        let (board, file) = Board::create("lazy_malloc").unwrap();
        let mut command = preloaded(&program);
        command
            .env("MILLPOND_LAZY_PURGE", lazy)
            .env("MILLPOND_ORDER", order)
            .env("MILLPOND_BOARD", millpond_board::path_of(&file));
        let output = finish(command);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "order {order}, {lazy}: {output:?}");
        assert_eq!(complaint, "");
        let seen = board.slots().next().unwrap().fields;
        let [freed, dropped] = [Field::PgLazyFree, Field::PgLazyFreed].map(|field| seen.get(field));
        if lazy == "on" {
            assert!(
                freed > 1000 && dropped > 1000 && dropped <= freed,
                "{seen:?}"
            );
            assert!(
                seen.get(Field::LazyFree) <= seen.get(Field::Rss),
                "{seen:?}"
            );
        } else {
            assert_eq!((freed, dropped, seen.get(Field::LazyFree)), (0, 0, 0));
        }
    }
}

/// Covers the reclaimer, which read lazily freed memory that had meanwhile become a guard page, so that the process
/// died of SIGSEGV.
#[test]
fn freed_memory_may_become_inaccessible_when_it_is_used_again() {
    is_right("lazily_freed_then_protected", &[]);
}

/// Covers a child that mistook lazily freed memory for memory that had been touched too early, and ended.
#[test]
fn a_program_forks_while_memory_is_lazily_freed() {
    is_right("lazily_freed_then_forked", &[]);
}

#[test]
fn freed_memory_is_purged_at_once_under_pressure_only() {
    is_right("decay", &[]);
}

/// Covers a startup that created an arena for each processor, regardless of the program's needs.
#[test]
fn arenas_are_made_with_threads_and_with_large_blocks() {
    for kind in ["0", "1", "2", "3", "4"] {
        is_right("arenas", &[kind]);
    }
}

#[test]
fn a_child_honours_dontfork_and_wipeonfork_advice() {
    is_right("fork_advice", &[]);
}

#[test]
fn memory_that_will_be_needed_is_brought_in() {
    is_right("willneed", &[]);
}

/// Covers a fault of ExtMem and UMap: a child of a fork reads wrong pages, silently.
#[test]
fn a_forked_child_reads_the_right_pages() {
    is_right("fork_child", &[]);
}

/// Covers a fault of ExtMem: a grown mapping reads wrong pages, silently.
#[test]
fn a_grown_mapping_reads_the_right_pages() {
    is_right("mremap_grow", &[]);
}

/// Covers a fault of UMap: read(2) and write(2) on an absent buffer fail with EFAULT.
#[test]
fn system_calls_take_buffers_that_are_not_in_memory() {
    is_right("absent_buffers", &[]);
}

/// Covers a fault of UMap: the program's own madvise(MADV_DONTNEED) hangs it.
#[test]
fn the_programs_own_dontneed_advice_takes_effect() {
    is_right("own_dontneed", &[]);
}

/// Unused code and constants leave the resident set while memory is short, and read as before; pages of them that the
/// program has changed are its own.
#[test]
fn code_that_nobody_runs_leaves_the_resident_set() {
    is_right("code_leaves", &[]);
}

/// Covers a fault of UMap: a file's offset is ignored.
#[test]
fn a_file_over_managed_memory_keeps_its_offset() {
    is_right("fixed_file", &[]);
}

#[test]
fn threads_run_on_stacks_from_malloc() {
    is_right("malloc_stacks", &[]);
}

#[test]
fn coroutines_run_on_stacks_from_malloc() {
    is_right("coroutine_stacks", &[]);
}

#[test]
fn a_signal_handler_can_touch_absent_memory() {
    is_right("signal_handler", &[]);
}

#[test]
fn four_threads_map_and_allocate_at_once() {
    is_right("racing_maps", &[&seconds()]);
}

#[test]
fn bytes_written_below_another_mapping_stay() {
    is_right("beside_a_border", &[]);
}

#[test]
fn large_blocks_keep_what_is_in_them() {
    is_right("large_blocks", &[&seconds()]);
}

#[test]
fn memory_dropped_by_a_raw_system_call_can_be_touched() {
    is_right("raw_dontneed", &[]);
}

/// Checks a runtime's own system call that frees pages among others in use.
#[test]
fn bytes_beside_pages_given_back_by_a_raw_system_call_stay() {
    is_right("raw_given_back", &[]);
}

/// Walks with hundreds of thousands of faults in random order, which is slow but must end.
#[test]
fn a_structure_larger_than_the_budget_is_walked_in_random_order() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("random_cycle", directory.path(), &[]);
    let mut command = preloaded(&program);
    command.env("MILLPOND_RAM", (16 << 20).to_string());
    assert_eq!(printed(command), printed(bare(&program)));
}

#[test]
fn areas_move_while_threads_touch_them() {
    is_right("racing_moves", &[&seconds()]);
}

/// Checks that areas that are freed in the background are gone when `munmap` returns, whichever thread touches them.
#[test]
fn large_areas_end_while_threads_touch_them() {
    is_right("racing_unmaps", &[&seconds()]);
}

/// Returns the figures for memory that a program gave up, from its board at the end: batches, those by workers, their
/// bytes, pages discarded.
fn given_up(ram: u64, arguments: &[&str], lazy: &str) -> Option<[u64; 4]> {
    if !is_possible() {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("unmap_large", directory.path(), &[]);
    let (board, file) = Board::create("unmap_large").unwrap();
    let mut command = preloaded(&program);
    command
        .args(arguments)
        .env("MILLPOND_RAM", ram.to_string())
        .env("MILLPOND_LAZY_PURGE", lazy)
        .env("MILLPOND_BOARD", millpond_board::path_of(&file));
    printed(command);
    let seen = board.slots().next().unwrap().fields;
    let names = [
        Field::FreeBatches,
        Field::FreeByWorkers,
        Field::FreeBytes,
        Field::PgDiscard,
    ];
    Some(names.map(|field| seen.get(field)))
}

/// Checks that a program's `munmap` of much memory leaves the freeing to workers, in batches. Half of the budget may
/// stay in the pool for the next faults.
#[test]
fn a_large_munmap_is_given_back_by_workers() {
    let Some([batches, by_workers, bytes, discarded]) =
        given_up(256 << 20, &["224", "munmap"], "on")
    else {
        return;
    };
    // A tick returns spare frames by itself.
    assert!(
        by_workers >= 8 && batches >= by_workers,
        "{batches} {by_workers}"
    );
    assert!(bytes >= 64 << 20, "{bytes} bytes");
    // All pages are counted except those that were folded into zeros or belong to the ends of the area.
    assert!(discarded >= (220 << 20) / 4096, "{discarded} pages");
}

/// Checks extents that jemalloc gives up, which workers free in batches: all long ones if it purges eagerly, and only
/// those of a quarter of the budget if it zeroes memory for possible reuse.
#[test]
fn a_large_free_is_given_back_by_workers() {
    for (ram, lazy, ends) in [(256, "off", true), (256, "on", true), (1024, "on", false)] {
        let Some(seen) = given_up(ram << 20, &["224", "free"], lazy) else {
            return;
        };
        let [batches, by_workers, bytes, discarded] = seen;
        if ends {
            assert!(
                by_workers >= 8 && batches >= by_workers,
                "{ram}, {lazy}: {seen:?}"
            );
            // Half of the budget may stay in the pool.
            assert!(bytes >= 64 << 20, "{ram}, {lazy}: {seen:?}");
            assert!(discarded >= (220 << 20) / 4096, "{ram}, {lazy}: {seen:?}");
        } else {
            assert_eq!((batches, bytes), (0, 0), "{ram}, {lazy}: {seen:?}");
        }
    }
}

/// Checks that a short area is closed at once.
#[test]
fn a_small_munmap_is_not_left_to_workers() {
    if let Some(given_up) = given_up(64 << 20, &["7", "munmap"], "on") {
        assert_eq!(given_up[..3], [0; 3]);
    }
}

#[test]
fn without_a_budget_the_program_runs_and_a_message_says_so() {
    if !has_compiler() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("errno_table", directory.path(), &[]);
    let mut command = preloaded(&program);
    command.env_remove("MILLPOND_RAM");
    let output = finish(command);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("MILLPOND_RAM is not set"));
}

#[test]
fn a_bad_setting_is_named() {
    let mut command = preloaded(Path::new("/bin/true"));
    command.env("MILLPOND_RAM", "64M");
    let output = finish(command);
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("MILLPOND_RAM=64M"));
}

#[test]
fn file_pages_mapped_meanwhile_come_off_the_budget() {
    is_right("file_pages_beside", &[]);
}

/// Covers threads with stacks of gigabytes. They are not managed, and everything else is evicted in their favour.
#[test]
fn stacks_may_be_deeper_than_the_budget() {
    for whose in ["", "own"] {
        is_right("deep_stacks", &[whose]);
    }
}

/// Covers threads with the smallest stack, of 16 KiB. They ended by SIGSEGV in the first function of ours that had to
/// evict something.
#[test]
fn stacks_may_be_as_small_as_the_c_library_allows() {
    is_right("small_stacks", &[]);
}

/// Covers a loop that took 43 times as long as natively, and 297 times in a real-time class.
#[test]
fn a_spinning_thread_does_not_block_faults_of_another() {
    for class in ["", "fifo"] {
        is_right("spins_in_turns", &[class]);
    }
}

/// Covers tables that took 90 MB in a budget of 32.
#[test]
fn pages_that_lie_alone_have_small_tables() {
    is_right("sparse", &[]);
}

/// Covers a process that stayed above its budget as long as it did not fault.
#[test]
fn growth_of_unmanaged_memory_is_noticed_without_a_fault() {
    is_right("grows_beside", &[]);
}
