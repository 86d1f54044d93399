//! What can happen: the only way into the core.

use crate::addr::{Frame, Order, PageCount, PageIndex, PageRange};
use crate::ids::{FolioId, GroupId, Kind, RegionId, SlotId};
use crate::policy::order::OrderPolicy;
use crate::tables::group::GroupLimits;

/// What a faulting access was, as far as the backend can tell. A hint only: the state under the lock decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A read, or not known.
    Read,
    /// A write.
    Write,
}

/// Who reclaims, for the counters: the background thread or a thread that waits for memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reclaimer {
    /// The thread that keeps memory available ahead of need (`pgscan_kswapd`, `pgsteal_kswapd`).
    Background,
    /// A faulting thread below the low mark (`pgscan_direct`, `pgsteal_direct`).
    Direct,
}

/// How a range is lazily freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeMode {
    /// Others may use the bytes during the call: each page is captured atomically.
    Shared,
    /// Nobody does: small folios are zeroed in place, large ones captured.
    Exclusive,
    /// The same, and the range must read as zeros afterwards: what is not zeroed in place is dropped.
    Zeroed,
    /// Only what the store holds: the range is about to be overwritten, and its memory is wanted.
    Stored,
    /// The owner has zeroed the range himself, and may have written there since: what is in memory is free as far as it
    /// still is zeros when memory is short. Nothing else changes, and nothing is refused.
    Cleared,
}

/// A hint about how a range will be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Not needed soon: first in line for reclaim.
    Cold,
    /// Take it out now.
    PageOut,
    /// Pages will be touched in order: large steps from the first fault on. For whole leaves (2 MiB).
    Sequential,
    /// Pages will be touched in no order: single pages. For whole leaves (2 MiB).
    Random,
    /// Pages are brought in because they will be needed: who does so in order is no stream that passes. For whole
    /// leaves (2 MiB).
    WillNeed,
    /// Nothing is known about the order or the need any more. For whole leaves (2 MiB).
    Normal,
}

/// Something that happened. [`Core::handle`](crate::Core::handle) answers each with a [`Reply`] and commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Reserve a region of `pages` pages, leaf-aligned, whose folios have orders by `order`. It is the root group's
    /// until [`Event::MoveRegion`].
    CreateRegion {
        /// Its length.
        pages: PageCount,
        /// The orders of its folios.
        order: OrderPolicy,
        /// What its pages are while they are not in memory.
        kind: Kind,
    },
    /// Make a group below another. The reply is [`Reply::Group`].
    CreateGroup {
        /// The group above it.
        parent: GroupId,
        /// How much it may have.
        limits: GroupLimits,
    },
    /// Give a group, not the root, other limits. What is beyond them is not taken by this; see [`Event::Reclaim`].
    SetGroupLimits {
        /// The group.
        group: GroupId,
        /// How much it may have from now on.
        limits: GroupLimits,
    },
    /// Remove a group that has none below it: its regions, its memory and its counters are its parent's.
    /// [`Reply::More`] asks for the same event again; nobody else may name the group any more.
    RemoveGroup {
        /// The group.
        group: GroupId,
    },
    /// A region, with what it holds, is another group's from now on. [`Reply::More`] asks for the event again, from
    /// another page.
    MoveRegion {
        /// The region.
        region: RegionId,
        /// Its new group. Only the first event, from the region's first page, says which.
        group: GroupId,
        /// Where to go on.
        from: PageIndex,
    },
    /// Give a region's addresses back. Its pages must have been discarded first.
    DropRegion {
        /// Which one.
        region: RegionId,
    },
    /// `region` and `copy` hold the same from now on: what `region` holds becomes `base`'s, and both inherit from that.
    /// The driver moves the mapped pages there by their tables, and nothing is under way meanwhile. `base` and `copy`
    /// are new regions of the same length.
    Snapshot {
        /// The source.
        region: RegionId,
        /// What holds its contents from now on. Nobody else names it.
        base: RegionId,
        /// The snapshot.
        copy: RegionId,
    },
    /// Move what `from` holds to `to`, which holds nothing and lies alike in its leaves: both in one region each, of
    /// the same length, not overlapping. The driver moves the mapped pages, and nothing is under way meanwhile. When
    /// `from` is all of a region and `to` begins one, that is its successor and has its orders; only then may it
    /// inherit from a base.
    Remap {
        /// The source; it reads as zeros afterwards.
        from: PageRange,
        /// The destination.
        to: PageRange,
    },
    /// Give a region another length where it is: addresses behind it are taken if they are free, or given back if
    /// nothing is there. The reply is [`Reply::Region`].
    Resize {
        /// The region.
        region: RegionId,
        /// Its new length.
        pages: PageCount,
    },
    /// A region is about to be dropped: it inherits nothing any more. The reply is [`Reply::Detached`].
    Detach {
        /// The region.
        region: RegionId,
    },
    /// Hand what `base` holds over to its only heir, from a page on. When all is handed over the reply is
    /// [`Reply::Detached`]: the base is empty and nobody's. [`Reply::Reclaim`]: the frame pool has no place for what is
    /// mapped there.
    Merge {
        /// The base.
        base: RegionId,
        /// Where to begin.
        from: PageIndex,
    },
    /// A thread touched a page that is not mapped (or is write-protected while it is taken out).
    Fault {
        /// The page.
        page: PageIndex,
        /// What the thread did, if known.
        access: Access,
        /// An upper bound for the order of what is brought in; the region's own order is another, except for what a
        /// remap has brought there, which stays as large as it was.
        max_order: Order,
        /// What the program may use around the page, as far as the caller knows: nothing beyond comes along, as it
        /// would take memory from what can be used. [`PageRange::ALL`] where everything may be used.
        within: PageRange,
    },
    /// The command that was given for `folio` has been carried out, or has failed.
    Completed {
        /// The folio that the command named.
        folio: FolioId,
        /// How it went.
        outcome: Outcome,
    },
    /// [`Command::TakeOutLeaf`](crate::Command::TakeOutLeaf) has been carried out, or could not be: then all is mapped
    /// as before. [`Reply::More`] asks for the same event again.
    LeafTakenOut {
        /// The leaf that the command named.
        at: PageRange,
        /// Whether its pages are in the block.
        taken: bool,
    },
    /// From now on a leaf of small folios may leave by its table, or may not; see `ops/leaf_out.rs`. At first it may
    /// not.
    TakeLeaves {
        /// Whether it may.
        on: bool,
    },
    /// The place of a frame that [`Command::FreeFrame`](crate::Command::FreeFrame) named is a hole now.
    FrameFreed {
        /// The frame.
        frame: Frame,
    },
    /// The store has forgotten a slot that [`Command::Release`](crate::Command::Release) named.
    SlotReleased {
        /// The slot.
        slot: SlotId,
    },
    /// Make `pages` pages available: answer with the next batch of work towards that. The reply is
    /// [`Reply::Done`]; no commands beside it mean that nothing can be reclaimed now.
    Reclaim {
        /// How many pages to free at most by this batch.
        pages: PageCount,
        /// On whose behalf.
        by: Reclaimer,
    },
    /// The same for the memory of one group and those below it, so that it has room below its max.
    ReclaimGroup {
        /// The group.
        group: GroupId,
        /// How many pages to free at most by this batch.
        pages: PageCount,
        /// On whose behalf.
        by: Reclaimer,
    },
    /// Forget the contents of `range`: it reads as zeros afterwards, or as its file holds it (`MADV_DONTNEED`).
    Discard {
        /// What to forget.
        range: PageRange,
    },
    /// The contents of `range` are not wanted any more, but its memory need not come back before it is wanted elsewhere
    /// (`MADV_FREE`): each page reads as it did or as zeros, once zeros always zeros, and a write keeps it. See
    /// `ops/lazy_free.rs`.
    LazyFree {
        /// What may be forgotten.
        range: PageRange,
        /// How.
        mode: FreeMode,
    },
    /// Drop lazily freed memory, oldest first, while there is more than the configured cap: the next batch of that. No
    /// commands mean that there is no more, or that it is on its way.
    TrimLazyFree,
    /// Give what is lazily freed in `range` back to the kernel, as far as it was not used again. What is being looked
    /// at is waited for.
    GiveFreedBack {
        /// The range.
        range: PageRange,
    },
    /// Look at the next batch of lazily freed folios that are mapped, oldest first, and take back the mark of those
    /// that were written to. The reply is [`Reply::Seen`].
    RecountLazyFree {
        /// How many pages at most.
        left: PageCount,
    },
    /// Drop what can be dropped of `range` without waiting, and keep its frames for the next faults: for memory whose
    /// owner has said that it may be dropped at any time.
    Purge {
        /// The range.
        range: PageRange,
    },
    /// Keep the resident pages of `range` in memory until [`Event::Unpin`].
    Pin {
        /// The range; every page of it must be resident.
        range: PageRange,
    },
    /// Undo one [`Event::Pin`] of the same range.
    Unpin {
        /// The range.
        range: PageRange,
    },
    /// A hint about `range`.
    Advise {
        /// The range.
        range: PageRange,
        /// The hint.
        advice: Advice,
    },
    /// The protection of `range` changed: folios that could not be moved may be movable now.
    Protected {
        /// The range.
        range: PageRange,
    },
    /// The budget for frames is now `pages` (the driver subtracts what the store and the program use). A few spare
    /// frames beyond it are given back.
    SetLimit {
        /// The new limit.
        pages: PageCount,
    },
    /// What a major fault costs now, as was measured: see [`Config::refault_cost`](crate::Config::refault_cost).
    SetRefaultCost {
        /// In sixteenths of what a rescue from limbo costs; more than
        /// [`REFAULT_COST_MOST`](crate::limits::REFAULT_COST_MOST) counts as that.
        sixteenths: u32,
    },
    /// The same for pages of files: what reading one costs where the files are.
    SetFileCost {
        /// In sixteenths of what a rescue from limbo costs; more than
        /// [`REFAULT_COST_MOST`](crate::limits::REFAULT_COST_MOST) counts as that.
        sixteenths: u32,
    },
    /// Some time (100 ms) has passed: frames that demand does not ask for are to go back to the kernel
    /// ([`Core::gather_spare`](crate::Core::gather_spare)).
    Tick,
    /// Let the store be tried again after it was full or failing.
    RetryStore,
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The folio is mapped. `frame_kept`: its contents were copied, and the pool's frame (if the command
    /// named one) still holds pages of its own; otherwise the frame was moved and its place is a hole.
    Installed {
        /// Whether the pool's frame is still populated.
        frame_kept: bool,
    },
    /// The range crosses mappings of different protection and cannot be installed as one folio: ask again
    /// page by page. The frame, if it had been populated, still is.
    InstallSplit {
        /// Whether the pool's frame is populated now.
        frame_kept: bool,
    },
    /// The mapping is gone (the program unmapped or replaced it): the fault is void. Contents are kept where
    /// they were.
    InstallGone {
        /// Whether the pool's frame is populated now.
        frame_kept: bool,
    },
    /// The store, or the file, could not give the folio back. Nothing was installed.
    LoadFailed {
        /// Whether the pool's frame is populated now.
        frame_kept: bool,
    },
    /// The folio's contents are in the pool's frame and no longer mapped.
    TakenOut,
    /// The folio's contents are in the pool's frame and no longer mapped, and they are zeros.
    TakenOutBlank,
    /// The mapped pages are zeros now.
    Cleared,
    /// Every byte of the mapped pages is zero.
    Blank,
    /// Some byte of the mapped pages is not zero.
    Written,
    /// The kernel holds the page (direct I/O, a get_user_pages pin): it stays mapped, try later.
    TakeOutBusy,
    /// The mapping does not let the folio move as a whole (read-only, locked, split by protection).
    TakeOutImmovable,
    /// The store holds the folio's bytes in the slot that the command named; or the file, where they belong.
    Stored,
    /// The folio's bytes are those that its previous slot, or the file, holds: nothing was written.
    Unchanged,
    /// Every byte of the folio is zero: it needs no slot.
    AllZero,
    /// The store has no room. Nothing was written.
    StoreFull,
    /// The store failed. Nothing was written.
    StoreFailed,
    /// The range is no longer mapped and its pages were given back.
    Zapped,
    /// Whoever touches the range is told that its contents are lost.
    Poisoned,
}

/// What the core says to an event, beside the commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Done, or on its way by the commands given.
    Done,
    /// Carry out the commands and send the event again for the rest of its range: all before `from` is done, or
    /// will be when the commands are.
    More {
        /// Where the rest begins.
        from: PageIndex,
    },
    /// The folio at this page is in flight: wait until something completes there and ask again.
    Wait {
        /// The page to wait for.
        page: PageIndex,
    },
    /// The folio at this page, which the one that was asked for would be copied from, is in flight: wait here until
    /// something completes and ask again. Nobody who sleeps at the faulting page would be woken.
    WaitForBase {
        /// The page to wait for.
        page: PageIndex,
    },
    /// The page must be resident for this: resolve a fault there and ask again.
    NeedsResident {
        /// The page.
        page: PageIndex,
    },
    /// The page is mapped already: wake whoever waits.
    Present,
    /// The memory for a large folio is there, but in pieces: give so much of what is spare back
    /// ([`Core::gather_scattered`](crate::Core::gather_scattered)) and ask again, or ask for a smaller folio.
    Scattered {
        /// How many pages are missing in one piece.
        pages: PageCount,
    },
    /// No memory: reclaim at least this much and ask again.
    Reclaim {
        /// How many pages are missing.
        pages: PageCount,
    },
    /// A group is at its max: reclaim at least this much there and ask again.
    ReclaimGroup {
        /// The group: the page's own, or one above it.
        group: GroupId,
        /// How many pages are missing.
        pages: PageCount,
    },
    /// That much was looked at.
    Seen {
        /// How many pages.
        pages: PageCount,
    },
    /// What became of a base: nobody inherits from it any more, so it is to be dropped; or only one does, to whom it
    /// can be merged.
    Detached {
        /// A base without heirs, with its pages.
        orphan: Option<(RegionId, PageRange)>,
        /// A base with one heir, with its pages.
        single: Option<(RegionId, PageRange)>,
    },
    /// A region was made.
    Region {
        /// Its name.
        region: RegionId,
        /// Its pages.
        range: PageRange,
    },
    /// A group was made.
    Group {
        /// Its name.
        group: GroupId,
    },
    /// Not possible; nothing changed.
    Refused(Refusal),
}

impl Reply {
    /// So many pages are missing: in the budget, or below a group's max.
    pub(crate) fn short(group: GroupId, pages: PageCount) -> Self {
        match group {
            GroupId::ROOT => Self::Reclaim { pages },
            group => Self::ReclaimGroup { group, pages },
        }
    }
}

/// Why an event was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The range has no pages, or leaves the arena.
    BadRange,
    /// The page or range is not inside one region.
    OutsideRegion,
    /// The arena has no free run of addresses that long.
    NoAddressSpace,
    /// The region is not known, or was dropped before.
    UnknownRegion,
    /// The region's pages are a file's: this is for anonymous memory.
    FileBacked,
    /// The region still holds pages: discard them first.
    RegionInUse,
    /// Commands are out that nobody has answered.
    Busy,
    /// A page of the range is pinned.
    Pinned {
        /// The pinned page.
        page: PageIndex,
    },
    /// The page is not pinned.
    NotPinned {
        /// The page.
        page: PageIndex,
    },
    /// A page is pinned as often as a pin count can tell.
    PinOverflow {
        /// The page.
        page: PageIndex,
    },
    /// The store lost the page's contents earlier (a failed or damaged load); discard it to use it again.
    Poisoned {
        /// The page.
        page: PageIndex,
    },
    /// The group is not known, was removed, or is the root, whose limits are the budget's.
    UnknownGroup,
    /// The group has others below it, or is the root.
    GroupInUse,
    /// max(min, low) ≤ high ≤ max does not hold, or max is too small.
    BadLimits,
    /// The group would lie below too many others.
    TooDeep,
    /// There are as many groups as there can be.
    TooManyGroups,
    /// A bound in `limits.rs` is reached: folio records, slots or leaf tables.
    OutOfRecords,
}

/// A part of a slot, or all of it: 2^`order` pages starting `first` pages into the slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotPart {
    /// The slot.
    pub slot: SlotId,
    /// First page wanted, counted from the slot's start.
    pub first: u16,
    /// How much.
    pub order: Order,
}
