//! The order of all locks.

/// The order in which locks may be taken, lowest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Rank {
    /// Background work: the reclaim thread holds this lock while it works, and the forking thread across a fork.
    Housekeeping = 1,
    /// The gate: every thread that works on memory enters it; it is closed across a fork.
    Gate = 2,
    /// The core.
    Core = 3,
    /// Figures: the process's size, the children.
    Figures = 4,
}
