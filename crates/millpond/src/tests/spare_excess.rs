//! Spare frames for which a lowered limit leaves no room go back to the kernel with the look that lowers it, however
//! many they are.
//!
//! A program filled its memory, and 12 MiB of shared memory, a MiB each 2 ms, followed. In a third of the runs it stood
//! 9 MiB above its 32: once something else had grown by more than 2 MiB between two looks, the core left the spare
//! frames to batches, which only the next tick made. They count as available, so nobody reclaimed anything either, and
//! all that was reclaimed became spare in turn.

use crate::tests::observed::Observed;
use crate::{Manager, Order};
use millpond_core::port::StoreUsage;
use std::sync::atomic::{AtomicU64, Ordering};

const MIB: usize = 1 << 20;
/// What the store says to take beside what it takes.
static MORE: AtomicU64 = AtomicU64::new(0);

fn grow(usage: &mut StoreUsage) {
    usage.ram_bytes += MORE.load(Ordering::Relaxed);
}

#[test]
fn spare_frames_above_a_lowered_limit_go_back_at_the_same_look() {
    let order = Order::new(4).unwrap();
    let mut builder = Manager::builder().ram(32 << 20).order(order);
    builder.test_store = Some(|| Observed::boxed(|| {}, grow));
    let manager = builder.build().unwrap();
    let mut region = manager.region(24 * MIB).unwrap();
    // A tick that comes between fill and look does the same.
    for _ in 0..5 {
        MORE.store(0, Ordering::Relaxed);
        region.as_mut_slice().fill(1);
        region.empty(0..24 * MIB).unwrap();
        let spare = manager.stats().vm.nr_free_frames;
        assert!(
            spare > 2048,
            "{spare} spare frames are too few to show anything"
        );
        MORE.store(24 << 20, Ordering::Relaxed);
        manager.pond().driver().look();
        let vm = manager.stats().vm;
        let taken = vm.nr_mapped + vm.nr_limbo + vm.nr_unhooked + vm.nr_free_frames;
        assert!(taken <= vm.nr_limit, "{taken} of {}: {vm:?}", vm.nr_limit);
    }
}
