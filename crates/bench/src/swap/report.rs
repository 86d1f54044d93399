//! The result of `millpond bench swap`, as JSON and as text.
//!
//! The JSON object has `schema` = `millpond-bench-swap/1`; later versions only add fields:
//!
//! | field | meaning |
//! | --- | --- |
//! | `machine` | `kernel` release, `cores` |
//! | `region_bytes`, `budget_bytes`, `accesses`, `rounds` | sizes of the work |
//! | `unit` | times are microseconds per page (fill, sequential, verify) or per access (random) |
//! | `generator` | microseconds per page for generating the data, contained in every fill |
//! | `store` | the medium to which both sides swap: `zram` (Millpond: compressed RAM) or `file` |
//! | `store_outside_budget` | whether Millpond's store is outside its budget: with `zram`, which is in no cgroup |
//! | `data` | the contents of pages: `quarter`, which compresses to a quarter, or `noise` |
//! | `write` | whether random accesses write a word of the page that they read |
//! | `delivery` | who serves Millpond's faults: `in-thread`, or `handler` as under `millpond run` |
//! | `millpond` | a list with one entry per order: `order`, `median`, `rounds` |
//! | `kernel` | `setting`, `median`, `rounds`; null when skipped |
//! | `skipped` | why a side was skipped: `millpond`, `kernel`, each a string or null |
//! | `ratio` | the kernel's median over Millpond's, for each phase; null when a side was skipped |
//!
//! A `ratio` has `fill`, `sequential` and `verify` at the order given in `sequential_order`, and `random` at the best
//! order, given in `random_order`.
//!
//! A `median` and each of `rounds` has `fill`, `random`, `sequential`, `verify`, `wrong_pages`, `random_major_faults`
//! (as counted by the side that resolves them), `random_brought_in` (see [`BroughtIn`](crate::phases::BroughtIn);
//! null for the kernel), `peak_rss_bytes` (as counted by the kernel for the process, including Millpond's store), and
//! `peak_charged_bytes` (what Millpond's manager charged to its budget; null for the kernel). The median is taken of
//! each time by itself; for `wrong_pages` and the peaks it is the highest value.

use crate::backing::Medium;
use crate::comparison::Measured;
use crate::data::Contents;
use crate::kernel_swap::Setting;
use crate::millpond_side::ServedBy;
use crate::order::BenchOrder;
use crate::phases::{Manner, Phases, Work};
use crate::summary::Machine;
use serde::Serialize;
use std::fmt;

/// Millpond's rounds at one order.
#[derive(Clone, Debug, Serialize)]
pub struct MillpondSide {
    /// The order of the folios.
    pub order: BenchOrder,
    /// The times of the rounds.
    #[serde(flatten)]
    pub side: Measured<Phases>,
}

/// The kernel's rounds.
#[derive(Clone, Debug, Serialize)]
pub struct KernelSide {
    /// The setting in which the rounds ran.
    pub setting: Setting,
    /// The times of the rounds.
    #[serde(flatten)]
    pub side: Measured<Phases>,
}

/// The reasons why sides were skipped.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Skipped {
    /// The reason for Millpond's side.
    pub millpond: Option<String>,
    /// The reason for the kernel's side.
    pub kernel: Option<String>,
}

/// The work, apart from its sizes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct What {
    /// The rounds of each side.
    pub rounds: usize,
    /// The thread that serves Millpond's faults.
    pub delivery: ServedBy,
    /// The medium to which both sides swap.
    pub store: Medium,
    /// The contents of the pages, and the kind of the random accesses.
    #[serde(flatten)]
    pub manner: Manner,
}

/// The factors by which Millpond is faster than the kernel.
#[derive(Clone, Debug, Serialize)]
struct Ratio {
    fill: f64,
    sequential: f64,
    verify: f64,
    sequential_order: BenchOrder,
    random: f64,
    random_order: BenchOrder,
}

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct SwapReport {
    schema: &'static str,
    machine: Machine,
    region_bytes: u64,
    budget_bytes: u64,
    accesses: u64,
    #[serde(flatten)]
    what: What,
    unit: &'static str,
    generator: f64,
    store_outside_budget: bool,
    millpond: Vec<MillpondSide>,
    kernel: Option<KernelSide>,
    skipped: Skipped,
    ratio: Option<Ratio>,
}

impl SwapReport {
    /// Composes the result.
    #[must_use]
    pub fn new(
        work: &Work,
        what: What,
        millpond: Vec<MillpondSide>,
        kernel: Option<KernelSide>,
        skipped: Skipped,
    ) -> Self {
        let ratio = kernel
            .as_ref()
            .and_then(|kernel| ratio(&millpond, &kernel.side.median));
        Self {
            schema: "millpond-bench-swap/1",
            machine: Machine::look(),
            region_bytes: work.pages * crate::data::PAGE as u64,
            budget_bytes: work.ram,
            accesses: work.accesses,
            what,
            unit: "microseconds a page (fill, sequential, verify) or an access (random)",
            generator: crate::phases::generator_cost(),
            store_outside_budget: what.store.is_outside_budget(),
            millpond,
            kernel,
            skipped,
            ratio,
        }
    }

    /// Whether every page had the right contents in every round.
    #[must_use]
    pub fn all_right(&self) -> bool {
        let kernel = self.kernel.iter().map(|kernel| &kernel.side);
        self.millpond
            .iter()
            .map(|ours| &ours.side)
            .chain(kernel)
            .all(|side| side.median.wrong_pages == 0)
    }
}

fn ratio(millpond: &[MillpondSide], kernel: &Phases) -> Option<Ratio> {
    let least = |time: fn(&Phases) -> f64| {
        let pairs = millpond
            .iter()
            .map(|ours| (time(&ours.side.median), ours.order));
        pairs.min_by(|a, b| a.0.total_cmp(&b.0))
    };
    let (_, sequential_order) = least(|p| p.sequential)?;
    let (random, random_order) = least(|p| p.random)?;
    let streaming = &millpond
        .iter()
        .find(|ours| ours.order == sequential_order)?
        .side
        .median;
    Some(Ratio {
        fill: kernel.fill / streaming.fill,
        sequential: kernel.sequential / streaming.sequential,
        verify: kernel.verify / streaming.verify,
        sequential_order,
        random: kernel.random / random,
        random_order,
    })
}

impl fmt::Display for SwapReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let What {
            rounds,
            delivery,
            store,
            manner,
        } = self.what;
        write!(f, "µs a page or an access, medians of {rounds} rounds")?;
        let noted = [
            (manner.data == Contents::Noise, "data does not compress"),
            (manner.write, "random accesses write"),
            (
                delivery == ServedBy::Handler,
                "faults are served by a handler's thread",
            ),
        ];
        for (_, what) in noted.iter().filter(|(is, _)| *is) {
            write!(f, "; {what}")?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "{:<24}{:>8}{:>8}{:>12}{:>8}",
            "", "fill", "random", "sequential", "verify"
        )?;
        let mut row = |name: &str, p: &Phases| {
            writeln!(
                f,
                "{name:<24}{:>8.2}{:>8.2}{:>12.2}{:>8.2}",
                p.fill, p.random, p.sequential, p.verify
            )
        };
        for ours in &self.millpond {
            row(&format!("millpond order {}", ours.order), &ours.side.median)?;
        }
        if let Some(kernel) = &self.kernel {
            row(store.kernel_name(), &kernel.side.median)?;
        }
        if let Some(r) = &self.ratio {
            let (sequential, random) = (r.sequential_order, r.random_order);
            writeln!(
                f,
                "times faster at order {sequential}: fill {:.2}, sequential {:.2}; ",
                r.fill, r.sequential
            )?;
            writeln!(f, "times faster at order {random}: random {:.2}", r.random)?;
        }
        for (side, why) in [
            ("millpond", &self.skipped.millpond),
            ("kernel", &self.skipped.kernel),
        ] {
            if let Some(why) = why {
                writeln!(f, "{side} skipped: {why}")?;
            }
        }
        if !self.all_right() {
            writeln!(f, "WRONG PAGES were read back; see the JSON form")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases(time: f64) -> Phases {
        Phases {
            fill: time,
            random: 10.0 - time,
            sequential: time,
            verify: time,
            wrong_pages: 0,
            random_major_faults: 5,
            random_brought_in: None,
            peak_rss_bytes: 7,
            peak_charged_bytes: None,
        }
    }

    fn fixed(order: u8) -> BenchOrder {
        order.to_string().parse().unwrap()
    }

    fn millpond(order: u8, times: &[f64]) -> MillpondSide {
        MillpondSide {
            order: fixed(order),
            side: times.iter().copied().map(phases).collect::<Vec<_>>().into(),
        }
    }

    #[test]
    fn the_ratio_takes_the_best_order_of_each_kind() {
        let sides = [millpond(0, &[5.0]), millpond(4, &[1.0, 2.0, 3.0])];
        let ratio = ratio(&sides, &phases(8.0)).unwrap();
        assert_eq!(
            (ratio.sequential_order, ratio.random_order),
            (fixed(4), fixed(0))
        );
        assert_eq!((ratio.fill, ratio.random), (4.0, 0.4));
    }

    #[test]
    fn one_wrong_page_in_one_round_is_seen() {
        let mut bad = phases(1.0);
        bad.wrong_pages = 1;
        let side = vec![phases(1.0), bad, phases(1.0)].into();
        let work = Work {
            pages: 8192,
            ram: 16 << 20,
            accesses: 10,
        };
        let order = fixed(4);
        let ours = vec![MillpondSide { order, side }];
        let what = What {
            rounds: 3,
            delivery: ServedBy::Handler,
            store: Medium::File,
            manner: Manner {
                data: Contents::Noise,
                write: true,
            },
        };
        let report = SwapReport::new(&work, what, ours, None, Skipped::default());
        assert!(!report.all_right());
        let text = report.to_string();
        assert!(text.contains("WRONG PAGES"), "{text}");
        let noted = "3 rounds; data does not compress; random accesses write; faults are served";
        assert!(text.contains(noted), "{text}");
    }
}
