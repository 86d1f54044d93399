//! The leaves that leave by their page tables, and how far each has come (`ops/leaf_out.rs`).

use crate::addr::{Frame, Order, PageIndex};
use crate::ids::{ListName, VecId};
use crate::leaf_pages::LeafPages;
use crate::limits::{LEAF_OUT_SPLITS, LEAVING_LEAVES};
use crate::tables::folio::Folio;
use arrayvec::ArrayVec;

/// So many leaves that had to stay are remembered, and not looked at again.
pub(crate) const REFUSED: usize = 8;

/// What is known of leaves that leave by their tables.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    /// Whether there may be any.
    pub(crate) allowed: bool,
    pub(crate) leaves: ArrayVec<LeavingLeaf, LEAVING_LEAVES>,
    /// Leaves that had to stay, the last one behind `refusals`.
    pub(crate) refused: [u32; REFUSED],
    pub(crate) refusals: usize,
    /// Take-outs that have failed since the last that did not.
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

    /// Whether faults at `page` wait for one of them.
    pub(crate) fn holds_up(&self, page: PageIndex) -> bool {
        self.leaves.iter().any(|leaf| leaf.holds_up(page))
    }

    /// Whether some of them hold up what else is done in their leaves.
    pub(crate) fn is_busy(&self) -> bool {
        self.leaves.iter().any(LeavingLeaf::has_begun)
    }
}

/// A leaf that leaves, or may.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeavingLeaf {
    pub(crate) start: PageIndex,
    /// Whose folios there.
    pub(crate) vec: VecId,
    /// Whether they may be split: not where the program has said how large they are.
    pub(crate) splits: bool,
    /// The first place of its block, from `Begins` on.
    pub(crate) frame: Frame,
    pub(crate) pages: LeafPages,
    /// Those whose folios have not been told how it went.
    pub(crate) left: LeafPages,
    /// A fault waits for it.
    pub(crate) waited_for: bool,
    /// A stream wants it whole, due or not ([`clear_leaf`](crate::ops::clear_leaf)).
    pub(crate) for_stream: bool,
    pub(crate) stage: Stage,
}

impl LeavingLeaf {
    /// Whether what is done at `page` waits for it.
    pub(crate) fn holds_up(&self, page: PageIndex) -> bool {
        self.start.leaf() == page.leaf() && self.has_begun()
    }

    /// The place for the page at this place of the leaf.
    pub(crate) fn frame(&self, place: u32) -> Frame {
        Frame::new(Order::ZERO, self.frame.index() + place)
    }

    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.stage, Stage::IsLookedAt(..) | Stage::Saves(_))
    }

    /// Whether it goes on when the driver says how it went, and no sooner.
    pub(crate) fn is_the_drivers(&self) -> bool {
        matches!(self.stage, Stage::Out | Stage::Answered)
    }

    /// Whether a resident folio may leave with it.
    pub(crate) fn takes(&self, folio: &Folio) -> bool {
        may_leave(folio) && (self.splits || folio.order == Order::ZERO)
    }
}

/// How far it has come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// It is looked at from this place on.
    IsLookedAt(u32, Seen),
    /// What is mapped from this place on begins to leave.
    Begins(u32),
    /// One of them has to stay. Those that had begun are told, by whoever reclaims.
    GoesBack,
    /// The command is out.
    Out,
    /// It has left, or not. Its folios are told, by nobody but who has answered: the answer is given until all know,
    /// and must find the leaf as it was.
    Answered,
    /// It has left in favour of a stream, and goes on to the store from this place on. Nobody waits for it any more.
    Saves(u32),
}

/// What was seen of a leaf.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Age below which a folio is young.
    pub(crate) young_below: u32,
    pub(crate) folios: u32,
    pub(crate) pages: u32,
    pub(crate) active: u32,
    pub(crate) young: u32,
}

/// Whether a resident folio has nothing that keeps it, and may be split: what the store holds as a whole stays one
/// there.
pub(crate) fn may_leave(folio: &Folio) -> bool {
    let listed = matches!(folio.list, ListName::Active | ListName::Inactive);
    let whole = folio.order > LEAF_OUT_SPLITS && folio.slot().is_none();
    listed
        && folio.pins == 0
        && !folio.immovable
        && !folio.lazy
        && folio.freed.pages == 0
        && !whole
        && folio.order < Order::MAX
}
