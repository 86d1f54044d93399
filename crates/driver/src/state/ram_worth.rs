//! The worth of RAM: whether pages in memory keep their compressed copies, and whether compressed data is made denser.
//!
//! # What is weighed
//! A page that came back from compressed RAM leaves its copy there, and is not compressed again if it leaves unchanged.
//! During that time memory holds it twice. If memory is short, this may cost more than it saves: a python3 whose hot 70
//! MiB of 157 had 100 MiB for everything took 1,190,000 major faults, as 47 MiB of these were copies of everything.
//! Linux always gives the copy up when a page comes back from zram (`folio_free_swap`). And data compressed by LZ4
//! would take two thirds of its room with zstd, or half, but some microseconds more per load.
//!
//! # The inequality
//! The price of RAM is what it saves elsewhere: `a(x) · r` for each load, with `a(x)` the share of the loads that `x`
//! more pages for frames would save, by the core's curve, and `r` the time of a load with its fault. In the long run a
//! page leaves for each that is loaded, so copies save `u · e` for each load, with `u` the share of leaving pages that
//! are unchanged, and `e` the extra time of compressing over finding that nothing has changed. They cost `a(c) · r`,
//! with `c` the pages that copies of all frames take. Denser data costs the extra time of its loads (which are a part
//! of all loads, as data in use is not made denser), and saves `a(d) · r`, with `d` the pages that it would free.
//!
//! All of these are measured except the last. One folio in 64, of those that the core watches, keeps its copy
//! regardless of the others, and yields `u`.
//!
//! # When it is wrong
//! A wrong choice costs the difference until the next look, a tenth of a second later. Two looks in a row have to
//! agree, and the alternative has to be better by a quarter, because each change costs a round of compressing.
//!
//! A store with another tier behind it, from which pages come, keeps its copies: otherwise it would write data to the
//! file that is already there. So does a store that uses none of the program's RAM, such as a file.

use millpond_core::policy::curve::{self, SIZES};
use millpond_core::{PAGE_SIZE, Recompressed, StoreUsage, Tiers, VmStat};
use millpond_mmu::Delivery;
use millpond_sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Minimum number of loads between two looks for a meaningful result.
const LOADS: u64 = 512;
/// Minimum number of misses of the core's sample between two looks for a meaningful result.
const SAMPLED: u64 = 16;
/// Minimum number of leaving pages that had a copy, to tell how many are unchanged.
const LEFT: u64 = 64;
/// How much better the alternative has to be.
const BETTER: f64 = 1.25;
/// Time of a fault outside the manager, in nanoseconds.
const BY_SIGNAL: f64 = 4_000.0;
const BY_HANDLER: f64 = 8_000.0;
/// Assumed extra time of compressing a page, in nanoseconds, while none was measured.
const LONGER: f64 = 1_500.0;
/// The assumed part of stored data that making it denser saves, until enough bytes were made denser.
const DENSER: f64 = 1.0 / 3.0;
const TRIED: u64 = 4 << 20;
/// Extra time of a load of denser data, averaged over all loads, in nanoseconds: 4 µs for one in three.
const DENSE_TAKES: f64 = 1_300.0;
/// The minimum part of the loads, as a divisor, that come from the tier behind, if there is one.
const BEHIND: u64 = 64;

/// The outcomes of saving pages, and the time that it took.
#[derive(Debug, Default)]
pub(crate) struct Saves {
    stored: Pages,
    unchanged: Pages,
    /// Pages that had a copy and were stored because they had changed.
    changed: AtomicU64,
}

/// A number of pages, and the time that they took.
#[derive(Debug, Default)]
struct Pages {
    count: AtomicU64,
    nanos: AtomicU64,
}

impl Pages {
    fn add(&self, pages: u64, took: Duration) {
        self.count.fetch_add(pages, Relaxed);
        self.nanos.fetch_add(took.as_nanos() as u64, Relaxed);
    }

    fn so_far(&self) -> [u64; 2] {
        [&self.count, &self.nanos].map(|it| it.load(Relaxed))
    }
}

impl Saves {
    /// Notes that this many pages were stored. Whether they `had` a copy shows how often copies are useful.
    pub(crate) fn stored(&self, pages: u64, took: Duration, had: bool) {
        self.stored.add(pages, took);
        if had {
            self.changed.fetch_add(pages, Relaxed);
        }
    }

    /// Notes that this many pages were found to equal their copies.
    pub(crate) fn unchanged(&self, pages: u64, took: Duration) {
        self.unchanged.add(pages, took);
    }
}

/// The counts at some time.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    loads: u64,
    behind: u64,
    refaults_at: [u64; SIZES],
    stored: [u64; 2],
    unchanged: [u64; 2],
    changed: u64,
}

/// The input of a look.
pub(crate) struct Looked<'a> {
    /// The core's figures.
    pub(crate) vm: &'a VmStat,
    /// The store's.
    pub(crate) usage: StoreUsage,
    /// Those of its two places, if it has two.
    pub(crate) tiers: Option<Tiers>,
    /// The outcomes of saves.
    pub(crate) saves: &'a Saves,
    /// The data made denser so far.
    pub(crate) recompressed: Recompressed,
    /// The median time of a load, in nanoseconds, if it is known.
    pub(crate) load: Option<u64>,
}

/// The decisions, and the figures that they rest on. See the [module](self).
#[derive(Debug)]
pub(crate) struct RamWorth {
    keep: Choice,
    dense: Choice,
    last: Seen,
    /// The share of leaving pages that are unchanged.
    unchanged: f64,
    /// Extra time of compressing a page over finding it unchanged, in nanoseconds.
    longer: f64,
    fault: f64,
}

impl RamWorth {
    /// Begins with the core's present choice about copies: a child has its parent's core.
    pub(crate) fn new(delivery: Delivery, keep: bool) -> Self {
        Self {
            keep: Choice::new(keep),
            dense: Choice::new(false),
            last: Seen::default(),
            unchanged: 1.0,
            longer: LONGER,
            fault: match delivery {
                Delivery::InThread | Delivery::Direct => BY_SIGNAL,
                Delivery::Handler => BY_HANDLER,
            },
        }
    }

    /// Whether copies should be kept from now on, if that changes.
    pub(crate) fn look(&mut self, looked: &Looked<'_>) -> Option<bool> {
        let now = Seen {
            loads: looked.vm.pgmajfault,
            behind: looked.tiers.map_or(0, |tiers| tiers.behind.loads),
            refaults_at: looked.vm.refaults_at,
            stored: looked.saves.stored.so_far(),
            unchanged: looked.saves.unchanged.so_far(),
            changed: looked.saves.changed.load(Relaxed),
        };
        let then = self.last;
        let loads = now.loads.saturating_sub(then.loads);
        let misses = now.refaults_at[0].saturating_sub(then.refaults_at[0]);
        if loads < LOADS || misses < SAMPLED {
            return None;
        }
        self.last = now;
        self.learn(&then, &now);
        let behind = now.behind.saturating_sub(then.behind) > loads / BEHIND;
        let price = self.price(&then, &now, looked)?;
        let StoreUsage {
            logical_bytes,
            stored_bytes,
            ..
        } = looked.usage;
        let frames = (looked.vm.nr_mapped + looked.vm.nr_limbo) * PAGE_SIZE as u64;
        let part = stored_bytes as f64 / logical_bytes.max(1) as f64;
        let copies = frames.min(logical_bytes) as f64 * part;
        let spare = self.unchanged * self.longer;
        let Recompressed { bytes, saved, left } = looked.recompressed;
        let denser = match bytes + left {
            tried if tried >= TRIED => saved as f64 / (tried as f64 * part),
            _ => DENSER,
        };
        let dense_spares = match looked.tiers {
            None => price(stored_bytes as f64 * denser),
            // Room that becomes free is filled from the tier behind, and not by frames.
            Some(_) => 0.0,
        };
        self.dense.weigh(dense_spares, DENSE_TAKES);
        match behind {
            true => self.keep.weigh(1.0, 0.0),
            false => self.keep.weigh(spare, price(copies)),
        }
    }

    /// Whether compressed data should be made denser.
    pub(crate) fn is_dense_worth_it(&self) -> bool {
        self.dense.is
    }

    fn learn(&mut self, then: &Seen, now: &Seen) {
        let since =
            |now: [u64; 2], then: [u64; 2]| [0, 1].map(|at| now[at].saturating_sub(then[at]));
        let stored = since(now.stored, then.stored);
        let unchanged = since(now.unchanged, then.unchanged);
        let left = unchanged[0] + now.changed.saturating_sub(then.changed);
        if left >= LEFT {
            self.unchanged = unchanged[0] as f64 / left as f64;
        }
        if stored[0] >= LEFT && unchanged[0] >= LEFT {
            let each = |pages: [u64; 2]| pages[1] as f64 / pages[0] as f64;
            self.longer = (each(stored) - each(unchanged)).max(0.0);
        }
    }

    /// What this many bytes of RAM save for each load, in nanoseconds.
    fn price(
        &self,
        then: &Seen,
        now: &Seen,
        looked: &Looked<'_>,
    ) -> Option<impl Fn(f64) -> f64 + use<>> {
        let sampled: [u64; SIZES] = std::array::from_fn(|size| {
            now.refaults_at[size].saturating_sub(then.refaults_at[size])
        });
        let limit = looked.vm.nr_limit;
        let load = looked.load.unwrap_or(0) as f64 + self.fault;
        curve::avoided(&sampled, limit, 0)?;
        Some(move |bytes: f64| {
            let pages = (bytes / PAGE_SIZE as f64) as u64;
            curve::avoided(&sampled, limit, pages).unwrap_or(0.0) * load
        })
    }
}

/// A choice between two alternatives, which changes when the other one was better twice in a row.
#[derive(Debug)]
struct Choice {
    is: bool,
    /// The preference of the last look.
    wanted: bool,
}

impl Choice {
    fn new(is: bool) -> Self {
        Self { is, wanted: is }
    }

    /// The new choice, if it changes, given what doing it saves and costs.
    fn weigh(&mut self, spares: f64, costs: f64) -> Option<bool> {
        let wanted = match self.is {
            true => spares * BETTER >= costs,
            false => spares > costs * BETTER,
        };
        let before = std::mem::replace(&mut self.wanted, wanted);
        (wanted != self.is && before == wanted).then(|| {
            self.is = wanted;
            wanted
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A program with 32 MiB of frames before 100 MiB of compressed pages.
    struct Program {
        vm: VmStat,
        saves: Saves,
        tiers: Option<Tiers>,
        recompressed: Recompressed,
    }

    impl Program {
        fn new() -> Self {
            let pages = |mib: u64| mib * MIB / PAGE_SIZE as u64;
            Self {
                vm: VmStat {
                    nr_limit: pages(32),
                    nr_mapped: pages(30),
                    nr_limbo: pages(2),
                    ..VmStat::default()
                },
                saves: Saves::default(),
                tiers: None,
                recompressed: Recompressed::default(),
            }
        }

        /// Runs for a tick. `spared` is the number of misses, per thousand, that a quarter more memory would save;
        /// `unchanged` is the number of pages, per thousand, that leave unchanged. Returns the result of the look.
        fn tick(&mut self, worth: &mut RamWorth, spared: u64, unchanged: u64) -> Option<bool> {
            self.vm.pgmajfault += 10_000;
            let left = 1000 - spared;
            let misses = [1000, left, left, left, left];
            for (count, misses) in self.vm.refaults_at.iter_mut().zip(misses) {
                *count += misses;
            }
            let each = Duration::from_nanos(2000);
            self.saves.stored(1000 - unchanged, each * 1000, true);
            let each = Duration::from_nanos(800);
            self.saves.unchanged(unchanged, each * unchanged as u32);
            worth.look(&Looked {
                vm: &self.vm,
                usage: StoreUsage {
                    logical_bytes: 300 * MIB,
                    stored_bytes: 100 * MIB,
                    ..StoreUsage::default()
                },
                tiers: self.tiers,
                saves: &self.saves,
                recompressed: self.recompressed,
                load: Some(8000),
            })
        }
    }

    #[test]
    fn copies_are_dropped_if_more_memory_would_save_more() {
        let (mut program, mut worth) = (Program::new(), RamWorth::new(Delivery::Direct, true));
        // Ten MiB of copies would spare a third of the faults as frames.
        assert_eq!(
            program.tick(&mut worth, 300, 1000),
            None,
            "one look is none"
        );
        assert_eq!(program.tick(&mut worth, 300, 1000), Some(false));
        assert_eq!(program.tick(&mut worth, 300, 1000), None);
        // The program enters a phase in which memory is of no use.
        assert_eq!(program.tick(&mut worth, 0, 1000), None);
        assert_eq!(program.tick(&mut worth, 0, 1000), Some(true));
    }

    #[test]
    fn copies_of_changing_pages_save_nothing() {
        let (mut program, mut worth) = (Program::new(), RamWorth::new(Delivery::Direct, true));
        assert_eq!(program.tick(&mut worth, 20, 900), None);
        assert_eq!(program.tick(&mut worth, 20, 900), None);
        assert_eq!(
            program.tick(&mut worth, 20, 900),
            None,
            "they spare more than they cost"
        );
        assert_eq!(program.tick(&mut worth, 20, 0), None);
        assert_eq!(program.tick(&mut worth, 20, 0), Some(false));
    }

    #[test]
    fn recompression_continues_while_it_gains_something() {
        let (mut program, mut worth) = (Program::new(), RamWorth::new(Delivery::Direct, true));
        for _ in 0..2 {
            program.tick(&mut worth, 300, 1000);
        }
        assert!(worth.is_dense_worth_it());
        // It turns out that zstd hardly makes the data smaller.
        program.recompressed = Recompressed {
            bytes: 30 * MIB,
            saved: MIB / 4,
            left: 10 * MIB,
        };
        for _ in 0..2 {
            program.tick(&mut worth, 300, 1000);
        }
        assert!(!worth.is_dense_worth_it());
    }

    #[test]
    fn loads_from_the_file_tier_do_not_cause_copies_to_be_dropped() {
        let (mut program, mut worth) = (Program::new(), RamWorth::new(Delivery::Direct, true));
        for n in 1..4 {
            let mut tiers = Tiers::default();
            tiers.behind.loads = n * 1000;
            program.tiers = Some(tiers);
            assert_eq!(program.tick(&mut worth, 300, 1000), None, "look {n}");
        }
        assert!(!worth.is_dense_worth_it());
    }

    #[test]
    fn a_program_that_hardly_loads_changes_nothing() {
        let (mut program, mut worth) = (Program::new(), RamWorth::new(Delivery::Direct, true));
        program.tick(&mut worth, 300, 1000);
        program.vm.pgmajfault -= 9_900;
        assert_eq!(program.tick(&mut worth, 300, 1000), None);
    }
}
