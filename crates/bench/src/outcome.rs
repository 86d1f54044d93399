//! The findings of one measured process, and how several rounds are combined.
//!
//! [`outcome!`] declares the figures of a process once: their names in JSON, how the rounds' values become one, and
//! which of them are printed in tables. The value of several rounds is the median of each figure by itself, unless
//! the declaration names another rule: where a single bad round matters, the highest value counts.

use std::iter;

/// A value that has a median.
pub trait Median: Sized {
    /// The median of `values`, for each figure by itself.
    fn median<'a>(values: impl Iterator<Item = &'a Self>) -> Self
    where
        Self: 'a;
}

impl Median for f64 {
    fn median<'a>(values: impl Iterator<Item = &'a Self>) -> Self {
        median(values.copied().collect())
    }
}

impl Median for u64 {
    fn median<'a>(values: impl Iterator<Item = &'a Self>) -> Self {
        median(values.map(|&value| value as f64).collect()) as Self
    }
}

/// The median of the rounds that have the figure.
impl<T: Median> Median for Option<T> {
    fn median<'a>(values: impl Iterator<Item = &'a Self>) -> Self
    where
        T: 'a,
    {
        let mut known = values.flatten();
        let first = known.next()?;
        Some(T::median(iter::once(first).chain(known)))
    }
}

/// The middle value, or the mean of the two in the middle; NaN if there are no values.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// A rule: the highest value.
pub fn highest<'a, T: Ord + Copy + Default + 'a>(values: impl Iterator<Item = &'a T>) -> T {
    values.copied().max().unwrap_or_default()
}

/// A rule: the longest time, or the largest share.
pub fn longest<'a>(values: impl Iterator<Item = &'a f64>) -> f64 {
    values.copied().fold(0.0, f64::max)
}

/// A rule: the sum of all rounds.
pub fn sum<'a>(values: impl Iterator<Item = &'a u64>) -> u64 {
    values.sum()
}

/// A rule: the first round's value.
pub fn first<'a, T: Clone + Default + 'a>(mut values: impl Iterator<Item = &'a T>) -> T {
    values.next().cloned().unwrap_or_default()
}

/// A rule: no value, because the figure only describes single rounds.
pub fn none<'a, T: Default + 'a>(_: impl Iterator<Item = &'a T>) -> T {
    T::default()
}

/// A figure in a table.
pub struct Figure<T> {
    /// Its name in the table and in ratios.
    pub name: &'static str,
    /// Its value; NaN if a process has none.
    pub of: fn(&T) -> f64,
    /// Whether sides are compared by this figure.
    pub is_time: bool,
}

impl<T> Figure<T> {
    /// A time by which sides are compared.
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

    /// The number of places in memory with wrong contents.
    fn wrong(&self) -> u64 {
        0
    }
}

/// The value of a figure in a table.
pub trait Number {
    /// The value; NaN if there is none.
    fn number(self) -> f64;
}

impl Number for f64 {
    fn number(self) -> f64 {
        self
    }
}

impl Number for u64 {
    fn number(self) -> f64 {
        self as f64
    }
}

impl<T: Number> Number for Option<T> {
    fn number(self) -> f64 {
        self.map_or(f64::NAN, T::number)
    }
}

/// Whole kibibytes.
pub fn kib(bytes: u64) -> u64 {
    bytes >> 10
}

/// Whole mebibytes.
pub fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

/// Declares an outcome. A field is `name: type`, or `name: type = rule` if the value of several rounds is not the
/// median. After the fields come the number of places with wrong contents, and the figures of the table: a `time`, by
/// which sides are compared, or any `other`. An outcome that is part of another has only fields.
macro_rules! outcome {
    (
        $(#[$about:meta])*
        $vis:vis struct $name:ident {
            $($(#[$doc:meta])* $access:vis $field:ident: $type:ty $(= $rule:ident)?,)*
        }
        $(wrong |$bad:ident| $wrong:expr;)?
        $(figures { $($kind:ident $label:literal = |$one:ident| $value:expr,)* })?
    ) => {
        #[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
        $(#[$about])*
        $vis struct $name {
            $($(#[$doc])* $access $field: $type,)*
        }

        impl $crate::outcome::Median for $name {
            fn median<'a>(rounds: impl Iterator<Item = &'a Self>) -> Self {
                let rounds: Vec<&Self> = rounds.collect();
                Self {
                    $($field: $crate::outcome::outcome!(
                        @value rounds.iter().map(|round| &round.$field), $($rule)?
                    ),)*
                }
            }
        }

        $crate::outcome::outcome!(
            @shown $name [$(|$bad| $wrong)?] $([$($kind $label |$one| $value,)*])?
        );
    };
    (@value $values:expr,) => { $crate::outcome::Median::median($values) };
    (@value $values:expr, $rule:ident) => { $rule($values) };
    (@shown $name:ident []) => {};
    (
        @shown $name:ident [$(|$bad:ident| $wrong:expr)?]
        [$($kind:ident $label:literal |$one:ident| $value:expr,)*]
    ) => {
        impl $crate::outcome::Outcome for $name {
            const FIGURES: &'static [$crate::outcome::Figure<Self>] = &[
                $($crate::outcome::Figure::$kind($label, |$one| {
                    $crate::outcome::Number::number($value)
                }),)*
            ];

            $(fn wrong(&self) -> u64 {
                let $bad = self;
                $wrong
            })?
        }
    };
}
pub(crate) use outcome;

#[cfg(test)]
mod tests {
    use super::*;

    outcome! {
        /// An outcome with one figure for each rule.
        struct Found {
            middle: f64,
            count: u64,
            known: Option<f64>,
            most: Option<u64> = highest,
            slowest: f64 = longest,
            all: u64 = sum,
            why: Vec<String> = first,
            each: Vec<u64> = none,
        }
        wrong |one| one.all;
        figures {
            time "middle" = |one| one.middle,
            other "known" = |one| one.known,
        }
    }

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(vec![]).is_nan());
    }

    #[test]
    fn each_figure_has_its_own_rule_and_unknown_ones_are_omitted() {
        let round = |value: u64, known| Found {
            middle: value as f64,
            count: value,
            known,
            most: known.map(|_| value),
            slowest: value as f64,
            all: value,
            why: vec![value.to_string()],
            each: vec![value],
        };
        let found =
            Found::median([round(1, Some(2.0)), round(3, None), round(2, Some(3.0))].iter());
        assert_eq!(
            (found.middle, found.count, found.known),
            (2.0, 2, Some(2.5))
        );
        assert_eq!((found.most, found.slowest, found.all), (Some(2), 3.0, 6));
        assert_eq!((found.why, found.each), (vec!["1".to_owned()], vec![]));
        let unknown = Found::median([round(1, None)].iter());
        assert_eq!((unknown.known, unknown.most), (None, None));
        assert!((Found::FIGURES[1].of)(&unknown).is_nan());
        assert_eq!((Found::FIGURES[0].of)(&unknown), 1.0);
        assert!(Found::FIGURES[0].is_time && !Found::FIGURES[1].is_time);
        assert_eq!(unknown.wrong(), 1);
    }
}
