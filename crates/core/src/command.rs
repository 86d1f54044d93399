//! Commands: everything that the core can ask for. They are its only output.
//!
//! Commands are carried out with no core lock held, in any order and on any thread. Each command that names a folio is
//! answered by one [`Event::Completed`](crate::Event::Completed) with that folio. Each of the others describes its own
//! answer.

use crate::addr::{Frame, PageIndex, PageRange};
use crate::event::SlotPart;
use crate::gather::{Gather, Gathered};
use crate::ids::{FolioId, SlotId};
use crate::leaf_pages::LeafPages;
use crate::limits::{MAX_COMMANDS, MAX_PARTS};
use crate::tables::fold::FoldPart;
use arrayvec::ArrayVec;

/// Work for the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Map zeros at `at` (as many pages as the folio has). `frame` is a populated frame to zero and use; without one
    /// the kernel gives new pages. Answer: `Installed`, `InstallSplit`, `InstallGone`.
    Zero {
        /// The folio.
        folio: FolioId,
        /// Where.
        at: PageRange,
        /// A populated frame of the same order, if the pool has one to spare.
        frame: Option<Frame>,
    },
    /// Load `part` into `frame`, then map it at `at`. Once it is mapped, `part` is no longer needed if the command
    /// `forgets` it: the store is told so before the answer. Answer: `Installed`, `InstallSplit`, `InstallGone`,
    /// `LoadFailed`.
    Load {
        /// The folio.
        folio: FolioId,
        /// Where from.
        part: SlotPart,
        /// Where.
        at: PageRange,
        /// The frame to load into.
        frame: Frame,
        /// Whether the frame is a hole that must be given pages first.
        fresh: bool,
        /// Whether this folio is the only one that refers to `part`, which is not all of its slot, and should become
        /// the only copy of it.
        forgets: bool,
    },
    /// A [`Command::Load`] of a folio that is spread over several slots, which [`Commands::parts`] lists. The answer
    /// for a part that cannot be read is that for a range that cannot be mapped in one piece. Answer: `Installed`,
    /// `InstallSplit`, `InstallGone`.
    Fold {
        /// The folio.
        folio: FolioId,
        /// Its parts.
        parts: PartsOf,
        /// Where.
        at: PageRange,
        /// The frame to load into.
        frame: Frame,
        /// Whether the frame is a hole that must be given pages first.
        fresh: bool,
    },
    /// Map a copy of `from` at `at`. `frame` is a populated frame to use; without one the kernel gives new pages. The
    /// bytes at `from` do not change during the copy. Answer: `Installed`, `InstallSplit`, `InstallGone`.
    Copy {
        /// The folio.
        folio: FolioId,
        /// Where.
        at: PageRange,
        /// The bytes to copy: as many pages as the folio has, or more.
        from: CopyFrom,
        /// A populated frame of the same order, if the pool has one to spare.
        frame: Option<Frame>,
    },
    /// Map the contents of `frame` at `at`. Answer: `Installed`, `InstallSplit`, `InstallGone`.
    Rescue {
        /// The folio.
        folio: FolioId,
        /// Where.
        at: PageRange,
        /// The frame that holds the contents.
        frame: Frame,
    },
    /// Unmap `at` and put its contents into the hole `frame`.
    /// Answer: `TakenOut`, `TakeOutBusy`, `TakeOutImmovable`.
    TakeOut {
        /// The folio.
        folio: FolioId,
        /// Where from.
        at: PageRange,
        /// A hole of the same order.
        frame: Frame,
    },
    /// [`Command::TakeOut`] of all mapped pages of a leaf, by its table: [`Commands::leaf_pages`] lists them. Each page
    /// goes to the place in the block that corresponds to its place in the leaf. There is at most one such command in a
    /// list. Answer: [`Event::LeafTakenOut`](crate::Event::LeafTakenOut).
    TakeOutLeaf {
        /// The leaf.
        at: PageRange,
        /// The first place of a block of holes of order 0.
        frame: Frame,
    },
    /// Zero the mapped pages of `part` in place. Nothing else is in progress there, and they stay mapped. Answer:
    /// `Zeroed`.
    ZeroInPlace {
        /// The folio.
        folio: FolioId,
        /// Where it is.
        at: PageRange,
        /// The part of `at` to zero, or all of it.
        part: PageRange,
    },
    /// Check whether every byte of the mapped pages of `part` is zero. Answer: `Blank`, `Written`.
    Look {
        /// The folio.
        folio: FolioId,
        /// Where it is.
        at: PageRange,
        /// The part of `at` to check, or all of it.
        part: PageRange,
    },
    /// [`Command::TakeOut`] of pages that are presumed to be zeros. If a quick check shows that they are not, they stay
    /// mapped. Otherwise they are captured and then checked in full. Answer: `Written` (still mapped), `TakenOutBlank`,
    /// `TakenOut`, `TakeOutBusy`, `TakeOutImmovable`.
    TakeOutIfBlank {
        /// The folio.
        folio: FolioId,
        /// Where from.
        at: PageRange,
        /// A hole of the same order.
        frame: Frame,
    },
    /// Write the contents of `frame` to the store as `slot`. The write is not needed when the contents are zeros, or
    /// still those that `previous` holds. When they are neither and were written, or are zeros, `previous` is no longer
    /// needed if the command `forgets` it: the store is told so before the answer. Answer: `Stored`, `Unchanged`,
    /// `AllZero`, `StoreFull`, `StoreFailed`.
    Save {
        /// The folio.
        folio: FolioId,
        /// The frame that holds it.
        frame: Frame,
        /// The name for the written bytes.
        slot: SlotId,
        /// The slot part from which the folio was loaded, if that is still valid.
        previous: Option<SlotPart>,
        /// Whether this folio is the only one that refers to `previous`, which is not all of its slot.
        forgets: bool,
        /// The pages of a file from which the folio was read. If the folio still equals them, it is `Unchanged`.
        read_from: Option<PageRange>,
    },
    /// Fill a frame with the file's contents for `at`, and map it there. Answer: `Installed`, `InstallSplit`,
    /// `InstallGone`, `LoadFailed`.
    Read {
        /// The folio.
        folio: FolioId,
        /// Where to map it. The file's pages are the region's, in the same order.
        at: PageRange,
        /// The frame to read into.
        frame: Frame,
        /// Whether the frame is a hole that must be given pages first.
        fresh: bool,
    },
    /// Write the contents of `frame` to the file, at the place of `at` in it. The write is not needed when the file
    /// holds these contents already. Answer: `Stored`, `Unchanged`, `StoreFailed`.
    WriteBack {
        /// The folio.
        folio: FolioId,
        /// Where it belongs.
        at: PageRange,
        /// The frame that holds it.
        frame: Frame,
    },
    /// Drop the pages (or the poison) at `at`. Answer: `Zapped`.
    Zap {
        /// The folio.
        folio: FolioId,
        /// The range.
        at: PageRange,
    },
    /// Give the pages of a populated frame back to the kernel: its place becomes a hole. This must be carried out
    /// before the following commands of the same list, which may need the room. Answer:
    /// [`Event::FrameFreed`](crate::Event::FrameFreed).
    FreeFrame {
        /// The frame.
        frame: Frame,
    },
    /// The store may forget this slot. Its number is not used for anything else until the answer. Answer:
    /// [`Event::SlotReleased`](crate::Event::SlotReleased).
    Release {
        /// The slot.
        slot: SlotId,
    },
    /// Something completed here: threads that wait for these pages try again. There is no answer.
    Wake {
        /// The pages.
        at: PageRange,
    },
    /// The contents of `at` are lost: a thread that touches `at` must get an error. Answer: `Poisoned`.
    Poison {
        /// The folio.
        folio: FolioId,
        /// The pages.
        at: PageRange,
    },
}

/// Where a copy's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyFrom {
    /// The bytes are mapped, from this page on.
    Mapped(PageIndex),
    /// The bytes are in a frame, from this page of it on.
    Frame {
        /// The frame.
        frame: Frame,
        /// The first page, counted from the frame's start.
        first: u16,
    },
}

/// Identifies the parts of a list that belong to a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartsOf {
    first: u8,
    len: u8,
}

/// A bounded list of commands, filled by one [`Core::handle`](crate::Core::handle), with the batch in which a discard
/// gathers the memory to give back. A new list costs nothing: its unused room is not written.
#[derive(Debug)]
pub struct Commands {
    list: ArrayVec<Command, MAX_COMMANDS>,
    parts: ArrayVec<FoldPart, MAX_PARTS>,
    leaf: LeafPages,
    batch: Gather,
}

/// Collects the slots that are no longer needed.
pub(crate) trait Releases {
    fn release(&mut self, slot: SlotId);
}

impl Releases for Commands {
    fn release(&mut self, slot: SlotId) {
        self.push(Command::Release { slot });
    }
}

impl Releases for Gather {
    fn release(&mut self, slot: SlotId) {
        self.push(Gathered::Slot(slot));
    }
}

impl Commands {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            list: ArrayVec::new_const(),
            parts: ArrayVec::new_const(),
            leaf: LeafPages::NONE,
            batch: Gather::new(),
        }
    }

    /// The batch of memory and slots to give back. After that, and before the next discard, the caller calls
    /// [`Core::gathered`](crate::Core::gathered) and clears the batch. A batch with more room may replace it.
    pub fn batch(&mut self) -> &mut Gather {
        &mut self.batch
    }

    /// How many more commands fit.
    #[must_use]
    pub fn room(&self) -> usize {
        self.list.remaining_capacity()
    }

    /// How many commands there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are no commands. The batch does not count here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Forgets all commands and their parts, but not the batch.
    pub fn clear(&mut self) {
        self.list.clear();
        self.parts.clear();
        self.leaf = LeafPages::NONE;
    }

    /// The commands, in the order given.
    pub fn iter(&self) -> impl Iterator<Item = Command> + '_ {
        self.list.iter().copied()
    }

    /// The parts of a [`Command::Fold`] of this list.
    #[must_use]
    pub fn parts(&self, of: PartsOf) -> &[FoldPart] {
        &self.parts[usize::from(of.first)..][..usize::from(of.len)]
    }

    /// The pages of this list's [`Command::TakeOutLeaf`]; none if it has no such command.
    #[must_use]
    pub fn leaf_pages(&self) -> &LeafPages {
        &self.leaf
    }

    pub(crate) fn push_leaf(&mut self, at: PageRange, frame: Frame, pages: LeafPages) {
        debug_assert!(self.leaf.is_empty(), "a list has one leaf");
        self.leaf = pages;
        self.push(Command::TakeOutLeaf { at, frame });
    }

    /// How many more parts fit.
    pub(crate) fn room_for_parts(&self) -> usize {
        self.parts.remaining_capacity()
    }

    pub(crate) fn push_parts(&mut self, parts: &[FoldPart]) -> PartsOf {
        let first = self.parts.len();
        self.parts
            .try_extend_from_slice(parts)
            .expect("whoever folds has asked for the room");
        PartsOf {
            first: first as u8,
            len: parts.len() as u8,
        }
    }

    pub(crate) fn push(&mut self, command: Command) {
        assert!(
            !self.list.is_full(),
            "an event gave more than {MAX_COMMANDS} commands"
        );
        self.list.push(command);
    }
}

impl Default for Commands {
    fn default() -> Self {
        Self::new()
    }
}
