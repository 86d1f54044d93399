//! Page traces, and the results of replacement policies on them.
//!
//! A *trace* is the sequence of pages that a program used. This crate reads and writes traces ([`mod@format`],
//! [`import`], [`open`]), and replays them: under the real [`millpond_core::Core`] on a machine where nothing takes any
//! time ([`core_policy`]), and under the textbook policies with which it is compared ([`policies`]). The textbook
//! policies have nothing to do with how Millpond works; they are in this crate so that no reader looks for them in the
//! core.
//!
//! All policies are judged alike: an access to a page that is not in the cache is a *miss*, first touches included; a
//! cache of *n* pages holds *n* pages; nothing is read ahead.
//!
//! ```
//! use millpond_replay::{policies::Policy, trace::Trace};
//!
//! // Four pages in a circle, a cache of three: LRU throws out just what comes next.
//! let trace = Trace::of_pages((0..400).map(|n| n % 4));
//! let misses = |policy: Policy| policy.misses(&trace, &[3]).unwrap()[0].misses;
//! assert_eq!(misses(Policy::Lru), 400);
//! assert!(misses(Policy::Opt) < 200);
//! ```
#![forbid(unsafe_code)]

pub mod core_policy;
pub mod curve;
pub mod error;
pub mod format;
pub mod import;
pub mod open;
pub mod policies;
pub mod stack_distance;
pub mod trace;

pub use error::{OpenError, TraceError};
