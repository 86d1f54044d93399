//! A part of a benchmark: the results of its sides, the comparison between them, and the table that people see.
//!
//! A part has an `Outcome`, which says what one measured process found, and a kind of side, which says whose memory
//! that was and how it was used. From both a part makes medians, a ratio for each pair of an own side and a kernel's,
//! and its text.

use crate::error::Skip;
use crate::rounds::{Measured, Median};
use serde::Serialize;
use std::fmt;

/// A figure of a part.
pub struct Figure<T> {
    name: &'static str,
    of: fn(&T) -> f64,
    /// Whether sides are compared by this figure.
    is_time: bool,
}

impl<T> Figure<T> {
    /// A time, by which sides are compared.
    pub const fn time(name: &'static str, of: fn(&T) -> f64) -> Self {
        let is_time = true;
        Self { name, of, is_time }
    }

    /// A figure by which sides are not compared.
    pub const fn other(name: &'static str, of: fn(&T) -> f64) -> Self {
        let is_time = false;
        Self { name, of, is_time }
    }
}

/// The findings of a measured process.
pub trait Outcome: Median + 'static {
    /// The figures that are shown of the outcome.
    const FIGURES: &'static [Figure<Self>];

    /// Places in memory that did not hold what they had to.
    fn wrong(&self) -> u64;
}

/// A side that is compared with others.
pub trait Contender: Copy + PartialEq {
    /// Whether the kernel has the memory.
    fn is_kernel(self) -> bool {
        false
    }

    /// Whether the side is compared with `other`; if nothing else is said, each own side is with each of the kernel's.
    fn is_against(self, other: Self) -> bool {
        !self.is_kernel() && other.is_kernel()
    }
}

/// A part that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Part<K, S, T> {
    /// The sizes of the work.
    pub sizes: S,
    /// The rounds of each side.
    pub sides: Vec<SideRounds<K, T>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ratios: Vec<Ratio<K>>,
}

/// One side of a part.
#[derive(Clone, Debug, Serialize)]
pub struct SideRounds<K, T> {
    /// The side.
    pub side: K,
    /// The rounds of the side.
    #[serde(flatten)]
    pub measured: Measured<T>,
}

/// The factor by which a side is faster than another.
#[derive(Clone, Debug, Serialize)]
struct Ratio<K> {
    figure: &'static str,
    ours: K,
    against: K,
    times: f64,
}

impl<K: Contender, S, T: Outcome> Part<K, S, T> {
    /// Sums up the rounds, and compares the sides.
    #[must_use]
    pub fn new(sizes: S, rounds: Vec<(K, Vec<T>)>) -> Self {
        let sides = rounds.into_iter().map(|(side, rounds)| SideRounds {
            side,
            measured: rounds.into(),
        });
        let sides: Vec<_> = sides.collect();
        Self {
            sizes,
            ratios: ratios(&sides),
            sides,
        }
    }

    /// The factor by which `ours` is faster than `against`.
    #[cfg(test)]
    pub fn ratio(&self, figure: &str, ours: K, against: K) -> Option<f64> {
        let found = self.ratios.iter().find(|ratio| {
            ratio.figure == figure && ratio.ours == ours && ratio.against == against
        })?;
        Some(found.times)
    }
}

/// The ratios of all pairs that are compared, where both have the figure.
fn ratios<K: Contender, T: Outcome>(sides: &[SideRounds<K, T>]) -> Vec<Ratio<K>> {
    let mut ratios = Vec::new();
    for figure in T::FIGURES.iter().filter(|figure| figure.is_time) {
        let time = |side: &SideRounds<K, T>| (figure.of)(&side.measured.median);
        for ours in sides {
            for against in sides
                .iter()
                .filter(|other| ours.side.is_against(other.side))
            {
                let times = time(against) / time(ours);
                if !times.is_nan() {
                    ratios.push(Ratio {
                        figure: figure.name,
                        ours: ours.side,
                        against: against.side,
                        times,
                    });
                }
            }
        }
    }
    ratios
}

/// A part for people.
pub trait Table {
    /// Places in memory of all sides that did not hold what they had to.
    fn wrong(&self) -> u64;

    /// Writes the table.
    ///
    /// # Errors
    /// When `f` takes no more.
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

impl<K: Contender + fmt::Display, S, T: Outcome> Table for Part<K, S, T> {
    fn wrong(&self) -> u64 {
        let medians = self.sides.iter().map(|side| &side.measured.median);
        medians.map(T::wrong).sum()
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<26}", "")?;
        for figure in T::FIGURES {
            write!(f, "{:>13}", figure.name)?;
        }
        writeln!(f)?;
        for side in &self.sides {
            write!(f, "{:<26}", side.side.to_string())?;
            for figure in T::FIGURES {
                let value = (figure.of)(&side.measured.median);
                match value {
                    value if value.is_nan() => write!(f, "{:>13}", "-")?,
                    value if value.fract() == 0.0 => write!(f, "{value:>13}")?,
                    value => write!(f, "{value:>13.3}")?,
                }
            }
            writeln!(f)?;
        }
        for Ratio {
            figure,
            ours,
            against,
            times,
        } in &self.ratios
        {
            writeln!(
                f,
                "{figure}: {ours} is {times:.2} times as fast as {against}"
            )?;
        }
        Ok(())
    }
}

/// A part that was measured, below its heading.
pub struct Shown<'a> {
    /// What was measured.
    pub heading: String,
    /// The figures.
    pub table: &'a dyn Table,
}

/// A part as people see it; `None` when it was not measured.
pub fn show<K: Contender + fmt::Display, S, T: Outcome>(
    part: &Option<Part<K, S, T>>,
    heading: impl FnOnce(&S) -> String,
) -> Option<Shown<'_>> {
    let part = part.as_ref()?;
    Some(Shown {
        heading: heading(&part.sizes),
        table: part,
    })
}

/// The list of what was left out.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Skips(Vec<Skipped>);

#[derive(Clone, Debug, Serialize)]
struct Skipped {
    what: String,
    why: String,
}

impl Skips {
    /// Notes that something was left out.
    pub fn note(&mut self, what: &str, why: &Skip) {
        self.0.push(Skipped {
            what: what.to_owned(),
            why: why.to_string(),
        });
    }

    /// What was left out, and why.
    pub fn into_entries(self) -> impl Iterator<Item = (String, Skip)> {
        self.0
            .into_iter()
            .map(|Skipped { what, why }| (what, Skip(why)))
    }
}

/// The list as text, with a line for each entry.
impl fmt::Display for Skips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|Skipped { what, why }| writeln!(f, "{what} skipped: {why}"))
    }
}

/// Whether `part` is among those that `--only` names; all parts are when it names none.
pub fn is_asked_for<T: PartialEq>(only: &[T], part: T) -> bool {
    only.is_empty() || only.contains(&part)
}
