//! Freeing memory and touching as much again, repeatedly, like a program that frees buffers and allocates new ones.
//!
//! | side | how memory is freed |
//! | --- | --- |
//! | `discard` | `Region::discard` of all of it; the region stays |
//! | `free_async` | `Region::free_async`, and a new region |
//! | `kernel`, `kernel_huge` | `munmap`, and a new mapping of small or huge pages |
//!
//! The measured cycles follow each other without a pause. The clock also runs while memory is still being returned
//! after the last one, so deferred work is included. *cpu* is the processor time of all threads. The first cycle is
//! not counted. After the last one every page is marked, and one more cycle must find all of them zero.

use crate::clock::Clock;
use crate::data::PAGE;
use crate::error::Failure;
use crate::free::Side;
use crate::mapping::{Mapping, Pages};
use crate::order::BenchOrder;
use crate::outcome::{highest, outcome};
use crate::{millpond_side, rounds};
use millpond::{Manager, Region};
use serde::{Deserialize, Serialize};

/// Additional memory.
const SPARE: u64 = 64 << 20;

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The size of the memory that is freed and touched again
    #[arg(id = "cycle-memory", long = "cycle-memory", default_value = "256M", value_parser = rounds::parse_pages, value_name = "SIZE")]
    pub memory_bytes: u64,
    /// The number of repetitions per process
    #[arg(id = "cycle-times", long = "cycle-times", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub times: u32,
}

outcome! {
    /// The measurements of one process, in microseconds per cycle.
    pub struct Outcome {
        /// The time of a whole cycle.
        pub cycle: f64,
        /// The time until there is new memory to touch.
        pub release: f64,
        /// The time for touching it.
        pub touch: f64,
        /// Processor time of all threads.
        pub cpu: f64,
        /// Pages that were not zero except for the written bytes.
        pub wrong_pages: u64 = highest,
    }
    wrong |r| r.wrong_pages;
    figures {
        time "cycle" = |r| r.cycle,
        other "release" = |r| r.release,
        other "touch" = |r| r.touch,
        time "cpu" = |r| r.cpu,
    }
}

/// Memory that can be exchanged for as much new memory.
trait Memory {
    fn renew(&mut self) -> Result<(), Failure>;
    fn bytes(&mut self) -> &mut [u8];
    /// Waits until no memory is being returned any more.
    fn settle(&self) {}
}

struct Discarded(Region);

impl Memory for Discarded {
    fn renew(&mut self) -> Result<(), Failure> {
        Ok(self.0.discard(0..self.0.len())?)
    }

    fn bytes(&mut self) -> &mut [u8] {
        self.0.as_mut_slice()
    }
}

struct Freed {
    manager: Manager,
    /// The region; `None` only between the old one and the new one.
    region: Option<Region>,
    len: usize,
}

impl Memory for Freed {
    fn renew(&mut self) -> Result<(), Failure> {
        if let Some(region) = self.region.take() {
            region.free_async();
        }
        self.region = Some(self.manager.region(self.len)?);
        Ok(())
    }

    fn bytes(&mut self) -> &mut [u8] {
        self.region.as_mut().map_or(&mut [], Region::as_mut_slice)
    }

    fn settle(&self) {
        self.manager.quiesce();
    }
}

struct Unmapped {
    mapping: Option<Mapping>,
    len: usize,
    pages: Pages,
}

impl Memory for Unmapped {
    fn renew(&mut self) -> Result<(), Failure> {
        drop(self.mapping.take());
        self.mapping = Some(Mapping::new(self.len, self.pages)?);
        Ok(())
    }

    fn bytes(&mut self) -> &mut [u8] {
        self.mapping.as_mut().map_or(&mut [], Mapping::bytes_mut)
    }
}

/// Does the job of the measured process.
///
/// # Errors
/// When there is no memory.
pub fn work(side: Side, order: BenchOrder, sizes: &Sizes) -> Result<Outcome, Failure> {
    let len = usize::try_from(sizes.memory_bytes)?;
    let manager = || {
        // Freed memory counts until it has been returned.
        let ram = 3 * sizes.memory_bytes + SPARE;
        millpond_side::settings(ram).order(order.0).build()
    };
    let unmapped = |pages| Unmapped {
        mapping: None,
        len,
        pages,
    };
    match side {
        Side::Discard => run(Discarded(manager()?.region(len)?), sizes.times),
        Side::Kernel => run(unmapped(Pages::Small), sizes.times),
        Side::KernelHuge => run(unmapped(Pages::Huge), sizes.times),
        Side::FreeAsync | Side::Drop => {
            let freed = Freed {
                manager: manager()?,
                region: None,
                len,
            };
            run(freed, sizes.times)
        }
    }
}

fn run(mut memory: impl Memory, times: u32) -> Result<Outcome, Failure> {
    let cycle = |outcome: &mut Outcome, memory: &mut dyn Memory| -> Result<(), Failure> {
        let clock = Clock::start();
        memory.renew()?;
        let released = clock.wall();
        for page in memory.bytes().chunks_exact_mut(PAGE) {
            page[0] = 1;
        }
        outcome.release += released;
        outcome.touch += clock.wall() - released;
        Ok(())
    };
    // These cycles come first, so that the first measured cycle frees memory that was touched.
    for _ in 0..2 {
        cycle(&mut Outcome::default(), &mut memory)?;
    }
    memory.settle();
    let mut outcome = Outcome::default();
    let clock = Clock::start();
    for _ in 0..times {
        cycle(&mut outcome, &mut memory)?;
    }
    memory.settle();
    (outcome.cycle, outcome.cpu) = (clock.wall(), clock.cpu());
    for page in memory.bytes().chunks_exact_mut(PAGE) {
        page[PAGE - 1] = 0xFF;
    }
    cycle(&mut Outcome::default(), &mut memory)?;
    outcome.wrong_pages = wrong_pages(memory.bytes());
    let times = f64::from(times);
    for figure in [
        &mut outcome.cycle,
        &mut outcome.release,
        &mut outcome.touch,
        &mut outcome.cpu,
    ] {
        *figure /= times;
    }
    Ok(outcome)
}

/// The number of pages that are not zero except for their first byte, which must be one.
fn wrong_pages(memory: &[u8]) -> u64 {
    let wrong = |page: &&[u8]| page[0] != 1 || page[1..].iter().any(|&byte| byte != 0);
    memory.chunks_exact(PAGE).filter(wrong).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory that keeps its contents when it is freed.
    struct Kept(Vec<u8>);

    impl Memory for Kept {
        fn renew(&mut self) -> Result<(), Failure> {
            Ok(())
        }

        fn bytes(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }

    #[test]
    fn memory_that_was_not_given_back_is_found_out() {
        let kept = run(Kept(vec![0; 16 * PAGE]), 2).unwrap();
        assert_eq!(kept.wrong_pages, 16);
        for pages in [Pages::Small, Pages::Huge] {
            let unmapped = Unmapped {
                mapping: None,
                len: 4 << 20,
                pages,
            };
            let outcome = run(unmapped, 2).unwrap();
            assert_eq!(outcome.wrong_pages, 0);
            assert!(outcome.cycle >= outcome.release + outcome.touch);
            assert!(outcome.release > 0.0 && outcome.touch > 0.0);
        }
    }
}
