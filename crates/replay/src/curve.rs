//! The curve of major faults against memory, as a table and a plot: what each further MiB would have saved.
//!
//! The numbers are the core's, from a replay or a running process ([`millpond_core::policy::curve`] says where they
//! come from). The core has examined a few sizes of memory; between two of them the curve is straight.

use millpond_core::policy::curve;
use millpond_core::policy::curve::{MORE, SIZES};
use millpond_core::{PAGE_SIZE, VmStat};
use std::fmt;

/// Number of faults examined by the core below which the curve is a guess.
const FEW: u64 = 100;
/// Number of cells of the longest bar.
const WIDTH: usize = 40;

/// The curve of what more memory would have saved.
///
/// ```
/// use millpond_replay::curve::Curve;
///
/// // Of 1600 major faults 80 were looked at; in 5/4 of 4000 pages there would have been 40 of them.
/// let curve = Curve::new(1600, 4000, [80, 40, 20, 0, 0]);
/// assert_eq!(curve.avoided(1000), 0.5);
/// assert_eq!(curve.avoided(2000), 0.75);
/// assert!(curve.to_string().contains("50.0 %"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Curve {
    faults: u64,
    limit: u64,
    counts: [u64; SIZES],
}

/// A point of the curve.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Step {
    /// Number of further pages.
    pub pages: u64,
    /// Share of the major faults that these pages would have saved.
    pub avoided: f64,
}

impl Step {
    /// Size of the further memory in human-readable form: `+16 MiB`.
    #[must_use]
    pub fn more(&self) -> String {
        size(self.pages)
    }
}

impl Curve {
    /// The curve of `faults` major faults in memory of `limit` pages; `counts` are [`VmStat::refaults_at`].
    #[must_use]
    pub fn new(faults: u64, limit: u64, counts: [u64; SIZES]) -> Self {
        Self {
            faults,
            limit,
            counts,
        }
    }

    /// The share of major faults that would not have happened with `pages` more; 0 if there were none, or nothing is
    /// known about them.
    #[must_use]
    pub fn avoided(&self, pages: u64) -> f64 {
        curve::avoided(&self.counts, self.limit, pages).unwrap_or(0.0)
    }

    /// Number of major faults to which the shares refer.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults
    }

    /// Whether so few major faults were examined that the shares are a guess.
    #[must_use]
    pub fn is_guess(&self) -> bool {
        self.counts[0] < FEW
    }

    /// The sizes that the core has examined; empty while nothing is known.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        if self.counts[0] == 0 {
            return Vec::new();
        }
        let step = |&quarters: &u32| {
            let pages = self.limit * u64::from(quarters) / 4;
            Step {
                pages,
                avoided: self.avoided(pages),
            }
        };
        MORE.iter().skip(1).map(step).collect()
    }
}

impl From<&VmStat> for Curve {
    fn from(stat: &VmStat) -> Self {
        Self::new(stat.pgmajfault, stat.nr_limit, stat.refaults_at)
    }
}

/// The curve as a table and a plot in one: a line for each step, with a bar.
impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.faults == 0 {
            return writeln!(
                f,
                "there were no major faults: more memory would have saved none"
            );
        }
        let steps = self.steps();
        if steps.is_empty() {
            return writeln!(
                f,
                "{} major faults are too few to say what more memory would have saved",
                self.faults
            );
        }
        let guess = if self.is_guess() {
            "; a guess from few of them"
        } else {
            ""
        };
        writeln!(
            f,
            "{:>12}  major faults that would not have happened (of {}{guess})",
            "more memory", self.faults
        )?;
        for step in steps {
            let (more, bar) = (step.more(), bar(step.avoided));
            writeln!(f, "{more:>12}  {:>5.1} %  {bar}", step.avoided * 100.0)?;
        }
        Ok(())
    }
}

fn bar(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (WIDTH * 8) as f64).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// Pages as bytes, with one decimal place if that is not a whole number.
fn size(pages: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = pages as f64 * (PAGE_SIZE / 1024) as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let places = usize::from((value * 10.0).round() % 10.0 != 0.0);
    format!("+{value:.places$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_never_falls_and_ends_at_the_largest_size() {
        let curve = Curve::new(2000, 1000, [400, 300, 320, 100, 40]);
        let mut last = 0.0;
        for more in 0..4000 {
            let avoided = curve.avoided(more);
            assert!(avoided >= last, "{more}");
            last = avoided;
        }
        assert_eq!(last, 0.9);
        assert_eq!(curve.avoided(250), 0.25);
        // Half more memory would have been worse than a quarter more, but a program need not use all of it.
        assert_eq!(curve.avoided(500), 0.25);
    }

    #[test]
    fn the_table_shows_what_is_gained() {
        let text = Curve::new(9000, 4096, [800, 800, 400, 0, 0]).to_string();
        for part in [
            "+4 MiB    0.0 %",
            "+8 MiB   50.0 %  ████",
            "+16 MiB  100.0 %",
            "(of 9000)",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let few = Curve::new(900, 4096, [80, 80, 40, 0, 0]).to_string();
        assert!(few.contains("a guess"), "{few}");
        let none = Curve::new(0, 4096, [0; SIZES]).to_string();
        assert!(none.contains("no major faults"), "{none}");
        let unknown = Curve::new(5, 4096, [0; SIZES]).to_string();
        assert!(unknown.contains("too few"), "{unknown}");
    }

    #[test]
    fn sizes_are_printed_in_suitable_units() {
        let sizes = [1, 1000, 1024, 1_300, 1 << 20].map(size);
        assert_eq!(
            sizes,
            ["+4 KiB", "+3.9 MiB", "+4 MiB", "+5.1 MiB", "+4 GiB"]
        );
    }
}
