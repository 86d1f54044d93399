//! A program that allocates much memory and uses almost none of it: it allocates 128 MiB with `malloc`, writes a
//! header, and calls `free`.
//!
//! Programs that reserve memory by allocating it do this. It was the one benchmark that became slower in the kernel
//! with folios of several pages: each header paid for zeroing a whole folio. The program runs under `millpond run`
//! with lazy purging, where the allocator keeps the header's page from round to round, and without, where each round
//! faults again. For comparison it also runs with the C library's allocator.

use crate::error::Failure;
use crate::order::BenchOrder;
use crate::outcome::{highest, outcome};
use crate::phases::usage;
use crate::rounds;
use crate::side::Contender;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hint::black_box;
use std::time::Instant;

/// The header's size in bytes.
const HEADER: usize = 64;

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The size of each allocation
    #[arg(id = "header-block", long = "header-block", default_value = "128M", value_parser = rounds::parse_pages, value_name = "SIZE")]
    pub block_bytes: u64,
    /// The number of allocations
    #[arg(id = "header-times", long = "header-times", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub times: u32,
    /// The program's RAM budget under `millpond run`
    #[arg(id = "header-ram", long = "header-ram", default_value = "64M", value_parser = millpond_cli::size::parse_ram, value_name = "SIZE")]
    pub budget_bytes: u64,
}

/// One way of running the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Run {
    /// The order of the folios; null with the C library's allocator.
    pub order: Option<BenchOrder>,
    /// Whether freed memory is kept until there is pressure.
    pub lazy_purge: bool,
}

impl Contender for Run {}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let purge = if self.lazy_purge { "lazy" } else { "eager" };
        match self.order {
            Some(order) => f.pad(&format!("{order}, {purge} purge")),
            None => f.pad("C library"),
        }
    }
}

outcome! {
    /// The findings of the program.
    pub struct Outcome {
        /// Microseconds for allocating a block, writing its header, and freeing it.
        pub round: f64,
        /// Page faults per round, as counted by the kernel for the process.
        pub faults: f64,
        /// Headers with wrong contents.
        pub wrong_headers: u64 = highest,
    }
    wrong |r| r.wrong_headers;
    figures {
        time "round" = |r| r.round,
        other "faults" = |r| r.faults,
    }
}

impl Sizes {
    /// All ways of running the program, in the order in which a round runs them.
    #[must_use]
    pub fn runs(&self, order: BenchOrder, can_run: bool) -> Vec<Run> {
        let zero = BenchOrder(millpond::Order::ZERO.into());
        let mut runs = Vec::new();
        for lazy_purge in [true, false] {
            for order in [zero, order] {
                let order = Some(order);
                runs.extend(can_run.then_some(Run { order, lazy_purge }));
            }
        }
        runs.push(Run {
            order: None,
            lazy_purge: false,
        });
        runs
    }
}

/// Runs as the measured program.
///
/// # Errors
/// When an allocation fails.
pub fn work(sizes: &Sizes) -> Result<Outcome, Failure> {
    let len = usize::try_from(sizes.block_bytes)?;
    let mut wrong_headers = 0;
    // The first allocation initialises the allocator.
    wrong_headers += u64::from(!allocate(len, 0)?);
    let (started, before) = (Instant::now(), usage().minor_faults);
    for time in 0..sizes.times {
        wrong_headers += u64::from(!allocate(len, time)?);
    }
    let (micros, after) = (started.elapsed().as_secs_f64() * 1e6, usage().minor_faults);
    let times = f64::from(sizes.times);
    Ok(Outcome {
        round: micros / times,
        faults: (after - before) as f64 / times,
        wrong_headers,
    })
}

/// Allocates a block, writes its header, reads it back, and frees the block. Returns whether the header was right.
fn allocate(len: usize, time: u32) -> Result<bool, Failure> {
    // SAFETY: any size may be requested.
    let block = unsafe { libc::malloc(black_box(len)) }.cast::<u8>();
    if block.is_null() {
        return Err(format!("malloc has no {len} bytes").into());
    }
    let stamp = (time % 255) as u8 + 1;
    // SAFETY: the block is at least a page long, this is its start, and nobody else knows it.
    unsafe { block.write_bytes(stamp, HEADER) };
    // SAFETY: the block is at least a page long and known to nobody else; the bytes have been written.
    let header = unsafe { std::slice::from_raw_parts(black_box(block), HEADER) };
    let right = header.iter().all(|&byte| byte == stamp);
    // SAFETY: the block is from `malloc`, and nothing refers to it any more.
    unsafe { libc::free(block.cast()) };
    Ok(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_written_and_read_back() {
        let sizes = Sizes {
            block_bytes: 1 << 20,
            times: 300,
            budget_bytes: 0,
        };
        let outcome = work(&sizes).unwrap();
        assert_eq!(outcome.wrong_headers, 0);
        assert!(outcome.round > 0.0);
    }

    #[test]
    fn without_the_library_only_the_c_allocator_is_measured() {
        let sizes = Sizes {
            block_bytes: 1 << 20,
            times: 1,
            budget_bytes: 0,
        };
        let order = "adaptive".parse().unwrap();
        assert_eq!(sizes.runs(order, true).len(), 5);
        let [libc] = sizes.runs(order, false)[..] else {
            panic!("one run");
        };
        assert_eq!(libc.to_string(), "C library");
    }
}
