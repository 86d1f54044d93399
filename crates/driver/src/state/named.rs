//! Regions by their names and where they are.

use millpond_core::{PageRange, RegionId};

/// A region in the core.
pub type Named = (RegionId, PageRange);

/// Bases that somebody has left; see [`Reply::Detached`](millpond_core::Reply::Detached).
pub struct Ended {
    /// It has no heir any more.
    pub orphan: Option<Named>,
    /// It has one heir, with which it can be merged.
    pub single: Option<Named>,
}
