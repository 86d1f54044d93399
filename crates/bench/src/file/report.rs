//! The result of `millpond bench file`, for programs (JSON) and for people.
//!
//! The JSON object has `schema` = `millpond-bench-file/2`; later versions only add fields:
//!
//! | field | meaning |
//! | --- | --- |
//! | `machine` | `kernel` release, `cores` |
//! | `load` | the machine's load average of the last minute, before and after |
//! | `rounds` | rounds of each side |
//! | `sequential`, `random`, `random_threads`, `hot` | a part: `sizes`, `sides` (each `side`, `median`, `rounds`), `ratios` |
//! | `skipped` | `what` was left out and `why` |
//!
//! A part that was not measured is null. [`Outcome`] says what the figures are. A ratio is the time of the kernel's
//! mapping, or of the device's reads, divided by Millpond's.

use crate::file::side::Side;
use crate::file::{Name, Sizes};
use crate::part::{self, Figure, Part, Shown, show};
use crate::rounds::{Median, count, highest, known, of};
use crate::summary::Parts;
use millpond_cli::size::Human;
use serde::{Deserialize, Serialize};

/// The measurements of one process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Microseconds in which all threads together read one page.
    pub page: f64,
    /// Processor time of all threads for each page that they read, in microseconds.
    pub cpu: f64,
    /// Major faults, as the side that resolves them counts them; none where a call reads.
    pub major_faults: u64,
    /// The share of accesses to the hot set that took no major fault, while the scan went past; null in other parts.
    pub hit_ratio: Option<f64>,
    /// Highest resident set of the process, as the kernel counts it.
    pub peak_rss_bytes: u64,
    /// Most memory of the process's control group, the page cache that it filled among it; null where the user may make
    /// none.
    pub peak_group_bytes: Option<u64>,
    /// Pages that did not hold what the file holds.
    pub wrong_pages: u64,
}

impl Median for Outcome {
    fn median(rounds: &[Self]) -> Self {
        Self {
            page: of(rounds, |r| r.page),
            cpu: of(rounds, |r| r.cpu),
            major_faults: count(rounds, |r| r.major_faults),
            hit_ratio: known(rounds, |r| r.hit_ratio),
            peak_rss_bytes: highest(rounds, |r| r.peak_rss_bytes),
            peak_group_bytes: rounds.iter().filter_map(|r| r.peak_group_bytes).max(),
            wrong_pages: highest(rounds, |r| r.wrong_pages),
        }
    }
}

/// A size for people.
fn mib(bytes: u64) -> f64 {
    (bytes >> 20) as f64
}

impl part::Outcome for Outcome {
    const FIGURES: &'static [Figure<Self>] = &[
        Figure::time("page", |r| r.page),
        Figure::other("cpu", |r| r.cpu),
        Figure::other("faults", |r| r.major_faults as f64),
        Figure::other("hit ratio", |r| r.hit_ratio.unwrap_or(f64::NAN)),
        Figure::other("rss MiB", |r| mib(r.peak_rss_bytes)),
        Figure::other("group MiB", |r| r.peak_group_bytes.map_or(f64::NAN, mib)),
    ];

    fn wrong(&self) -> u64 {
        self.wrong_pages
    }
}

type FilePart = Part<Side, Sizes, Outcome>;

/// All parts that were measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FileParts {
    sequential: Option<FilePart>,
    random: Option<FilePart>,
    random_threads: Option<FilePart>,
    hot: Option<FilePart>,
}

impl FileParts {
    /// Takes a part that was measured.
    pub fn set(&mut self, name: Name, part: FilePart) {
        *match name {
            Name::Sequential => &mut self.sequential,
            Name::Random => &mut self.random,
            Name::RandomThreads => &mut self.random_threads,
            Name::Hot => &mut self.hot,
        } = Some(part);
    }
}

impl Parts for FileParts {
    const SCHEMA: &'static str = "millpond-bench-file/2";

    fn all(&self) -> Vec<Option<Shown<'_>>> {
        let shown = |part, how: fn(&Sizes) -> String| {
            show(part, |sizes: &Sizes| {
                let (file, ram) = (Human(sizes.file_bytes), Human(sizes.budget_bytes));
                format!("a file of {file} in {ram}, {}", how(sizes))
            })
        };
        vec![
            shown(&self.sequential, |_| "read in order".to_owned()),
            shown(&self.random, |_| "read at random".to_owned()),
            shown(&self.random_threads, |sizes| {
                format!("read at random by {} threads", sizes.threads)
            }),
            shown(&self.hot, |_| {
                "a hot set of half the budget beside a scan".to_owned()
            }),
        ]
    }

    fn units(&self, _order: &str) -> String {
        "times are µs a page of 4 KiB, of all threads together".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::Skips;
    use crate::summary::Summary;

    #[test]
    fn millpond_is_compared_with_the_mapping_and_with_the_device() {
        let read = |page, wrong_pages| Outcome {
            page,
            wrong_pages,
            ..Outcome::default()
        };
        let sizes = Sizes {
            file_bytes: 2 << 30,
            budget_bytes: 128 << 20,
            accesses: 1,
            threads: 4,
        };
        let rounds = vec![
            (Side::Millpond, vec![read(2.0, 0)]),
            (Side::Kernel, vec![read(3.0, 0)]),
            (Side::Device, vec![read(1.0, 0), read(1.0, 1)]),
        ];
        let mut parts = FileParts::default();
        parts.set(Name::Sequential, Part::new(sizes, rounds));
        let report = Summary::new(2, None, [None; 2], parts, Skips::default());
        let part = report.parts.sequential.as_ref().unwrap();
        let ratio = |against| part.ratio("page", Side::Millpond, against);
        assert_eq!(ratio(Side::Kernel), Some(1.5));
        assert_eq!(ratio(Side::Device), Some(0.5));
        assert!(!report.all_right(), "one wrong page of one round is seen");
        let text = report.to_string();
        assert!(
            text.contains("a file of 2 GiB in 128 MiB, read in order"),
            "{text}"
        );
    }
}
