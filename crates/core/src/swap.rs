//! Swap slots (being written).

/// The number of a swap slot: the name under which the store keeps a folio's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlotId(pub u32);
