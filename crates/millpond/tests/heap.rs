//! The allocator compared with the standard library's: the same calls on both, at a budget of a quarter of the data.

use allocator_api2::alloc::{Allocator, Layout};
use allocator_api2::boxed::Box as PondBox;
use allocator_api2::vec::Vec as AllocVec;
use hashbrown::HashMap;
use millpond::{GroupLimits, Manager, PondAlloc, Region, RegionError};
use proptest::prelude::*;
use std::ptr::NonNull;

const MIB: usize = 1 << 20;

fn manager() -> Manager {
    Manager::builder().ram(16 << 20).build().unwrap()
}

/// An allocation whose bytes are known by a seed.
struct Block {
    start: NonNull<u8>,
    layout: Layout,
    seed: u8,
}

impl Block {
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the allocation lives as long as the block, which alone knows it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }

    fn fill(&mut self, from: usize) {
        let seed = self.seed;
        let bytes = self.bytes().iter_mut().enumerate().skip(from);
        bytes.for_each(|(at, byte)| *byte = seed.wrapping_add((at / 64) as u8));
    }

    fn check(&mut self, len: usize) {
        let (seed, layout) = (self.seed, self.layout);
        let mut bytes = self.bytes()[..len].iter().enumerate();
        let wrong = bytes.find(|&(at, &byte)| byte != seed.wrapping_add((at / 64) as u8));
        assert_eq!(wrong, None, "{layout:?}");
        assert!(
            self.start.as_ptr().addr().is_multiple_of(layout.align()),
            "{layout:?}"
        );
    }
}

#[derive(Clone, Debug)]
enum Call {
    Allocate {
        size: usize,
        align: u8,
        zeroed: bool,
        seed: u8,
    },
    Free(prop::sample::Index),
    Resize {
        which: prop::sample::Index,
        size: usize,
        align: u8,
        zeroed: bool,
    },
    Check(prop::sample::Index),
}

/// Sizes of all kinds: nothing, a few bytes, about a page, about the border to regions, several regions.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        1 => Just(0),
        8 => 1..300_usize,
        4 => 3000..10_000_usize,
        4 => 10_000..300_000_usize,
        3 => MIB - 5000..MIB + 5000,
        3 => MIB..6 * MIB,
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let align = || prop_oneof![6 => 0..5_u8, 2 => 5..14_u8, 1 => 14..23_u8];
    let at = any::<prop::sample::Index>;
    prop_oneof![
        5 => (size(), align(), any::<bool>(), any::<u8>())
            .prop_map(|(size, align, zeroed, seed)| Call::Allocate { size, align, zeroed, seed }),
        3 => at().prop_map(Call::Free),
        3 => (at(), size(), align(), any::<bool>())
            .prop_map(|(which, size, align, zeroed)| Call::Resize { which, size, align, zeroed }),
        1 => at().prop_map(Call::Check),
    ]
}

fn allocated(heap: &PondAlloc, layout: Layout, zeroed: bool, seed: u8) -> Option<Block> {
    let bytes = match zeroed {
        true => heap.allocate_zeroed(layout),
        false => heap.allocate(layout),
    };
    let mut block = Block {
        start: bytes.ok()?.cast(),
        layout,
        seed,
    };
    if zeroed {
        assert!(block.bytes().iter().all(|&byte| byte == 0), "{layout:?}");
    }
    block.fill(0);
    Some(block)
}

fn resized(heap: &PondAlloc, block: &mut Block, new: Layout, zeroed: bool) {
    let (start, old) = (block.start, block.layout);
    // SAFETY: the allocation lives, and is as long as the layout says.
    let bytes = unsafe {
        match new.size() < old.size() {
            true => heap.shrink(start, old, new),
            false if zeroed => heap.grow_zeroed(start, old, new),
            false => heap.grow(start, old, new),
        }
    };
    if let Ok(bytes) = bytes {
        (block.start, block.layout) = (bytes.cast(), new);
    }
    let kept = old.size().min(block.layout.size());
    block.check(kept);
    if zeroed {
        assert!(
            block.bytes()[kept..].iter().all(|&byte| byte == 0),
            "{old:?} {new:?}"
        );
    }
    block.fill(kept);
}

/// Makes the calls, and checks every byte of every allocation that lives at the end.
fn make_calls(heap: &PondAlloc, calls: Vec<Call>) {
    let mut blocks: Vec<Block> = Vec::new();
    let layout = |size, align: u8| Layout::from_size_align(size, 1 << align).unwrap();
    for call in calls {
        let chosen = |at: prop::sample::Index| (!blocks.is_empty()).then(|| at.index(blocks.len()));
        match call {
            Call::Allocate {
                size,
                align,
                zeroed,
                seed,
            } => {
                blocks.extend(allocated(heap, layout(size, align), zeroed, seed));
            }
            Call::Free(at) => {
                if let Some(at) = chosen(at) {
                    let mut block = blocks.swap_remove(at);
                    block.check(block.layout.size());
                    // SAFETY: the allocation lives, and is not used again.
                    unsafe { heap.deallocate(block.start, block.layout) };
                }
            }
            Call::Resize {
                which,
                size,
                align,
                zeroed,
            } => {
                if let Some(at) = chosen(which) {
                    resized(heap, &mut blocks[at], layout(size, align), zeroed);
                }
            }
            Call::Check(at) => {
                if let Some(at) = chosen(at) {
                    let len = blocks[at].layout.size();
                    blocks[at].check(len);
                }
            }
        }
        let bytes: usize = blocks.iter().map(|block| block.layout.size()).sum();
        assert_eq!(heap.stats().bytes, bytes as u64);
    }
    for block in &mut blocks {
        block.check(block.layout.size());
        // SAFETY: the allocation lives, and is not used again.
        unsafe { heap.deallocate(block.start, block.layout) };
    }
    assert_eq!((heap.stats().allocations, heap.stats().bytes), (0, 0));
}

#[derive(Clone, Debug)]
enum MapCall {
    Insert(u32, u64),
    Remove(u32),
    Get(u32),
    Retain(u8),
    Shrink,
}

fn map_call() -> impl Strategy<Value = MapCall> {
    let key = || 0..15_000_u32;
    prop_oneof![
        4 => (key(), any::<u64>()).prop_map(|(key, value)| MapCall::Insert(key, value)),
        4 => key().prop_map(MapCall::Remove),
        8 => key().prop_map(MapCall::Get),
        1 => (0..3_u8).prop_map(MapCall::Retain),
        1 => Just(MapCall::Shrink),
    ]
}

/// 4 KiB.
type Value = [u64; 512];

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn allocations_keep_their_bytes(calls in prop::collection::vec(call(), 100..300)) {
        let manager = manager();
        make_calls(&PondAlloc::new(&manager).unwrap(), calls);
    }

    #[test]
    fn allocations_inside_of_one_region_keep_their_bytes(
        calls in prop::collection::vec(call(), 100..300),
    ) {
        let manager = manager();
        make_calls(&PondAlloc::in_region(manager.region(64 * MIB).unwrap()), calls);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2, max_shrink_iters: 20, ..ProptestConfig::default() })]

    /// The table is one large allocation, and each value a small one of its own.
    #[test]
    fn a_hash_map_on_the_heap_agrees_with_std(calls in prop::collection::vec(map_call(), 200..600)) {
        let manager = manager();
        let heap = PondAlloc::new(&manager).unwrap();
        let mut map = HashMap::new_in(heap.clone());
        let mut model = std::collections::HashMap::new();
        let value = |seed: u64| PondBox::new_in([seed; 512] as Value, heap.clone());
        for key in 0..15_000 {
            map.insert(key, value(key.into()));
            model.insert(key, u64::from(key));
        }
        for call in calls {
            match call {
                MapCall::Insert(key, seed) => {
                    let old = map.insert(key, value(seed)).map(|old| old[77]);
                    assert_eq!(old, model.insert(key, seed));
                }
                MapCall::Remove(key) => {
                    assert_eq!(map.remove(&key).map(|old| old[127]), model.remove(&key));
                }
                MapCall::Get(key) => assert_eq!(map.get(&key).map(|value| value[0]), model.get(&key).copied()),
                MapCall::Retain(rest) => {
                    map.retain(|key, _| key % 50 != u32::from(rest));
                    model.retain(|key, _| key % 50 != u32::from(rest));
                }
                MapCall::Shrink => map.shrink_to_fit(),
            }
        }
        assert_eq!(map.len(), model.len());
        for (key, value) in &map {
            assert!(value.iter().all(|word| Some(word) == model.get(key)), "{key}");
        }
        assert!(manager.stats().peak_bytes <= 17 << 20, "{}", manager.stats().peak_bytes);
        drop(map);
        assert_eq!(heap.stats().allocations, 0);
    }
}

/// A vector beyond 1 MiB grows by the tables: what it had in the store is not read back.
#[test]
fn a_large_vector_grows_without_copying() {
    let manager = manager();
    let heap = PondAlloc::new(&manager).unwrap();
    let mut numbers = AllocVec::new_in(heap);
    numbers.extend(0..8_u64 << 20);
    let read = manager.stats().vm.pswpin;
    numbers.reserve_exact(64 << 20);
    let read = manager.stats().vm.pswpin - read;
    assert!(read < 100, "{read} pages were read");
    assert!(
        numbers
            .iter()
            .enumerate()
            .all(|(at, &number)| at as u64 == number)
    );
}

/// Bytes that are in use, in RAM and in the store.
fn held(manager: &Manager) -> u64 {
    manager.quiesce();
    let stats = manager.stats();
    (stats.vm.nr_mapped + stats.vm.nr_swapped) * 4096 - stats.lazyfree_bytes()
}

#[test]
fn freed_memory_is_given_back() {
    let manager = manager();
    let heap = PondAlloc::new(&manager).unwrap();
    for size in [100_usize, 5000, 200_000, 3 * MIB] {
        let before = held(&manager);
        let blocks: Vec<_> = (0..64 * MIB / size)
            .map(|_| {
                let mut block = AllocVec::new_in(heap.clone());
                block.resize(size, 7_u8);
                block
            })
            .collect();
        assert!(held(&manager) - before > 60 << 20, "{size}");
        drop(blocks);
        let left = held(&manager).saturating_sub(before);
        assert!(
            left < 1 << 20,
            "{left} bytes are held after blocks of {size} bytes"
        );
    }
}

#[test]
fn threads_share_a_heap() {
    let manager = manager();
    let heap = PondAlloc::new(&manager).unwrap();
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (heap, send) = (heap.clone(), send.clone());
            scope.spawn(move || {
                for n in 0..20_000_u64 {
                    let mut numbers = AllocVec::new_in(heap.clone());
                    numbers.resize(n as usize % 200 + 1, thread << 32 | n);
                    send.send(numbers).unwrap();
                }
            });
        }
        drop(send);
        // Freed by another thread than the one that allocated.
        let mut kept = Vec::new();
        for (at, numbers) in receive.into_iter().enumerate() {
            assert!(numbers.iter().all(|number| *number == numbers[0]));
            if at % 2 == 0 {
                kept.push(numbers);
            }
        }
        assert!(
            kept.iter()
                .all(|numbers| numbers.iter().all(|number| *number == numbers[0]))
        );
    });
    assert_eq!(heap.stats().allocations, 0);
}

#[test]
fn a_heap_lives_as_long_as_its_collections() {
    let numbers = {
        let heap = PondAlloc::new(&manager()).unwrap();
        let mut numbers = AllocVec::new_in(heap);
        numbers.extend(0..1000_u32);
        numbers
    };
    assert_eq!(numbers.iter().sum::<u32>(), 499_500);
}

#[test]
fn a_heap_for_another_managers_group_is_refused_at_once() {
    let (ours, theirs) = (manager(), manager());
    let group = theirs
        .group(&theirs.root(), "theirs", GroupLimits::new())
        .unwrap();
    let refused = PondAlloc::with(&ours, Region::builder().group(&group));
    assert!(matches!(refused, Err(RegionError::Group(_))), "{refused:?}");
}

/// If no addresses are left, a collection can continue with what it has.
#[test]
fn a_collection_survives_running_out_of_addresses() {
    let builder = Manager::builder().ram(16 << 20).address_space(128 << 20);
    let heap = PondAlloc::new(&builder.build().unwrap()).unwrap();
    let mut bytes = AllocVec::new_in(heap);
    bytes.resize(32 * MIB, 7_u8);
    assert!(bytes.try_reserve(256 * MIB).is_err());
    assert_eq!((bytes.len(), bytes[MIB]), (32 * MIB, 7));
}
