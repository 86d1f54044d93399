use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The objects by address, each filled with bytes of its own.
struct Model {
    arena: Arena,
    objects: BTreeMap<usize, (Handle, usize, u8)>,
}

impl Model {
    fn new(max_ram: u64) -> Self {
        Self {
            arena: Arena::new(max_ram).unwrap(),
            objects: BTreeMap::new(),
        }
    }

    fn alloc(&mut self, len: usize, byte: u8) -> bool {
        let Ok(handle) = self.arena.alloc(len) else {
            return false;
        };
        let address = self.arena.address(handle);
        let start = address.addr();
        if let Some((before, (_, before_len, _))) = self.objects.range(..=start).next_back() {
            assert!(before + before_len <= start, "overlaps the object before");
        }
        if let Some((after, _)) = self.objects.range(start..).next() {
            assert!(start + len <= *after, "overlaps the object after");
        }
        // SAFETY: the object is ours and has at least `len` bytes.
        unsafe { address.write_bytes(byte, len) };
        self.objects.insert(start, (handle, len, byte));
        true
    }

    fn free(&mut self, nth: usize) {
        let Some(start) = self
            .objects
            .keys()
            .nth(nth % self.objects.len().max(1))
            .copied()
        else {
            return;
        };
        let (handle, len, byte) = self.objects.remove(&start).unwrap();
        // SAFETY: the object is ours, was filled by `alloc` and has `len` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(self.arena.address(handle), len) };
        assert!(
            bytes.iter().all(|b| *b == byte),
            "someone else wrote into the object"
        );
        self.arena.free(handle);
    }

    /// The chunks of all objects, by address.
    fn chunks(&self) -> impl Iterator<Item = u32> {
        self.objects
            .values()
            .map(|(handle, ..)| handle.chunk() as u32)
    }

    /// The number of the first object that lies in `chunk` or a later one.
    fn first_from(&self, chunk: u32) -> Option<usize> {
        self.chunks().position(|at| at >= chunk)
    }

    fn count_from(&self, chunk: u32) -> usize {
        self.chunks().filter(|at| *at >= chunk).count()
    }

    fn free_all(&mut self) {
        while !self.objects.is_empty() {
            self.free(0);
        }
        assert_eq!(self.arena.live_bytes(), 0);
        assert_eq!(
            self.arena.ram_bytes(),
            0,
            "all memory goes back when nothing is kept"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn objects_never_overlap(work in prop::collection::vec(
        (prop_oneof![1usize..=4096, 4097usize..=65536], any::<u8>(), any::<u16>(), 0u8..5), 1..400))
    {
        let mut model = Model::new(8 << 20);
        for (len, byte, nth, act) in work {
            if act < 3 { model.alloc(len, byte); } else { model.free(nth.into()); }
            prop_assert!(model.arena.ram_bytes() <= 8 << 20);
        }
        model.free_all();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Moves the limit up and down; objects in drained chunks are freed, occasionally all of them.
    #[test]
    fn drained_chunks_are_given_back_and_get_no_new_objects(work in prop::collection::vec(
        (1usize..=65536, any::<u8>(), any::<u16>(), 0u8..12), 1..1500))
    {
        let mut model = Model::new(32 << 20);
        let (mut keep, mut begun_at) = (None, 0);
        for (len, byte, nth, act) in work {
            match act {
                0 => drop(model.arena.set_max_ram(u64::from(nth) << 9)),
                1 => {
                    model.arena.stop_draining();
                    keep = None;
                }
                2..5 => {
                    let before = keep;
                    keep = model.arena.drain();
                    if before.is_none() {
                        begun_at = model.arena.max_ram();
                    }
                }
                5 => if let Some(from) = keep {
                    while let Some(n) = model.first_from(from) {
                        model.free(n);
                    }
                    prop_assert!(model.arena.ram_bytes() <= begun_at.max(model.arena.max_ram()));
                    keep = model.arena.drain();
                },
                6 => model.free(nth.into()),
                _ => {
                    let lie_there = |model: &Model| keep.map(|from| model.count_from(from));
                    let before = lie_there(&model);
                    model.alloc(len, byte);
                    prop_assert_eq!(lie_there(&model), before);
                }
            }
        }
        model.arena.set_max_ram(u64::MAX);
        prop_assert_eq!(model.arena.drain(), None);
        prop_assert!(model.alloc(5000, 3));
        model.free_all();
    }
}

#[test]
fn the_limit_holds_and_frees_make_room_again() {
    let limit = 3 << 20;
    let mut model = Model::new(limit);
    for round in 0..3 {
        let mut count = 0;
        while model.alloc(5000, round) {
            count += 1;
        }
        assert!(model.arena.ram_bytes() <= limit);
        assert!(
            count * 5000 > limit as usize * 9 / 10,
            "{count} objects in round {round}"
        );
        model.free(count / 2);
        assert!(model.alloc(5000, 9));
        model.free_all();
    }
}

#[test]
fn mixed_sizes_waste_little() {
    let mut model = Model::new(u64::MAX);
    let mut random = 1u64;
    let mut asked = 0;
    for _ in 0..3000 {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let len = (random >> 33) as usize % 30_000 + 200;
        asked += len as u64;
        assert!(model.alloc(len, random as u8));
    }
    let ram = model.arena.ram_bytes();
    assert!(ram < asked * 110 / 100, "{ram} bytes of RAM for {asked}");
    model.free_all();
}

/// Checks that a store with much RAM takes whole chunks, and that these are counted, stay within the limit, and are
/// returned like the others.
#[test]
fn a_large_arena_takes_whole_chunks_and_counts_them() {
    let limit = 100 << 20;
    let mut model = Model::new(limit);
    let mut largest = 0;
    let mut before = 0;
    while model.alloc(4000, 5) {
        let ram = model.arena.ram_bytes();
        assert!(ram <= limit);
        largest = largest.max(ram - before);
        assert!(ram - before <= 1 << 20 || before >= AT_ONCE * CHUNK_BYTES as u64);
        before = ram;
    }
    assert_eq!(largest, CHUNK_BYTES as u64);
    let asked = model.objects.len() as u64 * 4000;
    assert!(asked > limit * 9 / 10, "{asked} bytes in {limit}");
    model.free_all();
}

/// Checks that objects of half-empty spans are gathered, and that the emptied spans serve any class.
#[test]
fn gathering_half_empty_spans_empties_them() {
    let arena = Arena::new(8 << 20).unwrap();
    let mut objects = Vec::new();
    while let Ok(object) = arena.alloc(1000) {
        objects.push(object);
    }
    let full = arena.taken_bytes();
    // Every second object goes, and only others of its class would find room.
    let mut at = 0;
    objects.retain(|object| {
        at += 1;
        let stays = at % 2 == 0;
        if !stays {
            arena.free(*object);
        }
        stays
    });
    assert_eq!(arena.taken_bytes(), full);
    assert!(arena.alloc(30_000).is_err());
    let mut moved = 0;
    for object in &mut objects {
        if let Some(new) = arena.alloc_to_gather(*object, 1000) {
            arena.free(std::mem::replace(object, new));
            moved += 1;
        }
    }
    let left = arena.taken_bytes();
    assert!(
        moved < objects.len() && left < full * 6 / 10,
        "{left} of {full}"
    );
    assert!(arena.alloc(30_000).is_ok());
    // A full arena lends room to a smaller copy, but not to a new object; nothing new is accepted while objects are
    // gathered.
    let mut last = None;
    while let Ok(object) = arena.alloc(30_000) {
        last = Some(object);
    }
    arena.free(arena.alloc_to_shrink(30_000).unwrap());
    arena.free(last.unwrap());
    assert!(arena.alloc(1000).is_ok());
    arena.set_gathers(true);
    assert!(arena.alloc(1000).is_err());
    arena.set_gathers(false);
    assert!(arena.alloc(1000).is_ok());
}

#[test]
#[should_panic(expected = "freed twice")]
fn a_double_free_is_caught() {
    let arena = Arena::new(1 << 20).unwrap();
    let (one, _other) = (arena.alloc(100).unwrap(), arena.alloc(100).unwrap());
    arena.free(one);
    arena.free(one);
}

/// A store at its limit had a tenth of its RAM in free pages, between spans of many lengths: each run was too short for
/// new objects, so they were refused.
#[test]
fn free_pages_between_spans_serve_longer_ones() {
    let mut model = Model::new(8 << 20);
    // Spans of one page: each block is alone in its page.
    while model.alloc(4096, 1) {}
    let count = model.objects.len();
    // Every other one goes, so that no two free pages are adjacent.
    (0..count / 2).for_each(|nth| model.free(nth));
    let before = model.objects.len();
    while model.alloc(40 << 10, 2) {}
    let bytes = (model.objects.len() - before) * (40 << 10);
    assert!(bytes > 3 << 20, "{bytes} bytes of what was made free");
    assert!(model.arena.ram_bytes() <= 8 << 20);
    model.free_all();
}

/// RAM that the store does not use serves the program's frames: they have the rest of the budget.
#[test]
fn ram_of_free_pages_is_given_back_unasked() {
    let mut model = Model::new(64 << 20);
    while model.arena.live_bytes() < 32 << 20 {
        assert!(model.alloc(4096, 1));
    }
    let count = model.objects.len();
    (0..count / 2).for_each(|nth| model.free(nth));
    let unused = model.arena.ram_bytes() - model.arena.taken_bytes();
    assert!(unused < 2 << 20, "{unused} bytes are used by nobody");
    model.free_all();
}
