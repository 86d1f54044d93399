//! Millpond's side: a region under a manager in this process. The faulting thread resolves faults, or a handler
//! thread does as under `millpond run`. [`backing`](crate::backing) explains which memory counts for the store.

use crate::backing::Backing;
use crate::error::Failure;
use crate::order::BenchOrder;
use crate::phases::{self, BroughtIn, Counted, Manner, Phases, Work};
use millpond::{Delivery, Manager, ManagerBuilder, Stats};
use serde::{Deserialize, Serialize};

/// The thread that serves faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ServedBy {
    /// The faulting thread
    InThread,
    /// One of Millpond's threads, as under `millpond run`
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

/// The settings of a manager with a budget of `ram` bytes, and a store in compressed RAM outside that budget.
pub fn settings(ram: u64) -> ManagerBuilder {
    settings_at(&Backing::default(), ram)
}

fn settings_at(backing: &Backing, ram: u64) -> ManagerBuilder {
    Manager::builder()
        .order(millpond::Order::new(4).unwrap())
        .ram(ram)
        .store(backing.store())
        .encrypt(backing.encrypts())
        .delivery(Delivery::InThread)
        .store_outside_budget(backing.medium.is_outside_budget())
}

/// The settings with which Millpond does the work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct How {
    /// The order of the folios.
    pub order: BenchOrder,
    /// The thread that serves the faults.
    pub delivery: ServedBy,
    /// The place for memory that does not fit into the budget.
    pub backing: Backing,
}

impl How {
    /// Settings with folios of `order`, faults served in-thread, and a store in compressed RAM.
    #[must_use]
    pub fn by(order: BenchOrder) -> Self {
        Self {
            order,
            delivery: ServedBy::InThread,
            backing: Backing::default(),
        }
    }
}

/// Does the job of the measured process.
///
/// # Errors
/// When the manager cannot be built, or the region cannot be created.
pub fn work(how: &How, work: &Work, manner: Manner) -> Result<Phases, Failure> {
    let settings = settings_at(&how.backing, work.ram).delivery(how.delivery.into());
    let manager = settings.build()?;
    let mut region = manager.region_with(work.len()?, how.order.0)?;
    let counted = || counted(&manager.stats());
    let mut phases = phases::run(region.as_mut_slice(), work, manner, counted);
    phases.peak_charged_bytes = Some(manager.stats().peak_bytes);
    Ok(phases)
}

/// The counts so far. Only one thread faults, so no thread waits. A fault that reclaims brings something in, because
/// a folio in limbo needs no memory.
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
