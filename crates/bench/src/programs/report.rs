//! The result of `millpond bench programs`, for programs (JSON) and for people.
//!
//! The JSON object has `schema` = `millpond-bench-programs/3`; later versions only add fields:
//!
//! | field | meaning |
//! | --- | --- |
//! | `machine` | `kernel` release, `cores` |
//! | `load` | the machine's load average of the last minute, before and after |
//! | `rounds` | rounds of each side |
//! | `order` | the order of Millpond's folios, as `--order` takes it |
//! | `programs` | for each program and each share (2 is a half of its memory): `name`, `share`, and what `bench run` has for its `program` |
//! | `sums` | for each share: [`Sum`] |
//! | `skipped` | `what` was left out and `why` |

use crate::part::{Part, Shown, Skips, Table};
use crate::run::{Outcome, Side, Sizes};
use crate::summary::Parts;
use millpond_cli::size::Human;
use serde::Serialize;
use std::fmt;

/// A program in a share of its memory.
#[derive(Clone, Debug, Serialize)]
pub struct Shared {
    /// The program's name.
    pub name: &'static str,
    /// The divisor of its memory.
    pub share: u64,
    /// Its sides.
    #[serde(flatten)]
    pub part: Part<Side, Sizes, Outcome>,
}

impl Shared {
    fn median(&self, side: Side) -> Option<&Outcome> {
        let found = self.part.sides.iter().find(|one| one.side == side);
        found.map(|found| &found.measured.median)
    }

    /// Millpond's time over the kernel's at equal memory, if all rounds of both were finished.
    fn over_equal(&self) -> Option<f64> {
        let time = |side| self.median(side).filter(|one| one.failed == 0)?.seconds;
        Some(time(Side::Millpond)? / time(Side::KernelEqual)?)
    }
}

/// All programs in one share of their memory.
#[derive(Clone, Debug, Serialize)]
pub struct Sum {
    /// The divisor of their memory.
    pub share: u64,
    /// Programs that were measured.
    pub programs: usize,
    /// Programs of which Millpond and the kernel at equal memory finished all rounds.
    pub compared: usize,
    /// Geometric mean, over these, of Millpond's time over the kernel's at equal memory.
    pub over_equal: Option<f64>,
    /// The largest of these ratios.
    pub largest: Option<f64>,
    /// The program that it is of.
    pub largest_of: Option<&'static str>,
    /// Programs that Millpond finished each time, and the kernel at equal memory did not.
    pub equal_failed: Vec<&'static str>,
    /// The same for the swap file.
    pub file_failed: Vec<&'static str>,
    /// Programs that Millpond did not finish each time.
    pub millpond_failed: Vec<&'static str>,
    /// Programs of which more was resident under Millpond than the budget.
    pub over_budget: Vec<&'static str>,
}

impl Sum {
    fn of(share: u64, programs: &[&Shared]) -> Self {
        let ratios = programs
            .iter()
            .filter_map(|one| Some((one.over_equal()?, one.name)));
        let ratios: Vec<(f64, &'static str)> = ratios.collect();
        let largest = ratios
            .iter()
            .copied()
            .max_by(|one, other| one.0.total_cmp(&other.0));
        let logarithms: f64 = ratios.iter().map(|(ratio, _)| ratio.ln()).sum();
        let names = |is: &dyn Fn(&Shared) -> bool| {
            let those = programs.iter().filter(|one| is(one));
            those.map(|one| one.name).collect()
        };
        let failed = |one: &Shared, side| one.median(side).is_some_and(|median| median.failed > 0);
        let ours = Side::Millpond;
        let only_theirs = |side| names(&|one| failed(one, side) && !failed(one, ours));
        Self {
            share,
            programs: programs.len(),
            compared: ratios.len(),
            over_equal: largest.map(|_| (logarithms / ratios.len() as f64).exp()),
            largest: largest.map(|(ratio, _)| ratio),
            largest_of: largest.map(|(_, name)| name),
            equal_failed: only_theirs(Side::KernelEqual),
            file_failed: only_theirs(Side::KernelFile),
            millpond_failed: names(&|one| failed(one, ours)),
            over_budget: names(&|one| {
                let peak = one.median(ours).map(|median| median.peak_rss_bytes);
                peak.is_some_and(|peak| peak > one.part.sizes.ram_bytes)
            }),
        }
    }
}

/// The lines of a sum for people.
impl Table for Sum {
    fn wrong(&self) -> u64 {
        0
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: &[&str]| match names {
            [] => "none".to_owned(),
            names => names.join(", "),
        };
        if let (Some(mean), Some(largest), Some(name)) =
            (self.over_equal, self.largest, self.largest_of)
        {
            writeln!(
                f,
                "Millpond's time over the kernel's at equal memory: geometric mean {mean:.2} of {} programs, largest {largest:.2} ({name})",
                self.compared
            )?;
        }
        writeln!(
            f,
            "finished by Millpond alone, not by the kernel at equal memory: {}",
            list(&self.equal_failed)
        )?;
        writeln!(
            f,
            "finished by Millpond alone, not with a swap file: {}",
            list(&self.file_failed)
        )?;
        writeln!(
            f,
            "not finished by Millpond: {}",
            list(&self.millpond_failed)
        )?;
        writeln!(
            f,
            "over the budget under Millpond: {}",
            list(&self.over_budget)
        )
    }
}

/// All that was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProgramsParts {
    /// Each program in each share of its memory.
    pub programs: Vec<Shared>,
    sums: Vec<Sum>,
    #[serde(skip)]
    said: Vec<String>,
}

impl ProgramsParts {
    /// Sums up, for each share.
    pub fn sum_up(&mut self) {
        let mut shares: Vec<u64> = self.programs.iter().map(|one| one.share).collect();
        shares.sort_unstable();
        shares.dedup();
        let sums = shares.into_iter().map(|share| {
            let programs = self.programs.iter().filter(|one| one.share == share);
            Sum::of(share, &programs.collect::<Vec<_>>())
        });
        self.sums = sums.collect();
    }

    /// Takes over what was left out of one program's sides: each side once, because all programs have the same.
    pub fn skipped_sides(&mut self, all: &mut Skips, skipped: Skips) {
        for (what, why) in skipped.into_entries() {
            if !self.said.contains(&what) {
                all.note(&what, &why);
                self.said.push(what);
            }
        }
    }
}

impl Parts for ProgramsParts {
    const SCHEMA: &'static str = "millpond-bench-programs/3";

    fn all(&self) -> Vec<Option<Shown<'_>>> {
        let programs = self.programs.iter().map(|one| {
            let sizes = &one.part.sizes;
            let (ram, peak) = (Human(sizes.ram_bytes), Human(sizes.peak_rss_bytes));
            let differs = match sizes.is_repeatable {
                true => "",
                false => {
                    "; its output differs between two runs without a limit, and is not compared"
                }
            };
            Some(Shown {
                heading: format!("{} in {ram}, without a limit {peak}{differs}", one.name),
                table: &one.part as &dyn Table,
            })
        });
        let sums = self.sums.iter().map(|sum| {
            Some(Shown {
                heading: format!(
                    "all {} programs in 1/{} of their memory",
                    sum.programs, sum.share
                ),
                table: sum as &dyn Table,
            })
        });
        programs.chain(sums).collect()
    }

    fn units(&self, order: &str) -> String {
        format!("times are seconds; Millpond's folios are of order {order}")
    }
}
