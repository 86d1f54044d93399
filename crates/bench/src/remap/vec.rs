//! A vector of 8-byte numbers that grows by pushes: `PondVec` under a budget, compared with `Vec` without one.
//!
//! Neither copies: the system's allocator grows large blocks by `mremap`. So up to the budget the comparison is about
//! the cost of a push and of first touches. Beyond it `Vec` takes more of the machine's RAM, and `PondVec` sends the
//! numbers that were written first to its store. The question is whether `PondVec` reaches the end within its budget
//! and byte for byte.
//!
//! Both begin with the same capacity. On a virtual machine memory may have to come from the host first, so a process
//! does everything twice, and the second time counts; only then is the memory compared.

use crate::clock::Clock;
use crate::error::Failure;
use crate::order::BenchOrder;
use crate::outcome::{highest, mib, outcome};
use crate::phases::usage;
use crate::side::sides;
use crate::{millpond_side, rounds};
use serde::{Deserialize, Serialize};

/// The size of a number in bytes.
pub const NUMBER: u64 = size_of::<u64>() as u64;
/// Numbers in 4 KiB, and how many of them at its beginning are pseudo-random.
const IN_A_PAGE: u64 = 512;
const RANDOM: u64 = 128;

sides! {
    /// The measured vector.
    pub enum Side {
        /// `PondVec`
        Pond,
        /// `Vec` with the system's allocator
        System,
    }
    against [System]
}

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The initial capacity of the vector
    #[arg(id = "vec-from", long = "vec-from", default_value = "1M", value_parser = rounds::parse_pages, value_name = "SIZE")]
    pub from_bytes: u64,
    /// The size to which the vector grows
    #[arg(id = "vec-to", long = "vec-to", default_value = "2G", value_parser = rounds::parse_pages, value_name = "SIZE")]
    pub to_bytes: u64,
    /// The RAM budget
    #[arg(id = "vec-ram", long = "vec-ram", default_value = "512M", value_parser = millpond_cli::size::parse_ram, value_name = "SIZE")]
    pub budget_bytes: u64,
}

outcome! {
    /// The measurements of one process.
    pub struct Outcome {
        /// Milliseconds until the vector reaches the size of the budget.
        pub to_budget: f64,
        /// Milliseconds from that size to the end.
        pub beyond: f64,
        /// Processor time of all threads in milliseconds until the vector reaches the size of the budget.
        pub cpu_to_budget: f64,
        /// Processor time of all threads in milliseconds from that size to the end.
        pub cpu_beyond: f64,
        /// Peak bytes that the manager charged to its budget; null for `Vec`.
        pub peak_charged_bytes: Option<u64>,
        /// Peak resident set of the process, including the store's RAM.
        pub peak_rss_bytes: u64 = highest,
        /// Numbers that differed from what was pushed, or were missing.
        pub wrong_numbers: u64 = highest,
    }
    wrong |r| r.wrong_numbers;
    figures {
        time "to budget" = |r| r.to_budget,
        other "its cpu" = |r| r.cpu_to_budget,
        time "beyond" = |r| r.beyond,
        other "its cpu" = |r| r.cpu_beyond,
        other "charged MiB" = |r| r.peak_charged_bytes.map(mib),
        other "peak RSS MiB" = |r| mib(r.peak_rss_bytes),
    }
}

/// Does the job of the measured process.
///
/// # Errors
/// When there is no memory.
pub fn work(side: Side, order: BenchOrder, sizes: &Sizes) -> Result<Outcome, Failure> {
    let once = |compare| match side {
        Side::Pond => pond(order, sizes, compare),
        Side::System => system(sizes, compare),
    };
    once(false)?;
    let mut outcome = once(true)?;
    outcome.peak_rss_bytes = usage().peak_rss_bytes;
    Ok(outcome)
}

fn pond(order: BenchOrder, sizes: &Sizes, compare: bool) -> Result<Outcome, Failure> {
    let manager = millpond_side::settings(sizes.budget_bytes)
        .order(order.0)
        .build()?;
    let mut vec = manager.vec_with_capacity(usize::try_from(sizes.from_bytes / NUMBER)?)?;
    let grown = grow(sizes, |number| Ok(vec.push(number)?))?;
    Ok(Outcome {
        wrong_numbers: if compare { wrong(&vec, sizes) } else { 0 },
        peak_charged_bytes: Some(manager.stats().peak_bytes),
        ..grown
    })
}

fn system(sizes: &Sizes, compare: bool) -> Result<Outcome, Failure> {
    let mut vec = Vec::with_capacity(usize::try_from(sizes.from_bytes / NUMBER)?);
    let grown = grow(sizes, |number| {
        vec.push(number);
        Ok(())
    })?;
    Ok(Outcome {
        wrong_numbers: if compare { wrong(&vec, sizes) } else { 0 },
        ..grown
    })
}

/// Pushes all numbers, and measures the times.
fn grow(
    sizes: &Sizes,
    mut push: impl FnMut(u64) -> Result<(), Failure>,
) -> Result<Outcome, Failure> {
    let end = sizes.to_bytes / NUMBER;
    let middle = (sizes.budget_bytes / NUMBER).min(end);
    let mut times = [(0.0, 0.0); 2];
    for (time, range) in times.iter_mut().zip([0..middle, middle..end]) {
        let clock = Clock::start();
        for index in range {
            push(number(index))?;
        }
        *time = (clock.wall() / 1e3, clock.cpu() / 1e3);
    }
    let [(to_budget, cpu_to_budget), (beyond, cpu_beyond)] = times;
    Ok(Outcome {
        to_budget,
        beyond,
        cpu_to_budget,
        cpu_beyond,
        ..Outcome::default()
    })
}

/// The number at `index`. The numbers compress to about a quarter, like the other data of the benchmarks, and cost
/// almost nothing to generate.
fn number(index: u64) -> u64 {
    if index % IN_A_PAGE < RANDOM {
        let mixed = index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
    } else {
        index / IN_A_PAGE
    }
}

fn wrong(vec: &[u64], sizes: &Sizes) -> u64 {
    let missing = (sizes.to_bytes / NUMBER).abs_diff(vec.len() as u64);
    let differing = vec.iter().zip(0..).filter(|&(&n, at)| n != number(at));
    missing + differing.count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_numbers_are_pushed_and_a_wrong_one_is_found() {
        let sizes = Sizes {
            from_bytes: 4096,
            to_bytes: 1 << 20,
            budget_bytes: 16 << 20,
        };
        assert_eq!(system(&sizes, true).unwrap().wrong_numbers, 0);
        let mut vec = Vec::new();
        let push = |number| {
            vec.push(number);
            Ok(())
        };
        grow(&sizes, push).unwrap();
        assert_eq!(vec.len(), 1 << 17);
        assert_eq!(vec[1000], 1);
        vec[77_777] ^= 1;
        vec.pop();
        assert_eq!(wrong(&vec, &sizes), 2);
        let random: std::collections::BTreeSet<u64> = (0..RANDOM).map(number).collect();
        assert_eq!(random.len() as u64, RANDOM);
    }
}
