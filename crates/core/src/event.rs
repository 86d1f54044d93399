//! Events: everything that can happen. They are the only input of the core.

use crate::addr::{Frame, Order, PageCount, PageIndex, PageRange};
use crate::ids::{FolioId, GroupId, Kind, RegionId, SlotId};
use crate::policy::order::OrderPolicy;
use crate::tables::group::GroupLimits;

/// The kind of reclaiming thread, for the counters: the background thread, or a thread that waits for memory.
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
    /// Other threads may use the bytes during the call: each page is captured atomically.
    Shared,
    /// No other thread uses the bytes: small folios are zeroed in place, large ones are captured.
    Exclusive,
    /// No other thread uses the bytes, and the range must read as zeros afterwards: pages that are not zeroed in
    /// place are dropped.
    ReadsZeros,
    /// Only the copies in the store are freed: the range is about to be overwritten, and its memory is needed.
    Stored,
    /// The owner has zeroed the range, and may have written there since: a page in memory is free if it is still zeros
    /// when memory is short. Nothing else changes, and nothing is refused.
    AlreadyZeroed,
}

/// A hint about how a range will be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// The range is not needed soon: its memory is first in line for reclaim.
    Cold,
    /// The range is to be taken out now. The caller waits for pages that are just arriving.
    PageOut,
    /// Pages will be touched in order: steps are large from the first fault on. The hint is for whole leaves (2 MiB).
    Sequential,
    /// Pages will be touched at random: single pages are brought in. The hint is for whole leaves (2 MiB).
    Random,
    /// Pages are brought in because they will be needed: sequential faults are not treated as a passing stream. The
    /// hint is for whole leaves (2 MiB).
    WillNeed,
    /// Nothing is known any longer about the order or the need. The hint is for whole leaves (2 MiB).
    Normal,
}

/// Something that happened. [`Core::handle`](crate::Core::handle) answers each with a [`Reply`] and commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Reserve a region of `pages` pages, leaf-aligned, whose folios' orders follow `order`. It belongs to the root
    /// group until [`Event::MoveRegion`].
    CreateRegion {
        /// Its length.
        pages: PageCount,
        /// The orders of its folios.
        order: OrderPolicy,
        /// Where its pages are while they are not in memory.
        kind: Kind,
    },
    /// Make a group below another. The reply is [`Reply::Group`].
    CreateGroup {
        /// The group above it.
        parent: GroupId,
        /// How much it may have.
        limits: GroupLimits,
    },
    /// Change the limits of a group other than the root. This event does not take memory beyond them; see
    /// [`Event::Reclaim`].
    SetGroupLimits {
        /// The group.
        group: GroupId,
        /// How much it may have from now on.
        limits: GroupLimits,
    },
    /// Remove a group that has none below it: its regions, its memory and its counters become its parent's.
    /// [`Reply::More`] asks for the same event again; no other event may name the group from now on.
    RemoveGroup {
        /// The group.
        group: GroupId,
    },
    /// A region, with all that it holds, belongs to another group from now on. [`Reply::More`] asks for the event
    /// again, from another page.
    MoveRegion {
        /// The region.
        region: RegionId,
        /// Its new group. Only the first event, from the region's first page, determines it.
        group: GroupId,
        /// Where to continue.
        from: PageIndex,
    },
    /// Give a region's addresses back. Its pages must have been discarded first.
    DropRegion {
        /// Which one.
        region: RegionId,
    },
    /// `region` and `copy` hold the same contents from now on: the contents of `region` become `base`'s, and both
    /// inherit from that. The driver moves the mapped pages there by their tables, and nothing is in flight at that
    /// time. `base` and `copy` are new regions of the same length.
    Snapshot {
        /// The source.
        region: RegionId,
        /// The region that holds the source's contents from now on. No other event names it.
        base: RegionId,
        /// The snapshot.
        copy: RegionId,
    },
    /// Move the contents of `from` to `to`. `to` holds nothing and has the same offset within its leaves. Each range is
    /// in one region; they have the same length and do not overlap. The driver moves the mapped pages, and nothing is
    /// in flight at that time. When `from` is all of a region and `to` begins one, the region of `to` is the successor
    /// and takes over the orders; only then may `from` inherit from a base.
    Remap {
        /// The source; it reads as zeros afterwards.
        from: PageRange,
        /// The destination.
        to: PageRange,
    },
    /// Change a region's length in place: addresses behind it are taken if they are free, or given back if nothing is
    /// there. The reply is [`Reply::Region`].
    Resize {
        /// The region.
        region: RegionId,
        /// Its new length.
        pages: PageCount,
    },
    /// A region is about to be dropped: it no longer inherits anything, and a fault there is refused. The reply is
    /// [`Reply::Detached`].
    Detach {
        /// The region.
        region: RegionId,
    },
    /// Hand the contents of `base` over to its only heir, from a page on. When everything is handed over, the reply is
    /// [`Reply::Detached`]: the base is empty and has no heir. [`Reply::Reclaim`] means that the frame pool has no
    /// place for the pages mapped there.
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
        /// An upper bound for the order of the folio that is brought in. The region's own order is another bound,
        /// except for contents that a remap has brought there: they keep their size.
        max_order: Order,
        /// The pages around `page` that the program may use, as far as the caller knows. No page outside comes along,
        /// as it would take memory from pages that can be used. It is [`PageRange::ALL`] if everything may be used.
        within: PageRange,
    },
    /// The pages of `at`, a block of which nothing is known, are mapped already: they are a resident folio from now on.
    /// See `ops/adopt.rs`.
    Adopt {
        /// The block: 2^n pages at a multiple of as many, and no more than the region's order allows.
        at: PageRange,
    },
    /// The command that was given for `folio` has been carried out, or has failed.
    Completed {
        /// The folio that the command named.
        folio: FolioId,
        /// The outcome.
        outcome: Outcome,
    },
    /// [`Command::TakeOutLeaf`](crate::Command::TakeOutLeaf) has been carried out, or could not be: then everything is
    /// mapped as before. [`Reply::More`] asks for the same event again.
    LeafTakenOut {
        /// The leaf that the command named.
        at: PageRange,
        /// Whether its pages are in the block.
        taken: bool,
    },
    /// Whether a leaf of small folios may leave by its table from now on; see `ops/leaf_out.rs`. At first no leaf may.
    TakeLeaves {
        /// Whether leaves may leave by their tables.
        on: bool,
    },
    /// The place of a frame that [`Command::FreeFrame`](crate::Command::FreeFrame) named is now a hole.
    FrameFreed {
        /// The frame.
        frame: Frame,
    },
    /// The store has forgotten a slot that [`Command::Release`](crate::Command::Release) named.
    SlotReleased {
        /// The slot.
        slot: SlotId,
    },
    /// Make `pages` pages available: the core answers with the next batch of work towards that. The reply is
    /// [`Reply::Done`]; if it comes without commands, nothing can be reclaimed now.
    Reclaim {
        /// How many pages to free at most by this batch.
        pages: PageCount,
        /// The kind of thread that asks.
        by: Reclaimer,
    },
    /// [`Event::Reclaim`] for the memory of one group and those below it, so that the group has room below its max.
    ReclaimGroup {
        /// The group.
        group: GroupId,
        /// How many pages to free at most by this batch.
        pages: PageCount,
        /// The kind of thread that asks.
        by: Reclaimer,
    },
    /// Forget the contents of `range`: the range reads as zeros afterwards, or as its file holds it
    /// (`MADV_DONTNEED`).
    Discard {
        /// What to forget.
        range: PageRange,
    },
    /// The contents of `range` are no longer needed, but its memory need not come back until it is needed elsewhere
    /// (`MADV_FREE`). Each page reads as it did, or as zeros; a page that has read as zeros always does. A write keeps
    /// the page. See `ops/lazy_free.rs`.
    LazyFree {
        /// What may be forgotten.
        range: PageRange,
        /// How it is freed.
        mode: FreeMode,
    },
    /// Drop lazily freed memory, oldest first, while there is more than the configured cap: the core answers with the
    /// next batch. No commands mean that there is no more, or that it is on its way.
    TrimLazyFree,
    /// Give the lazily freed pages of `range` that were not used again back to the kernel. The caller waits for pages
    /// that are being inspected.
    GiveFreedBack {
        /// The range.
        range: PageRange,
    },
    /// Inspect the next batch of lazily freed folios that are mapped, oldest first, and remove the mark of those that
    /// were written to. The reply is [`Reply::Seen`].
    RecountLazyFree {
        /// How many pages at most.
        left: PageCount,
    },
    /// Drop the pages of `range` that can be dropped without waiting, and keep their frames for the next faults. For
    /// memory whose owner has agreed that it may be dropped at any time.
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
    /// The measured cost of a major fault has changed: see [`Config::refault_cost`](crate::Config::refault_cost).
    SetRefaultCost {
        /// The cost, in sixteenths of what a rescue from limbo costs. More than
        /// [`REFAULT_COST_MOST`](crate::limits::REFAULT_COST_MOST) counts as that.
        sixteenths: u32,
    },
    /// The cost of a major fault of a file's page, which is read from its file, has changed. See
    /// [`Config::file_cost`](crate::Config::file_cost).
    SetFileCost {
        /// The cost, in sixteenths of what a rescue from limbo costs. More than
        /// [`REFAULT_COST_MOST`](crate::limits::REFAULT_COST_MOST) counts as that.
        sixteenths: u32,
    },
    /// Whether pages that come back from the store keep their copies there, so that they can leave again without being
    /// written. At first they do. If copies take RAM that the frames could have, the driver knows which is more
    /// expensive.
    KeepCopies {
        /// Whether they keep them from now on.
        keep: bool,
    },
    /// Some time (100 ms) has passed: frames beyond the demand should go back to the kernel
    /// ([`Core::gather_spare`](crate::Core::gather_spare)).
    Tick,
    /// Let the store be tried again after it was full or failing.
    RetryStore,
}

/// The outcome of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The folio is mapped. With `frame_kept` its contents were copied, and the pool's frame (if the command named
    /// one) still holds pages of its own; otherwise the frame was moved and its place is a hole.
    Installed {
        /// Whether the pool's frame is still populated.
        frame_kept: bool,
    },
    /// The range crosses mappings of different protection and cannot be installed as one folio: ask again page by page.
    /// If the frame was populated, it still is.
    InstallSplit {
        /// Whether the pool's frame is populated now.
        frame_kept: bool,
    },
    /// The mapping is gone (the program unmapped or replaced it): the fault is void. Contents stay where they were.
    InstallGone {
        /// Whether the pool's frame is populated now.
        frame_kept: bool,
    },
    /// The store, or the file, could not return the folio. Nothing was installed.
    LoadFailed {
        /// Whether the pool's frame is populated now.
        frame_kept: bool,
    },
    /// The folio's contents are in the pool's frame and no longer mapped.
    TakenOut,
    /// The folio's contents are in the pool's frame and no longer mapped, and they are zeros.
    TakenOutBlank,
    /// The mapped pages are zeros now.
    Zeroed,
    /// Every byte of the mapped pages is zero.
    Blank,
    /// Some byte of the mapped pages is not zero.
    Written,
    /// The kernel holds the page (direct I/O, a get_user_pages pin): the page stays mapped, and a later try may
    /// succeed.
    TakeOutBusy,
    /// The mapping does not let the folio move as a whole (read-only, locked, split by protection).
    TakeOutImmovable,
    /// The store holds the folio's bytes in the slot that the command named; or the file holds them where they
    /// belong.
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
    /// A thread that touches the range gets the error that its contents are lost.
    Poisoned,
}

/// The core's reply to an event, in addition to the commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The event is done, or will be once the commands are carried out.
    Done,
    /// Carry out the commands and send the event again for the rest of its range: everything before `from` is done, or
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
    /// The folio at this page, from which the requested folio would be copied, is in flight: wait here until something
    /// completes and ask again. A thread that sleeps at the faulting page would not be woken.
    WaitForBase {
        /// The page to wait for.
        page: PageIndex,
    },
    /// The page must be resident for this event: resolve a fault there and ask again.
    NeedsResident {
        /// The page.
        page: PageIndex,
    },
    /// The page is already mapped: wake the waiting threads.
    Present,
    /// The memory for a large folio is available, but in pieces: give this many spare pages back
    /// ([`Core::gather_scattered`](crate::Core::gather_scattered)) and ask again, or ask for a smaller folio.
    Scattered {
        /// How many pages are missing in one piece.
        pages: PageCount,
    },
    /// There is no memory: reclaim at least this much and ask again.
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
    /// This many pages were inspected.
    Seen {
        /// How many pages.
        pages: PageCount,
    },
    /// A base has lost an heir. If it has none left, it must be dropped; if it has one left, it can be merged into that
    /// heir.
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
    /// The event is not possible; nothing changed.
    Refused(Refusal),
}

impl Reply {
    /// The reply if this many pages are missing: in the budget, or below a group's max.
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
    /// The region is unknown, or was dropped.
    UnknownRegion,
    /// The region's pages are a file's: the event is for anonymous memory.
    FileBacked,
    /// The region still holds pages: discard them first.
    RegionInUse,
    /// There are unanswered commands.
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
    /// A page's pin count is at its maximum.
    PinOverflow {
        /// The page.
        page: PageIndex,
    },
    /// The store lost the page's contents earlier (a failed or damaged load); discard it to use it again.
    Poisoned {
        /// The page.
        page: PageIndex,
    },
    /// The group is unknown, was removed, or is the root, whose limits are the budget's.
    UnknownGroup,
    /// The group has others below it, or is the root.
    GroupInUse,
    /// max(min, low) ≤ high ≤ max does not hold, or max is too small.
    BadLimits,
    /// The group would lie below too many others.
    TooDeep,
    /// The maximum number of groups exists already.
    TooManyGroups,
    /// A bound in `limits.rs` is reached: folio records, slots or leaf tables.
    OutOfRecords,
}

/// A part of a slot, or all of it: 2^`order` pages starting `first` pages into the slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotPart {
    /// The slot.
    pub slot: SlotId,
    /// The first page of the part, counted from the slot's start.
    pub first: u16,
    /// The length of the part, as an order.
    pub order: Order,
}
