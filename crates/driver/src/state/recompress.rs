//! How much of a processor compressing again may take ([`Upkeep::recompress`](millpond_core::Upkeep::recompress)).
//!
//! The thread that recompresses has other work, which comes first, and the program's threads come before both. So it
//! works in pieces of half a millisecond, and has an allowance of processor time that grows by an eighth of the elapsed
//! time. If some pieces took much longer than the processor time that they got, other threads wanted the processor, and
//! the thread pauses. The pause doubles as long as that continues, up to three seconds.
//!
//! A round over all stored data takes at least a second, since data that was not used for a round counts as unneeded.
//!
//! An idle priority would not be a substitute: if a thread with that priority is descheduled while it holds a lock of
//! the store, a fault waits until a processor has nothing else to do.

use std::time::Duration;

/// The part of the elapsed time, as a divisor, that may be spent.
const SHARE: u32 = 8;
/// Maximum allowance that is saved for later.
const SAVED_UP: Duration = Duration::from_millis(25);
/// Minimum time between the beginnings of two rounds.
const ROUND: Duration = Duration::from_secs(1);
/// Processor time after which the thread's elapsed time and its processor time are compared.
const JUDGED: Duration = Duration::from_millis(4);
/// Bounds of the pause when others want the processor.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MOST: Duration = Duration::from_millis(3200);

/// The allowance. Times are counted from when the thread began. See the [module](self).
#[derive(Debug)]
pub struct Pace {
    /// Time of the last look.
    now: Duration,
    allowance: Duration,
    /// The excess of the last piece over the allowance, which the next allowance pays first.
    debt: Duration,
    /// Nothing is done before this.
    rests_until: Duration,
    round_began: Duration,
    pause: Duration,
    /// Processor time and elapsed time since the last judgement.
    got: Duration,
    took: Duration,
}

impl Pace {
    pub fn new() -> Self {
        Self {
            now: Duration::ZERO,
            allowance: Duration::ZERO,
            debt: Duration::ZERO,
            rests_until: Duration::ZERO,
            round_began: Duration::ZERO,
            pause: PAUSE,
            got: Duration::ZERO,
            took: Duration::ZERO,
        }
    }

    /// Whether a piece may be done at `now`.
    pub fn may_work(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.now);
        self.now = now;
        let earned = passed / SHARE;
        let paid = earned.min(self.debt);
        self.debt -= paid;
        self.allowance = (self.allowance + earned - paid).min(SAVED_UP);
        now >= self.rests_until && self.allowance > Duration::ZERO
    }

    /// Notes a piece of work with its processor time `got` and its elapsed time `took`.
    pub fn worked(&mut self, got: Duration, took: Duration) {
        self.debt += got.saturating_sub(self.allowance);
        self.allowance = self.allowance.saturating_sub(got);
        self.got += got;
        self.took += took;
        if self.got < JUDGED && self.took < 2 * JUDGED {
            return;
        }
        // Interrupts also take some of the time.
        if self.took > self.got + self.got / 4 {
            self.rests_until = self.now + self.pause;
            self.pause = (2 * self.pause).min(PAUSE_MOST);
        } else {
            self.pause = PAUSE;
        }
        (self.got, self.took) = (Duration::ZERO, Duration::ZERO);
    }

    /// Notes that a round is over.
    pub fn round_is_over(&mut self) {
        let next = (self.round_began + ROUND).max(self.now);
        self.rests_until = self.rests_until.max(next);
        self.round_began = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const PIECE: Duration = Duration::from_micros(500);

    /// The processor time spent from one time to another, if a piece takes `factor` times as long.
    fn spend(pace: &mut Pace, from: Duration, to: Duration, factor: u32) -> Duration {
        let (mut now, mut spent) = (from, Duration::ZERO);
        while now < to {
            if pace.may_work(now) {
                pace.worked(PIECE, factor * PIECE);
                now += factor * PIECE;
                spent += PIECE;
            } else {
                now += MS;
            }
        }
        spent
    }

    #[test]
    fn recompression_uses_at_most_an_eighth_of_a_processor() {
        let mut pace = Pace::new();
        let spent = spend(&mut pace, Duration::ZERO, 4000 * MS, 1);
        assert!(spent > 480 * MS && spent < 502 * MS, "{spent:?}");
        // After a long idle time the allowance is no more than the saved maximum.
        let spent = spend(&mut pace, 100_000 * MS, 100_010 * MS, 1);
        assert!(spent <= SAVED_UP, "{spent:?}");
    }

    #[test]
    fn recompression_pauses_on_a_busy_machine_and_resumes_on_a_quiet_one() {
        let mut pace = Pace::new();
        let spent = spend(&mut pace, Duration::ZERO, 20_000 * MS, 2);
        assert!(spent < 80 * MS, "{spent:?}");
        let spent = spend(&mut pace, 24_000 * MS, 28_000 * MS, 1);
        assert!(spent > 450 * MS, "{spent:?}");
    }

    #[test]
    fn a_round_takes_a_second_at_least() {
        let mut pace = Pace::new();
        let mut now = 10_000 * MS;
        assert!(pace.may_work(now));
        pace.round_is_over();
        let mut rounds = 0;
        while now < 20_000 * MS {
            if pace.may_work(now) {
                pace.round_is_over();
                rounds += 1;
            }
            now += MS;
        }
        assert!((9..=11).contains(&rounds), "{rounds}");
    }
}
