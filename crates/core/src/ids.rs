//! The names of everything that has one, and what kinds of it there are: plain numbers without behaviour, so that no
//! table needs another for the name of what that holds.

/// The number of a folio record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FolioId(pub u32);

/// Which list a folio is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ListName {
    None,
    Active,
    Inactive,
    /// In limbo, from the inactive list.
    Limbo,
    Unevictable,
    LazyFree,
    /// In limbo, from the active list.
    LimboActive,
}

impl ListName {
    /// In the order of their numbers.
    pub(crate) const ALL: [Self; 7] = [
        Self::None,
        Self::Active,
        Self::Inactive,
        Self::Limbo,
        Self::Unevictable,
        Self::LazyFree,
        Self::LimboActive,
    ];
}

/// The name of a region. A name is not given to another region while 4,096 later ones use its place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegionId(pub u32);

/// What the pages of a region are while they are not in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// Zeros, or a slot's of the store.
    #[default]
    Anonymous,
    /// A file's: each page has its place there. It is read when it is touched, and written back there when it is not
    /// what the file holds; it never has a slot. What is discarded was not written back, and reads as the file holds
    /// it.
    File,
    /// The same, mapped straight from the memory that holds the file (DAX-like): there is nothing to read, so what
    /// leaves is not remembered and costs nothing when it comes back.
    Direct,
}

/// The number of a swap slot: the name under which the store keeps a folio's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlotId(pub u32);

/// The number of a group. Numbers are used again, the longest unused first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct GroupId(pub u16);

impl GroupId {
    /// The group that all others lie below.
    pub const ROOT: Self = Self(0);
}

/// The number of a memory node (NUMA).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NodeId(pub u8);

/// The number of a lruvec.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct VecId(pub(crate) u32);

/// Kinds that have lists of their own: what is not in memory is in the store, or in a file.
pub(crate) const KINDS: usize = 2;

/// Anonymous pages.
pub(crate) const ANON: usize = 0;

/// Pages of files.
pub(crate) const FILE: usize = 1;

/// Which list gives the next victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// The one whose oldest folio is older.
    Recency,
    /// The inactive one.
    Reuse,
}

/// The number of a fold under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FoldId(pub(crate) u8);

/// Where an entry is: table number less one times 512, and the index in it. It moves with its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place(pub(crate) u32);

impl Place {
    /// The number of the place: no other entry has it at the same time.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// The place `pages` further on, in the same table.
    pub(crate) fn plus(self, pages: u32) -> Self {
        Self(self.0 + pages)
    }
}
