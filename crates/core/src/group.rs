//! Groups: whom memory is charged to. And nodes: where it is.
//!
//! A region belongs to a group and lies on a node; what is brought in for its pages is charged to the one and listed
//! by both. There is one group, the root, until others are made, and one node unless the configuration says more.

/// The number of a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(pub u16);

impl GroupId {
    /// The group that all others lie below.
    pub const ROOT: Self = Self(0);
}

/// The number of a memory node (NUMA).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NodeId(pub u8);
