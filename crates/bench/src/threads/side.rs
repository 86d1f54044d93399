//! The sides: who serves the faults, and how many threads fault.

use crate::side::{Contender, sides};
use serde::{Deserialize, Serialize};
use std::fmt;

sides! {
    /// Who serves the faults.
    pub enum Who {
        /// The faulting thread
        Direct,
        /// One of Millpond's threads
        Handler,
        /// The kernel, with swap to zram
        Kernel,
    }
}

/// A side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Who serves the faults.
    pub who: Who,
    /// The number of faulting threads.
    pub threads: u16,
}

impl Contender for Run {
    fn is_kernel(self) -> bool {
        self.who == Who::Kernel
    }

    /// Only compares more threads with one.
    fn is_against(self, other: Self) -> bool {
        self.who == other.who && self.threads > 1 && other.threads == 1
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = match self.threads {
            1 => "1 thread".to_owned(),
            more => format!("{more} threads"),
        };
        f.pad(&format!("{}, {threads}", self.who))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn more_threads_are_compared_with_one_of_the_same_side() {
        let runs = |threads| {
            Who::value_variants()
                .iter()
                .map(move |&who| Run { who, threads })
        };
        for (one, two) in runs(1).zip(runs(2)) {
            let against: Vec<Run> = runs(1).filter(|&other| two.is_against(other)).collect();
            assert_eq!(against, [one]);
            assert!(!one.is_against(two) && !two.is_against(two));
        }
    }
}
