//! Tests of the arena's parts: taking out leaves by their tables splits it into mappings, and handing pages over
//! makes it one mapping again.

mod common;

use common::huge::{frame, install, leaf};
use common::open_leaves;
use millpond_core::{Frame, LEAF_PAGES, LeafPages, Mmu, PageCount, PageIndex, PageRange};
use millpond_mmu::{Memory, RealMemory};

/// Number of leaves in a part.
const PART: u32 = 8;

fn leaves_of(first: u32, count: u32) -> PageRange {
    PageRange::new(PageIndex(first * LEAF_PAGES), PageCount(count * LEAF_PAGES))
}

fn page(number: u32) -> PageRange {
    PageRange::new(PageIndex(number), PageCount(1))
}

fn seat(place: u32) -> Frame {
    frame(0, place)
}

fn write(mmu: &RealMemory, number: u32, value: u32) {
    // SAFETY: the page is mapped, and this thread is the only one.
    unsafe { mmu.addr_of(PageIndex(number)).cast::<u32>().write(value) };
}

fn read(mmu: &RealMemory, number: u32) -> u32 {
    // SAFETY: the page is mapped, and this thread is the only one.
    unsafe { mmu.addr_of(PageIndex(number)).cast::<u32>().read() }
}

/// Counts the mappings that begin in a range of the arena.
fn mappings(mmu: &RealMemory, range: PageRange) -> usize {
    let start = mmu.addr_of(range.start) as usize;
    let end = start + range.len.bytes() as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let first = |line: &str| usize::from_str_radix(line.split('-').next()?, 16).ok();
    maps.lines()
        .filter_map(first)
        .filter(|at| (start..end).contains(at))
        .count()
}

/// Takes the leaf's pages, one in four, out to the first block and brings them back.
fn goes_out_and_comes_back(mmu: &RealMemory, n: u32) {
    let mut pages = LeafPages::default();
    for place in (0..LEAF_PAGES).step_by(4) {
        pages.add(PageIndex(place));
    }
    mmu.take_out_leaf(leaf(n), seat(0), &pages).unwrap();
    for place in pages.iter() {
        install(mmu, seat(place), page(n * LEAF_PAGES + place));
    }
}

fn fill(mmu: &RealMemory, leaves: impl Iterator<Item = u32>) {
    for n in leaves {
        for number in (n * LEAF_PAGES..(n + 1) * LEAF_PAGES).step_by(4) {
            mmu.install_zero(page(number), None).unwrap();
            write(mmu, number, number + 1);
        }
    }
}

#[test]
fn a_leaf_that_leaves_splits_only_its_own_part_off() {
    let Some(mmu) = open_leaves(8 * PART) else {
        return;
    };
    let all = leaves_of(0, 8 * PART);
    fill(&mmu, [0, 3 * PART + 1, 3 * PART + 2, 6 * PART].into_iter());
    assert_eq!(mappings(&mmu, all), 1);
    goes_out_and_comes_back(&mmu, 0);
    // The second part is separate from the first and from the third, which extends to the end.
    assert_eq!(mappings(&mmu, all), 3);
    goes_out_and_comes_back(&mmu, 3 * PART + 1);
    assert_eq!(mappings(&mmu, all), 5);
    goes_out_and_comes_back(&mmu, 3 * PART + 2);
    assert_eq!(mappings(&mmu, all), 5);
    goes_out_and_comes_back(&mmu, 6 * PART);
    assert_eq!(mappings(&mmu, all), 8, "each is a mapping, and the last");
}

#[test]
fn split_memory_is_handed_over_as_one_and_back_again() {
    let Some(mmu) = open_leaves(8 * PART) else {
        return;
    };
    let mut at = [0, 5, PART, 2 * PART + 3, 4 * PART - 1];
    fill(&mmu, at.into_iter());
    let (mut from, mut to) = (leaves_of(0, 4 * PART), leaves_of(4 * PART, 4 * PART));
    for round in 0..6 {
        for n in at {
            goes_out_and_comes_back(&mmu, n);
        }
        assert!(mappings(&mmu, from) > 2);
        // SAFETY: there is no other thread, and the other half is empty.
        unsafe { mmu.hand_over(from, to, (PageCount(0), PageCount(0))) }.unwrap();
        // Each mapping is a call of its own.
        assert_eq!(mappings(&mmu, to), 1);
        let moved = to.start.0.wrapping_sub(from.start.0);
        for n in &mut at {
            let before = *n * LEAF_PAGES;
            *n = n.wrapping_add(moved / LEAF_PAGES) % (8 * PART);
            for offset in (0..LEAF_PAGES).step_by(4) {
                let first = match round % 2 {
                    0 => before + offset,
                    _ => before + offset - 4 * PART * LEAF_PAGES,
                };
                assert_eq!(read(&mmu, *n * LEAF_PAGES + offset), first + 1);
            }
        }
        std::mem::swap(&mut from, &mut to);
    }
}

/// Earlier moves leave a region in several mappings, which only Linux 6.17 and later move by one call. On Debian's 6.12
/// snapshots and moves of such regions were refused, and the destination had no mapping any more.
#[test]
fn a_range_of_several_mappings_is_handed_over() {
    let Some(mmu) = open_leaves(4 * PART) else {
        return;
    };
    let written = [0, 1, 2, PART, PART + 1];
    fill(&mmu, written.into_iter());
    let (from, to) = (leaves_of(0, 2 * PART), leaves_of(2 * PART, 2 * PART));
    // These leaves are marked as the program might, by advice without effect.
    for leaf in [1, PART] {
        let at = mmu.addr_of(page(leaf * LEAF_PAGES).start).cast();
        let len = LEAF_PAGES as usize * millpond_core::PAGE_SIZE;
        // SAFETY: the advice changes no contents.
        assert_eq!(unsafe { libc::madvise(at, len, libc::MADV_RANDOM) }, 0);
    }
    let before = mappings(&mmu, from);
    assert!(before >= 4, "{before}");
    let sides = (PageCount(0), PageCount(0));
    // SAFETY: there is no other thread, and the other half is empty.
    unsafe { mmu.hand_over(from, to, sides) }.unwrap();
    assert_eq!(mappings(&mmu, to), before);
    for leaf in written {
        for offset in (0..LEAF_PAGES).step_by(4) {
            let number = leaf * LEAF_PAGES + offset;
            assert_eq!(read(&mmu, number + 2 * PART * LEAF_PAGES), number + 1);
        }
    }
    // What was moved there, and what it left, are watched: pages go out and come back.
    goes_out_and_comes_back(&mmu, 2 * PART);
    mmu.install_zero(page(5), None).unwrap();
}

/// Checks neighbours on both sides of a border. Within one mapping they go in one call. Here that is refused, and
/// they go one by one.
#[test]
fn a_run_across_the_border_of_a_part_loses_nothing() {
    let Some(mmu) = open_leaves(2 * PART) else {
        return;
    };
    let border = PART * LEAF_PAGES;
    fill(&mmu, [0].into_iter());
    goes_out_and_comes_back(&mmu, 0);
    let run = border - 6..border + 6;
    for number in run.clone() {
        mmu.install_zero(page(number), None).unwrap();
        write(&mmu, number, number);
    }
    let work: Vec<_> = run
        .clone()
        .map(|n| (page(n), seat(n + 600 - border)))
        .collect();
    let mut results = vec![Ok(()); work.len()];
    mmu.take_out_all(&work, &mut results);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    for &(at, seat) in &work {
        install(&mmu, seat, at);
    }
    for number in run {
        assert_eq!(read(&mmu, number), number);
    }
}
