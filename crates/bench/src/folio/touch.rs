//! The first touch: one byte of each page of unused memory, all of it within the budget.
//!
//! | side | work |
//! | --- | --- |
//! | kernel | a fault of 4 KiB for each page |
//! | kernel, huge | a fault and zeroing of 2 MiB for every 512 pages |
//! | Millpond | as many faults as its order policy causes, served in user space |
//!
//! On a virtual machine the host may have taken back memory that the guest did not use, and the first process to
//! touch it pays for its return: 5 µs per page and more, as much as everything that is measured here. So each process
//! does the whole work several times, from creating its mapping or manager to removing it, and the last time counts:
//! the kernel then hands out the pages that were given back just before. The measured side itself must have given
//! them back, because the kernel takes huge and small pages from different places: after 1 GiB of huge pages the next
//! first touch of small ones took 6.6 µs per page, and the one after that 1.5.

use crate::data::PAGE;
use crate::error::Failure;
use crate::folio::Side;
use crate::mapping::{Mapping, Pages};
use crate::outcome::{highest, mib, outcome};
use crate::phases::usage;
use crate::{millpond_side, rounds, smaps};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// The number of repetitions that are not counted.
pub const WARM_UPS: u32 = 2;

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The size of the memory that is touched
    #[arg(id = "touch-memory", long = "touch-memory", default_value = "1G", value_parser = rounds::parse_pages, value_name = "SIZE")]
    pub memory_bytes: u64,
}

outcome! {
    /// The measurements of one process.
    pub struct Outcome {
        /// Microseconds per page of 4 KiB.
        pub page: f64,
        /// Faults, as counted by the side that resolves them.
        pub faults: u64,
        /// Bytes that are in huge pages afterwards, as the kernel counts them.
        pub huge_bytes: u64,
        /// Pages with wrong contents.
        pub wrong_pages: u64 = highest,
    }
    wrong |r| r.wrong_pages;
    figures {
        time "page" = |r| r.page,
        other "faults" = |r| r.faults,
        other "huge, MiB" = |r| mib(r.huge_bytes),
    }
}

/// Does the job of the measured process.
///
/// # Errors
/// When there is no memory.
pub fn work(side: Side, sizes: &Sizes) -> Result<Outcome, Failure> {
    for _ in 0..WARM_UPS {
        once(side, sizes)?;
    }
    once(side, sizes)
}

fn once(side: Side, sizes: &Sizes) -> Result<Outcome, Failure> {
    let len = usize::try_from(sizes.memory_bytes)?;
    let before = smaps::huge()?;
    let huge_bytes = || smaps::huge().map(|after| after.saturating_sub(before));
    let pages = match side {
        Side::Ours(order) => {
            // The budget is twice the memory, so that nothing has to leave.
            let manager = millpond_side::settings(2 * sizes.memory_bytes + (64 << 20)).build()?;
            let mut region = manager.region_with(len, order.0)?;
            let outcome = touch(region.as_mut_slice());
            return Ok(Outcome {
                faults: manager.stats().latency.count,
                huge_bytes: huge_bytes()?,
                ..outcome
            });
        }
        Side::Kernel => Pages::Small,
        Side::KernelHuge => Pages::Huge,
    };
    let mut mapping = Mapping::new(len, pages)?;
    let faults = usage().minor_faults;
    let outcome = touch(mapping.bytes_mut());
    Ok(Outcome {
        faults: usage().minor_faults - faults,
        huge_bytes: huge_bytes()?,
        ..outcome
    })
}

fn touch(memory: &mut [u8]) -> Outcome {
    let started = Instant::now();
    for (index, page) in memory.chunks_exact_mut(PAGE).enumerate() {
        page[0] = stamp(index);
    }
    let micros = started.elapsed().as_secs_f64() * 1e6;
    Outcome {
        page: micros / (memory.len() / PAGE) as f64,
        wrong_pages: wrong_pages(memory, |index| Some(stamp(index))),
        ..Outcome::default()
    }
}

fn stamp(index: usize) -> u8 {
    (index % 255) as u8 + 1
}

/// The number of pages that are not zero except for their first byte, which must be `first` of their index if that is
/// `Some`.
pub fn wrong_pages(memory: &[u8], first: impl Fn(usize) -> Option<u8>) -> u64 {
    let pages = memory.chunks_exact(PAGE).enumerate();
    let wrong = pages.filter(|&(index, page)| {
        let (head, rest) = page.split_at(8);
        let mut wanted = [0; 8];
        wanted[0] = first(index).unwrap_or(0);
        head != wanted || rest.chunks_exact(8).any(|word| word != [0; 8])
    });
    wrong.count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_sides_touch_all_pages_and_wrong_bytes_are_found() {
        let sizes = Sizes {
            memory_bytes: 4 << 20,
        };
        for side in [Side::Kernel, Side::KernelHuge] {
            let outcome = work(side, &sizes).unwrap();
            assert!(outcome.page > 0.0 && outcome.faults > 0);
            assert_eq!(outcome.wrong_pages, 0);
        }
        let mut memory = vec![0; 4 * PAGE];
        assert_eq!(touch(&mut memory).wrong_pages, 0);
        for at in [PAGE, PAGE + 1, 2 * PAGE - 1] {
            memory[at] ^= 1;
            assert_eq!(wrong_pages(&memory, |index| Some(stamp(index))), 1, "{at}");
            memory[at] ^= 1;
        }
        assert_eq!(wrong_pages(&memory, |_| None), 4);
    }
}
