//! The result of `millpond bench remote`, for programs (JSON) and for people.
//!
//! The JSON object has `schema` = `millpond-bench-remote/1`; later versions only add fields:
//!
//! | field | meaning |
//! | --- | --- |
//! | `machine` | `kernel` release, `cores` |
//! | `load` | the machine's load average of the last minute, before and after |
//! | `rounds` | rounds of each side |
//! | `redis`, `s3` | a part: `sizes`, `sides` (each `side`, `median`, `rounds`), `ratios` |
//! | `skipped` | `what` was left out and `why` |
//!
//! A part that was not measured is null. [`Outcome`] says what the figures are. A ratio is the time of a client
//! divided by Millpond's.

use crate::part::{self, Figure, Part, Shown, show};
use crate::remote::side::Side;
use crate::remote::{Name, Sizes};
use crate::rounds::{Median, highest, of};
use crate::summary::Parts;
use millpond_cli::size::Human;
use serde::{Deserialize, Serialize};

/// The times of one phase, in microseconds for each page.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Phase {
    /// Time that passes.
    pub wall: f64,
    /// Processor time of the measured process, all its threads together.
    pub cpu: f64,
    /// Processor time of the service.
    pub server_cpu: f64,
}

/// The measurements of one process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Pages that are written in order, beyond what the budget and the file hold, or as objects.
    pub fill: Phase,
    /// Pages that are read in order.
    pub read: Phase,
    /// Pages that are read at random, one at a time.
    pub random: Phase,
    /// Highest resident set of the process, as the kernel counts it.
    pub peak_rss_bytes: u64,
    /// How often the store of Millpond's region took nothing for a while, so that pages stayed above the budget. Where
    /// that happened, less was moved than on the other sides, and the times are not to be compared.
    pub store_failures: u64,
    /// Pages that did not hold what they must.
    pub wrong_pages: u64,
}

impl Median for Outcome {
    fn median(rounds: &[Self]) -> Self {
        let phase = |which: fn(&Self) -> Phase| Phase {
            wall: of(rounds, |r| which(r).wall),
            cpu: of(rounds, |r| which(r).cpu),
            server_cpu: of(rounds, |r| which(r).server_cpu),
        };
        Self {
            fill: phase(|r| r.fill),
            read: phase(|r| r.read),
            random: phase(|r| r.random),
            peak_rss_bytes: highest(rounds, |r| r.peak_rss_bytes),
            store_failures: highest(rounds, |r| r.store_failures),
            wrong_pages: highest(rounds, |r| r.wrong_pages),
        }
    }
}

impl part::Outcome for Outcome {
    const FIGURES: &'static [Figure<Self>] = &[
        Figure::time("fill", |r| r.fill.wall),
        Figure::other("its cpu", |r| r.fill.cpu),
        Figure::other("service's", |r| r.fill.server_cpu),
        Figure::time("read", |r| r.read.wall),
        Figure::other("its cpu", |r| r.read.cpu),
        Figure::other("service's", |r| r.read.server_cpu),
        Figure::time("random", |r| r.random.wall),
        Figure::other("its cpu", |r| r.random.cpu),
        Figure::other("service's", |r| r.random.server_cpu),
        Figure::other("rss MiB", |r| (r.peak_rss_bytes >> 20) as f64),
        Figure::other("refused", |r| r.store_failures as f64),
    ];

    fn wrong(&self) -> u64 {
        self.wrong_pages
    }
}

type RemotePart = Part<Side, Sizes, Outcome>;

/// All parts that were measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RemoteParts {
    redis: Option<RemotePart>,
    s3: Option<RemotePart>,
}

impl RemoteParts {
    /// Takes a part that was measured.
    pub fn set(&mut self, name: Name, part: RemotePart) {
        *match name {
            Name::Redis => &mut self.redis,
            Name::S3 => &mut self.s3,
        } = Some(part);
    }
}

impl Parts for RemoteParts {
    const SCHEMA: &'static str = "millpond-bench-remote/1";

    fn all(&self) -> Vec<Option<Shown<'_>>> {
        let shown = |part, service: &str| {
            show(part, |sizes: &Sizes| {
                let (ram, file) = (Human(sizes.budget_bytes), Human(sizes.file_bytes));
                let beyond = Human(sizes.beyond_bytes);
                format!("{beyond} in {service}, beyond {ram} of RAM and a file of {file}")
            })
        };
        vec![
            shown(&self.redis, "a redis-server"),
            shown(&self.s3, "an S3 server (moto)"),
        ]
    }

    fn units(&self, _order: &str) -> String {
        "times are µs a page of 4 KiB; processor time is of all threads, and of the service"
            .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::Skips;
    use crate::summary::Summary;

    #[test]
    fn millpond_is_compared_with_the_client_in_each_phase() {
        let moved = |wall, wrong_pages| {
            let phase = |wall| Phase {
                wall,
                ..Phase::default()
            };
            Outcome {
                fill: phase(wall),
                read: phase(2.0 * wall),
                random: phase(100.0),
                wrong_pages,
                ..Outcome::default()
            }
        };
        let sizes = Sizes {
            budget_bytes: 64 << 20,
            file_bytes: 32 << 20,
            beyond_bytes: 256 << 20,
            accesses: 1,
        };
        let rounds = vec![
            (Side::Millpond, vec![moved(2.0, 0)]),
            (Side::Client, vec![moved(1.0, 0), moved(1.0, 1)]),
        ];
        let mut parts = RemoteParts::default();
        parts.set(Name::Redis, Part::new(sizes, rounds));
        let report = Summary::new(2, None, [None; 2], parts, Skips::default());
        let part = report.parts.redis.as_ref().unwrap();
        let ratio = |figure| part.ratio(figure, Side::Millpond, Side::Client);
        assert_eq!(
            [ratio("fill"), ratio("read"), ratio("random")],
            [Some(0.5), Some(0.5), Some(1.0)]
        );
        assert!(!report.all_right(), "one wrong page of one round is seen");
        let text = report.to_string();
        let heading = "256 MiB in a redis-server, beyond 64 MiB of RAM and a file of 32 MiB";
        assert!(text.contains(heading), "{text}");
    }
}
