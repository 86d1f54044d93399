//! A store with a place behind it: what reaches the front, what leaves it and comes back, and what is said of a slot
//! that is released on its way.

mod common;

use common::{Fill, contents, part};
use millpond_core::port::{
    Forks, LoadError, Recompress, Recompressed, SaveError, Saved, Slots, StoreUsage, Tiers, Upkeep,
};
use millpond_core::{PAGE_SIZE, SlotId, SlotPart};
use millpond_store::{
    CompressedRam, CompressedRamConfig, Front, Place, Refused, SlotState, SlotWord, Tiered,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Pages of each slot here.
const PAGES: usize = 16;

/// A place in memory, to which the thread that finds no room moves slots, one by one.
#[derive(Default)]
struct Kept {
    slots: Mutex<HashMap<u64, Vec<u8>>>,
    next: AtomicU64,
    is_away: AtomicBool,
}

impl Kept {
    fn len(&self) -> usize {
        self.slots.lock().unwrap().len()
    }

    fn move_oldest(&self, front: &Front) -> bool {
        if self.is_away.load(Relaxed) {
            return false;
        }
        let Some((slot, word)) = front.slots().take_oldest() else {
            return false;
        };
        let mut bytes = vec![0; usize::from(word.pages()) * PAGE_SIZE];
        assert!(front.read_taken(slot, word, |store| store.load(slot, 0, &mut bytes)));
        let settling = front.let_go(slot, word).unwrap();
        let place = self.next.fetch_add(1, Relaxed);
        self.slots.lock().unwrap().insert(place, bytes);
        front.arrived(slot, settling, place);
        true
    }
}

impl Place for Kept {
    fn make_room(&self, front: &Front, refused: &Refused) -> bool {
        assert_eq!(refused.len, PAGES * PAGE_SIZE);
        self.move_oldest(front)
    }

    fn load(
        &self,
        front: &Front,
        slot: SlotId,
        _: SlotWord,
        first_page: u16,
        out: &mut [u8],
    ) -> Result<(), LoadError> {
        if self.is_away.load(Relaxed) {
            front.note_lost();
            return Err(LoadError::Io(110));
        }
        let from = usize::from(first_page) * PAGE_SIZE;
        let slots = self.slots.lock().unwrap();
        out.copy_from_slice(&slots[&front.slots().place(slot)][from..from + out.len()]);
        Ok(())
    }

    fn free(&self, front: &Front, slot: SlotId, word: SlotWord) -> bool {
        let mut slots = self.slots.lock().unwrap();
        let ended = front.end(slot, word);
        ended.map(|place| slots.remove(&place)).is_some()
    }

    fn usage(&self) -> StoreUsage {
        StoreUsage {
            stored_bytes: (self.len() * PAGES * PAGE_SIZE) as u64,
            ..StoreUsage::default()
        }
    }

    fn away_ms(&self) -> u64 {
        u64::from(self.is_away.load(Relaxed))
    }

    fn relieve(&self, front: &Front) -> bool {
        self.move_oldest(front)
    }

    fn move_away(&self, front: &Front) -> bool {
        self.move_oldest(front)
    }
}

impl Forks for Kept {
    fn before_fork(&self, _: u64) {}

    fn after_fork_in_child(&self) -> Result<(), i32> {
        Ok(())
    }

    fn child_gone(&self, _: u64) {}
}

/// A front of 2 MiB with nothing in it, and the place behind it.
fn tiered() -> Tiered<Kept> {
    const ROOM: u64 = 2 << 20;
    let config = CompressedRamConfig {
        max_bytes: Some(ROOM),
    };
    let front = CompressedRam::new(config).unwrap();
    let front = Front::new(Box::new(front), ROOM).unwrap();
    Tiered::new(front, Kept::default())
}

fn bytes(slot: u32) -> Vec<u8> {
    contents(Fill::Noise(u64::from(slot) + 1), PAGES * PAGE_SIZE)
}

fn save(store: &Tiered<Kept>, slot: u32) -> Result<Saved, SaveError> {
    store.save(SlotId(slot), None, &bytes(slot))
}

fn is_right(store: &Tiered<Kept>, slot: u32) -> bool {
    let mut out = vec![0; PAGES * PAGE_SIZE];
    store.load(SlotId(slot), 0, &mut out) == Ok(()) && out == bytes(slot)
}

#[test]
fn the_oldest_slots_leave_first_and_all_of_them_come_back() {
    let store = tiered();
    (0..100).for_each(|slot| assert_eq!(save(&store, slot), Ok(Saved::Stored)));
    let left = store.back().len();
    assert!((60..90).contains(&left), "{left} slots have left");
    for slot in 0..100 {
        let is_remote = store.front().slots().word(SlotId(slot)).state() == SlotState::Remote;
        assert_eq!(is_remote, (slot as usize) < left, "{slot}");
        assert!(is_right(&store, slot), "{slot}");
    }
    // A part of a slot, its end, and what is behind its end.
    let mut page = vec![0; PAGE_SIZE];
    store.load(SlotId(0), 15, &mut page).unwrap();
    assert_eq!(page, bytes(0)[15 * PAGE_SIZE..]);
    let behind_the_end = store.load(SlotId(0), 16, &mut page);
    assert_eq!(behind_the_end, Err(LoadError::Missing));

    let (slot_bytes, usage) = ((PAGES * PAGE_SIZE) as u64, store.usage());
    assert_eq!((usage.slots, usage.logical_bytes), (100, 100 * slot_bytes));
    assert!(usage.stored_bytes >= left as u64 * slot_bytes);
    let beyond = store.beyond();
    assert_eq!(beyond.bytes, left as u64 * slot_bytes);
    assert_eq!((beyond.loads, beyond.lost_loads), (left as u64 + 1, 0));

    (0..100).for_each(|slot| store.release(SlotId(slot)));
    assert_eq!((store.back().len(), store.usage().slots), (0, 0));
    assert_eq!(store.load(SlotId(0), 0, &mut page), Err(LoadError::Missing));
}

#[test]
fn a_back_store_that_refuses_leaves_the_front_unchanged() {
    let store = tiered();
    (0..50).for_each(|slot| assert_eq!(save(&store, slot), Ok(Saved::Stored)));
    let left = store.back().len() as u32;
    store.back().is_away.store(true, Relaxed);
    assert!((50..100).any(|slot| save(&store, slot) == Err(SaveError::Full)));
    assert!(!is_right(&store, 0) && is_right(&store, left));
    assert_eq!((store.beyond().lost_loads, store.beyond().away_ms), (1, 1));
    store.back().is_away.store(false, Relaxed);
    assert!((0..50).all(|slot| is_right(&store, slot)));
    assert_eq!(save(&store, 100), Ok(Saved::Stored));
}

/// A slot that is released while it is read, or when it has been sent, is not the place's.
#[test]
fn a_slot_that_is_released_on_its_way_does_not_arrive() {
    let store = tiered();
    let front = store.front();
    for is_read in [false, true] {
        save(&store, 3).unwrap();
        let (slot, word) = front.slots().take_oldest().unwrap();
        let mut out = vec![0; PAGES * PAGE_SIZE];
        let read = front.read_taken(slot, word, |in_front| {
            let loaded = in_front.load(slot, 0, &mut out);
            if !is_read {
                store.release(slot);
            }
            loaded
        });
        assert_eq!(read, is_read);
        if is_read {
            store.release(slot);
            save(&store, 3).unwrap();
        }
        assert_eq!(front.let_go(slot, word), None);
    }
    assert!(is_right(&store, 3));
    assert_eq!(front.behind(), (0, 0));
}

/// A slot that cannot be read on its way stays in front, and is not tried again.
#[test]
fn a_slot_that_cannot_be_read_stays_in_front() {
    let store = tiered();
    save(&store, 3).unwrap();
    let front = store.front();
    let (slot, word) = front.slots().take_oldest().unwrap();
    assert!(!front.read_taken(slot, word, |_| Err(LoadError::Corrupt)));
    assert_eq!(front.slots().word(slot).state(), SlotState::Local);
    assert_eq!(front.slots().take_oldest(), None);
    assert!(is_right(&store, 3));
}

/// A store, or a place, that notes which of its methods are called.
#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Vec<&'static str>>>);

impl Noted {
    fn note(&self, name: &'static str) {
        self.0.lock().unwrap().push(name);
    }

    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

const RECOMPRESSED: Recompressed = Recompressed {
    bytes: 3,
    saved: 2,
    left: 1,
};

impl Slots for Noted {
    fn save(&self, _: SlotId, _: Option<SlotPart>, _: &[u8]) -> Result<Saved, SaveError> {
        Ok(Saved::Unchanged)
    }

    fn load(&self, _: SlotId, _: u16, _: &mut [u8]) -> Result<(), LoadError> {
        Ok(())
    }

    fn expect(&self, _: SlotPart) {
        self.note("expect");
    }

    fn expect_bytes(&self, _: SlotPart) {
        self.note("expect_bytes");
    }

    fn release(&self, _: SlotId) {}
}

impl Upkeep for Noted {
    fn usage(&self) -> StoreUsage {
        StoreUsage::default()
    }

    fn tiers(&self) -> Option<Tiers> {
        Some(Tiers {
            moves: true,
            ..Tiers::default()
        })
    }

    fn limit_ram(&self, _: u64) {
        self.note("limit_ram");
    }

    fn trim_ram(&self) -> bool {
        self.note("trim_ram");
        false
    }

    fn give_room_back(&self) -> bool {
        true
    }

    fn recompress(&self, _: bool) -> Recompress {
        Recompress::More
    }

    fn recompressed(&self) -> Recompressed {
        RECOMPRESSED
    }

    fn stay_awake(&self, _: bool) {
        self.note("stay_awake");
    }

    fn write_behind(&self) {
        self.note("write_behind");
    }
}

impl Forks for Noted {
    fn descriptors(&self, keep: &mut dyn FnMut(i32)) {
        keep(7);
    }

    fn expect_child(&self) {
        self.note("expect_child");
    }

    fn before_fork(&self, _: u64) {
        self.note("before_fork");
    }

    fn after_fork_in_child(&self) -> Result<(), i32> {
        self.note("after_fork_in_child");
        Ok(())
    }

    fn child_gone(&self, _: u64) {
        self.note("child_gone");
    }
}

impl Place for Noted {
    fn still_holds(&self, _: &Front, _: SlotPart, _: &[u8]) -> bool {
        self.note("still_holds");
        true
    }

    fn make_room(&self, _: &Front, _: &Refused) -> bool {
        false
    }

    fn load(
        &self,
        _: &Front,
        _: SlotId,
        _: SlotWord,
        _: u16,
        _: &mut [u8],
    ) -> Result<(), LoadError> {
        Ok(())
    }

    fn free(&self, _: &Front, _: SlotId, _: SlotWord) -> bool {
        true
    }

    fn usage(&self) -> StoreUsage {
        StoreUsage::default()
    }

    fn away_ms(&self) -> u64 {
        0
    }

    fn relieve(&self, _: &Front) -> bool {
        self.note("relieve");
        true
    }

    fn move_away(&self, _: &Front) -> bool {
        self.note("move_away");
        true
    }
}

#[test]
fn the_front_goes_on_with_its_own_work_and_a_fork_concerns_both() {
    let (front, back) = (Noted::default(), Noted::default());
    let behind = Front::new(Box::new(front.clone()), 0).unwrap();
    let store = Tiered::new(behind, back.clone());
    let page = part(1, 0, PAGE_SIZE);
    let saved = store.save(SlotId(2), Some(page), &[1; PAGE_SIZE]);
    assert_eq!(saved, Ok(Saved::Unchanged));
    store.expect(page);
    store.expect_bytes(page);
    store.limit_ram(1);
    assert!(store.trim_ram(), "something has left");
    assert!(store.move_away() && store.give_room_back());
    assert_eq!(store.recompress(false), Recompress::More);
    assert_eq!(store.recompressed(), RECOMPRESSED);
    store.stay_awake(true);
    store.write_behind();
    assert_eq!(
        front.take(),
        [
            "expect",
            "expect_bytes",
            "limit_ram",
            "trim_ram",
            "stay_awake",
            "write_behind"
        ]
    );
    assert_eq!(back.take(), ["still_holds", "relieve", "move_away"]);

    let mut descriptors = Vec::new();
    store.descriptors(&mut |fd| descriptors.push(fd));
    assert_eq!(descriptors, [7, 7]);
    store.expect_child();
    store.before_fork(1);
    store.after_fork_in_child().unwrap();
    store.child_gone(1);
    let forks = [
        "expect_child",
        "before_fork",
        "after_fork_in_child",
        "child_gone",
    ];
    assert_eq!(
        (front.take(), back.take()),
        (forks.to_vec(), forks.to_vec())
    );
}

/// Behind a remote store compressed RAM was never made denser and the file gave no room back, since those calls have a
/// body in the port, and ended there. A store that stands before another has each method itself, or its reason here.
#[test]
fn no_call_ends_at_a_default_method_of_the_port() {
    let port = include_str!("../../core/src/port/store.rs");
    let methods: Vec<&str> = port
        .lines()
        .filter_map(|line| line.strip_prefix("    fn "))
        .filter_map(|line| line.split('(').next())
        .filter(|&name| name != "add")
        .collect();
    assert!(methods.len() > 20, "{methods:?}");
    let left_out = |source: &str, reasons: &[&str]| -> Vec<&str> {
        let has = |name: &str| source.contains(&format!("\n    fn {name}("));
        let all = methods.iter().copied();
        all.filter(|name| !has(name) && !reasons.contains(name))
            .collect()
    };
    // Loads reach a slow place one by one. A slot with holes could not move as a whole.
    let tiered = left_out(include_str!("../src/tiered.rs"), &["load_all", "forget"]);
    assert!(tiered.is_empty(), "Tiered passes {tiered:?} on to nobody");
    // It has nothing beyond the machine. Its two places have nothing to do for a fork that may not come.
    let beyond = ["beyond", "move_away", "expect_child"];
    let spill = left_out(include_str!("../src/spill.rs"), &beyond);
    assert!(spill.is_empty(), "Spill passes {spill:?} on to nobody");
}
