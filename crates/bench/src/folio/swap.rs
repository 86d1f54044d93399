//! The swap workload by one adaptive setting, beside kernel swap to zram in a memory cgroup: the phases of `bench
//! swap`.
//!
//! `bench swap` compares each pattern with the order that suits it. Here one setting does all phases of one process:
//! memory that the fill left in large folios is read at random, and memory that the random reads scattered is read in
//! order.
//!
//! Memory that was brought in and never asked for is counted over the random part, as a part of the memory that was
//! asked for: see [`BroughtIn`](crate::phases::BroughtIn).

use crate::part::{Figure, Outcome};
use crate::phases::Phases;

impl Outcome for Phases {
    const FIGURES: &'static [Figure<Self>] = &[
        Figure::time("fill", |p| p.fill),
        Figure::time("random", |p| p.random),
        Figure::time("sequential", |p| p.sequential),
        Figure::time("verify", |p| p.verify),
        Figure::other("unasked, %", |p| {
            p.random_brought_in
                .map_or(f64::NAN, |came| came.unasked() * 100.0)
        }),
    ];

    fn wrong(&self) -> u64 {
        self.wrong_pages
    }
}
