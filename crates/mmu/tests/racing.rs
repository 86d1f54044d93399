//! Races of writers against take-outs: no increment may be lost, whatever the interleaving.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use common::huge::{frame, huge_frame, install, leaf, memory, part};
use common::{Random, Tiny, each_kind, stress_time};
use millpond_core::{Mmu, PAGE_SIZE, PageIndex, TakeOutError};
use millpond_mmu::{Delivery, FaultSink, RealMemory, Resolution, TakeOutMethod};

const WRITERS: usize = 4;

/// Runs writers that add to counters at random, and evictors that take folios out at random, one by one and in runs.
fn race(delivery: Delivery, method: TakeOutMethod, order: u8) {
    let tiny = Tiny::new(delivery, method, 4, order);
    let folios = tiny.folios().min(512);
    let stop = Arc::new(AtomicBool::new(false));
    let taken = Arc::new(AtomicU64::new(0));
    let written: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (tiny, stop) = (tiny.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut random = Random(0x9E37_79B9 + writer as u64);
                let mut count = 0u64;
                let places = tiny.order.bytes() / 8;
                while !stop.load(Relaxed) {
                    for _ in 0..64 {
                        tiny.counter(random.below(folios), random.below(places))
                            .fetch_add(1, Relaxed);
                        count += 1;
                    }
                }
                count
            })
        })
        .collect();
    let evictors: Vec<_> = (0..2)
        .map(|evictor| {
            let (tiny, stop, taken) = (tiny.clone(), stop.clone(), taken.clone());
            std::thread::spawn(move || {
                let mut random = Random(0xDEAD_BEEF + evictor);
                while !stop.load(Relaxed) {
                    let folio = random.below(folios);
                    let n = if random.below(4) == 0 {
                        tiny.evict_all(folio, 8)
                    } else {
                        usize::from(tiny.evict(folio))
                    };
                    taken.fetch_add(n as u64, Relaxed);
                }
            })
        })
        .collect();
    std::thread::sleep(stress_time() / 4);
    stop.store(true, Relaxed);
    for evictor in evictors {
        evictor.join().unwrap();
    }
    let expected: u64 = written
        .into_iter()
        .map(|writer| writer.join().unwrap())
        .sum();
    let mut found = 0;
    for folio in 0..folios {
        for n in 0..tiny.order.bytes() / 8 {
            found += tiny.counter(folio, n).load(Relaxed);
        }
    }
    let taken = taken.load(Relaxed);
    println!(
        "{delivery:?} {method:?} order {order}: {expected} increments, {taken} taken out, {} lost",
        expected - found
    );
    assert_eq!(
        found, expected,
        "{delivery:?} {method:?} order {order}, {taken} taken out"
    );
    assert!(taken > 0);
    tiny.end();
}

#[test]
fn no_increment_is_lost_at_4_kib() {
    each_kind(|delivery, method| race(delivery, method, 0));
}

#[test]
fn no_increment_is_lost_at_64_kib() {
    each_kind(|delivery, method| race(delivery, method, 4));
}

#[test]
fn no_increment_is_lost_at_2_mib() {
    each_kind(|delivery, method| race(delivery, method, 9));
}

/// A sink that lets a faulting thread retry until the page is there.
struct Patience;

impl FaultSink for Patience {
    fn fault(&self, _: PageIndex) -> Resolution {
        std::thread::yield_now();
        Resolution::Retry
    }
}

/// Takes one leaf out whole, then in parts, and reassembles it, while writers and a reader that uses system calls
/// run. The reader briefly holds pages, and meanwhile the kernel cannot split the huge page that contains them.
#[test]
fn no_increment_is_lost_while_huge_pages_are_broken_up_and_made_again() {
    let Some(mmu) = memory(1) else {
        return;
    };
    mmu.attach(Arc::new(Patience)).unwrap();
    mmu.install_zero(leaf(0), None).unwrap();
    let stop = AtomicBool::new(false);
    let counter = |n: usize| {
        let at = mmu.addr_of(PageIndex(0)).wrapping_add(n * PAGE_SIZE / 2);
        // SAFETY: the address is in the arena, aligned, and lives as long as the memory; a fault waits until the page
        // is back.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    };
    let (written, rounds, whole, busy) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS as u64)
            .map(|writer| {
                let (stop, counter) = (&stop, &counter);
                scope.spawn(move || {
                    let (mut random, mut count) = (Random(0x51F1 + writer), 0u64);
                    while !stop.load(Relaxed) {
                        counter(random.below(1024)).fetch_add(1, Relaxed);
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        scope.spawn(|| {
            let (mut random, mut seen) = (Random(7), [0u8; 64]);
            while !stop.load(Relaxed) {
                let page = mmu.addr_of(PageIndex(random.below(512) as u32)).cast();
                let from = libc::iovec {
                    iov_base: page,
                    iov_len: 64,
                };
                let to = libc::iovec {
                    iov_base: seen.as_mut_ptr().cast(),
                    iov_len: 64,
                };
                // SAFETY: the call reads this process's own arena into a buffer of that length; absent pages are an
                // error.
                unsafe { libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) };
            }
        });
        let end = std::time::Instant::now() + stress_time();
        let (mut rounds, mut whole, mut busy) = (0, 0, 0);
        while std::time::Instant::now() < end {
            rounds += 1;
            whole += u32::from(mmu.huge_pages(leaf(0)).0 == 512);
            for _ in 0..3 {
                match mmu.take_out(leaf(0), huge_frame(0)) {
                    Ok(()) => install(&mmu, huge_frame(0), leaf(0)),
                    Err(error) => {
                        assert_eq!(error, TakeOutError::Busy);
                        busy += 1;
                    }
                }
            }
            busy += break_up_and_fold(&mmu);
        }
        stop.store(true, Relaxed);
        let written = writers.into_iter().map(|writer| writer.join().unwrap());
        (written.sum::<u64>(), rounds, whole, busy)
    });
    let found: u64 = (0..1024).map(|n| counter(n).load(Relaxed)).sum();
    println!("{written} increments, {rounds} rounds, {whole} on a huge page, {busy} busy");
    assert_eq!(found, written);
    assert!(whole > 0);
    mmu.detach();
}

/// Takes the leaf out in 32 parts and puts it back: as one new huge page if all could go. Returns how many could not.
fn break_up_and_fold(mmu: &RealMemory) -> u32 {
    let parts = |n| (part(leaf(0), 4, n), frame(4, n));
    let mut out = [false; 32];
    for n in 0..32 {
        out[n as usize] = mmu.take_out(parts(n).0, parts(n).1).is_ok();
    }
    let stayed = out.iter().filter(|&&out| !out).count() as u32;
    if stayed > 0 {
        for n in (0..32).filter(|&n| out[n as usize]) {
            install(mmu, parts(n).1, parts(n).0);
        }
        return stayed;
    }
    mmu.fill(huge_frame(0), true, &mut |bytes| {
        for (n, bytes) in bytes.chunks_exact_mut(16 * PAGE_SIZE).enumerate() {
            mmu.read_frame(parts(n as u32).1, &mut |part| bytes.copy_from_slice(part));
        }
        Ok(())
    })
    .unwrap();
    let frames: [_; 32] = std::array::from_fn(|n| parts(n as u32).1);
    mmu.free_frames(&frames);
    install(mmu, huge_frame(0), leaf(0));
    0
}
