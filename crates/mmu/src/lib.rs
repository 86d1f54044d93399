//! Real memory for Millpond: an [`Mmu`](millpond_core::Mmu) built on Linux userfaultfd, and the delivery of its
//! faults.
//!
//! [`RealMemory`] owns two large mappings. The *arena* is the address range that contains all managed memory: a
//! thread that touches an unmapped page there stops until somebody installs the page. The *frame pool* is a second
//! range, where pages are filled and examined out of the program's sight. Pages travel between the two by
//! `UFFDIO_MOVE`, which moves the physical page itself, or by `UFFDIO_COPY`. Huge pages are made in a third, small
//! mapping and moved from there.
//!
//! Where userfaultfd is refused, absent pages are made inaccessible instead, and in-thread delivery still works. So
//! there are two kinds of memory, [`UffdMemory`] and [`ProtectedMemory`]. The choice is made once, when the memory is
//! created.
//!
//! A [`FaultSink`] is told about every fault, either in the faulting thread ([`Delivery::InThread`]) or in one
//! handler thread ([`Delivery::Handler`]). [`fn@capabilities`] reports what this kernel and this user may do.
//!
//! Everything below [`FaultSink::fault`] works without the global allocator, without thread-local storage and without
//! locks, because it may run inside the program's own allocator.

mod affinity;
mod arch;
mod bounce;
pub mod capabilities;
mod common;
mod config;
pub mod delivery;
mod dormant;
mod error;
mod held;
pub mod interrupted;
mod isolate;
mod lease;
mod mask;
mod memory;
mod orphans;
mod overcommit;
pub mod panics;
mod pool;
mod protection;
mod real;
pub mod report;
mod reservation;
mod small_pages;
mod staging;
mod sys;
mod touch;
mod uffd;
mod way_out;
mod zeroed;

pub use affinity::Affinity;
pub use capabilities::{Capabilities, Capability, can_take_over, capabilities, serves_user_mode};
pub use config::{HUGE_WITHIN, MemoryConfig, TakeOutMethod};
pub use delivery::{
    BadDelivery, Delivery, FaultSink, Faulters, Resolution, forget_deliveries_in_child,
    serve_sigbus, serve_sigsegv, sigbus_is_served, sigsegv_is_served,
};
pub use dormant::DormantMemory;
pub use error::MmuError;
pub use held::{Held, look_for_holds, unused_bytes_of_holds};
pub use isolate::{has_own_descriptors, isolate_descriptors};
pub use mask::{BadMask, Mask};
pub use memory::Memory;
pub use overcommit::is_counted_strictly;
pub use protection::{ProtectedMemory, shares_memory};
pub use real::RealMemory;
pub use small_pages::decline_huge_pages;
pub use staging::processor_time;
pub use sys::gate;
pub use sys::mempolicy::online_nodes;
pub use sys::pagemap::present_bytes;
pub use touch::{give_up, read, touch, write};
pub use uffd::UffdMemory;
