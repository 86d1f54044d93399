//! The calls of lazy free, on real memory: refused ranges, many ranges by one call and what that costs, and frees by
//! address.

mod common;

use common::lazily::{Free, each_case, old_or_zeros, settle};
use common::page_model::word;
use common::{
    FOLIO, MIB, PAGE, alone, can, fill, holds, order, pages, press, small, stress_time, ways,
};
use millpond::space::{Space, SpaceOptions};
use millpond::{Advice, Delivery, RangeError};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Ranges that cannot be freed are named in the error, and nothing changes.
#[test]
fn ranges_that_cannot_be_freed_are_named_and_nothing_changes() {
    each_case(&[4], |builder, case| {
        let manager = builder.build().unwrap();
        let len = MIB;
        let mut region = manager.region(len).unwrap();
        fill(&mut region, 0..len, 1);
        settle(&region);
        let before = (manager.stats().vm, region.stats());
        let mut refused = Vec::new();
        for (start, end) in [
            (0, 0),
            (PAGE, PAGE),
            (2 * PAGE, PAGE),
            (0, len + PAGE),
            (len, len + PAGE),
            (len, usize::MAX),
        ] {
            refused.push((start..end, RangeError::Bad { start, end, len }));
        }
        // The end of a range that wraps is before its start.
        let start = usize::MAX - PAGE + 1;
        refused.push((
            start..PAGE,
            RangeError::Bad {
                start,
                end: PAGE,
                len,
            },
        ));
        for (start, end) in [(1, PAGE), (0, PAGE + 1), (PAGE - 1, 2 * PAGE)] {
            refused.push((start..end, RangeError::Unaligned { start, end }));
        }
        for (range, error) in refused {
            assert!(
                error.to_string().contains(&range.start.to_string()),
                "{error}"
            );
            let one = case.free.try_one(&mut region, range.clone());
            assert_eq!(one, Err(error), "{}", case.name);
            // A good range before the bad one is not freed either.
            let vector = case.free.try_vector(&mut region, &[0..FOLIO, range]);
            assert_eq!(vector, Err(error), "{}", case.name);
        }
        assert_eq!(
            (manager.stats().vm, region.stats()),
            before,
            "{}",
            case.name
        );
        assert!(holds(&region, 0..len, 1), "{}", case.name);
        assert_eq!(case.free.try_vector(&mut region, &[]), Ok(()));
    });
    // The region's own end need not be the end of a page.
    let manager = small().build().unwrap();
    let mut region = manager.region(PAGE + 100).unwrap();
    region.as_mut_slice().fill(1);
    region.lazy_free(0..PAGE + 100).unwrap();
    assert_eq!(manager.stats().lazyfree_bytes(), 2 * PAGE as u64);
}

/// A pinned page somewhere in one of many ranges refuses the call, which says where it is.
#[test]
fn lazy_free_of_pinned_memory_is_refused_with_its_offset() {
    each_case(&[4], |builder, case| {
        if case.free == Free::Exclusive {
            // A guard borrows the region, so only a leaked guard can exist here.
            let manager = builder.build().unwrap();
            let mut region = manager.region(MIB).unwrap();
            fill(&mut region, 0..MIB, 1);
            std::mem::forget(region.pin(5 * PAGE..6 * PAGE).unwrap());
            let pinned = Err(RangeError::Pinned { offset: 5 * PAGE });
            assert_eq!(region.lazy_free(0..MIB), pinned);
            assert!(holds(&region, 0..MIB, 1));
            return;
        }
        let manager = builder.build().unwrap();
        let mut region = manager.region(MIB).unwrap();
        fill(&mut region, 0..MIB, 1);
        settle(&region);
        let guard = region.pin(5 * PAGE..6 * PAGE).unwrap();
        let before = (manager.stats().vm, region.stats());
        let pinned = Err(RangeError::Pinned { offset: 5 * PAGE });
        let ranges = [8 * FOLIO..9 * FOLIO, 4 * PAGE..8 * PAGE];
        // SAFETY: nothing refers to the bytes.
        unsafe {
            assert_eq!(region.lazy_free_shared(0..MIB), pinned, "{}", case.name);
            assert_eq!(
                region.lazy_free_shared_vectored(&ranges),
                pinned,
                "{}",
                case.name
            );
        }
        assert_eq!(
            (manager.stats().vm, region.stats()),
            before,
            "{}",
            case.name
        );
        drop(guard);
        assert!(holds(&region, 0..MIB, 1), "{}", case.name);
        case.free.one(&mut region, 0..MIB);
        assert_eq!(
            manager.stats().lazyfree_bytes(),
            MIB as u64,
            "{}",
            case.name
        );
    });
}

/// Using an exclusively freed block again costs no fault, by the kernel's count and by ours.
#[test]
fn rewriting_an_exclusively_freed_block_never_faults() {
    for (delivery, method) in ways() {
        let manager = small().delivery(delivery).take_out(method).build().unwrap();
        let mut region = manager.region_with(8 * MIB, order(4)).unwrap();
        region.as_mut_slice().fill(1);
        let chunks: Vec<_> = (0..8 * MIB)
            .step_by(2 * FOLIO)
            .map(|at| at..at + FOLIO)
            .collect();
        settle(&region);
        let mut rounds = |rounds: u8| {
            for round in 0..rounds {
                region.lazy_free_vectored(&chunks).unwrap();
                for chunk in &chunks {
                    region.as_mut_slice()[chunk.clone()].fill(round);
                }
            }
        };
        // The first rounds may fault, for code, stack and heap that were not used before.
        let faults = [4, 4, 12].map(|n| {
            let before = (manager.stats().vm.pgfault, faults_of_this_thread());
            rounds(n);
            let after = (manager.stats().vm.pgfault, faults_of_this_thread());
            (after.0 - before.0, after.1 - before.1)
        });
        assert_eq!(faults[2], (0, 0), "{delivery:?} {method:?}: {faults:?}");
        let vm = manager.stats().vm;
        assert_eq!(
            vm.pglazyfree,
            20 * pages(4 * MIB),
            "{delivery:?} {method:?}"
        );
        assert_eq!(
            (vm.pglazyfreed, vm.folio_split),
            (0, 0),
            "{delivery:?} {method:?}"
        );
    }
}

/// Most calls zero mapped memory and return. The lock, and the signal mask around it, are paid once for a batch.
#[test]
fn small_blocks_that_are_mapped_are_freed_without_a_system_call() {
    use common::calls::system_calls_of;
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    alone(
        "small_blocks_that_are_mapped_are_freed_without_a_system_call",
        || {
            let manager = small().build().unwrap();
            let mut region = manager.region_with(4 * MIB, order(4)).unwrap();
            region.as_mut_slice().fill(1);
            let mut free = |chunks: Range<usize>| {
                for chunk in chunks {
                    region
                        .lazy_free(chunk * FOLIO..(chunk + 1) * FOLIO)
                        .unwrap();
                }
            };
            free(0..32);
            let Some(calls) = system_calls_of(|| free(32..60)) else {
                return;
            };
            assert_eq!(calls, [0_i64; 0]);
            // The reported bytes include all these frees, those of the unfinished batch too, and not memory that was
            // used again.
            region.as_mut_slice()[59 * FOLIO + 5 * PAGE + 7] = 1;
            let stats = manager.stats();
            assert_eq!(stats.lazyfree_bytes(), (59 * FOLIO) as u64);
            assert_eq!(stats.vm.pglazyfree_reused, pages(FOLIO));
        },
    );
}

/// A missing page makes the call take the slow path, and is not brought in: the store drops its contents.
#[test]
fn missing_pages_are_freed_without_bringing_them_in() {
    let manager = small().build().unwrap();
    let mut region = manager.region_with(8 * MIB, order(4)).unwrap();
    fill(&mut region, 0..8 * MIB, 3);
    region.advise(0..8 * MIB, Advice::PageOut).unwrap();
    press(&manager, 14 * MIB);
    let before = manager.stats();
    assert!(before.store.slots >= 64, "{:?}", before.store);
    for chunk in 0..8 * MIB / FOLIO {
        region
            .lazy_free(chunk * FOLIO..(chunk + 1) * FOLIO)
            .unwrap();
    }
    let after = manager.stats();
    assert_eq!(after.vm.pgfault, before.vm.pgfault);
    assert_eq!(after.vm.pswpin, before.vm.pswpin);
    assert_eq!(region.stats().swapped, 0);
}

/// Minor and major faults of this thread, as the kernel counts them.
fn faults_of_this_thread() -> i64 {
    // SAFETY: a `rusage` of zeros is valid, and the call writes it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage.ru_minflt + usage.ru_majflt
    }
}

/// Many ranges are freed by one call in one round. Exclusively freed ranges make no system call that has to do with
/// memory (signals are blocked and unblocked around it); captured neighbours leave by one call.
#[cfg(target_arch = "x86_64")]
#[test]
fn one_call_frees_many_ranges_in_one_round() {
    use common::calls::system_calls_of;
    for (delivery, method) in ways() {
        let builder = || {
            small()
                .delivery(delivery)
                .take_out(method)
                .background_reclaim(false)
        };
        let manager = builder().build().unwrap();
        let mut region = manager.region_with(8 * MIB, order(4)).unwrap();
        region.as_mut_slice().fill(1);
        let apart: Vec<_> = (0..40)
            .map(|n| 2 * n * FOLIO..(2 * n + 1) * FOLIO)
            .collect();
        let mut free = |ranges: &[Range<usize>]| {
            system_calls_of(|| region.lazy_free_vectored(ranges).unwrap())
        };
        // Now and then the heap grows for the list of ranges, which does not belong to the free.
        let mut free = |ranges: &[Range<usize>]| {
            let calls = [free(ranges), free(ranges), free(ranges)];
            calls
                .into_iter()
                .min_by_key(|calls| calls.as_ref().map(Vec::len))
                .flatten()
        };
        let Some(one) = free(&apart[..1]) else { return };
        if !manager.capabilities().userfaultfd {
            // Pages may be closed although they are there, so the kernel writes the zeros: a call for each folio.
            println!("skipped {delivery:?}/{method:?}: no userfaultfd");
            continue;
        }
        let many = free(&apart).unwrap();
        assert_eq!(one, many, "{delivery:?} {method:?}");
        let others: Vec<_> = many
            .iter()
            .filter(|&&call| call != libc::SYS_rt_sigprocmask)
            .collect();
        assert_eq!(others, Vec::<&i64>::new(), "{delivery:?} {method:?}");

        // 40 neighbours of 64 KiB are 2.5 MiB, of which one call of the kernel moves 2 MiB. The call may stop early,
        // and is repeated.
        let mut region = manager.region_with(8 * MIB, order(4)).unwrap();
        region.as_mut_slice().fill(1);
        let side_by_side: Vec<_> = (0..40).map(|n| n * FOLIO..(n + 1) * FOLIO).collect();
        let calls =
            system_calls_of(|| Free::Shared.try_vector(&mut region, &side_by_side).unwrap());
        let ioctls = calls
            .unwrap()
            .into_iter()
            .filter(|&call| call == libc::SYS_ioctl)
            .count();
        if manager.capabilities().moves_pages {
            assert!((1..=10).contains(&ioctls), "{delivery:?}: {ioctls} calls");
        }
        assert_eq!(region.stats().lazyfree, 40 * FOLIO as u64);
    }
}

/// One call takes more ranges than a list of commands can hold, in any order, some twice, in all states.
#[test]
fn vectors_of_any_length_free_all_their_ranges() {
    each_case(&[0, 4], |builder, case| {
        let manager = builder.build().unwrap();
        let mut region = manager.region_with(10 * MIB, order(case.order)).unwrap();
        fill(&mut region, 0..10 * MIB, 1);
        region.advise(8 * MIB..9 * MIB, Advice::PageOut).unwrap();
        let mut ranges: Vec<_> = (0..200)
            .map(|n| {
                let at = n * 7 % 200 * 12 * PAGE;
                at..at + 5 * PAGE
            })
            .collect();
        ranges.push(ranges[0].clone());
        ranges.push(0..23 * PAGE);
        case.free.try_vector(&mut region, &ranges).unwrap();
        press(&manager, 18 * MIB);
        for at in (0..200).map(|n| n * 12 * PAGE).skip(2) {
            assert!(old_or_zeros(&region, at..at + 5 * PAGE, 1 + pages(at)).is_some());
            let rest = at + 5 * PAGE..at + 12 * PAGE;
            assert!(
                holds(&region, rest.clone(), 1 + pages(rest.start)),
                "{}",
                case.name
            );
        }
        let vm = manager.stats().vm;
        assert!(vm.pglazyfree > 0 && vm.nr_lazyfree == 0, "{}", case.name);
    });
}

fn space() -> &'static Space {
    let space = Space::create(SpaceOptions {
        order: order(4).into(),
        address_space: 1 << 30,
        ..common::space_options()
    });
    space.unwrap()
}

/// A space frees lazily by address, with Linux's errno, for programs that know nothing of it. The third contract gives
/// zeros at once.
#[test]
fn a_space_frees_lazily_by_address() {
    if !can(Delivery::Handler) {
        return;
    }
    let space = space();
    let (base, len) = (space.base(), 32 * MIB);
    space.open(base, len).unwrap();
    // SAFETY: only this test uses the space.
    let bytes = unsafe { std::slice::from_raw_parts_mut(base as *mut u8, len) };
    type Call = fn(&Space, usize, usize) -> Result<(), Errno>;
    let calls: [Call; 3] = [
        Space::lazy_free,
        Space::lazy_free_shared,
        Space::lazy_free_zeroed,
    ];
    for (n, free) in calls.into_iter().enumerate() {
        bytes.fill(7);
        for (addr, len) in [
            (base + 1, PAGE),
            (base, PAGE - 1),
            (base, 0),
            (0, PAGE),
            (base - PAGE, PAGE),
            (base, usize::MAX - PAGE + 1),
            (base + space.len(), PAGE),
        ] {
            assert_eq!(free(space, addr, len), Err(Errno::INVAL), "{addr:#x} {len}");
        }
        // Parts of the range are resident, in limbo and in the store, and both ends are inside folios.
        space.advise_pageout(base + 20 * MIB, MIB);
        free(space, base + PAGE, len - 2 * PAGE).unwrap();
        assert_eq!((bytes[0], bytes[len - 1]), (7, 7));
        let middle = &bytes[PAGE..len - PAGE];
        assert!(
            middle
                .chunks(PAGE)
                .all(|page| page.iter().all(|&b| b == 0) || page.iter().all(|&b| b == 7))
        );
        if n == 2 {
            assert!(middle.iter().all(|&byte| byte == 0), "zeros at once");
        }
    }
}

/// Memory that was zeroed in place is read when memory is short, to see whether it was used again. The program may have
/// made it inaccessible by then, for example as a guard page in memory from `malloc`, and the manager's own read was a
/// SIGSEGV. Now news of a protection removes the mark, and waits for an ongoing look.
#[test]
fn lazily_freed_memory_made_inaccessible_is_not_inspected() {
    if !can(Delivery::Handler) {
        return;
    }
    alone(
        "lazily_freed_memory_made_inaccessible_is_not_inspected",
        || {
            let space = space();
            let (base, len) = (space.base(), 64 * MIB);
            space.open(base, len).unwrap();
            let protect = |at: usize, len: usize, how: i32| {
                space.protection_changed(at, len);
                // SAFETY: no thread uses the range while it is inaccessible.
                assert_eq!(unsafe { libc::mprotect(at as *mut _, len, how) }, 0);
                space.protection_changed(at, len);
            };
            let end = Instant::now() + stress_time() / 3;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for page in (8 * MIB / PAGE..len / PAGE).cycle() {
                        word(base, page, 0).fetch_add(1, Relaxed);
                        if Instant::now() >= end {
                            return;
                        }
                    }
                });
                let mut n = 0;
                while Instant::now() < end {
                    for page in 0..4 * MIB / PAGE {
                        word(base, page, 0).store(1, Relaxed);
                    }
                    space.lazy_free(base, 4 * MIB).unwrap();
                    // The protected range is all of the memory, or a page in the middle of a folio.
                    n += 1;
                    let (at, len) =
                        [(base, 4 * MIB), (base + (16 * n + 5) % 1024 * PAGE, PAGE)][n % 2];
                    protect(at, len, libc::PROT_NONE);
                    std::thread::sleep(Duration::from_millis(n as u64 % 8));
                    protect(at, len, libc::PROT_READ | libc::PROT_WRITE);
                }
            });
            assert!(space.stats().vm.pglazyfreed > 0, "there was no pressure");
        },
    );
}
