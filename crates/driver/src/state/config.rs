//! What a driver is made of, and how it is to behave.

use crate::publish::Publisher;
use millpond_core::{PageCount, Store};
use millpond_mmu::{Delivery, Uffd};

/// What happens when the store is full or fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFull {
    /// Nothing is lost; the budget is exceeded, and one line says so on standard error.
    #[default]
    Exceed,
    /// The process aborts.
    Abort,
}

/// What a driver is made of, besides the core.
pub struct Parts {
    /// The memory.
    pub mmu: Uffd,
    /// The kernel's number of each memory node; none where memory is not placed.
    pub nodes: Vec<u32>,
    /// Where what does not fit goes.
    pub store: Box<dyn Store>,
    /// Who serves a fault.
    pub delivery: Delivery,
    /// The budget, in bytes.
    pub ram: u64,
    /// What it counts.
    pub charge: Charge,
    /// What happens when the store takes nothing.
    pub on_store_full: OnStoreFull,
    /// When a second thread reclaims.
    pub background: Background,
    /// Most pages that may be lazily freed at once.
    pub lazyfree_max: PageCount,
    /// Called by the reclaim thread every tenth of a second.
    pub on_tick: Option<fn()>,
    /// The slot of the board, if the counters are published.
    pub publisher: Option<Publisher>,
    /// Where each touch is told, if it is.
    pub recording: Option<crate::state::record::Recording>,
}

/// What the budget counts besides the frames.
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
    /// There is none.
    Never,
    /// While large folios come in for large ones that have to be written: a stream that fills.
    Large,
    /// Always, unless a handler thread shares a processor with the only thread that faults, and has a store that works
    /// at once: then while [`Large`](Self::Large) ones come in.
    Apart,
    /// It always does.
    Always,
}
