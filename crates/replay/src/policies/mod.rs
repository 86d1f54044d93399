//! The policies with which Millpond's is compared, as described in their papers. None of them is part of Millpond's
//! own.
//!
//! Each policy is a cache of pages with one size, and receives one access after the other. LRU is not among the caches:
//! one pass computes all its sizes ([`crate::stack_distance`]). Existing crates are unsuitable. Those with ARC, LIRS
//! and S3-FIFO are made for concurrent use and hold only approximately the given number of pages. `sieve-cache` moves
//! its youngest page to the place of the page that it evicts, which is a different order: a miss ratio of 0.902 in a
//! loop of 1,011 pages with a cache of a tenth of them, where SIEVE has 1.

mod arc;
mod clock;
mod fifo;
mod lirs;
mod list;
mod opt;
mod s3fifo;
mod sieve;

pub use arc::Arc;
pub use clock::Clock;
pub use fifo::Fifo;
pub use lirs::Lirs;
pub use opt::Opt;
pub use s3fifo::S3Fifo;
pub use sieve::Sieve;

use crate::core_policy::{CoreError, CorePolicy};
use crate::curve::Curve;
use crate::stack_distance::StackDistances;
use crate::trace::Trace;
use std::fmt;
use std::str::FromStr;

/// A cache that receives accesses, by id.
pub trait Cache {
    /// Processes an access. Returns whether the page was in the cache; it is there afterwards.
    fn access(&mut self, id: u32) -> bool;
}

/// A policy by name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Policy {
    /// Millpond's own policy: [`crate::core_policy`].
    Workingset,
    /// Least recently used.
    Lru,
    /// First in, first out.
    Fifo,
    /// Second chance: FIFO that skips pages that were used since.
    Clock,
    /// Adaptive replacement.
    Arc,
    /// Three queues: a small one for newcomers, the main one, and ghosts.
    S3Fifo,
    /// FIFO with a hand that stays where it evicted.
    Sieve,
    /// Low inter-reference recency set.
    Lirs,
    /// Belady's algorithm: evicts the page whose next use is last. No policy can do better, and none can do this
    /// without knowing the future.
    Opt,
}

/// Result of a trace under a policy, in a cache of one size.
#[derive(Clone, PartialEq, Debug)]
pub struct Misses {
    /// Size of the cache, in pages.
    pub pages: u32,
    /// Number of accesses to pages that were not there.
    pub misses: u64,
    /// Under [`Policy::Workingset`], the number of accesses to pages in limbo: not misses, but faults.
    pub rescues: Option<u64>,
    /// Under [`Policy::Workingset`], the curve of what more memory would have saved.
    pub curve: Option<Curve>,
}

impl Policy {
    /// All policies, Millpond's first and the unbeatable one last.
    pub const ALL: [Self; 9] = [
        Self::Workingset,
        Self::Lru,
        Self::Fifo,
        Self::Clock,
        Self::Arc,
        Self::S3Fifo,
        Self::Sieve,
        Self::Lirs,
        Self::Opt,
    ];

    /// The policy's name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Workingset => "workingset",
            Self::Lru => "lru",
            Self::Fifo => "fifo",
            Self::Clock => "clock",
            Self::Arc => "arc",
            Self::S3Fifo => "s3fifo",
            Self::Sieve => "sieve",
            Self::Lirs => "lirs",
            Self::Opt => "opt",
        }
    }

    /// Replays a trace in caches of these sizes (in pages), each empty at first.
    ///
    /// # Errors
    /// When a size is 0, or too large for the core under [`Policy::Workingset`].
    pub fn misses(self, trace: &Trace, sizes: &[u32]) -> Result<Vec<Misses>, CoreError> {
        if sizes.contains(&0) {
            return Err(CoreError::NoCache);
        }
        let sizes = sizes.iter().copied();
        if self == Self::Lru {
            let distances = StackDistances::of(trace);
            let of = |pages| Misses {
                pages,
                misses: distances.misses(pages),
                rescues: None,
                curve: None,
            };
            return Ok(sizes.map(of).collect());
        }
        sizes
            .map(|pages| self.misses_of_one(trace, pages))
            .collect()
    }

    fn misses_of_one(self, trace: &Trace, pages: u32) -> Result<Misses, CoreError> {
        let footprint = trace.footprint();
        let misses = match self {
            Self::Workingset => {
                let policy = CorePolicy::replay(trace, pages)?;
                let counts = policy.counts();
                return Ok(Misses {
                    pages,
                    misses: counts.misses(),
                    rescues: Some(counts.rescues),
                    curve: Some(policy.curve()),
                });
            }
            Self::Lru => StackDistances::of(trace).misses(pages),
            Self::Fifo => count(trace, Fifo::new(pages, footprint)),
            Self::Clock => count(trace, Clock::new(pages, footprint)),
            Self::Arc => count(trace, Arc::new(pages, footprint)),
            Self::S3Fifo => count(trace, S3Fifo::new(pages, footprint)),
            Self::Sieve => count(trace, Sieve::new(pages, footprint)),
            Self::Lirs => count(trace, Lirs::new(pages, footprint)),
            Self::Opt => count(trace, Opt::new(pages, trace)),
        };
        Ok(Misses {
            pages,
            misses,
            rescues: None,
            curve: None,
        })
    }
}

/// Number of misses of `cache`.
fn count(trace: &Trace, mut cache: impl Cache) -> u64 {
    let misses = trace.ids().iter().filter(|&&id| !cache.access(id));
    misses.count() as u64
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|policy| policy.name() == name)
            .ok_or_else(|| format!("{name:?} is no policy; use one or several of {}", known()))
    }
}
