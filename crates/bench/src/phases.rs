//! The phases that every measured process runs on its memory, whoever manages it: fill, random reads, sequential
//! read, verify.

use crate::data::{self, Contents, PAGE};
use crate::outcome::{highest, outcome};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::io;
use std::time::Instant;

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
pub struct Work {
    /// The size of the region in pages of 4 KiB
    #[arg(long, default_value_t = 131_072, value_parser = clap::value_parser!(u64).range(8192..))]
    pub pages: u64,
    /// The RAM budget of each side
    #[arg(long, default_value = "256M", value_parser = millpond_cli::size::parse_ram, value_name = "SIZE")]
    pub ram: u64,
    /// The number of random accesses
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub accesses: u64,
}

impl Work {
    /// Bytes in the region.
    ///
    /// # Errors
    /// When the size exceeds this machine's address space.
    pub fn len(&self) -> io::Result<usize> {
        usize::try_from(self.pages)
            .ok()
            .and_then(|pages| pages.checked_mul(PAGE))
            .ok_or_else(|| io::Error::other("the region is too large"))
    }
}

/// The contents of the pages, and the kind of the random accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, clap::Args)]
pub struct Manner {
    /// What the pages contain
    #[arg(long, value_enum, default_value_t)]
    pub data: Contents,
    /// Let each random access also write a word of the page
    #[arg(long)]
    pub write: bool,
}

outcome! {
    /// Times of one measurement, in microseconds per page or access.
    pub struct Phases {
        /// Writing every page once, in order.
        pub fill: f64,
        /// Reading whole pages at random places, and writing a word there if the [`Manner`] says so.
        pub random: f64,
        /// Reading every page once, in order.
        pub sequential: f64,
        /// Reading every page once more and comparing each byte.
        pub verify: f64,
        /// Pages that differed from what was written.
        pub wrong_pages: u64 = highest,
        /// Major faults during the random reads, as counted by the side that resolves them.
        pub random_major_faults: u64,
        /// The pages that these faults brought into memory, if known.
        pub random_brought_in: Option<BroughtIn>,
        /// Peak resident set of the process as counted by the kernel, in bytes.
        pub peak_rss_bytes: u64 = highest,
        /// Peak bytes that Millpond's manager charged to the budget; null on the kernel's side.
        pub peak_charged_bytes: Option<u64> = highest,
    }
    wrong |p| p.wrong_pages;
    figures {
        time "fill" = |p| p.fill,
        time "random" = |p| p.random,
        time "sequential" = |p| p.sequential,
        time "verify" = |p| p.verify,
        other "unasked, %" = |p| p.random_brought_in.as_ref().map(|came| came.unasked() * 100.0),
    }
}

outcome! {
    /// The pages that came into memory, and how often an absent page was requested.
    ///
    /// Each fault requests one page. Pages that come in with it were not requested then, and a later use of one of
    /// them is not a fault. So pages minus faults is an upper bound for the pages that came in vain. Later uses of
    /// these pages are not observed: all of them are counted as unused.
    ///
    /// Memory that was taken out of the program and is still in RAM (limbo) is counted separately: mapping it again
    /// brings nothing in.
    #[derive(Copy, PartialEq, Eq)]
    pub struct BroughtIn {
        /// Faults that found nothing in RAM.
        pub faults: u64,
        /// Pages that came in, from the store or as zeros.
        pub pages: u64,
        /// Faults that found their page in limbo.
        pub rescues: u64,
        /// Pages that were mapped again from limbo.
        pub rescued_pages: u64,
    }
}

impl BroughtIn {
    /// The ratio of pages that came in unrequested to the requested ones.
    #[must_use]
    pub fn unasked(&self) -> f64 {
        self.pages.saturating_sub(self.faults) as f64 / self.faults as f64
    }

    /// The difference from `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            faults: self.faults - before.faults,
            pages: self.pages - before.pages,
            rescues: self.rescues - before.rescues,
            rescued_pages: self.rescued_pages - before.rescued_pages,
        }
    }
}

/// The counts so far, from the side that resolves faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Faults that read from the store.
    pub major_faults: u64,
    /// The pages that came in, if known.
    pub brought_in: Option<BroughtIn>,
}

/// Does the work on `memory`, which is `work.pages` pages long. `counted` reads the counters.
pub fn run(
    memory: &mut [u8],
    work: &Work,
    manner: Manner,
    counted: impl Fn() -> Counted,
) -> Phases {
    let pages = memory.len() / PAGE;
    let Manner { data, write } = manner;
    let fill = timed(pages, || {
        for (index, page) in memory.chunks_exact_mut(PAGE).enumerate() {
            data.fill(page, index);
        }
    });
    // How often each page was written since. This vector takes one byte per 4 KiB, which is negligible compared with
    // either side's own tables.
    let mut rewritten = vec![0; pages];
    let before = counted();
    let accesses = work.accesses as usize;
    let random = timed(accesses, || {
        for index in data::random_pages(pages, 1).take(accesses) {
            let page = &mut memory[index * PAGE..][..PAGE];
            black_box(data::read(page));
            if write {
                rewritten[index] = data::rewrite(page, rewritten[index]);
            }
        }
    });
    let after = counted();
    let brought_in = after.brought_in.zip(before.brought_in);
    let sequential = timed(pages, || {
        for page in memory.chunks_exact(PAGE) {
            black_box(data::read(page));
        }
    });
    let mut wrong_pages = 0;
    let verify = timed(pages, || {
        let wrong = |&(index, page): &(usize, &[u8])| !data.matches(page, index, rewritten[index]);
        wrong_pages = memory.chunks_exact(PAGE).enumerate().filter(wrong).count() as u64;
    });
    let peak_rss_bytes = usage().peak_rss_bytes;
    let peak_charged_bytes = None;
    Phases {
        fill,
        random,
        sequential,
        verify,
        wrong_pages,
        random_major_faults: after.major_faults - before.major_faults,
        random_brought_in: brought_in.map(|(after, before)| after.since(&before)),
        peak_rss_bytes,
        peak_charged_bytes,
    }
}

/// Microseconds per page for generating the data, without any fault: this is part of every fill.
pub fn generator_cost() -> f64 {
    let mut page = [0; PAGE];
    let rounds = 20_000;
    timed(rounds, || {
        for index in 0..rounds {
            data::fill(black_box(&mut page), index);
        }
    })
}

fn timed(count: usize, work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64() * 1e6 / count as f64
}

/// The kernel's counts so far for this process.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Faults that needed no I/O.
    pub minor_faults: u64,
    /// Faults that needed I/O.
    pub major_faults: u64,
    /// Highest resident set, in bytes.
    pub peak_rss_bytes: u64,
}

/// Asks the kernel about this process.
pub fn usage() -> Usage {
    usage_of(libc::RUSAGE_SELF)
}

/// Asks the kernel about this thread. The peak is that of the process.
pub fn usage_of_thread() -> Usage {
    usage_of(libc::RUSAGE_THREAD)
}

/// The complete answer of `getrusage` about `whom`.
pub fn rusage(whom: libc::c_int) -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is writable and owned here, and all-zero bytes are valid for it.
    unsafe {
        libc::getrusage(whom, usage.as_mut_ptr());
        usage.assume_init()
    }
}

fn usage_of(whom: libc::c_int) -> Usage {
    let usage = rusage(whom);
    Usage {
        minor_faults: usage.ru_minflt as u64,
        major_faults: usage.ru_majflt as u64,
        peak_rss_bytes: (usage.ru_maxrss as u64) << 10,
    }
}
