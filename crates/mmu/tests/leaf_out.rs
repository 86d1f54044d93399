//! Tests of leaves that are taken out by their page tables: either the leaf's contents are in the block, page by
//! page, or everything is where it was.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use common::huge::{frame, install, leaf, present};
use common::{Random, State, Tiny, config, in_child, open_leaves, stress_time, usable};
use millpond_core::{
    Frame, InstallError, LEAF_PAGES, LeafPages, Mmu, Order, PAGE_SIZE, PageCount, PageIndex,
    PageRange, Placed, TakeOutError,
};
use millpond_mmu::{Delivery, Memory, RealMemory, TakeOutMethod};

const HUGE: usize = 2 << 20;

fn page(leaf: u32, place: u32) -> PageRange {
    PageRange::new(PageIndex(leaf * LEAF_PAGES + place), PageCount(1))
}

/// Returns the place in a block where a page of a leaf goes.
fn seat(block: u32, place: u32) -> Frame {
    frame(0, block * LEAF_PAGES + place)
}

fn named(places: impl IntoIterator<Item = u32>) -> LeafPages {
    let mut pages = LeafPages::default();
    for place in places {
        pages.add(PageIndex(place));
    }
    pages
}

/// Fills a page. Each byte depends on the page, its place in it, and `seed`.
fn fill(mmu: &RealMemory, at: PageRange, seed: u8) {
    for n in 0..PAGE_SIZE {
        // SAFETY: the page is mapped, and only this thread uses it.
        unsafe { mmu.addr_of(at.start).add(n).write(byte(at, n, seed)) };
    }
}

fn byte(at: PageRange, n: usize, seed: u8) -> u8 {
    (at.start.0 as u8)
        .wrapping_mul(31)
        .wrapping_add(n as u8)
        .wrapping_add((n >> 8) as u8)
        ^ seed
}

#[track_caller]
fn assert_filled(mmu: &RealMemory, at: PageRange, seed: u8) {
    // SAFETY: the page is mapped, and only this thread uses it.
    let good =
        (0..PAGE_SIZE).all(|n| unsafe { mmu.addr_of(at.start).add(n).read() } == byte(at, n, seed));
    assert!(good, "{at} holds something else");
}

fn map(mmu: &RealMemory, leaf: u32, pages: &LeafPages, seed: u8) {
    for place in pages.iter() {
        mmu.install_zero(page(leaf, place), None).unwrap();
        fill(mmu, page(leaf, place), seed);
    }
}

/// Asserts that everything is where it was: the pages are at the leaf, and the places of the block are usable holes.
#[track_caller]
fn assert_untouched(mmu: &RealMemory, n: u32, block: u32, pages: &LeafPages, seed: u8) {
    assert_eq!(present(mmu, leaf(n)), pages.len());
    for place in pages.iter() {
        assert_filled(mmu, page(n, place), seed);
    }
    for place in [0, 255, 511] {
        mmu.fill(seat(block, place), true, &mut |bytes| {
            assert!(bytes.iter().all(|&byte| byte == 0));
            Ok(())
        })
        .unwrap();
        mmu.free_frames(&[seat(block, place)]);
    }
}

#[test]
fn a_half_full_leaf_goes_out_and_comes_back_byte_for_byte() {
    let Some(mmu) = open_leaves(3) else { return };
    let mut random = Random(0x1EAF);
    for round in 0..60u8 {
        let pages = match round % 4 {
            0 => named((0..256).map(|_| random.below(512) as u32)),
            1 => named((0..512).step_by(2)),
            2 => named([random.below(512) as u32]),
            _ => named(0..512),
        };
        let block = u32::from(round % 3);
        map(&mmu, 1, &pages, round);
        mmu.take_out_leaf(leaf(1), seat(block, 0), &pages).unwrap();
        assert_eq!(present(&mmu, leaf(1)), 0);
        for place in pages.iter() {
            mmu.read_frame(seat(block, place), &mut |bytes| {
                let at = page(1, place);
                assert!((0..PAGE_SIZE).all(|n| bytes[n] == byte(at, n, round)));
            });
            install(&mmu, seat(block, place), page(1, place));
            assert_filled(&mmu, page(1, place), round);
        }
        // The block is empty again, and takes single pages.
        for place in pages.iter() {
            mmu.take_out(page(1, place), seat(block, place)).unwrap();
        }
        let frames: Vec<_> = pages.iter().map(|place| seat(block, place)).collect();
        for &frame in &frames[..frames.len() / 2] {
            let place = frame.index() % LEAF_PAGES;
            install(&mmu, frame, page(1, place));
            assert_filled(&mmu, page(1, place), round);
        }
        mmu.free_frames(&frames[frames.len() / 2..]);
        mmu.zap(&[leaf(1)]);
    }
}

#[test]
fn pages_that_the_program_dropped_are_zeros() {
    let Some(mmu) = open_leaves(1) else { return };
    let pages = named((0..512).step_by(3));
    map(&mmu, 0, &pages, 1);
    let dropped = [0, 300, 303, 510];
    for place in dropped {
        let at = mmu.addr_of(page(0, place).start).cast();
        // SAFETY: nobody else uses the page.
        let done = unsafe { libc::madvise(at, PAGE_SIZE, libc::MADV_DONTNEED) };
        assert_eq!(done, 0);
    }
    mmu.take_out_leaf(leaf(0), seat(0, 0), &pages).unwrap();
    for place in pages.iter() {
        install(&mmu, seat(0, place), page(0, place));
        if dropped.contains(&place) {
            assert!(mmu.is_blank(page(0, place), false));
        } else {
            assert_filled(&mmu, page(0, place), 1);
        }
    }
}

#[test]
fn a_page_that_nobody_named_stays() {
    let Some(mmu) = open_leaves(1) else { return };
    let pages = named(10..20);
    map(&mmu, 0, &pages, 1);
    map(&mmu, 0, &named([40]), 2);
    mmu.take_out_leaf(leaf(0), seat(0, 0), &pages).unwrap();
    assert_eq!(present(&mmu, leaf(0)), 1);
    assert_filled(&mmu, page(0, 40), 2);
    for place in 10..20 {
        install(&mmu, seat(0, place), page(0, place));
        assert_filled(&mmu, page(0, place), 1);
    }
}

/// A change that a program may make to its memory. No such change alters the contents.
#[derive(Clone, Copy, Debug)]
enum Change {
    Protect(i32),
    Lock,
    Unlock,
}

const READ_ONLY: Change = Change::Protect(libc::PROT_READ);
const WRITABLE: Change = Change::Protect(libc::PROT_READ | libc::PROT_WRITE);

fn change(mmu: &RealMemory, first: u32, pages: usize, how: Change) {
    let (at, len) = (mmu.addr_of(PageIndex(first)).cast(), pages * PAGE_SIZE);
    // SAFETY: the range is a part of the test's own arena, and its pages are only written while that is allowed.
    let done = unsafe {
        match how {
            Change::Protect(prot) => libc::mprotect(at, len, prot),
            Change::Unlock => libc::munlock(at, len),
            // Locking requires that all pages are there, which they are not; the lock stays anyway.
            Change::Lock => {
                libc::mlock(at, len);
                0
            }
        }
    };
    assert_eq!(done, 0, "{how:?}");
}

#[test]
fn a_leaf_that_the_program_changed_stays_whole() {
    let Some(mmu) = open_leaves(4) else { return };
    let pages = named((0..512).step_by(5).chain([511]));
    map(&mmu, 1, &pages, 3);
    // One block is a separate mapping from the start.
    mmu.take_out_leaf(leaf(3), seat(2, 0), &LeafPages::default())
        .unwrap();
    let parts = [
        (512, 1),
        (767, 3),
        (1023, 1),
        (512, 512),
        (0, 2048),
        (512, 1024),
    ];
    for (first, len) in parts {
        for (how, back) in [(READ_ONLY, WRITABLE), (Change::Lock, Change::Unlock)] {
            change(&mmu, first, len, how);
            for block in [0, 2] {
                assert_eq!(
                    mmu.take_out_leaf(leaf(1), seat(block, 0), &pages),
                    Err(TakeOutError::Immovable),
                    "{first} + {len}: {how:?}"
                );
                assert_untouched(&mmu, 1, block, &pages, 3);
            }
            change(&mmu, first, len, back);
        }
    }
    mmu.take_out_leaf(leaf(1), seat(0, 0), &pages).unwrap();
    for place in pages.iter() {
        install(&mmu, seat(0, place), page(1, place));
        assert_filled(&mmu, page(1, place), 3);
    }
}

#[test]
fn a_leaf_with_a_hole_or_a_foreign_part_stays_whole() {
    let Some(mmu) = open_leaves(2) else { return };
    let pages = named(1..400);
    map(&mmu, 1, &pages, 3);
    let first: *mut libc::c_void = mmu.addr_of(page(1, 0).start).cast();
    // SAFETY: the page belongs to the test, and is empty.
    assert_eq!(unsafe { libc::munmap(first, PAGE_SIZE) }, 0);
    let refused = || {
        assert_eq!(
            mmu.take_out_leaf(leaf(1), seat(0, 0), &pages),
            Err(TakeOutError::Immovable)
        );
        for place in pages.iter() {
            assert_filled(&mmu, page(1, place), 3);
        }
    };
    refused();
    // SAFETY: this is a new mapping in the hole made above.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let both = libc::PROT_READ | libc::PROT_WRITE;
        assert_eq!(libc::mmap(first, PAGE_SIZE, both, flags, -1, 0), first);
        first.cast::<u8>().write(9);
    }
    refused();
    // SAFETY: the page was mapped just now.
    assert_eq!(unsafe { first.cast::<u8>().read() }, 9);
}

/// Checks that a huge page goes as the single entry that it is, and becomes small pages when its places are used one
/// by one.
#[test]
fn a_leaf_that_is_one_huge_page_goes_too() {
    let Some(mmu) = common::huge::memory(1) else {
        return;
    };
    mmu.install_zero(leaf(0), None).unwrap();
    let pages = named(0..512);
    for place in pages.iter() {
        fill(&mmu, page(0, place), 8);
    }
    mmu.take_out_leaf(leaf(0), seat(0, 0), &pages).unwrap();
    assert_eq!(present(&mmu, leaf(0)), 0);
    mmu.free_frames(&[seat(0, 100), seat(0, 511)]);
    for place in (0..511).filter(|&place| place != 100) {
        install(&mmu, seat(0, place), page(0, place));
        assert_filled(&mmu, page(0, place), 8);
    }
}

#[test]
fn a_program_that_locks_everything_keeps_its_pages() {
    if open_leaves(1).is_none() {
        return;
    }
    let status = in_child(
        || {},
        || {},
        || {
            let mmu = open_leaves(2).unwrap();
            let pages = named(0..300);
            map(&mmu, 1, &pages, 4);
            // SAFETY: the call only changes what may leave memory. Absent pages make it fail after it has locked.
            unsafe { libc::mlockall(libc::MCL_CURRENT) };
            let answer = mmu.take_out_leaf(leaf(1), seat(1, 0), &pages);
            let stayed = present(&mmu, leaf(1)) == 300;
            i32::from(answer != Err(TakeOutError::Immovable) || !stayed)
        },
    );
    assert_eq!(status, 0);
}

/// Checks a program whose limit on address space is below its use: it could not remap the range that the kernel
/// unmaps on the way.
#[test]
fn a_program_that_limits_its_memory_keeps_its_pages() {
    if open_leaves(1).is_none() {
        return;
    }
    for resource in [libc::RLIMIT_AS, libc::RLIMIT_DATA] {
        let status = in_child(
            || {},
            || {},
            || {
                let mmu = open_leaves(2).unwrap();
                let pages = named(0..100);
                map(&mmu, 0, &pages, 4);
                let limit = libc::rlimit {
                    rlim_cur: 1 << 20,
                    rlim_max: libc::RLIM_INFINITY,
                };
                // SAFETY: existing mappings stay.
                unsafe { libc::setrlimit(resource, &limit) };
                let answer = mmu.take_out_leaf(leaf(0), seat(1, 0), &pages);
                let single = mmu.take_out(page(0, 0), seat(1, 0));
                let stayed = present(&mmu, leaf(0)) == 99;
                let good = answer == Err(TakeOutError::Immovable) && single.is_ok() && stayed;
                i32::from(!good)
            },
        );
        assert_eq!(status, 0);
    }
}

/// Checks a sealed mapping, which cannot be moved. The kernel may find that out after it has unmapped the block.
#[test]
fn a_block_stays_part_of_the_pool_after_a_failed_move() {
    let Some(mmu) = open_leaves(2) else { return };
    let pages = named((0..512).step_by(7));
    map(&mmu, 0, &pages, 5);
    // SAFETY: the seal forbids changes of the test's own mapping; nothing is changed now.
    if unsafe { libc::syscall(libc::SYS_mseal, mmu.addr_of(PageIndex(0)), HUGE, 0) } != 0 {
        eprintln!("skipped: mseal is missing (Linux 6.10)");
        return;
    }
    for _ in 0..3 {
        assert_eq!(
            mmu.take_out_leaf(leaf(0), seat(1, 0), &pages),
            Err(TakeOutError::Immovable)
        );
        assert_untouched(&mmu, 0, 1, &pages, 5);
    }
    mmu.take_out(page(0, 7), seat(1, 7)).unwrap();
    install(&mmu, seat(1, 7), page(0, 7));
    assert_filled(&mmu, page(0, 7), 5);
}

#[test]
fn places_that_cannot_be_a_block_are_refused() {
    let Some(mmu) = open_leaves(1) else { return };
    let pages = named(0..8);
    map(&mmu, 0, &pages, 6);
    for wrong in [
        frame(0, 1),
        frame(0, 256),
        Frame::new(Order::new(4).unwrap(), 0),
    ] {
        assert_eq!(
            mmu.take_out_leaf(leaf(0), wrong, &pages),
            Err(TakeOutError::Immovable),
            "{wrong}"
        );
    }
    assert_untouched(&mmu, 0, 0, &pages, 6);
    for (delivery, method) in [
        (Delivery::Handler, TakeOutMethod::Move),
        (Delivery::InThread, TakeOutMethod::Copy),
    ] {
        if usable(delivery, method) {
            let mmu = RealMemory::new(config(delivery, method, 1)).unwrap();
            mmu.open(leaf(0)).unwrap();
            map(&mmu, 0, &pages, 6);
            let answer = mmu.take_out_leaf(leaf(0), seat(0, 0), &pages);
            assert_eq!(answer, Err(TakeOutError::Immovable));
            assert_untouched(&mmu, 0, 0, &pages, 6);
        }
    }
}

/// Checks neighbouring places whose blocks are two mappings: they take and give pages in runs.
#[test]
fn runs_across_two_blocks_are_taken_and_given_like_others() {
    let Some(mmu) = open_leaves(4) else { return };
    for block in 0..4 {
        map(&mmu, 3 - block, &named([block]), 1);
        mmu.take_out_leaf(leaf(3 - block), seat(block, 0), &named([block]))
            .unwrap();
        mmu.free_frames(&[seat(block, block)]);
    }
    let ats: Vec<_> = (500..540).map(|n| page(0, n)).collect();
    let frames: Vec<_> = (500..540).map(|n| frame(0, n)).collect();
    for seed in 0..20 {
        for &at in &ats {
            mmu.install_zero(at, None).unwrap();
            fill(&mmu, at, seed);
        }
        let work: Vec<_> = ats.iter().copied().zip(frames.iter().copied()).collect();
        let mut results = vec![Ok(()); work.len()];
        mmu.take_out_all(&work, &mut results);
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        for &(at, frame) in &work[..20] {
            install(&mmu, frame, at);
            assert_filled(&mmu, at, seed);
        }
        mmu.take_out_all(&work[..20], &mut results[..20]);
        // Used frames are zeroed and mapped in runs.
        let zeros: Vec<_> = work.iter().map(|&(at, frame)| (at, Some(frame))).collect();
        let mut placed = vec![Err(InstallError::Gone); work.len()];
        mmu.install_zero_all(&zeros, &mut placed);
        for (&(at, frame), placed) in work.iter().zip(placed) {
            assert!(mmu.is_blank(at, false));
            if placed.unwrap() == Placed::Copied {
                mmu.free_frames(&[frame]);
            }
        }
        mmu.zap(&ats);
    }
}

/// Covers neighbouring leaves that go to neighbouring blocks. They could be one mapping there, and the kernel merged
/// them before the second was removed from userfaultfd, so the first was removed with it. From then on every page for
/// the first block was refused, classified as immovable and kept in memory permanently: 4,524 of 78,000 in the run that
/// showed it.
#[test]
fn a_neighbour_does_not_take_a_block_out_of_userfaultfd() {
    let Some(mmu) = open_leaves(4) else { return };
    let pages = named((0..512).step_by(2));
    for block in [0, 1, 2, 3, 2, 1, 0] {
        map(&mmu, block, &pages, 1);
        mmu.take_out_leaf(leaf(block), seat(block, 0), &pages)
            .unwrap();
        let frames: Vec<_> = pages.iter().map(|place| seat(block, place)).collect();
        mmu.free_frames(&frames);
    }
    for block in 0..4 {
        let at = page(block, 7);
        mmu.install_zero(at, None).unwrap();
        fill(&mmu, at, 2);
        mmu.take_out(at, seat(block, 9)).unwrap();
        install(&mmu, seat(block, 9), at);
        assert_filled(&mmu, at, 2);
    }
}

/// Takes out the mapped pages of a leaf of [`Tiny`], whose folios are single pages with places in the block. First
/// brings absent pages in. Returns how many went.
fn evict_leaf(tiny: &Tiny, n: u32) -> u32 {
    let folios = (n * LEAF_PAGES) as usize..((n + 1) * LEAF_PAGES) as usize;
    let mut pages = LeafPages::default();
    let mut states = loop {
        let states = tiny.states.lock().unwrap();
        let leaf = &states[folios.clone()];
        if let Some(out) = leaf.iter().position(|&state| state == State::Out) {
            drop(states);
            tiny.resolve(PageIndex((folios.start + out) as u32));
        } else if leaf.contains(&State::InFlight) {
            drop(states);
            std::thread::yield_now();
        } else {
            break states;
        }
    };
    let before: Vec<_> = states[folios.clone()].to_vec();
    for folio in folios.clone() {
        if states[folio] == State::Mapped {
            pages.add(PageIndex(folio as u32));
        }
        states[folio] = State::InFlight;
    }
    drop(states);
    let taken = tiny.mmu.take_out_leaf(leaf(n), seat(n, 0), &pages);
    let mut states = tiny.states.lock().unwrap();
    for (folio, before) in folios.zip(before) {
        states[folio] = match before {
            State::Mapped if taken.is_ok() => State::Out,
            before => before,
        };
    }
    taken.map_or(0, |()| pages.len())
}

const WRITERS: usize = 4;

/// Runs writers that add to counters in some pages of two leaves, while one thread takes the leaves out and brings
/// pages back, and another takes out and brings back single pages.
#[test]
fn no_increment_is_lost() {
    if open_leaves(1).is_none() {
        return;
    }
    let tiny = Tiny::new(Delivery::InThread, TakeOutMethod::Move, 2, 0);
    let (stop, leaves) = (Arc::new(AtomicBool::new(false)), AtomicU64::new(0));
    let counter = |n: usize| tiny.counter(n / 2 * 7 % 1024, n % 2 * 500);
    let (written, gone) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS as u64)
            .map(|writer| {
                let (stop, counter) = (&stop, &counter);
                scope.spawn(move || {
                    let (mut random, mut count) = (Random(0xC0FFEE + writer), 0u64);
                    while !stop.load(Relaxed) {
                        counter(random.below(400)).fetch_add(1, Relaxed);
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let evictor = scope.spawn(|| {
            let mut gone = 0;
            while !stop.load(Relaxed) {
                for n in 0..2 {
                    gone += u64::from(evict_leaf(&tiny, n));
                    leaves.fetch_add(1, Relaxed);
                }
            }
            gone
        });
        scope.spawn(|| {
            let mut random = Random(99);
            while !stop.load(Relaxed) {
                tiny.evict(random.below(200) * 7 % 1024);
                std::thread::yield_now();
            }
        });
        std::thread::sleep(stress_time());
        stop.store(true, Relaxed);
        let written = writers.into_iter().map(|writer| writer.join().unwrap());
        (written.sum::<u64>(), evictor.join().unwrap())
    });
    let found: u64 = (0..400).map(|n| counter(n).load(Relaxed)).sum();
    let leaves = leaves.load(Relaxed);
    println!("{written} increments, {leaves} leaves of {gone} pages taken out");
    assert_eq!(found, written);
    assert!(gone > 0);
    tiny.end();
}

/// Checks a parent and a child that share the pages, mapped and in blocks of their own, and go on independently.
#[test]
fn leaves_are_shared_with_a_child_and_go_out_on_both_sides() {
    if open_leaves(1).is_none() {
        return;
    }
    let tiny = Tiny::new(Delivery::InThread, TakeOutMethod::Move, 3, 0);
    let touched = || (0..1536).step_by(3);
    let adds = |n: u64| {
        for folio in touched() {
            tiny.counter(folio, 1).fetch_add(n, Relaxed);
        }
    };
    let reads = |n: u64| touched().all(|folio| tiny.counter(folio, 1).load(Relaxed) == n);
    let goes = |n| evict_leaf(&tiny, n) >= 170;
    adds(5);
    // One leaf is out before the fork, one comes back before it, one has never been out.
    assert!(goes(0) && goes(1));
    assert_eq!(tiny.counter(513, 1).load(Relaxed), 5);
    let child = || {
        if let Err(error) = tiny.mmu.after_fork_in_child(&[]) {
            eprintln!("in the child: {error}");
            return 1;
        }
        if !goes(2) || !reads(5) {
            return 2;
        }
        adds(10);
        i32::from(!(goes(0) && goes(1) && goes(2) && reads(15))) * 3
    };
    let after = || {
        tiny.mmu.after_fork_in_parent();
        assert!(goes(2) && reads(5));
        adds(1);
        assert!(goes(0) && goes(1) && goes(2) && reads(6));
    };
    assert_eq!(in_child(|| tiny.mmu.before_fork(), after, child), 0);
    assert!(goes(0) && goes(1) && goes(2) && reads(6));
    tiny.end();
}

/// Checks `MADV_WIPEONFORK`, which concerns the program's mappings. Pages that are out are in a block, to which the
/// advice must not apply.
#[test]
fn wipe_on_fork_advice_does_not_wipe_frames() {
    if open_leaves(1).is_none() {
        return;
    }
    let tiny = Tiny::new(Delivery::InThread, TakeOutMethod::Move, 1, 0);
    for folio in 0..512 {
        tiny.counter(folio, 0).store(7, Relaxed);
    }
    let at = tiny.mmu.base().cast();
    // SAFETY: the advice only changes what a child finds.
    assert_eq!(unsafe { libc::madvise(at, HUGE, libc::MADV_WIPEONFORK) }, 0);
    assert_eq!(evict_leaf(&tiny, 0), 512);
    let child = || {
        if tiny.mmu.after_fork_in_child(&[]).is_err() {
            return 1;
        }
        i32::from((0..512).any(|folio| tiny.counter(folio, 0).load(Relaxed) != 7)) * 2
    };
    let (before, after) = (
        || tiny.mmu.before_fork(),
        || tiny.mmu.after_fork_in_parent(),
    );
    assert_eq!(in_child(before, after, child), 0);
    tiny.end();
}

/// Changes protections and locks while the leaf goes and comes: nothing may be lost, in whatever order.
#[test]
fn changes_of_protection_while_a_leaf_goes_lose_nothing() {
    let Some(mmu) = open_leaves(3) else { return };
    let pages = named((0..512).step_by(11));
    map(&mmu, 1, &pages, 7);
    let stop = AtomicBool::new(false);
    let (mut out, mut stayed) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(0xF1A6);
            while !stop.load(Relaxed) {
                let (first, len) = [(512, 512), (600, 5), (0, 1536)][random.below(3)];
                let (how, back) =
                    [(READ_ONLY, WRITABLE), (Change::Lock, Change::Unlock)][random.below(2)];
                change(&mmu, first, len, how);
                change(&mmu, first, len, back);
                for _ in 0..random.below(2000) {
                    std::hint::spin_loop();
                }
            }
        });
        let end = std::time::Instant::now() + stress_time() / 2;
        let mut block = 0;
        while std::time::Instant::now() < end {
            block = (block + 1) % 3;
            if mmu.take_out_leaf(leaf(1), seat(block, 0), &pages).is_err() {
                stayed += 1;
                continue;
            }
            out += 1;
            for place in pages.iter() {
                install(&mmu, seat(block, place), page(1, place));
                assert_filled(&mmu, page(1, place), 7);
            }
            // The places are usable, whatever the leaf was when it went.
            mmu.fill(seat(block, 1), true, &mut |bytes| {
                bytes.fill(1);
                Ok(())
            })
            .unwrap();
            mmu.free_frames(&[seat(block, 1)]);
        }
        stop.store(true, Relaxed);
    });
    println!("{out} times out, {stayed} refused");
    for block in 0..3 {
        mmu.take_out(page(1, 0), seat(block, 0)).unwrap();
        install(&mmu, seat(block, 0), page(1, 0));
    }
    assert!(out > 0);
}
