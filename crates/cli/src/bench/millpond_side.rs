//! Millpond's side: a region under a manager in this process, faults resolved by the faulting thread, or by a handler's as under
//! `millpond run`.
//!
//! The store's RAM is outside the budget, because zram's is outside the cgroup on the kernel's side: both sides may hold as
//! many uncompressed bytes as the budget says.

use super::order::BenchOrder;
use super::phases::{self, BroughtIn, Counted, Phases, Work};
use super::worker::Workers;
use super::{BenchError, Failure};
use millpond::{Delivery, Manager, ManagerBuilder, OrderPolicy, Stats, StoreKind};
use serde::Serialize;

/// Who serves faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ServedBy {
    /// The faulting thread
    InThread,
    /// A handler's thread, as under `millpond run`
    Handler,
}

impl From<ServedBy> for Delivery {
    fn from(by: ServedBy) -> Self {
        match by {
            ServedBy::InThread => Self::InThread,
            ServedBy::Handler => Self::Handler,
        }
    }
}

/// A manager's settings with a budget of `ram` bytes beside its store.
pub fn settings(ram: u64) -> ManagerBuilder {
    Manager::builder()
        .ram(ram)
        .store(StoreKind::compressed_ram())
        .delivery(Delivery::InThread)
        .store_outside_budget(true)
}

/// One measurement in a fresh process.
///
/// # Errors
/// When it fails, or somebody asked for the end.
pub fn measure(
    workers: &Workers,
    order: BenchOrder,
    delivery: ServedBy,
    work: &Work,
) -> Result<Phases, BenchError> {
    let order = order.to_string();
    let mut arguments = ["millpond", "--order", &order].map(str::to_owned).to_vec();
    if delivery == ServedBy::Handler {
        arguments.push("--delivery=handler".to_owned());
    }
    arguments.extend(work.to_arguments());
    workers.measure(&arguments, |_, _| Ok(()))
}

/// The measured process.
///
/// # Errors
/// When the manager cannot be built or the region not made, as the message says.
pub fn work(order: OrderPolicy, delivery: ServedBy, work: &Work) -> Result<Phases, Failure> {
    let manager = settings(work.ram).delivery(delivery.into()).build()?;
    let mut region = manager.region_with(work.len()?, order)?;
    let mut phases = phases::run(region.as_mut_slice(), work, || counted(&manager.stats()));
    phases.peak_charged_bytes = Some(manager.stats().peak_bytes);
    Ok(phases)
}

/// One thread faults, so nobody waits, and a fault that reclaims brings something in: what is in limbo needs no memory.
fn counted(stats: &Stats) -> Counted {
    let (vm, faults) = (stats.vm, stats.faults);
    Counted {
        major_faults: vm.pgmajfault,
        brought_in: Some(BroughtIn {
            faults: faults.first_touch.count + faults.load.count + faults.reclaimed.count,
            pages: vm.pgzero + vm.pswpin,
            rescues: faults.rescue.count,
            rescued_pages: vm.limbo_rescue,
        }),
    }
}
