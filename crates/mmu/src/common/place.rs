//! Memory nodes (NUMA): where new pages of the arena and of the pool come from.

use millpond_core::PageRange;

use super::Common;
use crate::error::MmuError;
use crate::sys::mempolicy;

impl Common {
    /// Implements [`Memory::place`](crate::Memory::place). The node is a number from
    /// [`online_nodes`](crate::online_nodes).
    ///
    /// # Errors
    /// The kernel does not know the node, has no nodes at all, or does not allow this (as seccomp profiles of
    /// containers may).
    pub(crate) fn place(&self, range: PageRange, node: u32) -> Result<(), MmuError> {
        let (start, len) = (self.at(range.start), range.len.bytes() as usize);
        mempolicy::prefer(start, len, node).map_err(|errno| MmuError::Place { node, errno })
    }

    /// Implements [`RealMemory::place_pool`](crate::RealMemory::place_pool).
    pub(crate) fn place_pool(&self, part: u8, of: u8, node: u32) -> Result<(), MmuError> {
        for (start, len) in self.pool.parts(part, of) {
            mempolicy::prefer(start, len, node).map_err(|errno| MmuError::Place { node, errno })?;
        }
        Ok(())
    }
}
