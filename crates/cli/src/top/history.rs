//! The history of one process over the last two minutes, for a row of bars.
//!
//! A process writes its counters at its own times, so a rate is only known for the time between two updates. A history
//! consists of such stretches. A column of a picture is also a stretch of time, longer or shorter than these: its
//! height is the mean over the known stretches in it, each weighted by how much of the column it covers. A column with
//! no known stretch has no height, which is not the same as the height zero.
//!
//! Processes write ten times a second, so two minutes are 1,200 stretches at most.

use std::collections::VecDeque;

/// How far back a history goes, in nanoseconds.
pub const KEPT_NS: u64 = 120_000_000_000;

/// A rate that is remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Series {
    /// Faults a second that read from the store.
    MajorFaults,
    /// Bytes a second from the store.
    In,
    /// Bytes a second to the store.
    Out,
    /// Times a second that a fault reclaimed memory itself.
    Stalls,
}

impl Series {
    /// All series, in the order in which they are shown and kept.
    pub const ALL: [Self; 4] = [Self::MajorFaults, Self::In, Self::Out, Self::Stalls];
}

/// The rates of one stretch of time.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from_ns: u64,
    to_ns: u64,
    rates: [f64; Series::ALL.len()],
}

/// The stretches of the last two minutes, oldest first.
#[derive(Clone, Debug, Default)]
pub struct History {
    stretches: VecDeque<Stretch>,
}

impl History {
    /// Adds the rates each second from one moment to a later one, in the order of [`Series::ALL`].
    pub fn add(&mut self, from_ns: u64, to_ns: u64, rates: [f64; Series::ALL.len()]) {
        let oldest = to_ns.saturating_sub(KEPT_NS);
        while self.stretches.front().is_some_and(|s| s.to_ns <= oldest) {
            self.stretches.pop_front();
        }
        self.stretches.push_back(Stretch {
            from_ns,
            to_ns,
            rates,
        });
    }

    /// The highest rate of all stretches; `None` if there are none.
    #[must_use]
    pub fn highest(&self, series: Series) -> Option<f64> {
        let rates = self.stretches.iter().map(|s| s.rates[series as usize]);
        rates.reduce(f64::max)
    }

    /// The two minutes before `now_ns`, in `columns` columns of equal length.
    #[must_use]
    pub fn columns(&self, series: Series, columns: usize, now_ns: u64) -> Vec<Option<f64>> {
        let start = now_ns as f64 - KEPT_NS as f64;
        let length = KEPT_NS as f64 / columns.max(1) as f64;
        // Each column has its known time, and the events in that time.
        let mut known = vec![(0.0, 0.0); columns];
        for stretch in &self.stretches {
            let from = ((stretch.from_ns as f64 - start) / length).max(0.0);
            let to = ((stretch.to_ns as f64 - start) / length).min(columns as f64);
            let mut at = from;
            while at < to {
                let end = (at.floor() + 1.0).min(to);
                let (time, counted) = &mut known[at as usize];
                *time += end - at;
                *counted += (end - at) * stretch.rates[series as usize];
                at = end;
            }
        }
        let mean = |(time, counted): (f64, f64)| (time > 0.0).then(|| counted / time);
        known.into_iter().map(mean).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn rates(faults: f64) -> [f64; 4] {
        [faults, 0.0, 0.0, 0.0]
    }

    #[test]
    fn a_column_is_the_mean_of_its_known_values() {
        let mut history = History::default();
        let now = 1000 * SECOND;
        history.add(now - 20 * SECOND, now - 15 * SECOND, rates(10.0));
        history.add(now - 15 * SECOND, now - 10 * SECOND, rates(30.0));
        history.add(now - 10 * SECOND, now - 5 * SECOND, rates(8.0));
        let columns = history.columns(Series::MajorFaults, 12, now);
        let expected = [vec![None; 10], vec![Some(20.0), Some(8.0)]].concat();
        assert_eq!(columns, expected, "ten seconds each");
        let fine = history.columns(Series::MajorFaults, 240, now);
        assert_eq!(fine.iter().flatten().count(), 30, "half a second each");
        assert_eq!(
            (fine[200], fine[229], fine[230]),
            (Some(10.0), Some(8.0), None)
        );
        assert_eq!(history.highest(Series::MajorFaults), Some(30.0));
    }

    #[test]
    fn nothing_is_kept_for_longer_than_two_minutes() {
        let mut history = History::default();
        let tenth = SECOND / 10;
        for n in 0..5000 {
            history.add(n * tenth, (n + 1) * tenth, rates(n as f64));
        }
        assert_eq!(history.stretches.len(), 1200);
        let columns = history.columns(Series::MajorFaults, 1, 5000 * tenth);
        let mean = columns[0].unwrap();
        assert!((mean - (3800.0 + 4999.0) / 2.0).abs() < 1e-6, "{mean}");
    }

    #[test]
    fn unknown_values_have_no_height() {
        let mut history = History::default();
        assert_eq!(history.highest(Series::In), None);
        assert_eq!(history.columns(Series::In, 3, 0), [None; 3]);
        assert_eq!(history.columns(Series::In, 0, 0), []);
        // Soon after a machine's start there are no two minutes to look back on, and nothing lies in the future.
        history.add(SECOND, 2 * SECOND, rates(1.0));
        assert_eq!(history.columns(Series::In, 2, SECOND), [None, None]);
    }
}
