//! A part of a benchmark: the results of its sides, the comparison between them, and the printed table.
//!
//! A part has an [`Outcome`], the findings of one measured process, and a kind of side, which tells whose memory that
//! was and how it was used. From these a part computes medians, a ratio for each pair of one of our sides and one of
//! the kernel's, and its text.

use crate::outcome::{Median, Outcome};
use crate::side::Contender;
use serde::Serialize;
use std::fmt;

/// The sides of a measured part, and how they compare.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison<K, S, T> {
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

/// The rounds of one side.
#[derive(Clone, Debug, Serialize)]
pub struct Measured<T> {
    /// The median of the rounds.
    pub median: T,
    /// Each round, in the order in which they ran.
    pub rounds: Vec<T>,
}

impl<T: Median> From<Vec<T>> for Measured<T> {
    fn from(rounds: Vec<T>) -> Self {
        Self {
            median: T::median(rounds.iter()),
            rounds,
        }
    }
}

/// The factor by which one side is faster than another.
#[derive(Clone, Debug, Serialize)]
struct Ratio<K> {
    figure: &'static str,
    ours: K,
    against: K,
    times: f64,
}

impl<K: Contender, S, T: Outcome> Comparison<K, S, T> {
    /// Summarizes the rounds, and compares the sides.
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

/// The ratios of all compared pairs in which both sides have the figure.
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

/// A part as a printed table.
pub trait Table {
    /// The number of places with wrong contents in the memory of all sides.
    fn wrong(&self) -> u64 {
        0
    }

    /// Writes the table.
    ///
    /// # Errors
    /// When `f` cannot be written to.
    fn write(&self, f: &mut dyn fmt::Write) -> fmt::Result;
}

impl<K: Contender + fmt::Display, S, T: Outcome> Table for Comparison<K, S, T> {
    fn wrong(&self) -> u64 {
        let medians = self.sides.iter().map(|side| &side.measured.median);
        medians.map(T::wrong).sum()
    }

    fn write(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        write!(f, "{:<26}", "")?;
        for figure in T::FIGURES {
            write!(f, "{:>13}", figure.name)?;
        }
        writeln!(f)?;
        for side in &self.sides {
            write!(f, "{:<26}", side.side.to_string())?;
            for figure in T::FIGURES {
                match (figure.of)(&side.measured.median) {
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
