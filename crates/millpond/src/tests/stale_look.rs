//! A limit that was worked out before other threads filled the store is not set afterwards.
//!
//! On a machine with ten threads for two processors a budget of 16 MiB stood at 18.4 MiB in the middle of a test: a
//! thread had asked the store for its size and then had no processor. Others saved pages meanwhile, looked, and lowered
//! the limit for frames. When the first thread went on it set the limit that had been right before.

use crate::tests::observed::Observed;
use crate::{Manager, Order, PAGE_SIZE};
use millpond_core::port::StoreUsage;
use std::cell::Cell;
use std::sync::Barrier;

thread_local! {
    /// Whether the next look of this thread at the store's size stands still.
    static STANDS_STILL: Cell<bool> = const { Cell::new(false) };
}

/// Both sides come here twice: when the look has been taken, and when it may go on.
static LOOKED: Barrier = Barrier::new(2);

/// A thread learns the store's size long before it can do anything with it.
fn stand_still(_: &mut StoreUsage) {
    if STANDS_STILL.replace(false) {
        LOOKED.wait();
        LOOKED.wait();
    }
}

#[test]
fn a_delayed_look_does_not_raise_the_limit() {
    const RAM: usize = 16 << 20;
    let mut builder = Manager::builder().ram(RAM as u64).order(Order::ZERO);
    builder.test_store = Some(|| Observed::boxed(|| {}, stand_still));
    let manager = builder.build().unwrap();
    let mut region = manager.region(2 * RAM).unwrap();
    let limit = || manager.stats().vm.nr_limit;
    let at_first = limit();
    let (before, after) = std::thread::scope(|scope| {
        let slow = scope.spawn(|| {
            STANDS_STILL.set(true);
            manager.set_ram(RAM as u64).unwrap();
            limit()
        });
        LOOKED.wait();
        // A half of each page does not compress.
        let mut state = 88_172_645_463_325_252_u64;
        for page in region.as_mut_slice().chunks_mut(PAGE_SIZE) {
            for word in page[..PAGE_SIZE / 2].chunks_mut(8) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_le_bytes());
            }
        }
        let before = limit();
        LOOKED.wait();
        (before, slow.join().unwrap())
    });
    assert!(
        before + 1024 < at_first,
        "the store took no room: {before} of {at_first}"
    );
    assert!(after < before + 512, "{before}, then {after}");
    drop(region);
}
