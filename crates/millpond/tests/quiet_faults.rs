//! The fault path must not call the global allocator: a fault may come from inside it.

mod common;

use common::{MIB, PAGE, small};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

struct Counting;

static WATCHING: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(
            u64::from(WATCHING.load(Ordering::Relaxed)),
            Ordering::Relaxed,
        );
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        CALLS.fetch_add(
            u64::from(WATCHING.load(Ordering::Relaxed)),
            Ordering::Relaxed,
        );
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn faults_reclaim_and_discards_allocate_nothing() {
    let mut total = 0;
    for (delivery, method) in common::ways() {
        for store in [
            millpond::StoreKind::compressed_ram(),
            millpond::StoreKind::file(),
        ] {
            let manager = small()
                .delivery(delivery)
                .take_out(method)
                .store(store)
                .build()
                .unwrap();
            let mut region = manager.region(64 * MIB).unwrap();
            // Threads that are starting allocate for themselves.
            std::thread::sleep(std::time::Duration::from_millis(50));
            let before = CALLS.load(Ordering::Relaxed);
            WATCHING.store(true, Ordering::Relaxed);
            for round in 0..2 {
                for page in region.as_mut_slice().chunks_exact_mut(PAGE) {
                    page[round] = page[round].wrapping_add(7);
                }
            }
            region.discard(0..MIB).unwrap();
            WATCHING.store(false, Ordering::Relaxed);
            total += CALLS.load(Ordering::Relaxed) - before;
            assert!(manager.stats().vm.pswpin > 0);
        }
    }
    assert_eq!(
        total, 0,
        "the fault path called the allocator {total} times"
    );
}
