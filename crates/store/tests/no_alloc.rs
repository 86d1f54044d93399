//! Checks that saving, loading and releasing leave the program's allocator alone: they run in fault handlers.

mod common;

use common::{Fill, contents, part, recompress, stores};
use millpond_core::SlotId;
use millpond_core::port::Load;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Relaxed);
        // SAFETY: the caller's guarantee is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        CALLS.fetch_add(1, Relaxed);
        // SAFETY: the caller's guarantee is passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn no_operation_calls_the_allocator() {
    let dir = tempfile::tempdir().unwrap();
    let kinds = [
        Fill::Zero,
        Fill::Word(3),
        Fill::Noise(5),
        Fill::Text(7),
        Fill::Mixed(4),
    ];
    let folios: Vec<Vec<u8>> = [4096, 64 << 10, 2 << 20]
        .into_iter()
        .flat_map(|len| kinds.map(|kind| contents(kind, len)))
        .collect();
    let mut out = vec![0; 2 << 20];
    for (name, store) in stores(dir.path(), Some(3 << 20)) {
        let before = CALLS.load(Relaxed);
        for _ in 0..2 {
            for (slot, data) in (0..).zip(&folios) {
                let whole = |slot| part(slot, 0, data.len());
                let _ = store.save(SlotId(slot), slot.checked_sub(1).map(whole), data);
                let _ = store.save(SlotId(900), Some(whole(slot)), data);
                store.release(SlotId(900));
                store.expect(part(slot, 0, 4096));
                store.expect_bytes(part(slot, 200, 4096));
                let _ = store.load(SlotId(slot), 0, &mut out[..data.len()]);
                let _ = store.load(SlotId(slot), 0, &mut out[..4096]);
                let _ = store.load(SlotId(slot), 200, &mut out[..4096]);
            }
            let mut slot = 0;
            let (outs, _) = out.as_chunks_mut::<4096>();
            let (outs, _) = outs.split_first_chunk_mut::<15>().unwrap();
            let mut loads = outs.each_mut().map(|out| {
                slot += 1;
                Load {
                    slot: SlotId(slot - 1),
                    first_page: 0,
                    out,
                }
            });
            let _ = store.load_all(&mut loads);
            recompress(&*store, 3);
            (0..15).for_each(|slot| {
                let _ = store.load(SlotId(slot), 0, &mut out[..4096]);
            });
            let _ = store.recompressed();
            store.limit_ram(1 << 20);
            while store.trim_ram() {}
            store.limit_ram(3 << 20);
            let _ = store.tiers();
            store.before_fork(1);
            (0..15).for_each(|slot| store.release(SlotId(slot)));
            store.child_gone(1);
            let _ = store.usage();
        }
        assert_eq!(CALLS.load(Relaxed), before, "{name}");
    }
}
