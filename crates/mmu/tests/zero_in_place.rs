//! Tests of zeroing pages in place, and of checking whether they are zeros. Lazy free of exclusively used memory
//! depends on both.

mod common;

use common::{Random, Tiny, each_kind, in_child};
use millpond_core::{Mmu, PAGE_SIZE, PageCount, PageIndex, PageRange};
use millpond_mmu::{Delivery, Memory};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn bytes(tiny: &Tiny, range: PageRange) -> &'static mut [u8] {
    let at = tiny.mmu.addr_of(range.start);
    // SAFETY: the address is inside the arena, which outlives the test's use of it; one slice exists at a time.
    unsafe { std::slice::from_raw_parts_mut(at, range.len.bytes() as usize) }
}

/// Maps and fills the pages of the first `folios` folios, and returns them.
fn filled(tiny: &Tiny, folios: usize) -> PageRange {
    let last = tiny.range(folios - 1).end();
    let range = PageRange::new(PageIndex(0), PageCount(last.0));
    bytes(tiny, range).fill(0xa5);
    (0..folios).for_each(|folio| tiny.settle(folio));
    range
}

#[test]
fn zeroing_zeroes_every_byte_of_the_range_and_no_other() {
    each_kind(|delivery, method| {
        for order in [0, 4, 9] {
            let tiny = Tiny::new(delivery, method, 2, order);
            let all = filled(&tiny, tiny.folios());
            for at in [PageRange::new(PageIndex(3), PageCount(1)), tiny.range(1)] {
                bytes(&tiny, all).fill(0xa5);
                tiny.mmu.zero_in_place(at);
                let zeroed = |page: usize| at.contains(PageIndex(page as u32));
                for (n, page) in bytes(&tiny, all).chunks(PAGE_SIZE).enumerate() {
                    let expected = if zeroed(n) { 0 } else { 0xa5 };
                    assert!(
                        page.iter().all(|&byte| byte == expected),
                        "page {n} of {at:?}"
                    );
                }
            }
            tiny.end();
        }
    });
}

/// Checks that zeroed pages stay mapped, so that writing to them again never faults: neither for us nor for the
/// kernel.
#[test]
fn cleared_pages_are_written_without_a_fault() {
    each_kind(|delivery, method| {
        let tiny = Tiny::new(delivery, method, 1, 4);
        let all = filled(&tiny, tiny.folios());
        // SAFETY: zeros are a valid `rusage`, which the call writes.
        let faults = || unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
            usage.ru_minflt + usage.ru_majflt
        };
        let round = || {
            let before = (faults(), tiny.faults.load(Relaxed));
            tiny.mmu.zero_in_place(all);
            bytes(&tiny, all).fill(1);
            assert!(!tiny.mmu.is_blank(all, false));
            (faults() - before.0, tiny.faults.load(Relaxed) - before.1)
        };
        // Another test that forks at this moment makes this thread's stack pages shared, which costs a fault for
        // each.
        let least = (0..8).map(|_| round()).min();
        assert_eq!(least, Some((0, 0)), "{delivery:?} {method:?}");
        tiny.end();
    });
}

#[test]
fn a_look_finds_any_byte_and_a_glance_the_first_ones_of_each_page() {
    each_kind(|delivery, method| {
        let tiny = Tiny::new(delivery, method, 1, 4);
        filled(&tiny, 2);
        let at = tiny.range(1);
        tiny.mmu.zero_in_place(at);
        assert!(tiny.mmu.is_blank(at, false) && tiny.mmu.is_blank(at, true));
        let len = at.len.bytes() as usize;
        let mut random = Random(0xb1a);
        let places = (0..len).step_by(509).chain([len - 1]);
        for place in places.chain((0..200).map(|_| random.below(len))) {
            bytes(&tiny, at)[place] = 1 << (place % 8);
            assert!(!tiny.mmu.is_blank(at, false), "byte {place}");
            // A glance may miss bytes further in, but not those that programs write first.
            if place % PAGE_SIZE < 16 {
                assert!(!tiny.mmu.is_blank(at, true), "byte {place}");
            }
            bytes(&tiny, at)[place] = 0;
            assert!(tiny.mmu.is_blank(at, false), "byte {place}");
        }
        // This page is alone among others that are not blank.
        bytes(&tiny, at).fill(1);
        let page = PageRange::new(at.start.plus(7), PageCount(1));
        tiny.mmu.zero_in_place(page);
        assert!(tiny.mmu.is_blank(page, false) && !tiny.mmu.is_blank(at, true));
        tiny.end();
    });
}

/// Checks zeroing without a prior check: if everything is mapped, all of it is zeroed; if a page is missing, the
/// result is false, and no fault is reported.
#[test]
fn zeroing_memory_that_may_be_missing_never_faults() {
    each_kind(|delivery, method| {
        let tiny = Tiny::new(delivery, method, 1, 0);
        let all = filled(&tiny, 32);
        let at = PageRange::new(PageIndex(8), PageCount(16));
        let here = delivery == Delivery::InThread && cfg!(target_arch = "x86_64");
        // SAFETY: the range is inside the arena, and no reference to it is in use.
        let zero = |at| unsafe { tiny.mmu.zero_if_mapped(at) };
        assert_eq!(zero(at), here, "{delivery:?}");
        if !here {
            return tiny.end();
        }
        for (n, page) in bytes(&tiny, all).chunks(PAGE_SIZE).enumerate() {
            let expected = if at.contains(PageIndex(n as u32)) {
                0
            } else {
                0xa5
            };
            assert!(page.iter().all(|&byte| byte == expected), "page {n}");
        }
        for missing in [8, 15, 23] {
            bytes(&tiny, all).fill(0xa5);
            assert!(tiny.evict(missing as usize));
            let before = tiny.faults.load(Relaxed);
            assert!(!zero(at), "page {missing} is missing");
            assert_eq!(tiny.faults.load(Relaxed), before, "page {missing}");
            // The next touch is a fault like any other.
            bytes(&tiny, all)[missing as usize * PAGE_SIZE] = 1;
            assert_eq!(tiny.faults.load(Relaxed), before + 1);
            tiny.settle(missing as usize);
        }
        tiny.end();
    });
}

/// Checks a program that writes while a thread looks: the result matches the state before or after the write, and the
/// written bytes stay.
#[test]
fn a_look_beside_a_writer_loses_no_write() {
    each_kind(|delivery, method| {
        let tiny = Tiny::new(delivery, method, 1, 0);
        filled(&tiny, 1);
        let at = tiny.range(0);
        tiny.mmu.zero_in_place(at);
        let (stop, word) = (AtomicBool::new(false), tiny.counter(0, 100));
        let (mut blank, mut written) = (0, 0);
        let count = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut count = 0;
                while !stop.load(Relaxed) {
                    count += 1;
                    word.store(count, Relaxed);
                    assert_eq!(word.load(Relaxed), count);
                    word.store(0, Relaxed);
                }
                count
            });
            while (blank < 1000 || written < 1000) && !writer.is_finished() {
                match tiny.mmu.is_blank(at, false) {
                    true => blank += 1,
                    false => written += 1,
                }
            }
            stop.store(true, Relaxed);
            writer.join().unwrap()
        });
        assert!(count > 0 && blank >= 1000 && written >= 1000);
        tiny.end();
    });
}

/// Checks that zeroing acts like the program's own writes: a child that shares the pages keeps its contents.
#[test]
fn zeroing_leaves_a_childs_pages_alone() {
    each_kind(|delivery, method| {
        let tiny = Tiny::new(delivery, method, 1, 4);
        let all = filled(&tiny, 2);
        let mut pipe = [0; 2];
        // SAFETY: the array has room for both ends.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        let [zeroed, say_so] = pipe;
        let status = in_child(
            || tiny.mmu.before_fork(),
            || {
                tiny.mmu.after_fork_in_parent();
                tiny.mmu.zero_in_place(all);
                // SAFETY: the test owns these descriptors.
                unsafe { libc::close(say_so) };
            },
            || {
                // The child waits until the parent has closed the other end, and so has zeroed its pages.
                // SAFETY: the test owns these descriptors; there is room for one byte.
                let end = unsafe {
                    libc::close(say_so);
                    libc::read(zeroed, [0u8].as_mut_ptr().cast(), 1)
                };
                let kept = bytes(&tiny, all).iter().all(|&byte| byte == 0xa5);
                i32::from(end != 0 || !kept)
            },
        );
        // SAFETY: the test owns this descriptor.
        unsafe { libc::close(zeroed) };
        assert_eq!(status, 0, "{delivery:?} {method:?}");
        assert!(tiny.mmu.is_blank(all, false));
        tiny.end();
    });
}
