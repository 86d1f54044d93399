//! All bounds of the core. Compile-time asserts relate them to each other.

use crate::addr::{LEAF_PAGES, MAX_ORDER, Order};

/// Commands that one event can give.
pub const MAX_COMMANDS: usize = 96;
/// Most victims that one reclaim batch takes out, and most saves that it starts. This many folios of 64 KiB fill a
/// leaf, and leave it in one call.
pub const RECLAIM_BATCH: usize = 32;
/// Leaves that leave by their tables at once.
pub const LEAVING_LEAVES: usize = 4;
/// Folios of a leaving leaf that one event handles.
pub const LEAF_STEP: u32 = 32;
/// Fewest folios that a leaf must have to leave by its table.
pub const LEAF_OUT_LEAST: u32 = 32;
/// A leaf leaves by its table only if its pages are at most one in this many of all memory.
pub const LEAF_OUT_SHARE: u32 = 32;
/// A leaf leaves for a stream that needs it whole only if a leaf is at most one in this many of all memory.
pub const EVICT_SHARE: u32 = 8;
/// Folios up to this order (64 KiB) are split so that their leaf can leave, even if the store does not hold them.
pub const LEAF_OUT_SPLITS: Order = Order::new(4).expect("4 is an order");
/// List entries that one reclaim batch examines before it answers with what it has found.
pub const RECLAIM_SCAN: usize = 128;
/// Frees of spare frames that one event adds to its own work: enough to share one TLB shootdown.
pub const TRIM_BATCH: usize = 24;
/// Pages of frames that copies leave behind and that go to the kernel at once, by one call that interrupts the other
/// processors once.
pub const LEFT_BATCH: u32 = 64;
/// Most pages beyond a lowered limit that are given back at once, if they are spare. A store takes as many while one
/// list is carried out; a larger excess means that the budget itself was lowered.
pub const TRIM_AT_ONCE: u32 = LEAF_PAGES;
/// Most slots from which one folio is folded up.
pub const FOLD_PARTS: usize = 16;
/// Folios that are folded up at once.
pub const FOLDS: usize = 64;
/// Room that the answer to a command needs in the list: a release for each part of a fold, one wake-up, one poison,
/// one split.
pub const ANSWER_COMMANDS: usize = FOLD_PARTS + 8;
/// Parts that the commands of one event name together.
pub const MAX_PARTS: usize = 2 * FOLD_PARTS;
/// Places of each order that take-outs leave for loads, so that a pool full of limbo cannot stop a fault.
pub const LOAD_RESERVE: usize = 2;
/// Most folios that one fault brings in: the requested one, and the rest of its window. This many of 64 KiB fill a
/// leaf.
pub const FAULT_FOLIOS: usize = 32;
/// Most folios that one fault loads. Zeros are mapped by one call, but each load takes its time.
pub const FAULT_LOADS: usize = 8;
/// Windows that the driver reads ahead of a stream over a file.
pub const READ_AHEAD_WINDOWS: u32 = 4;
/// The driver reads at most one part in this many of memory ahead of a stream.
pub const READ_AHEAD_SHARE: u32 = 8;
/// A run of faults that has brought in this many pages may be a stream that is longer than memory.
pub const PASSING_RUN: u16 = 16;
/// A folio of an adaptive region takes at most one part in this many of the budget
/// ([`Config::folio_share`](crate::Config::folio_share)).
pub const FOLIO_SHARE: u32 = 64;
/// Largest folio that is zeroed in place when it is lazily freed, in pages: beyond 64 KiB, capturing it and one fault
/// when it is used again cost less than writing it.
pub const ZERO_IN_PLACE_PAGES: u32 = 16;
/// The pool has this many places for single pages for each page of memory, up to [`SINGLE_PLACES_MOST`].
pub const SINGLE_PLACES: u32 = 4;
/// Most places for single pages that the pool has (32 GiB); see [`SINGLE_PLACES`].
pub const SINGLE_PLACES_MOST: u32 = 1 << 23;
/// Most pages of frames that are kept for the next faults (256 MiB), however many circulate.
pub const POOL_MARK: u32 = 64 << 10;
/// Records that one batch of reclaim searches for slots to free when the store is full.
pub const SLOT_SWEEP: u32 = 1024;
/// Folios of each lruvec that could not move and are examined again at each tick.
pub const LOOK_AGAIN: usize = 32;
/// Folios up to this order (16 KiB) are not halved because a part of them may be held: none of the waiting calls holds
/// less.
pub const HALVED_LEAST: Order = Order::new(2).expect("2 is an order");
/// Most folios that wait to be split because a part of them was freed. Further ones are split at once.
pub const DEFERRED_SPLITS: usize = 4096;
/// Folios of this order and above are large: capturing one interrupts the other processors once for 256 KiB and more.
pub const LARGE: Order = Order::new(6).expect("6 is an order");
/// Most pages of entries that one discard event walks, so that the lock is held for a bounded time.
pub const DISCARD_WALK: u32 = 16 * LEAF_PAGES;
/// Smallest budget that a manager accepts, in pages (16 MiB).
pub const MIN_LIMIT_PAGES: u32 = 4096;
/// Largest arena, in pages (16 TiB less one leaf, so that an end never wraps).
pub const MAX_ARENA_PAGES: u32 = u32::MAX - LEAF_PAGES + 1;
/// Most pages that one event passes when a region changes groups. Of the pages in leaves that are in use, it passes
/// at most [`DISCARD_WALK`].
pub const GROUP_WALK: u32 = 1 << 23;
/// Leaf tables that one event examines when a group ends. It reads 16 bytes of each.
pub const TABLES_WALK: u32 = 1 << 15;
/// Most groups at once, including the root.
pub const MAX_GROUPS: usize = 256;
/// Most groups above each other, including the root. A charge passes through this many.
pub const MAX_GROUP_DEPTH: usize = 8;
/// Smallest max of a group, in pages (4 MiB): a folio of the highest order, and one that leaves for it.
pub const MIN_GROUP_MAX: u32 = 2 * LEAF_PAGES;
/// Most memory nodes (NUMA) of a machine.
pub const MAX_NODES: u8 = 16;
/// Most pins of a page at once.
pub const MAX_PINS: u8 = u8::MAX;
/// One folio in this many is watched, within the bounds of [`WATCHED_LEAST`] and [`WATCHED_FOLIOS`].
pub const WATCHED_SHARE: u32 = 32;
/// Fewest folios that are meant to be watched.
pub const WATCHED_LEAST: u32 = 1024;
/// Most folios that are meant to be watched.
pub const WATCHED_FOLIOS: u32 = 4096;
/// Most watched folios that are simulated: chance may watch more than are meant to be.
pub const WATCHED_MOST: u32 = WATCHED_FOLIOS + WATCHED_FOLIOS / 4;
/// Most folios that are followed for the curve of refaults, of those for which memory has room. There may be half as
/// many.
pub const CURVE_FOLIOS: u32 = 256;
/// Limbo's largest share, in 1/1024.
pub const LIMBO_MOST: u32 = 922;
/// Fewest rescues of watched folios after which limbo's share is reconsidered. The number depends on the size of
/// memory.
pub const RESCUES_LEAST: u32 = 16;
/// Most rescues of watched folios after which limbo's share is reconsidered.
pub const RESCUES_MOST: u32 = 128;
/// Folios that one reclaim batch moves between active and inactive, so that each list has its share.
pub const BALANCE_BATCH: u32 = 8;
/// A lruvec keeps one table of shadows for this many of its pages.
pub const PAGES_PER_PAST_TABLE: u32 = 256;
/// Most tables of shadows that a lruvec drops at once.
pub const PAST_TABLES_BATCH: u32 = 2;
/// Fewest bits of a shadow.
pub const SHADOW_BITS_LEAST: u8 = 12;
/// Events, answers and commands that a self-checking driver keeps, to report them when something is inconsistent.
pub const RECENT: usize = 256;
/// The highest cost that may be given for a major fault, in sixteenths of a rescue.
pub const REFAULT_COST_MOST: u32 = 1 << 12;

const _: () = assert!(2 * RECLAIM_BATCH + TRIM_BATCH <= MAX_COMMANDS);
const _: () = assert!(FAULT_FOLIOS + 1 + ANSWER_COMMANDS <= MAX_COMMANDS);
const _: () = assert!(TRIM_BATCH + ANSWER_COMMANDS <= MAX_COMMANDS);
const _: () = assert!(
    MIN_LIMIT_PAGES >= 4 * LEAF_PAGES,
    "a budget must hold a few folios of the highest order"
);
const _: () = assert!(LEAF_PAGES == 1 << MAX_ORDER);
