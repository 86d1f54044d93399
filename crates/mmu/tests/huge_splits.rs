//! Tests of events that break up a huge page: its parts are taken out, discarded, protected or held, and children share
//! it. None of them may lose a byte.

mod common;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use common::huge::*;
use common::{in_child, wait_for};
use millpond_core::{
    InstallError, LEAF_PAGES, Mmu, PAGE_SIZE, PageCount, PageIndex, PageRange, Placed, TakeOutError,
};

/// Makes tests that fork run one after the other. A child that another test forks while memory here is inheritable
/// also shares that memory, and ends at an unpredictable moment.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|failed| failed.into_inner())
}

#[test]
fn a_huge_page_goes_out_in_parts_and_comes_back() {
    let Some(mmu) = memory(1) else { return };
    for order in [8, 4, 1, 0] {
        for at_once in [false, true] {
            let seed = u64::from(order) << 32 | u64::from(at_once);
            mmu.install_zero(leaf(0), None).unwrap();
            assert_huge(&mmu, leaf(0));
            write(&mmu, leaf(0), seed);
            let work: Vec<_> = (0..LEAF_PAGES >> order)
                .map(|n| (part(leaf(0), order, n), frame(order, n)))
                .collect();
            if at_once {
                let mut results = vec![Ok(()); work.len()];
                mmu.take_out_all(&work, &mut results);
                assert!(results.iter().all(Result::is_ok));
            } else {
                // The parts go from the last to the first, so that none is the first of an aligned run.
                for &(at, frame) in work.iter().rev() {
                    mmu.take_out(at, frame).unwrap();
                }
            }
            assert_eq!(present(&mmu, leaf(0)), 0);
            for &(at, frame) in &work {
                install(&mmu, frame, at);
            }
            assert!(reads(&mmu, leaf(0), seed), "order {order}");
            mmu.zap(&[leaf(0)]);
        }
    }
}

#[test]
fn half_of_a_huge_page_goes_out_and_the_rest_stays() {
    let Some(mmu) = memory(1) else { return };
    mmu.install_zero(leaf(0), None).unwrap();
    write(&mmu, leaf(0), 8);
    let small = part(leaf(0), 4, 13);
    mmu.take_out(small, frame(4, 0)).unwrap();
    assert_eq!(present(&mmu, leaf(0)), 512 - 16);
    let rest = |n: &u32| *n != 13;
    assert!(
        (0..32)
            .filter(rest)
            .all(|n| reads(&mmu, part(leaf(0), 4, n), 8))
    );
    install(&mmu, frame(4, 0), small);
    assert!(reads(&mmu, leaf(0), 8));
    // The leaf goes out as one folio again, though of small pages.
    mmu.take_out(leaf(0), huge_frame(0)).unwrap();
    install(&mmu, huge_frame(0), leaf(0));
    assert!(reads(&mmu, leaf(0), 8));
}

#[test]
fn a_discard_inside_a_huge_page_takes_its_bytes_and_no_others() {
    let Some(mmu) = memory(1) else { return };
    let gone = part(leaf(0), 0, 100);
    let others = [
        PageRange::new(PageIndex(0), PageCount(100)),
        PageRange::new(PageIndex(101), PageCount(411)),
    ];
    for whole in [true, false] {
        mmu.install_zero(leaf(0), None).unwrap();
        write(&mmu, leaf(0), 6);
        mmu.zap(&[gone]);
        assert_eq!(present(&mmu, leaf(0)), 511);
        assert!(others.iter().all(|&range| reads(&mmu, range, 6)));
        if whole {
            // The hole is captured as zeros.
            mmu.take_out(leaf(0), huge_frame(0)).unwrap();
            assert_eq!(present(&mmu, leaf(0)), 0);
            install(&mmu, huge_frame(0), leaf(0));
            assert!(all_zero(&mmu, gone));
        } else {
            // This is what the core does: the folio was split, and the remaining pages go out in folios of their own.
            for n in 0..32 {
                if n != 100 / 16 {
                    mmu.take_out(part(leaf(0), 4, n), frame(4, n)).unwrap();
                    install(&mmu, frame(4, n), part(leaf(0), 4, n));
                }
            }
            for n in 96..112 {
                if n != 100 {
                    mmu.take_out(part(leaf(0), 0, n), frame(0, n)).unwrap();
                    install(&mmu, frame(0, n), part(leaf(0), 0, n));
                }
            }
            mmu.install_zero(gone, None).unwrap();
        }
        assert!(others.iter().all(|&range| reads(&mmu, range, 6)));
        mmu.zap(&[leaf(0)]);
    }
}

#[test]
fn a_huge_page_under_two_protections_is_immovable_and_keeps_its_contents() {
    let Some(mmu) = memory(1) else { return };
    mmu.install_zero(leaf(0), None).unwrap();
    write(&mmu, leaf(0), 11);
    let protect = |first: u32, pages: usize, protection| {
        let at = mmu.addr_of(PageIndex(first)).cast();
        // SAFETY: the pages are in the arena, and only this thread uses them.
        let done = unsafe { libc::mprotect(at, pages * PAGE_SIZE, protection) };
        assert_eq!(done, 0);
    };
    for (first, protection) in [
        (0, libc::PROT_READ),
        (37, libc::PROT_READ),
        (511, libc::PROT_NONE),
    ] {
        protect(first, 1, protection);
        assert_eq!(
            mmu.take_out(leaf(0), huge_frame(0)),
            Err(TakeOutError::Immovable)
        );
        assert_eq!(present(&mmu, leaf(0)), 512);
        // Pages of their own next to the closed ones can go.
        let beside = part(leaf(0), 4, 7);
        mmu.take_out(beside, frame(4, 0)).unwrap();
        install(&mmu, frame(4, 0), beside);
        protect(first, 1, libc::PROT_READ | libc::PROT_WRITE);
        assert!(reads(&mmu, leaf(0), 11));
    }
    mmu.take_out(leaf(0), huge_frame(0)).unwrap();

    // A frame comes back under a protection that was meanwhile changed, in part and as a whole.
    protect(64, 64, libc::PROT_READ);
    install(&mmu, huge_frame(0), leaf(0));
    assert!(reads(&mmu, leaf(0), 11));
    mmu.zap(&[leaf(0)]);
    protect(0, 512, libc::PROT_READ);
    mmu.fill(huge_frame(0), true, &mut |bytes| {
        bytes.fill(3);
        Ok(())
    })
    .unwrap();
    assert_eq!(mmu.install(huge_frame(0), leaf(0)), Ok(Placed::Copied));
    // SAFETY: the page was just mapped.
    assert_eq!(unsafe { mmu.addr_of(PageIndex(300)).read() }, 3);
    mmu.zap(&[leaf(0)]);
    assert_eq!(mmu.install_zero(leaf(0), None), Ok(Placed::Copied));
    assert!(all_zero(&mmu, leaf(0)));
}

/// Checks a pipe that holds a page of the huge page by a plain reference. The huge page as a whole may move. It
/// cannot be split until the pipe is read, so its parts are busy, and the take-out does not hang.
#[test]
fn a_part_of_a_huge_page_that_a_pipe_holds_is_busy_until_it_is_read() {
    let Some(mmu) = memory(1) else { return };
    mmu.install_zero(leaf(0), None).unwrap();
    write(&mmu, leaf(0), 21);
    let mut pipe = [0; 2];
    // SAFETY: the array has room for both ends.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let page = libc::iovec {
        iov_base: mmu.addr_of(PageIndex(40)).cast(),
        iov_len: PAGE_SIZE,
    };
    // SAFETY: the page is mapped, and the vector outlives the call.
    let put = unsafe { libc::vmsplice(pipe[1], &page, 1, 0) };
    assert_eq!(put, PAGE_SIZE as isize);
    mmu.take_out(leaf(0), huge_frame(0)).unwrap();
    install(&mmu, huge_frame(0), leaf(0));
    let first = part(leaf(0), 4, 0);
    assert_eq!(mmu.take_out(first, frame(4, 0)), Err(TakeOutError::Busy));
    assert!(reads(&mmu, leaf(0), 21));
    let mut seen = [0u64; PAGE_SIZE / 8];
    // SAFETY: the buffer has the length of a page.
    let got = unsafe { libc::read(pipe[0], seen.as_mut_ptr().cast(), PAGE_SIZE) };
    assert_eq!((got, seen[40]), (PAGE_SIZE as isize, 21 + 40));
    mmu.take_out(first, frame(4, 0)).unwrap();
    install(&mmu, frame(4, 0), first);
    assert!(reads(&mmu, leaf(0), 21));
    for end in pipe {
        // SAFETY: the descriptors were made above.
        unsafe { libc::close(end) };
    }
}

#[test]
fn parent_and_child_share_huge_pages_and_continue_independently() {
    let _one = one_at_a_time();
    let Some(mmu) = memory(3) else { return };
    // Leaf 0 is mapped at the fork, leaf 1 is in a frame, leaf 2 is empty.
    for n in 0..2 {
        mmu.install_zero(leaf(n), None).unwrap();
        write(&mmu, leaf(n), u64::from(n) << 32);
    }
    mmu.take_out(leaf(1), huge_frame(1)).unwrap();
    let child = || {
        if let Err(error) = mmu.after_fork_in_child(&[]) {
            eprintln!("in the child: {error}");
            return 1;
        }
        if !reads(&mmu, leaf(0), 0) {
            return 2;
        }
        if mmu.take_out(leaf(0), huge_frame(0)).is_err()
            || mmu.install(huge_frame(0), leaf(0)).is_err()
            || !reads(&mmu, leaf(0), 0)
        {
            return 3;
        }
        if mmu.install(huge_frame(1), leaf(1)).is_err() || !reads(&mmu, leaf(1), 1 << 32) {
            return 4;
        }
        write(&mmu, leaf(0), 77);
        write(&mmu, leaf(1), 78);
        // New huge pages belong to the child alone.
        if mmu.install_zero(leaf(2), None).is_err() || !all_zero(&mmu, leaf(2)) {
            return 5;
        }
        if mmu.huge_pages(leaf(2)).0 != 512 && kernel_has_huge_pages() {
            return 6;
        }
        0
    };
    let status = in_child(|| mmu.before_fork(), || mmu.after_fork_in_parent(), child);
    assert_eq!(status, 0, "wait status {status:#x}");
    // The child is gone: shared pages become the parent's own without copying, and stay whole.
    assert!(reads(&mmu, leaf(0), 0));
    mmu.take_out(leaf(0), huge_frame(0)).unwrap();
    assert_eq!(mmu.install(huge_frame(0), leaf(0)), Ok(Placed::Moved));
    assert_huge(&mmu, leaf(0));
    assert!(reads(&mmu, leaf(0), 0));
    // A shared frame is copied, into a huge page.
    install(&mmu, huge_frame(1), leaf(1));
    assert_huge(&mmu, leaf(1));
    assert!(reads(&mmu, leaf(1), 1 << 32));
    assert_eq!(present(&mmu, leaf(2)), 0);
}

#[test]
fn huge_pages_are_used_while_a_child_shares_them() {
    let _one = one_at_a_time();
    let Some(mmu) = memory(3) else { return };
    for n in 0..3 {
        mmu.install_zero(leaf(n), None).unwrap();
        write(&mmu, leaf(n), u64::from(n) << 32);
    }
    mmu.take_out(leaf(1), huge_frame(1)).unwrap();
    let mut pipe = [0; 2];
    // SAFETY: the array has room for both ends.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    mmu.before_fork();
    // SAFETY: the child reads a pipe and mapped memory, and ends with `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let mut byte = 0u8;
        // SAFETY: one byte is read into one byte. The other end is closed here, so the child also ends if the parent
        // fails and ends.
        unsafe {
            libc::close(pipe[1]);
            libc::read(pipe[0], (&raw mut byte).cast(), 1);
            let whole = reads(&mmu, leaf(0), 0) && reads(&mmu, leaf(2), 2 << 32);
            libc::_exit(i32::from(!whole));
        }
    }
    mmu.after_fork_in_parent();
    // The pages go as a whole, in parts, and from a frame.
    mmu.take_out(leaf(0), huge_frame(0)).unwrap();
    install(&mmu, huge_frame(0), leaf(0));
    assert!(reads(&mmu, leaf(0), 0));
    write(&mmu, leaf(0), 50);
    for n in 0..32 {
        mmu.take_out(part(leaf(2), 4, n), frame(4, n)).unwrap();
        install(&mmu, frame(4, n), part(leaf(2), 4, n));
    }
    assert!(reads(&mmu, leaf(2), 2 << 32));
    write(&mmu, leaf(2), 51);
    assert_eq!(mmu.install(huge_frame(1), leaf(1)), Ok(Placed::Copied));
    assert_huge(&mmu, leaf(1));
    assert!(reads(&mmu, leaf(1), 1 << 32));
    // SAFETY: one byte is written from one byte.
    assert_eq!(unsafe { libc::write(pipe[1], [1u8].as_ptr().cast(), 1) }, 1);
    assert_eq!(
        wait_for(pid),
        0,
        "the child saw what the parent wrote later"
    );
    mmu.free_frames(&[huge_frame(1)]);
    for (n, seed) in [(0, 50), (1, 1 << 32), (2, 51)] {
        mmu.take_out(leaf(n), huge_frame(n)).unwrap();
        install(&mmu, huge_frame(n), leaf(n));
        assert!(reads(&mmu, leaf(n), seed));
    }
}

/// Checks a child that touched memory before it was registered: the kernel gave it pages there. The bytes that it
/// wrote stay, and the contents at the time of the fork come in around them.
#[test]
fn early_writes_of_a_child_are_not_dropped_to_make_room() {
    let _one = one_at_a_time();
    let Some(mmu) = memory(5) else { return };
    mmu.install_zero(leaf(0), None).unwrap();
    write(&mmu, leaf(0), 31);
    mmu.take_out(leaf(0), huge_frame(0)).unwrap();
    let (early, also_early) = (part(leaf(0), 0, 100), part(leaf(1), 0, 200));
    let among_several = part(leaf(3), 0, 300);
    let child = || {
        write(&mmu, early, 1 << 50);
        write(&mmu, also_early, 1 << 51);
        write(&mmu, among_several, 1 << 52);
        if mmu.after_fork_in_child(&[]).is_err() {
            return 1;
        }
        if mmu.install(huge_frame(0), leaf(0)).is_err() || !reads(&mmu, early, 1 << 50) {
            return 2;
        }
        let others = leaf(0).pages().filter(|&page| page != early.start);
        if others
            .map(|page| PageRange::new(page, PageCount(1)))
            .any(|page| !reads(&mmu, page, 31))
        {
            return 3;
        }
        if mmu.install_zero(leaf(1), None).is_err() || !reads(&mmu, also_early, 1 << 51) {
            return 4;
        }
        let several = [2, 3, 4].map(|n| (leaf(n), None));
        let mut placed = [Err(InstallError::Gone); 3];
        mmu.install_zero_all(&several, &mut placed);
        if placed != [Ok(Placed::Copied); 3] || !reads(&mmu, among_several, 1 << 52) {
            return 5;
        }
        let zeros = leaf(3).pages().filter(|&page| page != among_several.start);
        if zeros
            .map(|page| PageRange::new(page, PageCount(1)))
            .any(|page| !all_zero(&mmu, page))
        {
            return 6;
        }
        0
    };
    let status = in_child(|| mmu.before_fork(), || mmu.after_fork_in_parent(), child);
    assert_eq!(status, 0, "wait status {status:#x}");
}

/// Covers a folio whose bytes, on their way in, were shared with a child that another test forked at that moment: the
/// kernel refused to move the page, and the folio became small pages. This happened in one of 75 runs of these tests,
/// which start processes.
#[test]
fn an_unrelated_fork_does_not_prevent_new_huge_pages() {
    let _one = one_at_a_time();
    let Some(mmu) = memory(1) else { return };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                // SAFETY: the child leaves at once.
                let pid = unsafe { libc::fork() };
                if pid == 0 {
                    // SAFETY: the child leaves at once.
                    unsafe { libc::_exit(0) };
                }
                wait_for(pid);
            }
        });
        for _ in 0..2000 {
            mmu.install_zero(leaf(0), None).unwrap();
            let huge = mmu.huge_pages(leaf(0));
            if huge.0 < 512 {
                stop.store(true, Relaxed);
            }
            assert_huge(&mmu, leaf(0));
            mmu.zap(&[leaf(0)]);
        }
        stop.store(true, Relaxed);
    });
}
