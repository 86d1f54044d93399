//! A block that arrives while RAM is short is compressed by zstd immediately.
//!
//! If there is no store after compressed RAM, refused data stays in memory and takes four times the room there, so
//! twenty microseconds per page are well spent. One thread at a time does that: its tools are made when they are first
//! needed, and the block of another thread that arrives at the same time is refused.

use crate::paged::encode_densely;
use crate::zstd::Packer;
use millpond_sync::{Rank, Ranked};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The tools.
pub(super) struct Packing {
    packer: Ranked<Option<Packer>>,
    ram: AtomicU64,
}

impl Packing {
    pub(super) fn new() -> Self {
        Self {
            packer: Ranked::new(Rank::Recompression, None),
            ram: AtomicU64::new(0),
        }
    }

    /// RAM that the tools take.
    pub(super) fn ram_bytes(&self) -> u64 {
        self.ram.load(Relaxed)
    }

    /// Compresses the pages of `block` to the start of `out`. Returns how many bytes that took, or `None` if another
    /// thread has the tools, or there is no memory for them.
    pub(super) fn encode(&self, block: &[u8], out: &mut [u8]) -> Option<usize> {
        let mut packer = self.packer.try_lock()?;
        if packer.is_none() {
            *packer = Packer::new().ok();
        }
        let packer = packer.as_mut()?;
        self.ram.store(packer.ram_bytes(), Relaxed);
        Some(encode_densely(block, packer, out))
    }
}
