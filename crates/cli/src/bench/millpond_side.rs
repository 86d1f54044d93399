//! Millpond's side: a region under a manager in this process, faults resolved by the faulting thread.
//!
//! The store's RAM is outside the budget, because zram's is outside the cgroup on the kernel's side: both sides may hold as
//! many uncompressed bytes as the budget says.

use super::data::PAGE;
use super::phases::{self, Phases, Work};
use millpond::{Delivery, Manager, OrderPolicy, StoreKind};
use std::error::Error;

/// The measured process.
///
/// # Errors
/// When the manager cannot be built or the region not made, as the message says.
pub fn work(order: OrderPolicy, work: &Work) -> Result<Phases, Box<dyn Error + Send + Sync>> {
    let manager = Manager::builder()
        .ram(work.ram)
        .store(StoreKind::compressed_ram())
        .delivery(Delivery::InThread)
        .store_outside_budget(true)
        .build()?;
    let length = usize::try_from(work.pages)?
        .checked_mul(PAGE)
        .ok_or("the region is too large")?;
    let mut region = manager.region_with(length, order)?;
    let mut phases = phases::run(region.as_mut_slice(), work, || {
        manager.stats().vm.pgmajfault
    });
    phases.peak_charged_bytes = Some(manager.stats().peak_bytes);
    Ok(phases)
}
