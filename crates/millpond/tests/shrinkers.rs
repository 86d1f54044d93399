//! Caches of the host program that shrink under the pressure of managed memory.

mod common;

use common::{MIB, eventually, press, small};
use millpond::{GroupError, GroupLimits, Region};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A cache of numbers, for which the next functions make the two callbacks.
fn cache(objects: usize) -> Arc<Mutex<Vec<u64>>> {
    Arc::new(Mutex::new((0..objects as u64).collect()))
}

fn count_of(cache: &Arc<Mutex<Vec<u64>>>) -> impl Fn() -> usize + Send + use<> {
    let cache = Arc::clone(cache);
    move || cache.lock().unwrap().len()
}

fn scan_of(cache: &Arc<Mutex<Vec<u64>>>) -> impl Fn(usize) -> usize + Send + use<> {
    let cache = Arc::clone(cache);
    move |objects| {
        let mut cache = cache.lock().unwrap();
        let keep = cache.len().saturating_sub(objects);
        let freed = cache.len() - keep;
        cache.truncate(keep);
        freed
    }
}

#[test]
fn a_cache_shrinks_under_pressure_and_not_without() {
    let manager = small().build().unwrap();
    let cache = cache(100_000);
    let guard = manager
        .register_shrinker(&manager.root(), count_of(&cache), scan_of(&cache))
        .unwrap();
    press(&manager, 4 * MIB);
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(guard.stats().scanned, 0, "there was no pressure");
    press(&manager, 64 * MIB);
    assert!(eventually(|| guard.stats().freed > 0));
    let left = cache.lock().unwrap().len();
    assert_eq!(left as u64 + guard.stats().freed, 100_000);
}

#[test]
fn larger_caches_give_more() {
    let manager = small().build().unwrap();
    let (large, little) = (cache(400_000), cache(40_000));
    let root = manager.root();
    let register = |cache| {
        let registered = manager.register_shrinker(&root, count_of(cache), scan_of(cache));
        registered.unwrap()
    };
    let guards = [register(&large), register(&little)];
    press(&manager, 24 * MIB);
    assert!(eventually(|| guards
        .iter()
        .all(|guard| guard.stats().scanned > 0)));
    let [large, little] = guards.map(|guard| guard.stats().scanned);
    assert!(
        large > 4 * little,
        "{large} and {little} objects were looked at"
    );
}

#[test]
fn only_the_group_that_is_short_of_memory_shrinks_its_caches() {
    let manager = small().ram(64 << 20).build().unwrap();
    let limits = GroupLimits::new();
    let group = |name, limits| manager.group(&manager.root(), name, limits).unwrap();
    let (tight, quiet) = (group("tight", limits.max(4 << 20)), group("quiet", limits));
    let caches = [cache(100_000), cache(100_000)];
    let guards = [(&tight, &caches[0]), (&quiet, &caches[1])].map(|(group, cache)| {
        let registered = manager.register_shrinker(group, count_of(cache), scan_of(cache));
        registered.unwrap()
    });
    let builder = Region::builder().group(&tight);
    let mut region = builder.build(&manager, 16 * MIB).unwrap();
    // The region is four times the group's max, and is filled for as long as it takes: one pass may be over before the
    // caches are asked.
    assert!(eventually(|| {
        region.as_mut_slice().fill(7);
        guards[0].stats().freed > 0
    }));
    assert_eq!(guards[1].stats().scanned, 0);
    let gone = quiet.clone();
    quiet.remove().unwrap();
    let refused = manager.register_shrinker(&gone, || 0, |_| 0);
    assert_eq!(refused.map(|_| ()).unwrap_err(), GroupError::Removed);
}

/// A thread holds a lock of the program while it touches managed memory, and its faults reclaim; the callback takes
/// that same lock. If a fault called the callback, or waited for the thread that calls it, this would never end.
#[test]
fn a_callback_may_take_a_lock_that_a_faulting_thread_holds() {
    let manager = small().build().unwrap();
    let lock = Arc::new(Mutex::new(0_u64));
    let (asked, waited) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let scan = {
        let (lock, asked, waited) = (Arc::clone(&lock), Arc::clone(&asked), Arc::clone(&waited));
        move |objects: usize| {
            asked.fetch_add(1, Ordering::SeqCst);
            if lock.try_lock().is_err() {
                waited.store(true, Ordering::SeqCst);
            }
            *lock.lock().unwrap() += objects as u64;
            objects
        }
    };
    let guard = manager
        .register_shrinker(&manager.root(), || 1_000_000, scan)
        .unwrap();
    let mut region = manager.region(64 * MIB).unwrap();
    let seen = eventually(|| {
        let held = lock.lock().unwrap();
        let before = manager.stats().vm.pgsteal_direct;
        region.as_mut_slice().fill(*held as u8 | 1);
        assert!(
            manager.stats().vm.pgsteal_direct > before,
            "faults reclaimed under the lock"
        );
        drop(held);
        waited.load(Ordering::SeqCst)
    });
    assert!(
        seen,
        "no callback ever met the lock taken; it was asked {asked:?} times"
    );
    assert!(eventually(|| guard.stats().freed > 0));
}

#[test]
fn a_callback_is_not_called_once_its_guard_is_gone() {
    let manager = small().build().unwrap();
    let gone = Arc::new(AtomicBool::new(false));
    let late = Arc::new(AtomicBool::new(false));
    for _ in 0..20 {
        let (scan_gone, scan_late) = (Arc::clone(&gone), Arc::clone(&late));
        let scan = move |objects| {
            if scan_gone.load(Ordering::SeqCst) {
                scan_late.store(true, Ordering::SeqCst);
            }
            objects
        };
        gone.store(false, Ordering::SeqCst);
        let guard = manager
            .register_shrinker(&manager.root(), || 1_000_000, scan)
            .unwrap();
        press(&manager, 24 * MIB);
        drop(guard);
        gone.store(true, Ordering::SeqCst);
        press(&manager, 24 * MIB);
    }
    assert!(!late.load(Ordering::SeqCst));
}

/// The callback touches managed memory, which may be out: its thread is a thread like any other.
#[test]
fn a_cache_may_lie_in_managed_memory() {
    let manager = small().build().unwrap();
    let cached = Mutex::new(manager.region(8 * MIB).unwrap());
    cached.lock().unwrap().as_mut_slice().fill(1);
    let sum = Arc::new(AtomicUsize::new(0));
    let total = Arc::clone(&sum);
    let scan = move |objects| {
        let cached = cached.lock().unwrap();
        let bytes = cached.as_slice().iter().step_by(4096);
        total.store(bytes.map(|&byte| usize::from(byte)).sum(), Ordering::SeqCst);
        objects
    };
    let guard = manager
        .register_shrinker(&manager.root(), || 10_000, scan)
        .unwrap();
    press(&manager, 64 * MIB);
    assert!(eventually(|| sum.load(Ordering::SeqCst) == 2048));
    drop(guard);
}

#[test]
fn a_callback_that_panics_is_not_called_again() {
    let manager = small().build().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = {
        let calls = Arc::clone(&calls);
        move || -> usize {
            calls.fetch_add(1, Ordering::SeqCst);
            panic!("as the test wants it")
        }
    };
    let guard = manager
        .register_shrinker(&manager.root(), count, |_| 0)
        .unwrap();
    press(&manager, 64 * MIB);
    assert!(eventually(|| calls.load(Ordering::SeqCst) == 1));
    // A shrinker that comes later is asked later, so that the first would have been asked again before it.
    let others = Arc::new(AtomicUsize::new(0));
    let other = {
        let others = Arc::clone(&others);
        move || -> usize {
            others.fetch_add(1, Ordering::SeqCst);
            0
        }
    };
    let second = manager
        .register_shrinker(&manager.root(), other, |_| 0)
        .unwrap();
    assert!(eventually(|| {
        press(&manager, 64 * MIB);
        others.load(Ordering::SeqCst) > 0
    }));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    drop((guard, second));
}
