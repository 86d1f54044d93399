//! Folios (being written).

/// The number of a folio record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FolioId(pub u32);
