//! The result of `millpond bench run`, for programs (JSON) and for people.
//!
//! The JSON object has `schema` = `millpond-bench-run/3`; later versions only add fields:
//!
//! | field | meaning |
//! | --- | --- |
//! | `machine` | `kernel` release, `cores` |
//! | `load` | the machine's load average of the last minute, before and after |
//! | `rounds` | rounds of each side |
//! | `order` | the order of Millpond's folios, as `--order` takes it |
//! | `program` | `sizes` (`ram_bytes`, `peak_rss_bytes` without a limit, `is_repeatable`, `program`, `store`, `equal`: the limit of `kernel_equal`, and what it led to when it was found), `sides` (each `side`, `median`, `rounds`), `ratios` |
//! | `skipped` | `what` was left out and `why` |
//!
//! A round that failed has no `seconds` and no `cpu_seconds`, and medians are of the rounds that did not fail. A round
//! *failed* when the program ended otherwise than without a limit, or was ended because it took
//! too long (`over_time`). A round is *wrong* when the program ended the same
//! but printed something else. A program under Millpond has no right to either. Where two runs without a limit did not
//! print the same, `is_repeatable` is false, and no round is wrong.

use crate::part::{self, Figure, Part, Shown, show};
use crate::rounds::{Median, highest, known};
use crate::run::equal::Equal;
use crate::run::program::Ran;
use crate::run::side::Side;
use crate::summary::Parts;
use millpond_cli::size::Human;
use serde::Serialize;

/// The program that was run, and its sizes.
#[derive(Clone, Debug, Serialize)]
pub struct Sizes {
    /// Memory for the program on all sides but one.
    pub ram_bytes: u64,
    /// The most memory that the program had without a limit.
    pub peak_rss_bytes: u64,
    /// Whether two runs without a limit printed the same.
    pub is_repeatable: bool,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// Millpond's store.
    pub store: String,
    /// The limit of the side with equal memory.
    pub equal: Option<Equal>,
}

/// One run beside the first, which had no limit.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// The time from start to end.
    pub seconds: Option<f64>,
    /// Processor time of the program and of the children that it waited for.
    pub cpu_seconds: Option<f64>,
    /// Largest resident set among these processes.
    pub peak_rss_bytes: u64,
    /// The most memory that the group and zram had together, where both were watched.
    pub together_bytes: Option<u64>,
    /// The number of processes that the kernel killed for want of memory.
    pub oom_kills: u64,
    /// The number of runs that ended in another way, or were ended because they took too long.
    pub failed: u64,
    /// The number of runs that were ended because they took too long.
    pub over_time: u64,
    /// The number of runs that ended in the same way and printed something else.
    pub wrong: u64,
    /// The side has no right to end otherwise.
    #[serde(skip)]
    must_not_fail: bool,
}

/// What a run is compared with.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The most memory that one of the runs without a limit had.
    pub peak_rss_bytes: u64,
    /// Whether they printed the same.
    pub is_repeatable: bool,
    output: (u64, u64),
    /// How they ended; `None` if each ended in another way.
    status: Option<i32>,
}

impl Expected {
    /// What two runs without a limit show.
    #[must_use]
    pub fn of([one, other]: [Ran; 2]) -> Self {
        Self {
            peak_rss_bytes: one.peak_rss_bytes.max(other.peak_rss_bytes),
            is_repeatable: one.output == other.output && one.status == other.status,
            output: one.output,
            status: (one.status == other.status).then_some(one.status),
        }
    }

    /// Compares a run with these.
    #[must_use]
    pub fn judge(&self, side: Side, ran: &Ran) -> Outcome {
        let failed = ran.is_over_time || self.status.is_some_and(|status| ran.status != status);
        Outcome {
            seconds: (!failed).then_some(ran.seconds),
            cpu_seconds: (!failed).then_some(ran.cpu_seconds),
            peak_rss_bytes: ran.peak_rss_bytes,
            together_bytes: ran.together_bytes,
            oom_kills: ran.oom_kills,
            failed: failed.into(),
            over_time: ran.is_over_time.into(),
            wrong: u64::from(!failed && self.is_repeatable && ran.output != self.output),
            must_not_fail: side == Side::Millpond,
        }
    }
}

impl Median for Outcome {
    fn median(rounds: &[Self]) -> Self {
        Self {
            seconds: known(rounds, |r| r.seconds),
            cpu_seconds: known(rounds, |r| r.cpu_seconds),
            peak_rss_bytes: highest(rounds, |r| r.peak_rss_bytes),
            together_bytes: rounds.iter().filter_map(|r| r.together_bytes).max(),
            oom_kills: rounds.iter().map(|r| r.oom_kills).sum(),
            failed: rounds.iter().map(|r| r.failed).sum(),
            over_time: rounds.iter().map(|r| r.over_time).sum(),
            wrong: rounds.iter().map(|r| r.wrong).sum(),
            must_not_fail: rounds.iter().any(|r| r.must_not_fail),
        }
    }
}

impl part::Outcome for Outcome {
    const FIGURES: &'static [Figure<Self>] = &[
        Figure::time("seconds", |r| r.seconds.unwrap_or(f64::NAN)),
        Figure::other("processor", |r| r.cpu_seconds.unwrap_or(f64::NAN)),
        Figure::other("peak MiB", |r| (r.peak_rss_bytes >> 20) as f64),
        Figure::other("with zram", |r| {
            r.together_bytes
                .map_or(f64::NAN, |bytes| (bytes >> 20) as f64)
        }),
        Figure::other("killed", |r| r.oom_kills as f64),
        Figure::other("failed", |r| r.failed as f64),
        Figure::other("wrong", |r| r.wrong as f64),
    ];

    fn wrong(&self) -> u64 {
        self.wrong + if self.must_not_fail { self.failed } else { 0 }
    }
}

/// The program's only part.
#[derive(Clone, Debug, Serialize)]
pub struct RunParts {
    /// All runs of the program.
    pub program: Option<Part<Side, Sizes, Outcome>>,
}

impl Parts for RunParts {
    const SCHEMA: &'static str = "millpond-bench-run/3";

    fn all(&self) -> Vec<Option<Shown<'_>>> {
        vec![show(&self.program, |sizes| {
            let (ram, peak) = (Human(sizes.ram_bytes), Human(sizes.peak_rss_bytes));
            let (program, store) = (sizes.program.join(" "), &sizes.store);
            let differs = match sizes.is_repeatable {
                true => "",
                false => {
                    "\noutput differs between two runs without a limit, so that no output is compared"
                }
            };
            format!(
                "{program} in {ram}, the store {store}; without a limit it takes {peak}{differs}"
            )
        })]
    }

    fn units(&self, order: &str) -> String {
        format!("times are seconds; Millpond's folios are of order {order}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::Skips;
    use crate::summary::Summary;

    fn ran(seconds: f64, status: i32, output: u64) -> Ran {
        Ran {
            seconds,
            cpu_seconds: seconds,
            peak_rss_bytes: 1 << 20,
            output: (1, output),
            status,
            is_over_time: false,
            together_bytes: None,
            oom_kills: 0,
        }
    }

    fn report(runs: &[(Side, &[Ran])]) -> Summary<RunParts> {
        compared(runs, [ran(1.0, 0, 1), ran(1.0, 0, 1)])
    }

    fn compared(runs: &[(Side, &[Ran])], without_limit: [Ran; 2]) -> Summary<RunParts> {
        let should = Expected::of(without_limit);
        let rounds = runs.iter().map(|&(side, runs)| {
            let outcomes = runs.iter().map(|ran| should.judge(side, ran));
            (side, outcomes.collect())
        });
        let sizes = Sizes {
            ram_bytes: 16 << 20,
            peak_rss_bytes: 64 << 20,
            is_repeatable: should.is_repeatable,
            program: vec!["sort".to_owned(), "numbers".to_owned()],
            store: "auto".to_owned(),
            equal: None,
        };
        let parts = RunParts {
            program: Some(Part::new(sizes, rounds.collect())),
        };
        Summary::new(
            1,
            "adaptive".parse().ok(),
            [None; 2],
            parts,
            Skips::default(),
        )
    }

    #[test]
    fn a_kernels_kill_is_no_wrong_byte_and_has_no_time() {
        let report = report(&[
            (Side::Millpond, &[ran(2.0, 0, 1), ran(4.0, 0, 1)]),
            (Side::KernelFile, &[ran(0.1, 137, 9), ran(6.0, 0, 1)]),
            (Side::KernelZram, &[ran(0.1, 137, 9)]),
        ]);
        assert!(report.all_right());
        let program = report.parts.program.as_ref().unwrap();
        let ratio = |kernel| program.ratio("seconds", Side::Millpond, kernel);
        assert_eq!(ratio(Side::KernelFile), Some(2.0));
        assert_eq!(ratio(Side::KernelZram), None);
        assert!(report.to_string().contains("sort numbers in 16 MiB"));
    }

    #[test]
    fn other_output_or_another_end_under_millpond_is_wrong() {
        for bad in [ran(1.0, 0, 2), ran(1.0, 139, 1)] {
            assert!(!report(&[(Side::Millpond, &[ran(1.0, 0, 1), bad])]).all_right());
        }
        assert!(!report(&[(Side::KernelZram, &[ran(1.0, 0, 2)])]).all_right());
    }

    /// Covers a program that prints the time: its runs were called wrong bytes.
    #[test]
    fn a_program_that_never_prints_the_same_is_said_to_and_not_wrong() {
        let runs: [(Side, &[Ran]); 1] = [(Side::Millpond, &[ran(1.0, 0, 3), ran(1.0, 0, 4)])];
        let told = compared(&runs, [ran(1.0, 0, 1), ran(1.0, 0, 2)]);
        assert!(told.all_right());
        let text = told.to_string();
        assert!(
            text.contains("output differs between two runs without a limit"),
            "{text}"
        );
        assert!(!text.contains("WRONG"), "{text}");
        let crashed: [(Side, &[Ran]); 1] = [(Side::Millpond, &[ran(1.0, 139, 3)])];
        assert!(!compared(&crashed, [ran(1.0, 0, 1), ran(1.0, 0, 2)]).all_right());
        assert!(compared(&crashed, [ran(1.0, 0, 1), ran(1.0, 1, 1)]).all_right());
    }
}
