//! The result of a run of a program, compared with the program without a limit.
//!
//! A failed round has no `seconds` and no `cpu_seconds`, and medians are over the rounds that did not fail. A round
//! *failed* if the program ended differently than without a limit, or was ended because it took too long
//! (`over_time`). A round is *wrong* if the program ended the same way but printed something else. Neither may happen
//! to a program under Millpond. If two runs without a limit printed different output, `is_repeatable` is false, and
//! no round is wrong.

use crate::outcome::{highest, mib, outcome, sum};
use crate::run::equal::Equal;
use crate::run::program::Ran;
use crate::run::side::Side;
use millpond_cli::size::Human;
use serde::Serialize;

/// The program and its sizes.
#[derive(Clone, Debug, Serialize)]
pub struct Sizes {
    /// The memory for the program on all sides but one.
    pub ram_bytes: u64,
    /// The program's peak memory without a limit.
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

impl Sizes {
    /// The memory for the program, and its peak.
    pub fn ram_and_peak(&self) -> (Human, Human) {
        (Human(self.ram_bytes), Human(self.peak_rss_bytes))
    }
}

outcome! {
    /// One run, compared with those without a limit.
    pub struct Outcome {
        /// The time from start to end.
        pub seconds: Option<f64>,
        /// Processor time of the program and of the children that it waited for.
        pub cpu_seconds: Option<f64>,
        /// Largest resident set among these processes.
        pub peak_rss_bytes: u64 = highest,
        /// The peak memory of the group and zram together, if both were watched.
        pub together_bytes: Option<u64> = highest,
        /// The number of processes that the kernel killed because memory ran out.
        pub oom_kills: u64 = sum,
        /// The number of runs that ended differently, or were ended because they took too long.
        pub failed: u64 = sum,
        /// The number of runs that were ended because they took too long.
        pub over_time: u64 = sum,
        /// The number of runs that ended the same way and printed something else.
        pub wrong: u64 = sum,
        /// Whether the side must not end differently.
        #[serde(skip)]
        must_not_fail: bool = highest,
    }
    wrong |r| r.wrong + if r.must_not_fail { r.failed } else { 0 };
    figures {
        time "seconds" = |r| r.seconds,
        other "processor" = |r| r.cpu_seconds,
        other "peak MiB" = |r| mib(r.peak_rss_bytes),
        other "with zram" = |r| r.together_bytes.map(mib),
        other "killed" = |r| r.oom_kills,
        other "failed" = |r| r.failed,
        other "wrong" = |r| r.wrong,
    }
}

/// The runs without a limit, with which other runs are compared.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The peak memory of these runs.
    pub peak_rss_bytes: u64,
    /// Whether they printed the same.
    pub is_repeatable: bool,
    output: (u64, u64),
    /// Their exit status; `None` if they ended differently.
    status: Option<i32>,
}

impl Expected {
    /// Combines two runs without a limit.
    #[must_use]
    pub fn of([one, other]: [Ran; 2]) -> Self {
        Self {
            peak_rss_bytes: one.peak_rss_bytes.max(other.peak_rss_bytes),
            is_repeatable: one.output == other.output && one.status == other.status,
            output: one.output,
            status: (one.status == other.status).then_some(one.status),
        }
    }

    /// Compares a run with these runs.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::{Comparison, Table};

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

    type Judged = Comparison<Side, (), Outcome>;

    fn judged(runs: &[(Side, &[Ran])]) -> Judged {
        compared(runs, [ran(1.0, 0, 1), ran(1.0, 0, 1)])
    }

    fn compared(runs: &[(Side, &[Ran])], without_limit: [Ran; 2]) -> Judged {
        let should = Expected::of(without_limit);
        let rounds = runs.iter().map(|&(side, runs)| {
            let outcomes = runs.iter().map(|ran| should.judge(side, ran));
            (side, outcomes.collect())
        });
        Comparison::new((), rounds.collect())
    }

    fn is_right(judged: &Judged) -> bool {
        judged.wrong() == 0
    }

    #[test]
    fn a_kill_by_the_kernel_is_not_wrong_and_has_no_time() {
        let judged = judged(&[
            (Side::Millpond, &[ran(2.0, 0, 1), ran(4.0, 0, 1)]),
            (Side::KernelFile, &[ran(0.1, 137, 9), ran(6.0, 0, 1)]),
            (Side::KernelZram, &[ran(0.1, 137, 9)]),
        ]);
        assert!(is_right(&judged));
        let ratio = |kernel| judged.ratio("seconds", Side::Millpond, kernel);
        assert_eq!(ratio(Side::KernelFile), Some(2.0));
        assert_eq!(ratio(Side::KernelZram), None);
    }

    #[test]
    fn different_output_or_exit_under_millpond_is_wrong() {
        for bad in [ran(1.0, 0, 2), ran(1.0, 139, 1)] {
            assert!(!is_right(&judged(&[(
                Side::Millpond,
                &[ran(1.0, 0, 1), bad]
            )])));
        }
        assert!(!is_right(&judged(&[(Side::KernelZram, &[ran(1.0, 0, 2)])])));
    }

    /// A program that prints the time was once reported as having wrong output.
    #[test]
    fn unrepeatable_output_is_reported_and_not_counted_as_wrong() {
        let runs: [(Side, &[Ran]); 1] = [(Side::Millpond, &[ran(1.0, 0, 3), ran(1.0, 0, 4)])];
        let differing = [ran(1.0, 0, 1), ran(1.0, 0, 2)];
        assert!(!Expected::of(differing.clone()).is_repeatable);
        assert!(is_right(&compared(&runs, differing)));
        let crashed: [(Side, &[Ran]); 1] = [(Side::Millpond, &[ran(1.0, 139, 3)])];
        assert!(!is_right(&compared(
            &crashed,
            [ran(1.0, 0, 1), ran(1.0, 0, 2)]
        )));
        assert!(is_right(&compared(
            &crashed,
            [ran(1.0, 0, 1), ran(1.0, 1, 1)]
        )));
    }
}
