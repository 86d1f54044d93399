//! A space under a program: system calls on absent memory, and forks whose children read the parent's data.
//!
//! The space lasts until the process ends, so everything happens in one test, in one process, in order.

mod common;

use common::{MIB, PAGE, can, page_is, write_page};
use millpond::space::{Space, SpaceOptions};
use millpond::{Delivery, ForkError, Order, StoreKind};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;

const LEN: usize = 64 * MIB;

fn options(store: StoreKind) -> SpaceOptions {
    SpaceOptions {
        store,
        order: Order::new(4).unwrap().into(),
        ..common::space_options()
    }
}

fn bytes(space: &Space) -> &'static mut [u8] {
    // SAFETY: the test opens this range once and is the only one to use it; the space is never dropped.
    unsafe { std::slice::from_raw_parts_mut(space.base() as *mut u8, LEN) }
}

fn set_up(space: &'static Space, foreign: &[(usize, usize)]) -> Result<(), ForkError> {
    space.after_fork_in_child(foreign)?;
    space.start_threads_in_child()
}

/// Forks as the preloaded library does; the child runs `child` and exits with its answer, with 99 if it has no memory,
/// and with 101 after a panic (its thread would end with the test, and nothing would end the process).
fn start_child(space: &'static Space, child: impl FnOnce() -> i32) -> libc::pid_t {
    start_child_beside(space, &[], child)
}

/// Forks like [`start_child`], where some of the space lies under other mappings.
fn start_child_beside(
    space: &'static Space,
    foreign: &[(usize, usize)],
    child: impl FnOnce() -> i32,
) -> libc::pid_t {
    space.before_fork(&[]);
    // SAFETY: the child sets its memory up before it does anything else, and leaves by _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let life = AssertUnwindSafe(|| set_up(space, foreign).map_or(99, |()| child()));
        let code = catch_unwind(life).unwrap_or(101);
        // SAFETY: the child leaves by _exit, so that nothing of the parent runs at exit.
        unsafe { libc::_exit(code) };
    }
    space.after_fork_in_parent();
    pid
}

fn wait_for(pid: libc::pid_t) -> ExitStatus {
    let mut status = 0;
    // SAFETY: the status is written to a variable of this function.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    ExitStatus::from_raw(status)
}

fn fork_beside(
    space: &'static Space,
    foreign: (usize, usize),
    child: impl FnOnce() -> i32,
) -> ExitStatus {
    wait_for(start_child_beside(space, &[foreign], child))
}

fn fork(space: &'static Space, child: impl FnOnce() -> i32) -> ExitStatus {
    wait_for(start_child(space, child))
}

fn all_right(bytes: &[u8], salt: u64) -> bool {
    bytes
        .chunks_exact(PAGE)
        .enumerate()
        .all(|(n, page)| page_is(page, n as u64 + salt))
}

fn fill(bytes: &mut [u8], salt: u64) {
    for (n, page) in bytes.chunks_exact_mut(PAGE).enumerate() {
        write_page(page, n as u64 + salt);
    }
}

fn children_see_the_snapshot(space: &'static Space) {
    let bytes = bytes(space);
    fill(bytes, 0);
    // A child reads everything, then changes it and reads the new data.
    let status = fork(space, || {
        if !all_right(bytes, 0) {
            return 1;
        }
        fill(bytes, 1_000_000);
        i32::from(!all_right(bytes, 1_000_000)) * 2
    });
    assert_eq!(
        status.code(),
        Some(0),
        "the child saw something else: {status:?}"
    );
    assert!(all_right(bytes, 0), "the child's writes reached the parent");
    // The parent rewrites everything while a child still reads the old data.
    let mut ends = Some(std::io::pipe().unwrap());
    let pid = start_child(space, || {
        let (mut go, gone) = ends.take().expect("the child's own");
        drop(gone);
        let _ = go.read(&mut [0]);
        let right = all_right(bytes, 0);
        // A grandchild sees the same data as the child.
        let grandchild = fork(space, || i32::from(!all_right(bytes, 0)));
        i32::from(!right || grandchild.code() != Some(0))
    });
    fill(bytes, 5);
    assert!(
        all_right(bytes, 5),
        "the parent lost its writes after the fork"
    );
    drop(ends);
    assert_eq!(wait_for(pid).code(), Some(0), "the child lost its snapshot");
}

fn system_calls_work_on_absent_memory(space: &Space) {
    let bytes = bytes(space);
    fill(bytes, 9);
    space.advise_pageout(space.base(), LEN);
    let (mut out, mut into) = std::io::pipe().unwrap();
    let (source, target) = bytes.split_at_mut(LEN / 2);
    space.advise_pageout(space.base() + LEN / 2, LEN / 2);
    into.write_all(&source[..16 * PAGE]).unwrap();
    out.read_exact(&mut target[..16 * PAGE]).unwrap();
    assert_eq!(source[..16 * PAGE], target[..16 * PAGE]);
}

/// A child that was made without the library's knowledge has no memory at all, rather than zeros.
fn a_raw_fork_dies_loudly(space: &Space) {
    let bytes = bytes(space);
    // SAFETY: the child reads one byte and leaves.
    let pid = unsafe { libc::syscall(libc::SYS_fork) } as i32;
    if pid == 0 {
        let zero = std::hint::black_box(bytes[3 * PAGE]) == 0;
        // SAFETY: the call ends the child.
        unsafe { libc::_exit(i32::from(zero)) };
    }
    assert_eq!(wait_for(pid).signal(), Some(libc::SIGSEGV));
}

/// Memory moves while most of it is in the store, its heads and tails do not begin at a leaf, and another thread uses
/// the adjacent memory.
fn memory_moves_by_its_tables(space: &'static Space) {
    const PART: usize = 20 * MIB;
    fill(bytes(space), 3);
    let (old, new) = (space.base() + 3 * PAGE, space.base() + LEN + 3 * PAGE);
    assert_eq!(
        space.remap(old, PART, new + PAGE, false),
        Err(rustix::io::Errno::INVAL)
    );
    assert_eq!(
        space.remap(old, PART, old + 8 * MIB, false),
        Err(rustix::io::Errno::INVAL)
    );
    // SAFETY: no other reference names these parts of the test's range, and of the addresses behind it.
    let at = |addr: usize, len| unsafe { std::slice::from_raw_parts_mut(addr as *mut u8, len) };
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let beside = at(old + PART, LEN - PART - 3 * PAGE);
            for salt in 0.. {
                fill(beside, salt);
                if done.load(std::sync::atomic::Ordering::Relaxed) {
                    return fill(beside, 3 + 3 + (PART / PAGE) as u64);
                }
            }
        });
        for _ in 0..5 {
            space.remap(old, PART, new, false).unwrap();
            assert!(all_right(at(new, PART), 6));
            space.remap(new, PART, old, true).unwrap();
            assert!(at(new, PART).iter().step_by(PAGE).all(|&byte| byte == 0));
            space.close(new, PART).unwrap();
            assert!(all_right(at(old, PART), 6));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(all_right(bytes(space), 3));
}

/// Faults next to a closed part bring in the pages around them, closed or not. Memory that the program mapped there
/// used to be taken for ours when memory was short, and managed memory that later came to that place began with its
/// contents.
fn what_is_ceded_is_left_alone(space: &'static Space) {
    const PART: usize = MIB;
    let start = 10 * MIB + 3 * PAGE;
    let at = space.base() + start;
    // SAFETY: this part belongs to the test, and nothing else uses it while it is a foreign mapping.
    let part = || unsafe { std::slice::from_raw_parts_mut(at as *mut u8, PART) };
    let beside = || {
        let (before, rest) = bytes(space).split_at_mut(start);
        (before, &mut rest[PART..])
    };
    for salt in 0..3 {
        space.close(at, PART).unwrap();
        let (before, behind) = beside();
        fill(before, salt);
        fill(behind, salt);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let pressing = scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    fill(beside().1, salt);
                }
                fill(beside().1, salt);
            });
            space.cede(at, PART).unwrap();
            let prot = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            // SAFETY: nothing is managed in the part, and nothing uses it.
            let mapped = unsafe { libc::mmap(at as *mut _, PART, prot, flags, -1, 0) };
            assert_eq!(mapped as usize, at);
            fill(part(), 77);
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            pressing.join().unwrap();
        });
        let status = fork_beside(space, (at, PART), || i32::from(!all_right(part(), 77)));
        assert_eq!(status.code(), Some(0), "{status:?}");
        assert!(all_right(part(), 77), "the mapping lost what it held");
        space.restore(at, PART).unwrap();
        space.open(at, PART).unwrap();
        assert!(part().iter().all(|&byte| byte == 0), "it is not as new");
        assert!(all_right(beside().0, salt) && all_right(beside().1, salt));
    }
}

/// A part that ends in the background is gone immediately, even in a child that is forked at that time, and its
/// addresses are as new. The adjacent parts, and parts that are short or pinned, behave as with `close`.
fn large_parts_end_in_the_background(space: &'static Space) {
    const PART: usize = 40 * MIB;
    let (start, end) = (3 * PAGE, 3 * PAGE + PART);
    for salt in 0..4 {
        fill(bytes(space), salt);
        let before = space.stats().free;
        space.close_aside(space.base() + start, PART).unwrap();
        assert!(all_right(&bytes(space)[..start], salt));
        let behind = &bytes(space)[end..];
        assert!(all_right(behind, salt + (end / PAGE) as u64));
        space.open(space.base() + start, PART).unwrap();
        let status = fork(space, || {
            let part = &bytes(space)[start..end];
            i32::from(part.iter().any(|&byte| byte != 0))
        });
        assert_eq!(status.code(), Some(0), "{status:?}");
        let part = &bytes(space)[start..end];
        assert!(part.iter().all(|&byte| byte == 0));
        // A fork waits for the background work.
        let after = space.stats().free;
        assert!(after.by_workers > before.by_workers, "{after:?}");
        assert_eq!((after.queued, space.stats().vm.nr_unhooked), (0, 0));
    }
    // The addresses behind the space's end are not its own.
    assert!(!space.contains(space.base() + space.len()));
    let before = space.stats().free.by_workers;
    space
        .close_aside(space.base(), Space::ASIDE - PAGE)
        .unwrap();
    assert_eq!(space.stats().free.by_workers, before, "not worth it");
    let pinned = space.base() + LEN;
    space.open(pinned, PART).unwrap();
    space.pin_forever(pinned + 17 * MIB, PAGE).unwrap();
    let refused = space.close_aside(pinned, PART);
    assert_eq!(refused, Err(rustix::io::Errno::INVAL), "a pinned page");
    space.open(space.base(), LEN).unwrap();
}

/// Closing every descriptor in sight does not turn memory into zeros.
fn memory_outlives_the_programs_descriptors(space: &'static Space) {
    let bytes = bytes(space);
    fill(bytes, 77);
    let status = fork(space, || {
        // SAFETY: this child's own code does not use the descriptors that are closed.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
        i32::from(!all_right(bytes, 77))
    });
    assert_eq!(
        status.code(),
        Some(0),
        "memory was lost with the descriptors: {status:?}"
    );
}

#[test]
fn a_space_serves_system_calls_and_forks() {
    if !can(Delivery::Handler) {
        return;
    }
    for store in [
        StoreKind::compressed_ram(),
        StoreKind::file(),
        StoreKind::Auto { directory: None },
    ] {
        let space = Space::create(options(store)).unwrap();
        space.open(space.base(), LEN).unwrap();
        system_calls_work_on_absent_memory(space);
        memory_moves_by_its_tables(space);
        what_is_ceded_is_left_alone(space);
        children_see_the_snapshot(space);
        memory_outlives_the_programs_descriptors(space);
        large_parts_end_in_the_background(space);
        a_raw_fork_dies_loudly(space);
        space.close(space.base(), LEN).unwrap();
        assert_eq!(space.stats().vm.nr_swapped, 0);
        assert!(space.open(space.base() + 1, PAGE).is_err() && space.open(0, PAGE).is_err());
    }
}
