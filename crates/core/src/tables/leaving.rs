//! The leaves that leave by their page tables, and the progress of each (`ops/leaf_out.rs`).

use crate::addr::{Frame, Order, PageIndex};
use crate::ids::{ListName, VecId};
use crate::leaf_pages::LeafPages;
use crate::limits::{LEAF_OUT_SPLITS, LEAVING_LEAVES};
use crate::tables::folio::Folio;
use arrayvec::ArrayVec;

/// Number of leaves that had to stay and are remembered, so that they are not examined again.
pub(crate) const REFUSED: usize = 8;

/// The state of leaves that leave by their tables.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    /// Whether any leaf may leave by its table.
    pub(crate) allowed: bool,
    pub(crate) leaves: ArrayVec<LeavingLeaf, LEAVING_LEAVES>,
    /// Leaves that had to stay: a ring. `refusals` counts all leaves ever entered.
    pub(crate) refused: [u32; REFUSED],
    pub(crate) refusals: usize,
    /// Take-outs that have failed since the last success.
    pub(crate) failures: u32,
}

impl Leaving {
    pub(crate) fn refuse(&mut self, leaf: PageIndex) {
        self.refused[self.refusals % REFUSED] = leaf.leaf();
        self.refusals += 1;
    }

    pub(crate) fn is_refused(&self, leaf: PageIndex) -> bool {
        let known = self.refusals.min(REFUSED);
        self.refused[..known].contains(&leaf.leaf())
    }

    /// Whether faults at `page` wait for a leaving leaf.
    pub(crate) fn holds_up(&self, page: PageIndex) -> bool {
        self.leaves.iter().any(|leaf| leaf.holds_up(page))
    }

    /// Whether a leaving leaf holds up other work in it.
    pub(crate) fn is_busy(&self) -> bool {
        self.leaves.iter().any(LeavingLeaf::has_begun)
    }
}

/// A leaf that leaves, or may.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeavingLeaf {
    pub(crate) start: PageIndex,
    /// The lruvec of the leaf's folios.
    pub(crate) vec: VecId,
    /// Whether its folios may be split. They may not if the program has set their size.
    pub(crate) splits: bool,
    /// The first place of the leaf's block, from `Begins` on.
    pub(crate) frame: Frame,
    pub(crate) pages: LeafPages,
    /// The pages whose folios have not been told the result.
    pub(crate) left: LeafPages,
    /// Whether a fault waits for the leaf.
    pub(crate) waited_for: bool,
    /// Whether a stream needs the whole leaf, due or not ([`evict_leaf`](crate::ops::evict_leaf)).
    pub(crate) for_stream: bool,
    pub(crate) stage: Stage,
}

impl LeavingLeaf {
    /// Whether work at `page` waits for this leaf.
    pub(crate) fn holds_up(&self, page: PageIndex) -> bool {
        self.start.leaf() == page.leaf() && self.has_begun()
    }

    /// The frame for the page at this index of the leaf.
    pub(crate) fn frame(&self, index: u32) -> Frame {
        Frame::new(Order::ZERO, self.frame.index() + index)
    }

    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.stage, Stage::IsLookedAt(..) | Stage::Saves(_))
    }

    /// Whether the leaf continues only once the driver reports the result of its command.
    pub(crate) fn is_the_drivers(&self) -> bool {
        matches!(self.stage, Stage::Out | Stage::Answered)
    }

    /// Whether a resident folio may leave with this leaf.
    pub(crate) fn takes(&self, folio: &Folio) -> bool {
        may_leave(folio) && (self.splits || folio.order == Order::ZERO)
    }
}

/// The progress of a leaving leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// The leaf is being examined, from this index on.
    IsLookedAt(u32, Seen),
    /// The mapped folios begin to leave, from this index on.
    Begins(u32),
    /// A folio of the leaf has to stay. The reclaiming threads tell the folios that had begun.
    GoesBack,
    /// The command to take the leaf out was given.
    Out,
    /// The command was answered. Only the thread that gave the answer tells the folios: it repeats the answer until all
    /// folios know, and must find the leaf unchanged.
    Answered,
    /// The leaf has left in favour of a stream, and is being saved to the store from this index on. No fault waits for
    /// it any longer.
    Saves(u32),
}

/// The counts from examining a leaf.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// The age below which a folio is young.
    pub(crate) young_below: u32,
    pub(crate) folios: u32,
    pub(crate) pages: u32,
    pub(crate) active: u32,
    pub(crate) young: u32,
}

/// Whether nothing holds a resident folio, and it may be split. A large folio that the store does not hold is not
/// split.
pub(crate) fn may_leave(folio: &Folio) -> bool {
    let listed = matches!(folio.list, ListName::Active | ListName::Inactive);
    let whole = folio.order > LEAF_OUT_SPLITS && folio.slot().is_none();
    listed
        && folio.pins == 0
        && !folio.immovable
        && !folio.lazy
        && folio.lazy_part.pages == 0
        && !whole
        && folio.order < Order::MAX
}
