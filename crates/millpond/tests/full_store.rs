//! A full store: memory exceeds the budget only by the data that fits in neither store nor budget.
//!
//! A program wrote 111 MiB of random numbers round after round, on a file system with room for 99 MiB, and all of them
//! ended up in memory. A page that had been read kept its place in the store, was written to, and found no second place
//! when it had to leave.

mod common;

use common::{MIB, Rng, alone, status};
use millpond::{Manager, Order, OrderPolicy, StoreKind};

const RAM: usize = 24 * MIB;
const STORE: usize = 40 * MIB;
/// Unmanaged memory of the process, as in `default_budget.rs`.
const SLACK: usize = 4 * MIB;

/// Random numbers that no codec makes smaller, chosen by the piece's number and the round.
fn fill(piece: &mut [u8], number: usize, round: u64) {
    let mut rng = Rng((number as u64) << 8 | round);
    for word in piece.chunks_exact_mut(8) {
        word.copy_from_slice(&rng.next().to_le_bytes());
    }
}

fn holds(piece: &[u8], number: usize, round: u64) -> bool {
    let mut rng = Rng((number as u64) << 8 | round);
    let mut words = piece.chunks_exact(8);
    words.all(|word| word == rng.next().to_le_bytes())
}

/// Goes over `data` bytes three times, reading the old numbers and writing new ones. Returns the most that was
/// resident.
fn most_resident(data: usize, order: OrderPolicy) -> usize {
    let before = status(std::process::id(), "VmRSS:");
    let store = StoreKind::File {
        path: None,
        max_bytes: Some(STORE as u64),
        force_tmpfs: true,
    };
    let builder = Manager::builder().ram(RAM as u64).store(store);
    let manager = builder.order(order).build().unwrap();
    let mut region = manager.region(data).unwrap();
    let mut most = 0;
    for round in 0..3 {
        for (number, piece) in region.as_mut_slice().chunks_mut(MIB / 4).enumerate() {
            let was = round == 0 || holds(piece, number, round - 1);
            assert!(was, "piece {number} is wrong in round {round}");
            fill(piece, number, round);
            most = most.max(status(std::process::id(), "VmRSS:").saturating_sub(before));
        }
    }
    let over = manager.stats().vm.over_limit;
    println!(
        "{} MiB resident at most, {over} faults above the limit",
        most as usize / MIB
    );
    most as usize
}

fn policies() -> [OrderPolicy; 2] {
    [
        Order::ZERO.into(),
        OrderPolicy::Adaptive { max: Order::MAX },
    ]
}

#[test]
fn data_that_fits_budget_plus_store_stays_within_the_budget() {
    let name = "data_that_fits_budget_plus_store_stays_within_the_budget";
    alone(name, || {
        for order in policies() {
            let most = most_resident(RAM + STORE - 8 * MIB, order);
            assert!(most <= RAM + SLACK, "{most} resident of {RAM}, {order:?}");
        }
    });
}

#[test]
fn only_data_beyond_budget_plus_store_exceeds_the_budget() {
    let name = "only_data_beyond_budget_plus_store_exceeds_the_budget";
    alone(name, || {
        let beyond = 16 * MIB;
        for order in policies() {
            let most = most_resident(RAM + STORE + beyond, order);
            let allowed = RAM + beyond + 8 * MIB;
            assert!(most <= allowed, "{most} resident of {allowed}, {order:?}");
        }
    });
}
