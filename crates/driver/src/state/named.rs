//! Regions by their ids and their places.

use millpond_core::{PageRange, RegionId};

/// A region in the core: its id and its pages.
pub type Named = (RegionId, PageRange);

/// Bases from which an heir was detached; see [`Reply::Detached`](millpond_core::Reply::Detached).
pub struct Ended {
    /// A base that no longer has any heirs.
    pub orphan: Option<Named>,
    /// A base that has one heir, with which it can be merged.
    pub single: Option<Named>,
}
