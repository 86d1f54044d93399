//! A program in a share of its memory, and the summary of all programs.

use crate::comparison::Table;
use crate::run::{Compared, Outcome, Side};
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
    pub part: Compared,
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

    /// The heading of the program's table.
    pub fn heading(&self) -> String {
        let sizes = &self.part.sizes;
        let (ram, peak) = sizes.ram_and_peak();
        let differs = match sizes.is_repeatable {
            true => "",
            false => "; its output differs between two runs without a limit, and is not compared",
        };
        format!("{} in {ram}, without a limit {peak}{differs}", self.name)
    }
}

/// All programs in one share of their memory.
#[derive(Clone, Debug, Serialize)]
pub struct Sum {
    /// The divisor of their memory.
    pub share: u64,
    /// The number of measured programs.
    pub programs: usize,
    /// The number of programs that finished all rounds both under Millpond and under the kernel at equal memory.
    pub compared: usize,
    /// The geometric mean, over these programs, of Millpond's time over the kernel's at equal memory.
    pub over_equal: Option<f64>,
    /// The largest of these ratios.
    pub largest: Option<f64>,
    /// The program with this ratio.
    pub largest_of: Option<&'static str>,
    /// Programs that finished each time under Millpond, but not under the kernel at equal memory.
    pub equal_failed: Vec<&'static str>,
    /// The same for the kernel with a swap file.
    pub file_failed: Vec<&'static str>,
    /// Programs that did not finish each time under Millpond.
    pub millpond_failed: Vec<&'static str>,
    /// Programs whose resident memory under Millpond exceeded the budget.
    pub over_budget: Vec<&'static str>,
}

impl Sum {
    /// The sum of each share.
    pub fn of_each(programs: &[Shared]) -> Vec<Self> {
        let mut shares: Vec<u64> = programs.iter().map(|one| one.share).collect();
        shares.sort_unstable();
        shares.dedup();
        let sums = shares.into_iter().map(|share| {
            let programs = programs.iter().filter(|one| one.share == share);
            Self::of(share, &programs.collect::<Vec<_>>())
        });
        sums.collect()
    }

    /// The heading of the summary.
    pub fn heading(&self) -> String {
        let (programs, share) = (self.programs, self.share);
        format!("all {programs} programs in 1/{share} of their memory")
    }

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

/// Writes the lines of a summary.
impl Table for Sum {
    fn write(&self, f: &mut dyn fmt::Write) -> fmt::Result {
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
