//! The wait of a program that does not know about Millpond and frees a large amount of memory: `mmap`, touch,
//! `munmap`.
//!
//! | side | |
//! | --- | --- |
//! | `run` | under `millpond run`, whose `munmap` lets a worker return the memory |
//! | `kernel` | the same program by itself |
//!
//! The program calls the C library, as programs do. *Blocked* is the time of `munmap` alone, *cycle* the time of all
//! three. A cycle begins when the memory of the previous one has been returned: a fork waits for that. Each page must
//! be zero when it is touched.

use crate::clock::Clock;
use crate::data::PAGE;
use crate::error::Failure;
use crate::outcome::{highest, median, outcome};
use crate::rounds;
use crate::side::sides;
use serde::{Deserialize, Serialize};
use std::io;

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The size of the memory that the program maps and unmaps
    #[arg(id = "unmap-memory", long = "unmap-memory", default_value = "512M", value_parser = rounds::parse_pages, value_name = "SIZE")]
    pub memory_bytes: u64,
    /// The number of repetitions
    #[arg(id = "unmap-times", long = "unmap-times", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub times: u32,
}

sides! {
    /// The owner of the memory.
    pub enum Side {
        /// Millpond
        Run,
        /// The kernel
        Kernel,
    }
    against [Kernel]
}

impl Sizes {
    /// A budget with room for all of the memory, so that no reclaim is measured.
    pub fn ram(&self) -> u64 {
        self.memory_bytes + self.memory_bytes / 4 + (64 << 20)
    }
}

outcome! {
    /// The measurements of one process, in microseconds: the median of its cycles.
    pub struct Outcome {
        /// The time until `munmap` returned.
        pub blocked: f64,
        /// The time for mapping, touching and unmapping.
        pub cycle: f64,
        /// Pages that were not zero.
        pub wrong_pages: u64 = highest,
    }
    wrong |r| r.wrong_pages;
    figures {
        time "blocked" = |r| r.blocked,
        other "cycle" = |r| r.cycle,
    }
}

/// Runs as the measured program.
///
/// # Errors
/// When the kernel refuses.
pub fn work(sizes: &Sizes) -> Result<Outcome, Failure> {
    let len = usize::try_from(sizes.memory_bytes)?;
    let (mut blocked, mut cycles, mut wrong_pages) = (Vec::new(), Vec::new(), 0);
    // The first cycle is not counted.
    for time in 0..=sizes.times {
        let clock = Clock::start();
        let (at, wrong) = mapped_and_touched(len)?;
        wrong_pages += wrong;
        let unmapping = Clock::start();
        // SAFETY: the mapping was made above, and nobody refers to it any more.
        if unsafe { libc::munmap(at, len) } != 0 {
            return Err(io::Error::last_os_error().into());
        }
        if time > 0 {
            blocked.push(unmapping.wall());
            cycles.push(clock.wall());
        }
        wait_until_it_is_gone()?;
    }
    Ok(Outcome {
        blocked: median(blocked),
        cycle: median(cycles),
        wrong_pages,
    })
}

/// Maps new memory, touches each page of it, and returns how many pages were not zero before.
fn mapped_and_touched(len: usize) -> io::Result<(*mut libc::c_void, u64)> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the kernel chooses the address, so no memory of this process is replaced.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // The mapping has small pages, as on the other side, and like Millpond's memory unless that asks for others.
    // SAFETY: the range was mapped above, and the advice does not change its contents.
    unsafe { libc::madvise(at, len, libc::MADV_NOHUGEPAGE) };
    // SAFETY: the mapping is readable, writable and initialised (zeros), and nobody else knows it.
    let bytes = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), len) };
    let mut wrong = 0;
    for page in bytes.chunks_exact_mut(PAGE) {
        wrong += u64::from(page[0] != 0 || page[PAGE - 1] != 0);
        (page[0], page[PAGE - 1]) = (1, 1);
    }
    Ok((at, wrong))
}

/// Waits until no memory is being returned in the background, by a fork, which waits for that.
fn wait_until_it_is_gone() -> io::Result<()> {
    // SAFETY: the child ends at once, by a call that is safe in the child of a process with threads.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child at once, by a call that is safe in the child of a process with threads.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: waits for the child made above, without asking for its status.
    match unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } {
        found if found == child => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_takes_longer_than_its_unmap_and_reads_zeros() {
        let sizes = Sizes {
            memory_bytes: 16 << 20,
            times: 3,
        };
        let outcome = work(&sizes).unwrap();
        assert!(outcome.blocked > 0.0 && outcome.cycle > outcome.blocked);
        assert_eq!(outcome.wrong_pages, 0);
    }
}
