//! Memory nodes (NUMA): where new pages of the arena and of the pool come from.

use millpond_core::PageRange;

use super::Uffd;
use crate::error::MmuError;
use crate::sys::mempolicy;

impl Uffd {
    /// Takes new pages of `range` from the memory of `node`, a number of [`online_nodes`](crate::online_nodes), as
    /// long as the node has memory to give. Pages that are there stay where they are.
    ///
    /// # Errors
    /// The kernel does not know the node, knows of no nodes at all, or does not allow this (as seccomp profiles of
    /// containers may). New pages then come from where the kernel likes.
    pub fn place(&self, range: PageRange, node: u32) -> Result<(), MmuError> {
        let (start, len) = (self.at(range.start), range.len.bytes() as usize);
        mempolicy::prefer(start, len, node).map_err(|errno| MmuError::Place { node, errno })
    }

    /// Takes new pages of a node's part of the frame pool from that node. The part is number `part` of `of` equal
    /// parts of each order.
    ///
    /// # Errors
    /// The reasons are those of [`place`](Self::place).
    pub fn place_pool(&self, part: u8, of: u8, node: u32) -> Result<(), MmuError> {
        for (start, len) in self.pool.parts(part, of) {
            mempolicy::prefer(start, len, node).map_err(|errno| MmuError::Place { node, errno })?;
        }
        Ok(())
    }
}
