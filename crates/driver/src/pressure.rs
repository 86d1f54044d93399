//! How much waiting for memory there is, as it is told.

use std::time::Duration;

/// Averages in per cent over 10, 60 and 300 seconds, and all the time: some, then full.
pub type Averages = [([f64; 3], Duration); 2];

/// Part of the time that was lost to waiting for memory, in per cent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PressureLine {
    /// Over the last 10 seconds.
    pub avg10: f64,
    /// Over the last 60 seconds.
    pub avg60: f64,
    /// Over the last 300 seconds.
    pub avg300: f64,
    /// All of it.
    pub total: Duration,
}

/// How much waiting there is, as Linux's `memory.pressure` tells it: a fault waits while it reclaims, and while it
/// brings back what had to leave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// At least one of the threads that use the group's memory waited.
    pub some: PressureLine,
    /// All of them did.
    pub full: PressureLine,
}

impl Pressure {
    /// Names the averages.
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
