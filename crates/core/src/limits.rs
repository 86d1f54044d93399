//! Every bound of the core, related by compile-time asserts.

use crate::addr::{LEAF_PAGES, MAX_ORDER, Order};

/// Commands that one event can give.
pub const MAX_COMMANDS: usize = 96;
/// Victims that one reclaim batch takes out, and saves that it starts: each at most this many. Folios of 64 KiB fill a
/// leaf with as many, and leave it by one call.
pub const RECLAIM_BATCH: usize = 32;
/// Leaves that leave by their tables at once.
pub const LEAVING_LEAVES: usize = 4;
/// Folios of such a leaf that one event goes on by.
pub const LEAF_STEP: u32 = 32;
/// Folios that a leaf must have to leave so.
pub const LEAF_OUT_LEAST: u32 = 32;
/// Of all memory it is no more than this part.
pub const LEAF_OUT_SHARE: u32 = 32;
/// Unless a stream wants it whole: then it is no more than this part.
pub const CLEAR_SHARE: u32 = 8;
/// Folios up to this order (64 KiB) are split for it, though the store does not hold them.
pub const LEAF_OUT_SPLITS: Order = Order::new(4).expect("4 is an order");
/// List entries that one reclaim batch looks at before it answers with what it has.
pub const RECLAIM_SCAN: usize = 128;
/// Frees of spare frames that one event adds to its own work: enough to share one TLB shootdown.
pub const TRIM_BATCH: usize = 24;
/// Pages of what copies leave behind that go to the kernel at once, by one call that interrupts the other processors
/// once.
pub const LEFT_BATCH: u32 = 64;
/// Pages beyond a lowered limit that are given back at once, if they are spare: as many as a store takes while one list
/// is carried out. More is a budget that was lowered.
pub const TRIM_AT_ONCE: u32 = LEAF_PAGES;
/// Slots that one folio is folded up from at most.
pub const FOLD_PARTS: usize = 16;
/// Folios that are folded up at once.
pub const FOLDS: usize = 64;
/// Room that the answer to a command needs in the list: a release for each part of a fold, one wake-up, one poison, one
/// split.
pub const ANSWER_COMMANDS: usize = FOLD_PARTS + 8;
/// Parts that the commands of one event name together.
pub const MAX_PARTS: usize = 2 * FOLD_PARTS;
/// Places of each order that take-outs leave for loads, so that a pool full of limbo cannot stop a fault.
pub const LOAD_RESERVE: usize = 2;
/// Folios that one fault brings in at most: the one that is wanted, and the rest of its window. As many of 64 KiB fill
/// a leaf.
pub const FAULT_FOLIOS: usize = 32;
/// Of these so many at most that are loaded: zeros are mapped by one call, each load takes its time.
pub const FAULT_LOADS: usize = 8;
/// A run of faults that has brought in so many pages may be a stream that is longer than memory.
pub const PASSING_RUN: u16 = 16;
/// A folio of an adaptive region takes at most this share of the budget
/// ([`Config::folio_share`](crate::Config::folio_share)).
pub const FOLIO_SHARE: u32 = 64;
/// Largest folio that is zeroed in place when it is lazily freed, in pages: beyond 64 KiB, capturing it and one fault
/// when it is wanted again cost less than writing it.
pub const CLEAR_PAGES: u32 = 16;
/// The pool has so many places for single pages for each page of memory, …
pub const SINGLE_PLACES: u32 = 4;
/// … up to so many (32 GiB).
pub const SINGLE_PLACES_MOST: u32 = 1 << 23;
/// Pages of frames that are kept for the next faults at most (256 MiB), however much goes round.
pub const POOL_MARK: u32 = 64 << 10;
/// Records that one batch of reclaim asks for their slots when the store is full.
pub const SLOT_SWEEP: u32 = 1024;
/// Folios of each lruvec that could not move and that get another chance with a tick.
pub const LOOK_AGAIN: usize = 32;
/// Folios that wait to be split because a part of them was freed; more are split at once.
pub const DEFERRED_SPLITS: usize = 4096;
/// Folios of this order and above are large: capturing one interrupts the other processors once for 256 KiB and more.
pub const LARGE: Order = Order::new(6).expect("6 is an order");
/// Pages of entries that one discard event walks at most, so that the lock is held for a bounded time.
pub const DISCARD_WALK: u32 = 16 * LEAF_PAGES;
/// Smallest budget that a manager accepts, in pages (16 MiB).
pub const MIN_LIMIT_PAGES: u32 = 4096;
/// Largest arena, in pages (16 TiB less one leaf, so that an end never wraps).
pub const MAX_ARENA_PAGES: u32 = u32::MAX - LEAF_PAGES + 1;
/// Pages that one event passes at most when a region changes groups; of those in leaves that are in use,
/// [`DISCARD_WALK`].
pub const GROUP_WALK: u32 = 1 << 23;
/// Leaf tables that one event looks at when a group ends: 16 bytes of each.
pub const TABLES_WALK: u32 = 1 << 15;
/// Groups at once, the root among them.
pub const MAX_GROUPS: usize = 256;
/// Groups above each other at most, the root among them: as many as a charge goes through.
pub const MAX_GROUP_DEPTH: usize = 8;
/// Smallest max of a group, in pages (4 MiB): a folio of the highest order, and one that makes way for it.
pub const MIN_GROUP_MAX: u32 = 2 * LEAF_PAGES;
/// Memory nodes (NUMA) of a machine at most.
pub const MAX_NODES: u8 = 16;
/// How often a page can be pinned at once.
pub const MAX_PINS: u8 = u8::MAX;
/// Of so many folios one is watched, …
pub const WATCHED_SHARE: u32 = 32;
/// … unless these are fewer than so many, …
pub const WATCHED_LEAST: u32 = 1024;
/// … or more than so many.
pub const WATCHED_FOLIOS: u32 = 4096;
/// More than so many are not simulated: chance may watch more than are wanted.
pub const WATCHED_MOST: u32 = WATCHED_FOLIOS + WATCHED_FOLIOS / 4;
/// Folios that are looked at for the curve of refaults: so many of those that memory has room for, or half of that.
pub const CURVE_FOLIOS: u32 = 256;
/// Limbo's largest share, in 1/1024.
pub const LIMBO_MOST: u32 = 922;
/// After how many rescues of watched folios limbo's share is thought over, by the size of memory.
pub const RESCUES_LEAST: u32 = 16;
/// … and at most.
pub const RESCUES_MOST: u32 = 128;
/// Folios that one reclaim batch moves between active and inactive, so that each has its share.
pub const BALANCE_BATCH: u32 = 8;
/// A lruvec keeps a table of shadows only for so many of its pages …
pub const PAGES_PER_PAST_TABLE: u32 = 256;
/// … and drops at most so many of them at once.
pub const PAST_TABLES_BATCH: u32 = 2;
/// Narrowest shadow.
pub const SHADOW_BITS_LEAST: u8 = 12;
/// Events, answers and commands that a driver keeps, where it checks itself, to tell them when something does not fit.
pub const RECENT: usize = 256;
/// A major fault costs as many rescues at most.
pub const REFAULT_COST_MOST: u32 = 1 << 12;

const _: () = assert!(2 * RECLAIM_BATCH + TRIM_BATCH <= MAX_COMMANDS);
const _: () = assert!(FAULT_FOLIOS + 1 + ANSWER_COMMANDS <= MAX_COMMANDS);
const _: () = assert!(TRIM_BATCH + ANSWER_COMMANDS <= MAX_COMMANDS);
const _: () = assert!(
    MIN_LIMIT_PAGES >= 4 * LEAF_PAGES,
    "a budget must hold a few folios of the highest order"
);
const _: () = assert!(LEAF_PAGES == 1 << MAX_ORDER);
