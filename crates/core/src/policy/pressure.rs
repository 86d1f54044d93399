//! Pressure: the share of time in which threads waited for memory (Linux's PSI).
//!
//! *Some* is the time in which at least one thread waited, *full* the time in which no thread did anything else. The
//! caller measures these times; this file computes the averages. Every two seconds the lost share is added, with a
//! weight such that a time 10, 60 or 300 seconds ago counts 1/e. The averages are in fixed point of 11 bits, like the
//! kernel's load averages, so that the figures are comparable with `/proc/pressure/memory` to the last digit.

/// Time between two updates of the averages.
const PERIOD_NS: u64 = 2_000_000_000;
const FIXED: u64 = 1 << 11;
/// The decay of the averages in a period: e^(-2/10), e^(-2/60), e^(-2/300).
const DECAY: [u64; 3] = [1677, 1981, 2034];

/// The averages of one kind of waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PressureMeter {
    /// Per cent over 10, 60 and 300 s, in fixed point.
    averages: [u64; 3],
    total_ns: u64,
    /// The time that is not yet included; `lost_ns` is the part of it that was lost.
    elapsed_ns: u64,
    lost_ns: u64,
}

impl PressureMeter {
    /// `elapsed_ns` have passed, of which `lost_ns` were spent waiting.
    ///
    /// ```
    /// use millpond_core::policy::pressure::PressureMeter;
    /// let mut meter = PressureMeter::default();
    /// for _ in 0..10 * 60 {
    ///     meter.tick(1_000_000_000, 250_000_000);
    /// }
    /// let [avg10, _, avg300] = meter.averages();
    /// assert!((24.0..=25.0).contains(&avg10) && avg300 > 20.0);
    /// ```
    pub fn tick(&mut self, elapsed_ns: u64, lost_ns: u64) {
        let lost = lost_ns.min(elapsed_ns);
        self.total_ns += lost;
        self.elapsed_ns += elapsed_ns;
        self.lost_ns += lost;
        let periods = self.elapsed_ns / PERIOD_NS;
        if periods == 0 {
            return;
        }
        let lost = self.lost_ns * 100 * FIXED / self.elapsed_ns;
        for (average, decay) in self.averages.iter_mut().zip(DECAY) {
            // Time lost in several periods is assumed to have been lost evenly.
            for _ in 0..periods.min(1000) {
                let up = if lost >= *average { FIXED - 1 } else { 0 };
                *average = (*average * decay + lost * (FIXED - decay) + up) / FIXED;
            }
        }
        (self.elapsed_ns, self.lost_ns) = (0, 0);
    }

    /// Per cent of the time, over 10, 60 and 300 seconds.
    #[must_use]
    pub fn averages(&self) -> [f64; 3] {
        self.averages.map(|average| average as f64 / FIXED as f64)
    }

    /// All the time that was lost, in nanoseconds.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn an_average_decays_to_one_e_th_in_its_period() {
        let mut meter = PressureMeter::default();
        (0..2000).for_each(|_| meter.tick(SECOND, SECOND));
        assert!(meter.averages().iter().all(|&average| average > 99.0));
        (0..10).for_each(|_| meter.tick(SECOND, 0));
        let [avg10, avg60, avg300] = meter.averages();
        assert!((36.0..38.0).contains(&avg10), "{avg10}");
        assert!((84.0..86.0).contains(&avg60), "{avg60}");
        assert!((96.0..98.0).contains(&avg300), "{avg300}");
        assert_eq!(meter.total_ns(), 2000 * SECOND);
    }

    #[test]
    fn short_and_long_ticks_give_the_same_averages() {
        let (mut short, mut long) = (PressureMeter::default(), PressureMeter::default());
        for _ in 0..20 {
            (0..60).for_each(|_| short.tick(SECOND / 10, SECOND / 20));
            long.tick(6 * SECOND, 3 * SECOND);
        }
        assert_eq!(short.averages(), long.averages());
    }

    #[test]
    fn lost_time_never_exceeds_elapsed_time() {
        let mut meter = PressureMeter::default();
        meter.tick(2 * SECOND, 5 * SECOND);
        assert_eq!(meter.total_ns(), 2 * SECOND);
        assert!(meter.averages()[0] <= 100.0);
    }
}
