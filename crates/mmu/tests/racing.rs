//! Writers against take-outs: no increment may be lost, whatever meets whatever.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use common::{Random, Tiny, each_kind, stress_time};
use millpond_mmu::{Delivery, TakeOutMethod};

const WRITERS: usize = 4;

/// Each writer adds to counters at random; evictors take folios out at random, singly and by runs.
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
