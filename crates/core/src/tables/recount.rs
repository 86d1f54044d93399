//! The position of the looks at lazily freed memory (`ops/lazy_free.rs`).

use crate::ids::VecId;

/// Where looks at lazily freed memory go on: the lruvec, and how much of it was not looked at in this round.
#[derive(Debug, Default)]
pub(crate) struct Recount {
    pub(crate) at: VecId,
    pub(crate) left: u32,
}
