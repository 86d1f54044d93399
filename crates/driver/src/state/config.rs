//! The parts and the settings of a driver.

use crate::memory::Memory;
use crate::publish::Publisher;
use crate::state::record::Recording;
use millpond_core::{PageCount, Store};
use millpond_mmu::{Delivery, RealMemory};
pub use millpond_settings::OnStoreFull;

/// The parts that a driver is made of, besides the core.
pub struct Parts<M: Memory = RealMemory> {
    /// The memory that is managed.
    pub mmu: M,
    /// The kernel's number of each memory node. The list is empty if memory is not placed.
    pub nodes: Vec<u32>,
    /// The store, for pages that do not fit.
    pub store: Box<dyn Store>,
    /// The thread that serves a fault.
    pub delivery: Delivery,
    /// The budget, in bytes.
    pub ram: u64,
    /// The kinds of memory that the budget counts.
    pub charge: Charge,
    /// Behaviour when the store accepts nothing.
    pub on_store_full: OnStoreFull,
    /// When a second thread reclaims.
    pub background: Background,
    /// Most pages that may be lazily freed at once.
    pub lazyfree_max: PageCount,
    /// Called by the reclaim thread every tenth of a second.
    pub on_tick: Option<fn()>,
    /// The slot of the board, if the counters are published.
    pub publisher: Option<Publisher>,
    /// Settings of a recording of touches, if there is one.
    pub recording: Option<Recording>,
}

/// The kinds of memory that the budget counts besides the frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Charge {
    /// Frames and the core's tables; the store's RAM is outside.
    Frames,
    /// Frames, tables and the store's RAM.
    FramesAndStore,
    /// All of the process's resident memory, as the kernel counts it.
    Process,
}

/// When a second thread reclaims ahead of need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Background {
    /// No second thread reclaims.
    Never,
    /// A second thread reclaims only while large folios come in and large ones have to be written for them: a filling
    /// stream.
    Large,
    /// A second thread always reclaims, with one exception: if a handler thread shares a processor with the only thread
    /// that faults, and its store works without delay, the second thread reclaims as with [`Large`](Self::Large).
    Apart,
    /// A second thread always reclaims.
    Always,
}
