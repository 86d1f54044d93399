//! Reads, writes and pins that do not wait, and prefetches by another thread.

mod common;

use common::{MIB, PAGE, eventually, is_over, stress_time};
use millpond::{Advice, Delivery, Manager, Order, PinError, RangeError, Region};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

fn manager(delivery: Delivery) -> Option<Manager> {
    let builder = Manager::builder()
        .store(millpond::StoreKind::compressed_ram())
        .ram(16 << 20)
        .order(Order::ZERO);
    let built = builder.delivery(delivery).build();
    built
        .inspect_err(|error| println!("skipped {delivery:?}: {error}"))
        .ok()
}

fn small() -> Manager {
    manager(Delivery::InThread).unwrap()
}

/// A word that says where it is, and of which round it is.
fn word(at: usize, round: u64) -> u64 {
    (at as u64) << 16 | round
}

fn fill(region: &mut Region, round: u64) {
    let words = region.as_mut_slice().chunks_exact_mut(8);
    for (at, bytes) in words.enumerate() {
        bytes.copy_from_slice(&word(at, round).to_ne_bytes());
    }
}

#[test]
fn try_read_reads_only_resident_memory() {
    let manager = small();
    let mut region = manager.region(MIB).unwrap();
    fill(&mut region, 1);
    let mut out = vec![0; 3 * PAGE];
    assert!(region.try_read(PAGE - 8, &mut out));
    assert_eq!(out, region.as_slice()[PAGE - 8..4 * PAGE - 8]);
    // One page of three is not in memory.
    region.advise(2 * PAGE..3 * PAGE, Advice::PageOut).unwrap();
    let before = manager.stats().vm;
    assert!(!region.try_read(PAGE - 8, &mut out));
    assert!(region.try_read(PAGE, &mut out[..PAGE]));
    assert!(!region.try_read(2 * PAGE, &mut out[..1]));
    assert!(region.try_read(2 * PAGE, &mut []));
    let after = manager.stats().vm;
    assert_eq!(
        (before.pgfault, before.pswpin),
        (after.pgfault, after.pswpin)
    );
    assert_eq!(
        region.as_slice()[2 * PAGE..][..8],
        word(1024, 1).to_ne_bytes()
    );
    assert!(region.try_read(PAGE - 8, &mut out));
}

#[test]
fn try_write_writes_only_writable_resident_memory() {
    let manager = small();
    let mut region = manager.region(MIB).unwrap();
    fill(&mut region, 1);
    assert!(region.try_write(PAGE - 4, &[7; 8]));
    assert_eq!(region.as_slice()[PAGE - 5..PAGE + 5][1..9], [7; 8]);
    // Shared pages have to be copied first, and a touch does that.
    let copy = region.snapshot().unwrap();
    assert!(!region.try_write(PAGE, &[9; 8]));
    region.as_mut_slice()[PAGE] = 9;
    assert!(region.try_write(PAGE, &[9; 8]));
    assert_eq!(region.as_slice()[PAGE..][..8], [9; 8]);
    assert_eq!(copy.as_slice()[PAGE..][..4], [7; 4]);
    region.advise(0..MIB, Advice::PageOut).unwrap();
    assert!(!region.try_write(PAGE, &[1; 8]));
    assert_eq!(region.as_slice()[PAGE..][..8], [9; 8]);
}

#[test]
#[should_panic(expected = "8 bytes from offset 1048569 on are not in 0..1048576")]
fn try_read_beyond_the_region_panics() {
    let _ = small().region(MIB).unwrap().try_read(MIB - 7, &mut [0; 8]);
}

/// With a handler a try would have to wait for the handler's thread to find out, so it answers no.
#[test]
fn with_a_handler_only_try_pin_succeeds() {
    let Some(manager) = manager(Delivery::Handler) else {
        return;
    };
    let mut region = manager.region(MIB).unwrap();
    fill(&mut region, 1);
    assert!(!region.try_read(0, &mut [0; 8]));
    assert!(!region.try_write(0, &[0; 8]));
    let guard = region.try_pin(0..PAGE).unwrap().expect("all is there");
    assert_eq!(region.as_slice()[8..16], word(1, 1).to_ne_bytes());
    drop(guard);
}

#[test]
fn try_pin_pins_only_resident_memory() {
    for delivery in [Delivery::InThread, Delivery::Handler] {
        let Some(manager) = manager(delivery) else {
            continue;
        };
        let mut region = manager.region_with(8 * MIB, Order::MAX).unwrap();
        assert!(region.try_pin(0..PAGE).unwrap().is_none(), "never touched");
        fill(&mut region, 1);
        // The pinned range ends inside large folios, which are split at both ends.
        let guard = region.try_pin(MIB + 1..3 * MIB).unwrap();
        let guard = guard.expect("all is there");
        // The advice passes over a folio that is on its way out, or that the kernel holds for a moment: a folio that
        // nothing asks for again would stay (seen once, on a loaded machine).
        let is_out = || {
            region.advise(0..8 * MIB, Advice::PageOut).unwrap();
            region.stats().resident == (2 * MIB) as u64
        };
        assert!(eventually(is_out));
        assert!(region.try_pin(0..2 * MIB).unwrap().is_none());
        assert!(region.try_pin(2 * MIB..3 * MIB).unwrap().is_some());
        drop(guard);
        let beyond = region.try_pin(8 * MIB - 1..8 * MIB + 1).err();
        assert!(matches!(
            beyond,
            Some(PinError::Range(RangeError::Bad { .. }))
        ));
        // A snapshot closes the gate; no page is left pinned that would refuse it.
        assert!(region.snapshot().is_ok());
    }
    let manager = small();
    let region = manager.region(15 * MIB).unwrap();
    let refused = region.try_pin(0..15 * MIB);
    assert!(matches!(refused, Err(PinError::OverBudget { .. })));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn try_read_of_resident_memory_makes_no_system_call() {
    use common::calls::system_calls_of;
    let manager = small();
    let mut region = manager.region(MIB).unwrap();
    fill(&mut region, 1);
    let mut out = [0; 64];
    let mut there = 0;
    let calls = system_calls_of(|| {
        for at in (0..MIB).step_by(PAGE) {
            there += u32::from(region.try_read(at, &mut out));
            there += u32::from(region.try_write(at, &out));
        }
    });
    assert_eq!(there, 512);
    assert_eq!(calls.unwrap_or_default(), [0_i64; 0]);
}

#[test]
fn prefetched_memory_becomes_resident() {
    for delivery in [Delivery::InThread, Delivery::Handler] {
        let Some(manager) = manager(delivery) else {
            continue;
        };
        let mut region = manager.region(12 * MIB).unwrap();
        fill(&mut region, 1);
        region.advise(0..12 * MIB, Advice::PageOut).unwrap();
        region.prefetch(MIB..2 * MIB + 1).unwrap();
        let there = || {
            let pin = region.try_pin(MIB..2 * MIB + 1).unwrap();
            pin.is_some()
        };
        assert!(eventually(there), "{delivery:?}");
        let words = &region.as_slice()[MIB..2 * MIB];
        let first = MIB / 8;
        for (n, bytes) in words.chunks_exact(8).enumerate() {
            assert_eq!(bytes, word(first + n, 1).to_ne_bytes());
        }
        let beyond = region.prefetch(12 * MIB..12 * MIB + 1).unwrap_err();
        assert!(beyond.to_string().contains("not within"), "{beyond}");
    }
}

/// More prefetches are asked for than the queue has room for, of regions that are dropped at once. Other regions get
/// their places, and the manager ends in the middle of it.
#[test]
fn prefetches_of_dropped_regions_are_forgotten() {
    for _ in 0..5 {
        let manager = small();
        for _ in 0..20 {
            let mut region = manager.region(2 * MIB).unwrap();
            fill(&mut region, 2);
            region.advise(0..2 * MIB, Advice::PageOut).unwrap();
            for at in 0..200 {
                let at = at * 5 * PAGE % (2 * MIB);
                region.prefetch(at..at + PAGE).unwrap();
            }
            if region.as_slice()[8] == 0 {
                region.free_async();
            }
        }
        let region = manager.region(2 * MIB).unwrap();
        region.prefetch(0..2 * MIB).unwrap();
        assert!(region.as_slice().iter().all(|&byte| byte == 0));
        region.prefetch(0..2 * MIB).unwrap();
    }
}

/// Readers and a writer that never wait run concurrently with a thread that needs all of memory, one that takes
/// snapshots, and one that prefetches memory. They read what was written, and their own writes are preserved.
#[test]
fn racing_try_reads_and_try_writes_see_consistent_bytes() {
    const WORDS: usize = MIB / 8;
    let manager = small();
    let (mut read, mut written) = (
        manager.region(4 * MIB).unwrap(),
        manager.region(MIB).unwrap(),
    );
    fill(&mut read, 3);
    let mut truth = vec![0; WORDS];
    let (mut shared, mut crowd) = (
        manager.region(MIB).unwrap(),
        manager.region(24 * MIB).unwrap(),
    );
    let stop = AtomicBool::new(false);
    let [hits, misses, writes, pins] = [const { AtomicU64::new(0) }; 4];
    let end = Instant::now() + stress_time();
    std::thread::scope(|scope| {
        let (read, truth, written) = (&read, &mut truth, &mut written);
        let (stop, hits, misses, writes, pins) = (&stop, &hits, &misses, &writes, &pins);
        let going = move || !stop.load(Relaxed);
        for seed in [1, 2] {
            scope.spawn(move || {
                let mut random = seed;
                let mut out = [0; 64];
                while going() {
                    random = xorshift(random);
                    let at = random as usize % (4 * MIB / 8 - 8);
                    if !read.try_read(8 * at, &mut out) {
                        misses.fetch_add(1, Relaxed);
                        continue;
                    }
                    hits.fetch_add(1, Relaxed);
                    for (n, bytes) in out.chunks_exact(8).enumerate() {
                        assert_eq!(bytes, word(at + n, 3).to_ne_bytes());
                    }
                }
            });
        }
        scope.spawn(move || {
            let mut random = 7;
            while going() {
                random = xorshift(random);
                let at = random as usize % WORDS;
                if written.try_write(8 * at, &random.to_ne_bytes()) {
                    truth[at] = random;
                    writes.fetch_add(1, Relaxed);
                } else {
                    // The word is brought in, and written by a touch.
                    written.as_mut_slice()[8 * at..][..8].copy_from_slice(&random.to_ne_bytes());
                    truth[at] = random;
                }
            }
        });
        scope.spawn(move || {
            let mut random = 5;
            while going() {
                random = xorshift(random);
                let at = random as usize % (4 * MIB - 64 * PAGE);
                read.prefetch(at..at + 64 * PAGE).unwrap();
                let pinned = read.try_pin(at..at + PAGE).unwrap();
                pins.fetch_add(u64::from(pinned.is_some()), Relaxed);
                std::thread::yield_now();
            }
        });
        let shared = &mut shared;
        scope.spawn(move || {
            while going() {
                let first = &mut shared.as_mut_slice()[0];
                *first = first.wrapping_add(1);
                let copy = shared.snapshot().unwrap();
                assert_eq!(copy.as_slice()[0], shared.as_slice()[0]);
            }
        });
        let crowd = crowd.as_mut_slice();
        let has_shown = || {
            [hits, misses, writes, pins]
                .iter()
                .all(|n| n.load(Relaxed) > 100)
        };
        while !is_over(end, has_shown()) {
            crowd
                .iter_mut()
                .step_by(PAGE)
                .for_each(|byte| *byte = byte.wrapping_add(1));
        }
        stop.store(true, Relaxed);
    });
    println!("{hits:?} reads, {misses:?} not there, {writes:?} writes, {pins:?} pins");
    assert!(hits.load(Relaxed) > 0 && misses.load(Relaxed) > 0 && writes.load(Relaxed) > 0);
    for (at, bytes) in written.as_slice().chunks_exact(8).enumerate() {
        assert_eq!(bytes, truth[at].to_ne_bytes(), "word {at}");
    }
}

fn xorshift(state: u64) -> u64 {
    let mut next = state ^ state << 13;
    next ^= next >> 7;
    next ^ next << 17
}
