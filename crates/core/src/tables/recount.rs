//! The position of the checks of lazily freed memory (`ops/lazy_free.rs`).

use crate::ids::VecId;

/// Where checks of lazily freed memory continue: the lruvec, and how much of it was not checked in this round.
#[derive(Debug, Default)]
pub(crate) struct Recount {
    pub(crate) at: VecId,
    pub(crate) left: u32,
}
