//! Lists of the tables that hold only shadows, one for each lruvec.

/// A table's place among those of its lruvec that hold only shadows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past {
    /// Number of entries that are only a shadow.
    pub(super) shadows: u16,
    /// The lruvec whose list the table is on, or would be.
    pub(super) owner: u16,
    pub(super) younger: u32,
    pub(super) older: u32,
}

/// A list of tables that hold only shadows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PastList {
    pub(super) youngest: u32,
    pub(super) oldest: u32,
    pub(super) len: u32,
}
