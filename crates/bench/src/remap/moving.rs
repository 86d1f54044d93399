//! Moving memory: `Region::remap_anywhere`, compared with `mremap` to an address of our choosing.
//!
//! Both do the same: the filled memory is at other addresses afterwards, byte for byte. They differ in who chooses
//! the place. The kernel's caller chooses it, and pays for every page if it chooses badly. Millpond chooses it
//! itself, so that from any offset the new place is aligned like the old one.
//!
//! One process moves its memory several times, each time from the place where the last move put it. A move's time is
//! that of the call. On the kernel's side nothing is left of the old place then; Millpond leaves a region of zeros
//! behind, and removing it has its own figure. The first move also has its own figure: its page tables are new. So
//! that no work can be deferred, a word of each page is read after all moves, and timed; then every byte is compared.
//!
//! If half of the memory is in the store, each leaf of 2 MiB has a mebibyte of each kind: the older one is filled
//! first, in every leaf, and the budget has room for half. Some of the memory is in neither place: it was taken out,
//! and is still in RAM.

use crate::data::{self, PAGE};
use crate::error::Failure;
use crate::order::BenchOrder;
use crate::outcome::{highest, median, mib, outcome};
use crate::remap::case::Case;
use crate::remap::kernel::{Alignment, Movable};
use crate::side::Contender;
use crate::{millpond_side, rounds};
use millpond_cli::size::Human;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hint::black_box;
use std::time::Instant;

const LEAF: u64 = 2 << 20;
/// Bytes that are filled at once, alternately early and late, if half of the memory goes to the store.
const HALF_LEAF: usize = 1 << 20;
/// Additional memory: tables, and frames in transit.
const SPARE: u64 = 64 << 20;

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The size of the moved memory
    #[arg(id = "move-memory", long = "move-memory", default_value = "1G", value_parser = at_least_its_half_is_a_budget, value_name = "SIZE")]
    pub memory_bytes: u64,
    /// The number of moves in a process
    #[arg(id = "move-times", long = "move-times", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub times: u32,
}

fn at_least_its_half_is_a_budget(text: &str) -> Result<u64, String> {
    let bytes = rounds::parse_pages(text)?;
    if bytes / 2 < millpond_cli::size::MIN_RAM {
        let least = Human(2 * millpond_cli::size::MIN_RAM);
        return Err(format!("`{text}` is less than {least}"));
    }
    Ok(bytes)
}

/// The amounts of memory moved in `scale`.
#[derive(Clone, Debug, Serialize, clap::Args)]
#[group(skip)]
pub struct Scale {
    /// The sizes of the moved memory, one after the other
    #[arg(id = "scale-memory", long = "scale-memory", default_value = "1G,2G,4G,8G", value_delimiter = ',', value_parser = at_least_its_half_is_a_budget, value_name = "SIZE,...")]
    pub memory_bytes: Vec<u64>,
}

/// A side of `scale`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Run {
    /// The owner of the memory, and its place.
    pub place: Case,
    /// The amount of memory.
    pub memory_bytes: u64,
}

impl Contender for Run {
    fn is_kernel(self) -> bool {
        self.place.is_kernel()
    }

    fn is_against(self, other: Self) -> bool {
        self.memory_bytes == other.memory_bytes && self.place.is_against(other.place)
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}, {}", self.place, Human(self.memory_bytes)))
    }
}

outcome! {
    /// The measurements of one process, in microseconds.
    pub struct Outcome {
        /// The time of a move: the median of all moves.
        #[serde(rename = "move")]
        pub moving: f64,
        /// The time of the first move.
        pub first: f64,
        /// The time for removing the region from which memory was moved; null on the kernel's side.
        pub emptied: Option<f64>,
        /// The time for reading a word of each page in order, per page, after all moves.
        pub read: f64,
        /// The number of leaves of 2 MiB in the memory.
        pub leaves: u64,
        /// Bytes in the store before the first move.
        pub stored_bytes: u64,
        /// Bytes mapped before the first move.
        pub resident_bytes: u64,
        /// Pages with wrong contents.
        pub wrong_pages: u64 = highest,
    }
    wrong |r| r.wrong_pages;
    figures {
        time "move" = |r| r.moving,
        other "first" = |r| r.first,
        other "emptied" = |r| r.emptied,
        other "ns a leaf" = |r| r.leaf_ns(),
        other "read a page" = |r| r.read,
        other "stored MiB" = |r| mib(r.stored_bytes),
    }
}

impl Outcome {
    /// Nanoseconds of a move per leaf.
    #[must_use]
    pub fn leaf_ns(&self) -> f64 {
        self.moving * 1000.0 / self.leaves as f64
    }
}

/// Does the job of the measured process.
///
/// # Errors
/// When there is no memory, or the memory cannot be moved.
pub fn work(case: Case, order: BenchOrder, sizes: &Sizes) -> Result<Outcome, Failure> {
    let len = usize::try_from(sizes.memory_bytes)?;
    let alike = LEAF as usize;
    let (here, there) = match case {
        Case::Ours { offset } => return ours(order, offset as usize, false, len, sizes.times),
        Case::HalfStored => return ours(order, 0, true, len, sizes.times),
        Case::Kernel => (0, alike),
        Case::KernelAlike => (PAGE, alike + PAGE),
        Case::KernelGigabyte => (0, 0),
        Case::KernelMisaligned => (0, alike + PAGE),
    };
    let mut memory = Movable::new(len, Alignment { here, there })?;
    fill(memory.bytes_mut(), 0..len / HALF_LEAF + 1);
    let mut moves = Vec::new();
    for _ in 0..sizes.times {
        memory.shift(|shift| moves.push(timed(shift)))?;
    }
    let outcome = Outcome {
        resident_bytes: sizes.memory_bytes,
        ..Outcome::default()
    };
    Ok(summed_up(outcome, moves, memory.bytes()))
}

fn ours(
    order: BenchOrder,
    offset: usize,
    half_stored: bool,
    len: usize,
    times: u32,
) -> Result<Outcome, Failure> {
    let ram = if half_stored {
        len as u64 / 2
    } else {
        len as u64 + SPARE
    };
    let manager = millpond_side::settings(ram).build()?;
    let mut region = manager.region_with(offset + len, order.0)?;
    let memory = &mut region.as_mut_slice()[offset..];
    let parts = len / HALF_LEAF + 1;
    if half_stored {
        fill(memory, (0..parts).step_by(2));
        fill(memory, (1..parts).step_by(2));
    } else {
        fill(memory, 0..parts);
    }
    let before = region.stats();
    let (mut moves, mut emptied) = (Vec::new(), Vec::new());
    let mut from = offset;
    for _ in 0..times {
        let mut moved = None;
        moves.push(timed(|| {
            moved = Some(region.remap_anywhere(from..from + len, len))
        }));
        let old = std::mem::replace(&mut region, moved.expect("it was called")?);
        emptied.push(timed(|| drop(old)));
        from = 0;
    }
    let outcome = Outcome {
        emptied: Some(median(emptied)),
        stored_bytes: before.swapped,
        resident_bytes: before.resident,
        ..Outcome::default()
    };
    Ok(summed_up(outcome, moves, region.as_slice()))
}

/// Fills the given mebibytes; those beyond the end are ignored.
fn fill(memory: &mut [u8], parts: impl IntoIterator<Item = usize>) {
    for part in parts {
        let start = part * HALF_LEAF;
        let end = (start + HALF_LEAF).min(memory.len());
        let pages = memory[start.min(end)..end].chunks_exact_mut(PAGE);
        for (index, page) in (start / PAGE..).zip(pages) {
            data::fill(page, index);
        }
    }
}

fn summed_up(outcome: Outcome, moves: Vec<f64>, memory: &[u8]) -> Outcome {
    let pages = memory.len() / PAGE;
    let read = timed(|| {
        for page in memory.chunks_exact(PAGE) {
            black_box(page[0]);
        }
    });
    let wrong = |&(index, page): &(usize, &[u8])| !data::matches(page, index);
    let wrong_pages = memory.chunks_exact(PAGE).enumerate().filter(wrong).count() as u64;
    Outcome {
        first: moves[0],
        moving: median(moves),
        read: read / pages as f64,
        leaves: (memory.len() as u64).div_ceil(LEAF),
        wrong_pages,
        ..outcome
    }
}

/// The microseconds that `work` takes.
fn timed(work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_fill_everything_and_a_wrong_page_is_found() {
        let mut memory = vec![0; 3 * HALF_LEAF + 5 * PAGE];
        let parts = memory.len() / HALF_LEAF + 1;
        fill(&mut memory, (0..parts).step_by(2));
        let half = summed_up(Outcome::default(), vec![1.0], &memory);
        assert_eq!(half.wrong_pages as usize, HALF_LEAF / PAGE + 5);
        fill(&mut memory, (1..parts).step_by(2));
        fill(&mut memory, [9]);
        let whole = summed_up(Outcome::default(), vec![4.0, 1.0, 2.0], &memory);
        assert_eq!((whole.wrong_pages, whole.leaves), (0, 2));
        assert_eq!((whole.first, whole.moving), (4.0, 2.0));
        memory[5 * PAGE + 100] ^= 1;
        assert_eq!(
            summed_up(Outcome::default(), vec![1.0], &memory).wrong_pages,
            1
        );
    }
}
