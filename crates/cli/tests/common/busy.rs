//! A manager in this process for other processes to look at.

use millpond::{Manager, Region, StoreKind};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub const MIB: usize = 1 << 20;

static ONE_TEST: Mutex<()> = Mutex::new(());

/// Keeps other tests of this process from having a manager at the same time: all of them share a board. (The budgets of
/// two tests used to be added up there.)
pub fn alone() -> MutexGuard<'static, ()> {
    ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A manager that publishes, with twice its budget filled and read back several times.
pub fn busy(name: &str) -> Option<(Manager, Region)> {
    let builder = Manager::builder()
        .store(millpond::StoreKind::compressed_ram())
        .order(millpond::Order::new(4).unwrap())
        .ram(16 << 20)
        .publish(name);
    let manager = match builder.store(StoreKind::compressed_ram()).build() {
        Ok(manager) => manager,
        Err(error) => {
            println!("skipped: {error}");
            return None;
        }
    };
    let mut region = manager.region(32 * MIB).unwrap();
    region.as_mut_slice().fill(7);
    for _ in 0..8 {
        assert!(region.as_slice().iter().all(|&byte| byte == 7));
    }
    Some((manager, region))
}
