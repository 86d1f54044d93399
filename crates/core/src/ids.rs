//! The names of all things in the core, and their kinds. Names are plain numbers without behaviour, so that no table
//! needs another table just to name its items.

/// The number of a folio record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FolioId(pub u32);

/// The list that a folio is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ListName {
    None,
    Active,
    Inactive,
    /// The folio is in limbo, and came from the inactive list.
    Limbo,
    Unevictable,
    LazyFree,
    /// The folio is in limbo, and came from the active list.
    LimboActive,
}

impl ListName {
    /// All lists, in the order of their numbers.
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

/// The name of a region. A name is not reused until 4,096 later regions have used the same place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegionId(pub u32);

/// Where the pages of a region are while they are not in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// The pages are zeros, or in a slot of the store.
    #[default]
    Anonymous,
    /// The pages are a file's, and each has its place there. A page is read from the file when it is touched, and
    /// written back there when it differs from the file; it never has a slot. A discarded page is not written back,
    /// and reads as the file holds it.
    File,
    /// The pages are a file's until they are written to, and anonymous from then on: the file is only read. A page that
    /// leaves as it was read is read from the file again; any other is zeros or in a slot. A discarded page reads as
    /// the file holds it.
    Private,
    /// The pages are a file's, mapped straight from the memory that holds the file (DAX-like): there is nothing to
    /// read, so pages that leave are not remembered and cost nothing when they come back.
    Direct,
}

/// The number of a swap slot: the name under which the store keeps a folio's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlotId(pub u32);

/// The number of a group. Numbers are reused, the longest unused first.
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

/// Number of kinds that have lists of their own: a page that is not in memory is in the store, or in a file.
pub(crate) const KINDS: usize = 2;

/// The kind of anonymous pages.
pub(crate) const ANON: usize = 0;

/// The kind of files' pages.
pub(crate) const FILE: usize = 1;

/// The rule that determines which list gives the next victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// The list whose oldest folio is older gives the victim.
    Recency,
    /// The inactive list gives the victim.
    Reuse,
}

/// The number of a fold in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FoldId(pub(crate) u8);

/// The name of an entry: its table's number less one times 512, plus the index in the table. It moves with its
/// table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryId(pub(crate) u32);

impl EntryId {
    /// The number of the entry: no other entry has it at the same time.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// The entry `pages` entries further on, in the same table.
    pub(crate) fn plus(self, pages: u32) -> Self {
        Self(self.0 + pages)
    }
}
