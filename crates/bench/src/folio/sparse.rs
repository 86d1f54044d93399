//! A program that touches single bytes far apart: memory that it did not request must not become resident.
//!
//! The program touches one byte in every 64 KiB, upwards. With a fixed order of 4 this pattern takes sixteen times
//! the memory, and so it would with a policy that mistakes a stride for a stream. The relevant figure is the growth
//! of the process's `Rss`, including tables, compared with that at order 0.

use crate::data::PAGE;
use crate::error::Failure;
use crate::folio::Side;
use crate::outcome::{highest, kib, outcome};
use crate::{millpond_side, rounds, smaps};
use serde::{Deserialize, Serialize};

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The size of the memory over which the touches are spread
    #[arg(id = "sparse-memory", long = "sparse-memory", default_value = "1G", value_parser = rounds::parse_pages, value_name = "SIZE")]
    pub memory_bytes: u64,
    /// The distance from one touched byte to the next
    #[arg(id = "sparse-stride", long = "sparse-stride", default_value = "64K", value_parser = rounds::parse_pages, value_name = "SIZE")]
    pub stride_bytes: u64,
}

outcome! {
    /// The findings of one process.
    pub struct Outcome {
        /// Growth of `Rss` due to all touches.
        pub rss_bytes: u64,
        /// Bytes that the manager reports as resident.
        pub resident_bytes: u64,
        /// Pages with wrong contents.
        pub wrong_pages: u64 = highest,
    }
    wrong |r| r.wrong_pages;
    figures {
        other "Rss, KiB" = |r| kib(r.rss_bytes),
        other "resident, KiB" = |r| kib(r.resident_bytes),
    }
}

/// Does the job of the measured process.
///
/// # Errors
/// When the manager or the region cannot be created.
pub fn work(side: Side, sizes: &Sizes) -> Result<Outcome, Failure> {
    let Side::Ours(order) = side else {
        return Err("the kernel has no folios of an order".into());
    };
    let (len, stride) = (
        usize::try_from(sizes.memory_bytes)?,
        usize::try_from(sizes.stride_bytes)?,
    );
    let manager = millpond_side::settings(2 * sizes.memory_bytes + (64 << 20)).build()?;
    let mut region = manager.region_with(len, order.0)?;
    let memory = region.as_mut_slice();
    let before = smaps::resident()?;
    for byte in memory.iter_mut().step_by(stride) {
        *byte = 1;
    }
    let rss_bytes = smaps::resident()?.saturating_sub(before);
    let resident_bytes = manager.stats().resident_bytes();
    let wrong_pages = wrong_pages(region.as_slice(), stride);
    Ok(Outcome {
        rss_bytes,
        resident_bytes,
        wrong_pages,
    })
}

/// The number of touched pages that are not zero except for the written byte. Reading the pages between would bring
/// them in.
fn wrong_pages(memory: &[u8], stride: usize) -> u64 {
    let wrong = memory.chunks(stride).filter(|chunk| {
        let page = &chunk[..PAGE.min(chunk.len())];
        page[0] != 1 || page[1..].iter().any(|&byte| byte != 0)
    });
    wrong.count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_found() {
        let mut memory = vec![0; 8 * PAGE];
        assert_eq!(wrong_pages(&memory, 2 * PAGE), 4);
        for byte in memory.iter_mut().step_by(2 * PAGE) {
            *byte = 1;
        }
        assert_eq!(wrong_pages(&memory, 2 * PAGE), 0);
        memory[4 * PAGE + 77] = 1;
        assert_eq!(wrong_pages(&memory, 2 * PAGE), 1);
    }
}
