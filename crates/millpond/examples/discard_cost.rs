//! The cost of a discard of memory that others may use, by folio order and by the place where the memory is.
//!
//! Run `cargo run --release -p millpond --example discard_cost [MIB [ORDER...]]`, with 1024 MiB unless said otherwise.
//! *In memory* the budget holds all of it, *half stored* half of it. Each line is the middle of five: milliseconds of
//! the call, and processor time of the whole process until nothing is being given back.

use millpond::{Manager, Order};
use std::error::Error;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn once(bytes: usize, order: Order, half_stored: bool) -> Result<[f64; 2], Box<dyn Error>> {
    let ram = match half_stored {
        true => bytes as u64 / 2,
        false => bytes as u64 + bytes as u64 / 8 + (64 << 20),
    };
    let manager = Manager::builder()
        .store(millpond::StoreKind::compressed_ram())
        .order(millpond::Order::new(4).unwrap())
        .ram(ram)
        .store_outside_budget(true)
        .build()?;
    let mut region = manager.region_with(bytes, order)?;
    for (n, page) in region.as_mut_slice().chunks_mut(PAGE).enumerate() {
        // The pages are not all zeros, and not all the same.
        page[..64].fill(n as u8 | 1);
    }
    // In this pause no memory is asked for, so that the pool keeps none of it.
    std::thread::sleep(Duration::from_millis(2000));
    let (since, before) = (Instant::now(), cpu());
    // SAFETY: no reference to the region's bytes is alive.
    unsafe { region.discard_shared(0..bytes)? };
    let took = since.elapsed();
    manager.quiesce();
    let spent = cpu() - before;
    if region.as_slice().chunks(PAGE).any(|page| page[0] != 0) {
        return Err("a page was not forgotten".into());
    }
    Ok([took, spent].map(|time| time.as_secs_f64() * 1e3))
}

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Result<Vec<usize>, _> = std::env::args().skip(1).map(|n| n.parse()).collect();
    let numbers = numbers?;
    let bytes = numbers.first().unwrap_or(&1024) * MIB;
    let orders = match numbers.get(1..) {
        Some(orders) if !orders.is_empty() => orders.to_vec(),
        _ => vec![0, 4, 9],
    };
    println!("order  where         call ms   cpu ms");
    for order in orders {
        let order = Order::new(order.try_into()?).ok_or("an order is 9 at most")?;
        for (name, half_stored) in [("in memory", false), ("half stored", true)] {
            let mut rounds = Vec::new();
            for _ in 0..5 {
                rounds.push(once(bytes, order, half_stored)?);
            }
            let middle = |n: usize| {
                let mut times: Vec<f64> = rounds.iter().map(|times| times[n]).collect();
                times.sort_by(f64::total_cmp);
                times[times.len() / 2]
            };
            println!(
                "{:>5}  {name:<12} {:>8.1} {:>8.1}",
                order.get(),
                middle(0),
                middle(1)
            );
        }
    }
    Ok(())
}
