//! The measured process: it maps the file, or opens it for direct reads, and reads it as the part requires.

use crate::cgroup;
use crate::clock::Clock;
use crate::data::{self, PAGE};
use crate::error::Failure;
use crate::file::data_file::open_direct;
use crate::file::{Part, Side, Sizes};
use crate::mapping::{Mapping, Pages};
use crate::outcome::{highest, mib, outcome};
use crate::phases::usage;
use millpond::{Delivery, Manager, Mode};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::{io, thread};

/// The size of one direct read, which is a huge page's, and how many of them are in flight at once.
const DEVICE_READ: usize = 2 << 20;
const DEVICE_READS: usize = 4;
/// The number of passes over the hot set before the scan begins.
const WARM_PASSES: u32 = 4;
/// The scan's length in budgets, if the file is long enough.
const SCAN_BUDGETS: usize = 10;
/// The number of pages of the hot set that are touched between two readings of the counters, and of pages of the scan
/// after them.
const BATCH: usize = 64;

outcome! {
    /// The measurements of one process.
    pub struct Outcome {
        /// Microseconds per page for all threads together.
        pub page: f64,
        /// Processor time of all threads per page, in microseconds.
        pub cpu: f64,
        /// Major faults, as counted by the side that resolves them; none if calls read the file.
        pub major_faults: u64,
        /// The share of accesses to the hot set that took no major fault during the scan; null in other parts.
        pub hit_ratio: Option<f64>,
        /// Peak resident set of the process, as counted by the kernel.
        pub peak_rss_bytes: u64 = highest,
        /// Peak memory of the process's control group, including the page cache that it filled; null if the user may
        /// not create a group.
        pub peak_group_bytes: Option<u64> = highest,
        /// Pages that differed from the file's contents.
        pub wrong_pages: u64 = highest,
    }
    wrong |r| r.wrong_pages;
    figures {
        time "page" = |r| r.page,
        other "cpu" = |r| r.cpu,
        other "faults" = |r| r.major_faults,
        other "hit ratio" = |r| r.hit_ratio,
        other "rss MiB" = |r| mib(r.peak_rss_bytes),
        other "group MiB" = |r| r.peak_group_bytes.map(mib),
    }
}

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The part.
    pub part: Part,
    /// Who brings the pages in.
    pub side: Side,
    /// The file.
    pub file: PathBuf,
    /// The directory of the process's memory cgroup.
    pub cgroup: Option<PathBuf>,
    /// The sizes.
    pub sizes: Sizes,
}

/// Reads the file, and measures.
///
/// # Errors
/// When the process cannot map the file or enter its group.
pub fn work(task: &Task) -> Result<Outcome, Failure> {
    if let Some(cgroup) = &task.cgroup {
        cgroup::enter(cgroup)?;
    }
    let mut outcome = match task.side {
        Side::Millpond => {
            let settings = Manager::builder().ram(task.sizes.budget_bytes);
            let manager = settings.delivery(Delivery::InThread).build()?;
            // SAFETY: nobody changes the file after its creation.
            let file = unsafe { manager.map_file(&task.file, .., Mode::ReadOnly)? };
            read(file.as_slice(), task, &|| manager.stats().vm.pgmajfault)?
        }
        Side::Kernel | Side::KernelAdvised => {
            let file = MappedByKernel::new(&task.file)?;
            if task.side == Side::KernelAdvised {
                file.advise(task.part)?;
            }
            read(file.bytes(), task, &|| usage().major_faults)?
        }
        Side::Device => device(&task.file, task.sizes.file_bytes as usize)?,
    };
    outcome.peak_rss_bytes = usage().peak_rss_bytes;
    Ok(outcome)
}

fn read(memory: &[u8], task: &Task, faults: &dyn Fn() -> u64) -> Result<Outcome, Failure> {
    let accesses = task.sizes.accesses as usize;
    match task.part {
        Part::Sequential => by_threads(memory, 1, faults, |_| Box::new(0..memory.len() / PAGE)),
        Part::Random => at_random(memory, 1, accesses, faults),
        Part::RandomThreads => at_random(memory, task.sizes.threads.into(), accesses, faults),
        Part::Hot => Ok(hot(memory, task.sizes.budget_bytes as usize / PAGE, faults)),
    }
}

/// Reads pages at random with several threads, `accesses` of them in total.
fn at_random(
    memory: &[u8],
    threads: usize,
    accesses: usize,
    faults: &dyn Fn() -> u64,
) -> Result<Outcome, Failure> {
    let pages = memory.len() / PAGE;
    by_threads(memory, threads, faults, |number| {
        Box::new(data::random_pages(pages, number as u64).take(accesses.div_ceil(threads)))
    })
}

/// Reads pages with all threads, each in the order that `order` gives for its number. They begin when the last one is
/// ready.
fn by_threads<'a>(
    memory: &[u8],
    threads: usize,
    faults: &dyn Fn() -> u64,
    order: impl Fn(usize) -> Box<dyn Iterator<Item = usize> + 'a> + Sync,
) -> Result<Outcome, Failure> {
    let start = Barrier::new(threads + 1);
    let before = faults();
    let share = |number| {
        let pages = order(number);
        start.wait();
        pages.fold((0, 0), |(read, wrong), page| {
            (read + 1, wrong + u64::from(!data::look(memory, page)))
        })
    };
    let (page, cpu, done) = thread::scope(|scope| {
        let share = &share;
        let running: Vec<_> = (0..threads)
            .map(|number| scope.spawn(move || share(number)))
            .collect();
        start.wait();
        let clock = Clock::start();
        let done: Vec<_> = running.into_iter().map(|thread| thread.join()).collect();
        (clock.wall(), clock.cpu(), done)
    });
    let (mut pages, mut wrong_pages) = (0, 0);
    for one in done {
        let (read, wrong): (u64, u64) = one.map_err(|_| "a thread panicked")?;
        pages += read;
        wrong_pages += wrong;
    }
    Ok(Outcome {
        page: page / pages as f64,
        cpu: cpu / pages as f64,
        major_faults: faults() - before,
        wrong_pages,
        ..Outcome::default()
    })
}

/// Reads a hot set of half the budget repeatedly in random order, during a scan of the rest of the file. The hit
/// ratio is the share of accesses to the set that took no major fault.
fn hot(memory: &[u8], budget: usize, faults: &dyn Fn() -> u64) -> Outcome {
    let set = budget / 2;
    let end = memory.len() / PAGE;
    let mut scan = set..end.min(set + SCAN_BUDGETS * budget);
    let mut hot: Vec<usize> = (0..set.min(end)).collect();
    let mut random = data::Shuffle::new(7);
    let mut wrong_pages = 0;
    let mut look = |page| wrong_pages += u64::from(!data::look(memory, page));
    for _ in 0..WARM_PASSES {
        random.shuffle(&mut hot);
        hot.iter().copied().for_each(&mut look);
    }
    let clock = Clock::start();
    let first = faults();
    let (mut accesses, mut missed, mut read) = (0, 0, 0);
    // The loop continues to the end of the scan.
    while !scan.is_empty() {
        random.shuffle(&mut hot);
        for batch in hot.chunks(BATCH) {
            let before = faults();
            batch.iter().copied().for_each(&mut look);
            missed += faults() - before;
            accesses += batch.len();
            let passing = take(&mut scan, BATCH);
            read += batch.len() + passing.len();
            passing.for_each(&mut look);
        }
    }
    Outcome {
        page: clock.wall() / read as f64,
        cpu: clock.cpu() / read as f64,
        major_faults: faults() - first,
        hit_ratio: Some(1.0 - missed as f64 / accesses as f64),
        wrong_pages,
        ..Outcome::default()
    }
}

/// Removes at most `most` pages from the front of `pages`, and returns them.
fn take(pages: &mut Range<usize>, most: usize) -> Range<usize> {
    let taken = pages.start..pages.end.min(pages.start + most);
    pages.start = taken.end;
    taken
}

/// Reads the whole file with calls that bypass the page cache, several at a time, and inspects every page as the
/// other sides do.
fn device(path: &Path, bytes: usize) -> Result<Outcome, Failure> {
    let file = open_direct(path)?;
    let clock = Clock::start();
    let stripe = |number: usize| -> io::Result<u64> {
        let mut buffer = Mapping::new(DEVICE_READ, Pages::Huge)?;
        let mut wrong = 0;
        let mut at = number * DEVICE_READ;
        while at < bytes {
            let len = DEVICE_READ.min(bytes - at);
            let out = &mut buffer.bytes_mut()[..len];
            if rustix::io::pread(&file, &mut *out, at as u64)? != len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            for (page, bytes) in out.chunks_exact(PAGE).enumerate() {
                let is = std::hint::black_box(data::read(bytes)) > 0
                    && bytes[PAGE - 8..] == ((at / PAGE + page) as u64).to_le_bytes();
                wrong += u64::from(!is);
            }
            at += DEVICE_READS * DEVICE_READ;
        }
        Ok(wrong)
    };
    let wrong = thread::scope(|scope| {
        let stripe = &stripe;
        let running: Vec<_> = (0..DEVICE_READS)
            .map(|number| scope.spawn(move || stripe(number)))
            .collect();
        let done = running.into_iter().map(|thread| thread.join());
        let done: Result<Vec<_>, _> = done.collect();
        done.map_err(|_| "a thread panicked")
    })?;
    let pages = (bytes / PAGE) as f64;
    Ok(Outcome {
        page: clock.wall() / pages,
        cpu: clock.cpu() / pages,
        wrong_pages: wrong.into_iter().sum::<io::Result<u64>>()?,
        ..Outcome::default()
    })
}

/// A read-only mapping of a file by the kernel.
struct MappedByKernel(*mut u8, usize);

impl MappedByKernel {
    fn new(path: &Path) -> io::Result<Self> {
        let file = std::fs::File::open(path)?;
        let len = file.metadata()?.len() as usize;
        let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: the kernel chooses the address, so no memory of this process is replaced.
        let at =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, &file, 0)? };
        Ok(Self(at.cast(), len))
    }

    /// Tells the kernel how the file will be read.
    fn advise(&self, part: Part) -> io::Result<()> {
        let advice = match part {
            Part::Sequential => Advice::Sequential,
            Part::Random | Part::RandomThreads | Part::Hot => Advice::Random,
        };
        // SAFETY: this value owns the mapping, and the advice does not change its contents.
        unsafe { rustix::mm::madvise(self.0.cast(), self.1, advice)? };
        Ok(())
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is readable, and nobody changes the file.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }
    }
}

impl Drop for MappedByKernel {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing refers to it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.0.cast(), self.1) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?} of an own mapping");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::data_file::DataFile;

    const PAGES: usize = 3001;

    fn task(part: Part, side: Side, file: &DataFile) -> Task {
        Task {
            part,
            side,
            file: file.path(),
            cgroup: None,
            sizes: Sizes {
                file_bytes: (PAGES * PAGE) as u64,
                budget_bytes: 200 * PAGE as u64,
                accesses: 700,
                threads: 3,
            },
        }
    }

    #[test]
    fn the_kernel_and_the_device_read_what_the_file_holds() {
        let file = DataFile::make(Path::new("/var/tmp"), (PAGES * PAGE) as u64).unwrap();
        for part in [
            Part::Sequential,
            Part::Random,
            Part::RandomThreads,
            Part::Hot,
        ] {
            for side in [Side::Kernel, Side::KernelAdvised] {
                let outcome = work(&task(part, side, &file)).unwrap();
                assert_eq!(outcome.wrong_pages, 0, "{part:?}");
                assert_eq!(outcome.hit_ratio.is_some(), part == Part::Hot);
                assert!(outcome.page > 0.0 && outcome.peak_rss_bytes > 0);
            }
        }
        if open_direct(&file.path()).is_ok() {
            let outcome = work(&task(Part::Sequential, Side::Device, &file)).unwrap();
            assert_eq!(outcome.wrong_pages, 0);
        }
    }

    #[test]
    fn a_wrong_page_is_counted_and_a_scan_is_read_once() {
        let mut memory = vec![0; PAGES * PAGE];
        data::fill_all(&mut memory);
        memory[2500 * PAGE - 1] ^= 1;
        let no_faults = || 0;
        let outcome = hot(&memory, 300, &no_faults);
        assert_eq!((outcome.wrong_pages, outcome.hit_ratio), (1, Some(1.0)));
        let in_order = |_| Box::new(0..PAGES) as Box<dyn Iterator<Item = usize>>;
        let outcome = by_threads(&memory, 2, &no_faults, in_order).unwrap();
        assert_eq!(outcome.wrong_pages, 2);
    }
}
