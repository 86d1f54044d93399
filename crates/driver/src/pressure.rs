//! Pressure: the figures about waiting for memory, in the form that users see.

use std::time::Duration;

/// Averages in per cent over 10, 60 and 300 seconds, and the total time: first some, then full.
pub type Averages = [([f64; 3], Duration); 2];

/// The share of time lost to waiting for memory, in per cent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PressureLine {
    /// Average over the last 10 seconds.
    pub avg10: f64,
    /// Average over the last 60 seconds.
    pub avg60: f64,
    /// Average over the last 300 seconds.
    pub avg300: f64,
    /// Total time lost so far.
    pub total: Duration,
}

/// Waiting for memory, as Linux's `memory.pressure` counts it: a fault waits while it reclaims, and while it brings
/// back a page that had to leave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Time in which at least one of the threads that use the group's memory waited.
    pub some: PressureLine,
    /// Time in which all of these threads waited.
    pub full: PressureLine,
}

impl Pressure {
    /// Makes a [`Pressure`] from averages.
    pub fn new(averages: Averages) -> Self {
        let [some, full] = averages.map(|([avg10, avg60, avg300], total)| PressureLine {
            avg10,
            avg60,
            avg300,
            total,
        });
        Self { some, full }
    }
}
