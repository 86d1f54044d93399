//! Tests of folios of 2 MiB as huge pages: they are huge pages, and remain huge pages on every path in and out.

mod common;

use std::os::unix::process::CommandExt;
use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;

use common::huge::*;
use common::{Tiny, each_kind};
use millpond_core::{InstallError, Mmu, PageCount, PageIndex, PageRange, Placed};
use millpond_mmu::{Delivery, TakeOutMethod, capabilities};

/// The variable that is set for a process that runs one test alone.
const ALONE: &str = "MILLPOND_TEST_ALONE";

#[test]
fn a_first_touch_maps_one_huge_page_that_moves_as_one() {
    if memory(1).is_none() {
        return;
    }
    each_kind(|delivery, method| {
        if method == TakeOutMethod::Copy {
            return;
        }
        let tiny = Tiny::new(delivery, method, 4, 9);
        for round in 0..50 {
            for folio in 0..4 {
                tiny.counter(folio, 77).fetch_add(1, Relaxed);
                tiny.settle(folio);
                if round == 0 {
                    assert_eq!(tiny.counter(folio, 78).load(Relaxed), 0);
                }
                assert_huge(&tiny.mmu, tiny.range(folio));
                assert!(tiny.evict(folio));
            }
        }
        for folio in 0..4 {
            assert_eq!(tiny.counter(folio, 77).load(Relaxed), 50);
        }
        tiny.end();
    });
}

#[test]
fn used_frames_and_loaded_ones_are_mapped_as_huge_pages() {
    let Some(mmu) = memory(3) else { return };
    mmu.install_zero(leaf(0), None).unwrap();
    assert_huge(&mmu, leaf(0));
    assert!(all_zero(&mmu, leaf(0)));
    write(&mmu, leaf(0), 1 << 40);
    mmu.take_out(leaf(0), huge_frame(0)).unwrap();
    assert_eq!(present(&mmu, leaf(0)), 0);

    // The frame that was taken out is zeroed and used elsewhere.
    assert_eq!(
        mmu.install_zero(leaf(1), Some(huge_frame(0))),
        Ok(Placed::Moved)
    );
    assert_huge(&mmu, leaf(1));
    assert!(all_zero(&mmu, leaf(1)));

    // The place is a hole again: a load gives it new pages.
    mmu.fill(huge_frame(0), true, &mut |bytes| {
        assert!(bytes.iter().all(|&byte| byte == 0));
        bytes.fill(7);
        Ok(())
    })
    .unwrap();
    assert_eq!(mmu.install(huge_frame(0), leaf(2)), Ok(Placed::Moved));
    assert_huge(&mmu, leaf(2));
    // SAFETY: the page was just mapped.
    assert_eq!(unsafe { mmu.addr_of(PageIndex(3 * 512 - 1)).read() }, 7);

    // The leaves are dropped and touched for the first time again.
    mmu.zap(&[leaf(1), leaf(2)]);
    assert_eq!(present(&mmu, leaf(1)) + present(&mmu, leaf(2)), 0);
    mmu.install_zero(leaf(2), None).unwrap();
    assert_huge(&mmu, leaf(2));
    assert!(all_zero(&mmu, leaf(2)));
}

/// Checks a stream whose next leaves come with one fault. One of them once contained small pages, and one in the
/// middle is served from elsewhere.
#[test]
fn neighbouring_leaves_become_huge_pages_by_one_call() {
    let Some(mmu) = memory(8) else { return };
    let small = part(leaf(2), 0, 300);
    mmu.install_zero(small, None).unwrap();
    write(&mmu, small, 1 << 33);
    mmu.zap(&[small]);
    let all: Vec<_> = (0..8).map(|n| (leaf(n), None)).collect();
    let mut placed = [Err(InstallError::Gone); 8];
    mmu.install_zero_all(&all[..6], &mut placed[..6]);
    assert_eq!(placed[..6], [Ok(Placed::Copied); 6]);
    for n in 0..6 {
        assert_huge(&mmu, leaf(n));
        assert!(all_zero(&mmu, leaf(n)), "leaf {n}");
        write(&mmu, leaf(n), u64::from(n) << 40);
    }
    for n in 0..6 {
        assert!(reads(&mmu, leaf(n), u64::from(n) << 40), "leaf {n}");
    }

    mmu.take_out(leaf(4), huge_frame(0)).unwrap();
    mmu.zap(&[leaf(5)]);
    let mixed = [
        (leaf(7), None),
        (leaf(4), Some(huge_frame(0))),
        (leaf(5), None),
        (leaf(6), None),
    ];
    mmu.install_zero_all(&mixed, &mut placed[..4]);
    let [fresh, used] = [Ok(Placed::Copied), Ok(Placed::Moved)];
    assert_eq!(placed[..4], [fresh, used, fresh, fresh]);
    for n in 4..8 {
        assert_huge(&mmu, leaf(n));
        assert!(all_zero(&mmu, leaf(n)), "leaf {n}");
    }
}

/// Checks that folios of 64 KiB that fill a leaf, new or from frames that fill a block of the pool, are one huge page
/// as long as they travel together.
#[test]
fn small_folios_that_fill_a_leaf_are_a_huge_page_together() {
    let Some(mmu) = memory(3) else { return };
    let folios = |of: PageRange, block: u32| {
        (0..32).map(move |n| (part(of, 4, n), frame(4, 32 * block + n)))
    };
    let fresh: Vec<_> = folios(leaf(0), 0).map(|(at, _)| (at, None)).collect();
    let mut placed = [Err(InstallError::Gone); 32];
    mmu.install_zero_all(&fresh, &mut placed);
    assert_eq!(placed, [Ok(Placed::Copied); 32]);
    assert_huge(&mmu, leaf(0));
    assert!(all_zero(&mmu, leaf(0)));
    write(&mmu, leaf(0), 5 << 32);

    let out: Vec<_> = folios(leaf(0), 1).collect();
    let mut taken = [Ok(()); 32];
    mmu.take_out_all(&out, &mut taken);
    assert_eq!(taken, [Ok(()); 32]);
    assert_eq!(present(&mmu, leaf(0)), 0);
    let used: Vec<_> = folios(leaf(2), 1)
        .map(|(at, frame)| (at, Some(frame)))
        .collect();
    mmu.install_zero_all(&used, &mut placed);
    assert_eq!(placed, [Ok(Placed::Moved); 32]);
    assert_huge(&mmu, leaf(2));
    assert!(all_zero(&mmu, leaf(2)));

    // One folio comes back alone: the rest keeps its contents, in small pages.
    write(&mmu, leaf(2), 6 << 32);
    let out: Vec<_> = folios(leaf(2), 0).collect();
    mmu.take_out_all(&out, &mut taken);
    for n in [7, 0, 31] {
        let (at, frame) = out[n];
        install(&mmu, frame, at);
        assert!(reads(&mmu, at, 6 << 32));
    }
    for &(at, frame) in &out {
        if present(&mmu, at) == 0 {
            install(&mmu, frame, at);
        }
    }
    assert!(reads(&mmu, leaf(2), 6 << 32));
}

#[test]
fn neighbours_of_other_orders_do_not_break_a_huge_page() {
    let Some(mmu) = memory(4) else { return };
    for n in 1..4 {
        mmu.install_zero(leaf(n), None).unwrap();
        write(&mmu, leaf(n), u64::from(n) << 32);
    }
    let half = part(leaf(0), 8, 1);
    mmu.install_zero(half, None).unwrap();
    write(&mmu, half, 9 << 32);
    // The last frame of order 8 lies before the first of order 9, as the half leaf does before the next.
    let work = [
        (half, frame(8, 7)),
        (leaf(1), huge_frame(0)),
        (leaf(2), huge_frame(1)),
        (leaf(3), huge_frame(3)),
    ];
    let mut results = [Ok(()); 4];
    mmu.take_out_all(&work, &mut results);
    assert_eq!(results, [Ok(()); 4]);
    for (at, frame) in work {
        install(&mmu, frame, at);
    }
    assert!(reads(&mmu, half, 9 << 32));
    for n in 1..4 {
        assert!(reads(&mmu, leaf(n), u64::from(n) << 32));
        assert_huge(&mmu, leaf(n));
    }
}

#[test]
fn a_leaf_that_held_small_folios_gets_a_huge_page() {
    let Some(mmu) = memory(1) else { return };
    for round in 0..6 {
        // Small folios come and go; the leaf remains empty, with its table.
        for n in 0..32 {
            mmu.install_zero(part(leaf(0), 4, n), None).unwrap();
        }
        write(&mmu, leaf(0), 5);
        if round % 2 == 0 {
            let all: Vec<_> = (0..32).map(|n| part(leaf(0), 4, n)).collect();
            for one in &all {
                mmu.zap(&[*one]);
            }
        } else {
            let work: Vec<_> = (0..32)
                .map(|n| (part(leaf(0), 4, n), frame(4, n)))
                .collect();
            let mut results = [Ok(()); 32];
            mmu.take_out_all(&work, &mut results);
            let frames: Vec<_> = work.iter().map(|&(_, frame)| frame).collect();
            mmu.free_frames(&frames);
        }
        assert_eq!(present(&mmu, leaf(0)), 0);
        // Then one folio comes for the whole leaf, in each of the three ways.
        match round / 2 {
            0 => assert!(mmu.install_zero(leaf(0), None).is_ok()),
            1 => {
                mmu.fill(huge_frame(0), true, &mut |bytes| {
                    bytes.fill(0);
                    Ok(())
                })
                .unwrap();
                assert_eq!(mmu.install(huge_frame(0), leaf(0)), Ok(Placed::Moved));
                // This prepares the next round.
                mmu.take_out(leaf(0), huge_frame(0)).unwrap();
                assert_eq!(mmu.install(huge_frame(0), leaf(0)), Ok(Placed::Moved));
            }
            _ => {
                mmu.fill(huge_frame(0), true, &mut |bytes| {
                    bytes.fill(1);
                    Ok(())
                })
                .unwrap();
                let _ = mmu.install_zero(leaf(0), Some(huge_frame(0))).unwrap();
            }
        }
        assert_huge(&mmu, leaf(0));
        assert!(all_zero(&mmu, leaf(0)));
        mmu.zap(&[leaf(0)]);
    }
}

#[test]
fn a_frame_that_held_small_pages_takes_a_huge_page() {
    let Some(mmu) = memory(1) else { return };
    // The 512 single pages go out as one folio: now the frame's place has a table.
    for page in leaf(0).pages() {
        mmu.install_zero(PageRange::new(page, PageCount(1)), None)
            .unwrap();
    }
    write(&mmu, leaf(0), 3);
    mmu.take_out(leaf(0), huge_frame(1)).unwrap();
    assert_eq!(mmu.install(huge_frame(1), leaf(0)), Ok(Placed::Moved));
    assert_eq!(mmu.huge_pages(leaf(0)), PageCount(0));
    assert!(reads(&mmu, leaf(0), 3));
    mmu.zap(&[leaf(0)]);
    mmu.install_zero(leaf(0), None).unwrap();
    write(&mmu, leaf(0), 4);
    mmu.take_out(leaf(0), huge_frame(1)).unwrap();
    assert_eq!(mmu.install(huge_frame(1), leaf(0)), Ok(Placed::Moved));
    assert_huge(&mmu, leaf(0));
    assert!(reads(&mmu, leaf(0), 4));
}

#[test]
fn more_threads_than_slots_touch_new_memory_at_once() {
    const THREADS: usize = 24;
    if memory(1).is_none() {
        return;
    }
    let tiny = Tiny::new(
        Delivery::InThread,
        TakeOutMethod::Move,
        THREADS as u32 * 2,
        9,
    );
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (tiny, barrier) = (&tiny, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for folio in [thread, thread + THREADS] {
                    for page in 0..512 {
                        let before = tiny.counter(folio, page * 512).fetch_add(1, Relaxed);
                        assert_eq!(before, 0);
                    }
                    assert!(tiny.evict(folio));
                    assert_eq!(tiny.counter(folio, 511 * 512).load(Relaxed), 1);
                }
            });
        }
    });
    assert_eq!(tiny.faults.load(Relaxed), 4 * THREADS as u64);
    tiny.end();
}

/// Whether this is the process that [`alone`] started.
fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

/// Runs one test of this file in a process of its own. If `forbidden` is set, that process has no huge pages from the
/// start.
fn alone(test: &str, forbidden: bool) {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "1");
    if forbidden {
        // SAFETY: the call between fork and exec is a single system call.
        unsafe {
            command.pre_exec(|| {
                forbid_huge_pages(true);
                Ok(())
            });
        }
    }
    let output = command.output().unwrap();
    let (said, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{said}{errors}");
    eprint!("{errors}");
}

fn forbid_huge_pages(forbid: bool) {
    // SAFETY: the call sets a flag of this process.
    let done = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, u64::from(forbid), 0, 0, 0) };
    assert_eq!(done, 0);
}

#[test]
fn small_pages_serve_until_huge_pages_are_available_again() {
    if !is_alone() {
        return alone(
            "small_pages_serve_until_huge_pages_are_available_again",
            false,
        );
    }
    let Some(mmu) = memory(2) else { return };
    forbid_huge_pages(true);
    for round in 0..20 {
        mmu.install_zero(leaf(0), None).unwrap();
        assert_eq!(mmu.huge_pages(leaf(0)).0, 0);
        assert_eq!(present(&mmu, leaf(0)), 512);
        assert!(all_zero(&mmu, leaf(0)));
        write(&mmu, leaf(0), round);
        mmu.take_out(leaf(0), huge_frame(0)).unwrap();
        install(&mmu, huge_frame(0), leaf(0));
        assert!(reads(&mmu, leaf(0), round));
        mmu.fill(huge_frame(1), true, &mut |bytes| {
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes.fill(9);
            Ok(())
        })
        .unwrap();
        let _ = mmu.install_zero(leaf(1), Some(huge_frame(1))).unwrap();
        assert!(all_zero(&mmu, leaf(1)));
        mmu.zap(&[leaf(0), leaf(1)]);
    }
    forbid_huge_pages(false);
    // The rest after the last failure lasts at most 255 folios.
    let huge_again = (0..=255).any(|_| {
        mmu.install_zero(leaf(0), None).unwrap();
        let huge = mmu.huge_pages(leaf(0)).0 == 512;
        assert!(all_zero(&mmu, leaf(0)));
        mmu.zap(&[leaf(0)]);
        huge || !kernel_has_huge_pages()
    });
    assert!(huge_again);
}

#[test]
fn capabilities_report_a_process_without_huge_pages() {
    if !is_alone() {
        return alone("capabilities_report_a_process_without_huge_pages", true);
    }
    let found = capabilities();
    let one = found.list.iter().find(|one| one.name == "huge pages");
    let one = one.unwrap();
    assert!(!one.present);
    let settings = "/sys/kernel/mm/transparent_hugepage/";
    assert!(
        ["PR_SET_THP_DISABLE", settings, "built without"]
            .iter()
            .any(|why| one.detail.contains(why)),
        "{}",
        one.detail
    );
}
